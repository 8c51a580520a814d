"""Functions of NumPy that are a few kernels one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import indexing, sorting
from undertow.backend.interface import Array

if TYPE_CHECKING:
    from undertow.backend.interface import DType


def round_to(a: Array, decimals: int = 0, out: Any = None) -> Any:
    if out is not None or a.dtype.kind != "f" or dtypes.is_narrow(a.dtype):
        return NotImplemented
    if decimals == 0:
        return a.namespace.rint(a)
    scale = float(10 ** abs(decimals))
    return a.namespace.rint(a * scale) / scale if decimals > 0 else a.namespace.rint(a / scale) * scale


def partition(a: Array, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Array:
    """Sorted, every element is where a partition would have put it."""
    return NotImplemented if order is not None else sorting.sort(a, axis)


def bincount(x: Array, /, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number from 0 on is there; the host waits to know the largest."""
    if x.ndim != 1 or x.dtype.kind not in "iu" or not x.size:
        return NotImplemented
    space = x.namespace
    if x.dtype.kind == "i" and int(space.min(x).item()) < 0:
        return NotImplemented  # NumPy's error
    length = max(int(space.max(x).item()) + 1, minlength)
    out = space.zeros(length, np.dtype(np.int64 if weights is None else np.float64))
    value = space.ones(x.shape, out.dtype) if weights is None else weights.astype(out.dtype, copy=False)
    return out if indexing.at(np.add, out, x, value) else NotImplemented


def sinc(x: Array) -> Any:
    if x.dtype.kind != "f" or dtypes.is_narrow(x.dtype):
        return NotImplemented
    space = x.namespace
    angle = space.where(x == 0, 1.0e-20, x) * math.pi
    return (space.sin(angle) / angle).astype(x.dtype, copy=False)


def angle(z: Array, deg: bool = False) -> Any:
    if deg or z.dtype.kind not in "fc" or dtypes.is_narrow(z.dtype):
        return NotImplemented
    return z.namespace.arctan2(z.imag, z.real)


def trace(
    a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DType | None = None, out: Any = None
) -> Any:
    if out is not None:
        return NotImplemented
    return np.diagonal(a, offset, axis1, axis2).sum(-1, dtype=dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "round": round_to, "around": round_to, "partition": partition, "bincount": bincount, "sinc": sinc, "angle": angle,
    "trace": trace,
}  # fmt: skip
