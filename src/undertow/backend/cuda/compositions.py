"""Functions of NumPy that are a few kernels one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, indexing, searching, sorting
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


def isclose(a: Any, b: Any, rtol: float = 1.0e-5, atol: float = 1.0e-8, equal_nan: bool = False) -> Any:
    if not all([is_taken(x) for x in (a, b)]):
        return NotImplemented
    space = a.namespace
    a, b = [x.astype(np.float64) if x.dtype.kind in "bui" else x for x in (a, b)]
    near = (space.abs(a - b) <= space.abs(b) * rtol + atol) & space.isfinite(b) | (a == b)
    return near | (space.isnan(a) & space.isnan(b)) if equal_nan else near


def is_taken(x: Any) -> bool:
    """Whether it is an array of the device, of numbers that these functions know."""
    return isinstance(x, device.array_type()) and x.dtype.kind in "buifc" and not dtypes.is_narrow(x.dtype)


def unique(
    ar: Array, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None,
    *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """The elements, sorted, each once; the host waits to know how many. Others than real ones, and rows: by NumPy."""
    rows = axis is not None and not (axis == 0 and ar.ndim == 1)
    if rows or return_index or not ar.size or ar.dtype.kind not in "uif" or not is_taken(ar):
        return NotImplemented
    space, flat = ar.namespace, ar.reshape(-1)
    order = sorting.argsort(flat, 0, "stable")
    if order is NotImplemented:
        return NotImplemented
    ordered = flat[order]
    rises = space.ones(flat.shape, bool)
    rises[1:] = ordered[1:] != ordered[:-1]
    if equal_nan and ar.dtype.kind == "f":
        rises[1:] &= ~(space.isnan(ordered[1:]) & space.isnan(ordered[:-1]))
    (starts,) = searching.nonzero(rises)
    found = [ordered[starts]]
    if return_inverse:
        inverse = space.empty(flat.shape, np.int64)
        inverse[order] = space.cumsum(rises.astype(np.int64)) - 1
        found.append(inverse.reshape(ar.shape))
    if return_counts:
        ends = space.full(starts.shape, flat.size, np.int64)
        ends[:-1] = starts[1:]
        found.append(ends - starts)
    return tuple(found) if len(found) > 1 else found[0]


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    given = element, test_elements
    if not all([is_taken(x) and x.size and x.dtype.kind in "uif" for x in given]) or element.dtype != given[1].dtype:
        return NotImplemented
    wanted = sorting.sort(test_elements.reshape(-1), 0)
    places = searching.searchsorted(wanted, element)
    if places is NotImplemented:
        return NotImplemented
    found = wanted[element.namespace.minimum(places, wanted.size - 1)] == element
    return ~found if invert else found


def infinity(sign: float) -> Callable[..., Any]:
    def function(x: Array, out: Any = None) -> Any:
        return NotImplemented if out is not None or not is_taken(x) or x.dtype.kind == "c" else x == sign * math.inf

    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isclose": isclose, "unique": unique, "isin": isin, "isposinf": infinity(1.0), "isneginf": infinity(-1.0),
    "round": round_to, "around": round_to, "partition": partition, "bincount": bincount, "sinc": sinc, "angle": angle,
    "trace": trace,
}  # fmt: skip
