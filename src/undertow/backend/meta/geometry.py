"""Arrays without memory: NumPy arrays that know shape, dtype and strides, at addresses where nothing is.

NumPy computes views (a slice, a transpose, a window) from shape, strides and address alone, so an array that must never
be read gives all views of itself, with the right strides. Every array gets addresses of its own, from a range that no
processor uses: two of them overlap exactly if one is a view of the other's memory.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.backend.interface import Array, DType

#: addresses from here on are never mapped
_FIRST = 1 << 60
_GAP = 64


class _Addresses:
    # Guards `next`.
    lock = threading.Lock()
    next = _FIRST

    def take(self, nbytes: int) -> int:
        with self.lock:
            found = self.next
            self.next = found + (nbytes + _GAP) // _GAP * _GAP + _GAP
        if self.next >= 1 << 62:
            raise MemoryError(f"an array of {nbytes} bytes is too large even without memory")
        return found


_addresses = _Addresses()


class _Holder:
    """What NumPy takes for the owner of memory."""

    __slots__ = ("__array_interface__",)

    def __init__(self, shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...], address: int) -> None:
        kind = dtype.str if dtype.kind != "V" else f"|V{dtype.itemsize}"
        self.__array_interface__ = {
            "shape": shape, "typestr": kind, "strides": strides, "data": (address, False), "version": 3,
        }  # fmt: skip


def unmapped(shape: Sequence[int], dtype: DType, strides: Sequence[int] | None = None) -> Array:
    """A new array of this shape; row-major, unless strides are given."""
    shape, dtype = tuple([int(n) for n in shape]), np.dtype(dtype)
    strides = dense_strides(shape, dtype.itemsize, range(len(shape))) if strides is None else tuple(strides)
    extent = dtype.itemsize + sum([abs(s) * (n - 1) for n, s in zip(shape, strides, strict=True) if n])
    start = _addresses.take(extent) - sum([s * (n - 1) for n, s in zip(shape, strides, strict=True) if s < 0 and n > 1])
    found = np.asarray(_Holder(shape, dtype, strides, start))
    return found if found.dtype == dtype else found.view(dtype)


def dense_strides(shape: Sequence[int], itemsize: int, outermost_first: Any) -> tuple[int, ...]:
    """The strides of an array without gaps whose axes follow each other in memory in that order."""
    strides, step = [0] * len(shape), itemsize
    for axis in reversed(list(outermost_first)):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def dense_like(small: Array, shape: Sequence[int], dtype: DType) -> Array:
    """A new array without gaps, whose axes lie in memory in the order of those of `small`."""
    order = sorted(range(len(shape)), key=lambda axis: (-abs(small.strides[axis]), axis))
    return unmapped(shape, dtype, dense_strides(shape, np.dtype(dtype).itemsize, order))


def shrunk(array: Array) -> Array:
    """An array of at most two elements along each axis, with the strides of `array`; it must not be read, either."""
    shape = tuple([min(n, 2) for n in array.shape])
    return np.asarray(_Holder(shape, np.dtype(np.int8), array.strides, _FIRST))


def order_of_elementwise(arrays: list[Array]) -> Array:
    """A small array whose axes are ordered as in the result of an elementwise function of these."""
    operands: Any = [*[shrunk(a) for a in arrays], None]
    flags: Any = [["readonly"]] * len(arrays) + [["writeonly", "allocate"]]
    return np.nditer(operands, ["zerosize_ok"], flags, [None] * len(arrays) + [np.dtype(np.int8)]).operands[-1]


#: sets of harmless values. Of integers: 0, which every index may be, or 0 and 1 by turns; of other numbers: those of a
#: matrix with roots and an inverse, of probabilities, and larger ones
VALUES: tuple[Callable[[Array], Any], ...] = (
    lambda x: heavy_diagonal(np.ones_like(x)) if x.dtype.kind in "fc" else np.zeros_like(x),
    lambda x: heavy_diagonal(1 + slope(x) / 128) if x.dtype.kind in "fc" else slope(x) % 2 != 0,
    lambda x: slope(x) % 7 / 9 if x.dtype.kind in "fc" else np.ones_like(x),
    lambda x: 5 + slope(x) / 128 if x.dtype.kind in "fc" else np.zeros_like(x),
)


def slope(x: Array) -> Array:
    """0, 1, 2, ... along the last two axes, in both directions, so that it is symmetric."""
    return sum(np.ogrid[tuple([slice(n) for n in x.shape[-2:]])]) if x.ndim else np.ones((), int)


def heavy_diagonal(x: Array) -> Array:
    return x + (1 + min(x.shape)) * np.eye(*x.shape) if x.ndim == 2 else x


def representative(array: Array, shape: Sequence[int] | None = None, values: int = 0) -> Array:
    """A real array with the shape (or another), dtype and strides of one without memory, and a set of VALUES."""
    if shape is None:
        strides = array.strides
    else:
        order = sorted(range(array.ndim), key=lambda axis: (-abs(array.strides[axis]), axis))
        strides = dense_strides(shape, array.itemsize, order)
        strides = tuple([s if old or n == 1 else 0 for s, old, n in zip(strides, array.strides, shape, strict=True)])
    shape = array.shape if shape is None else tuple(shape)
    steps = [s * (n - 1) for n, s in zip(shape, strides, strict=True) if n]
    start = -sum([s for s in steps if s < 0])
    extent = math.ceil((array.itemsize + sum([abs(s) for s in steps])) / array.itemsize)
    memory = np.zeros(extent, array.dtype)
    found = np.lib.stride_tricks.as_strided(memory[start // array.itemsize :], shape, strides)
    if found.size:
        matrix = found[(0,) * (found.ndim - 2)]
        found[...] = VALUES[values](np.empty(matrix.shape, array.dtype))
    return found


def bytes_needed(array: Array) -> int:
    """How much memory a representative of the array takes."""
    return int(array.itemsize + sum([abs(s) * (n - 1) for n, s in zip(array.shape, array.strides, strict=True) if n]))
