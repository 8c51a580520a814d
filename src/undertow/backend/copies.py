"""Copies of arrays: large ones are divided among threads (csrc/kernels/copies.c), as are casts of them.

Casts of half precision are the core's at any size (csrc/kernels/casts.c)."""

from __future__ import annotations

import numpy as np

from undertow.backend.interface import Array, DType
from undertow.compiled import core, twin

#: elements of a large array
MANY = 1 << 15


@twin
def copied(array: Array, order: str = "K") -> Array:
    """array.copy(order)"""
    if core is not None and type(array) is np.ndarray and array.size >= MANY:
        made = core.copied(array, order)
        if made is not None:
            return made
    return array.copy(order=order)


def cast(array: Array, dtype: DType) -> Array:
    """array.astype(dtype)"""
    if core is not None and type(array) is np.ndarray:
        made = core.converted(array, dtype)
        if made is not None:
            return made
    return array.astype(dtype)
