"""Pinned memory: the host's, which GPUs read and write by themselves, so that copies go on beside the program."""

from __future__ import annotations

import numpy as np

from undertow.backend.cuda import device as gpus
from undertow.backend.interface import Array, DType


def empty(shape: tuple[int, ...], dtype: DType) -> Array:
    """An array of NumPy's in pinned memory."""
    dtype = np.dtype(dtype)
    buffer = gpus.extension().pinned(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    return np.ndarray(shape, dtype, buffer)


def pinned(array: Array) -> Array:
    """The elements of an array of NumPy's in pinned memory: itself if they are there."""
    if is_pinned(array):
        return array
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def is_pinned(array: Array) -> bool:
    return gpus.is_started() and isinstance(array, np.ndarray) and bool(gpus.extension().is_pinned(array))


def fetch_later(array: Array) -> Array:
    """The elements of an array of a GPU in pinned memory, where they come to lie when its stream gets there."""
    rows = array.namespace.ascontiguousarray(array)
    made = empty(rows.shape, rows.dtype)
    return made if gpus.extension().copy_later(rows, made, False) else array.to_host()
