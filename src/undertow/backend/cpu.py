"""The CPU backend: NumPy."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes, large_arrays
from undertow.backend.dtypes import is_narrow
from undertow.backend.interface import Array, ArrayNamespace, Device, DType
from undertow.backend.large_arrays import cast
from undertow.backend.silence import errstate, quietly
from undertow.compiled import core, twin

#: the core's own loops for elementary functions (csrc/formula/functions.c), in ufuncs by NumPy's names: the same for
#: arrays of all sizes, so that a number has one logarithm
FUNCTIONS: dict[str, Any] = {} if core is None else core.make_functions()

#: functions of NumPy that read their first argument twice (count, then write; find the largest, then use), without
#: Python's lock: another thread that changes it in between would have them write outside of memory. They get a copy.
READ_TWICE = ("argsort", "argpartition", "nonzero", "flatnonzero", "argwhere", "bincount")
#: the same, of their second argument
READ_INDEX_TWICE = ("take_along_axis", "put_along_axis")


def _of_a_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def careful(x: Any, *args: Any, **kwargs: Any) -> Any:
        return function(read_once(x), *args, **kwargs)

    return careful


def _at_a_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def careful(x: Array, indices: Array, *args: Any, **kwargs: Any) -> Any:
        return function(x, read_once(indices), *args, **kwargs)

    return careful


def read_once(x: Array) -> Array:
    """A copy of an index or a mask that NumPy is going to read twice; see READ_TWICE."""
    return x.copy(order="K") if type(x) is np.ndarray else x


class CpuNamespace(ArrayNamespace):
    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated names warn when they are merely looked at
            super().__init__(Device("cpu"), np)
        self.ndarray = np.ndarray
        self.errstate = errstate
        self.conj = _conj
        self.finfo = dtypes.float_limits
        self.astype = astype
        for name in ("matmul", "empty", "full", "ones", "reshape", "concatenate"):
            setattr(self, name, getattr(large_arrays, name))
        self.copyto = copyto
        for name in READ_TWICE:
            setattr(self, name, _of_a_copy(getattr(np, name)))
        for name in READ_INDEX_TWICE:
            setattr(self, name, _at_a_copy(getattr(np, name)))
        self.sum_to = sum_to
        self.broadcast_to = broadcast_to
        self.__dict__.update(FUNCTIONS)


def astype(x: Array, dtype: DType, /, *, copy: bool = True) -> Array:
    """np.astype; what is beyond the range of the dtype is infinite, without a warning."""
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return np.astype(x, dtype, copy=copy)
    return quietly(cast, x, dtype)


def copyto(target: Array, values: Array, casting: Any = "same_kind", where: Array = True) -> None:
    """np.copyto; what is beyond the range of the dtype is infinite, without a warning."""
    if getattr(values, "dtype", None) is target.dtype:
        np.copyto(target, values, casting, where)
    else:
        quietly(np.copyto, target, values, casting, where)


_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def _conj(x: Array) -> Any:
    # np.conj copies a real array; a real value is its own conjugate. The two identity tests answer in 50 ns.
    try:
        dtype = x.dtype
    except AttributeError:
        return x.conjugate() if type(x) is complex else x
    if dtype is _FLOAT32 or dtype is _FLOAT64:
        return x
    return np.conjugate(x) if dtype.kind == "c" else x


@twin
def broadcast_to(x: Array, shape: tuple[int, ...]) -> Array:
    """np.broadcast_to, in half its time for what is contiguous: it undoes every sum in a backward pass."""
    if type(shape) is tuple and x.flags.c_contiguous and -1 not in shape:  # np.ndarray would take -1 for 1
        strides = _broadcast_strides(x, shape)
        if strides is not None:
            out: Any = np.ndarray(shape, x.dtype, x, 0, strides)
            out.setflags(write=False)
            return out
    return np.broadcast_to(x, shape)


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether an array of `shape` can be broadcast to `target`."""
    if len(shape) > len(target):
        return False
    return all([n in (1, m) for n, m in zip(shape[::-1], target[::-1], strict=False)])


def _broadcast_strides(x: Array, shape: tuple[int, ...]) -> list[int] | None:
    """How to walk through x as if it had this shape; None if it cannot have it, or has no elements."""
    lead = len(shape) - x.ndim
    if lead < 0 or not x.size:
        return None
    strides = [0] * lead
    for n, wanted, stride in zip(x.shape, shape[lead:], x.strides, strict=True):
        if n != wanted and n != 1:
            return None
        strides.append(stride if n == wanted else 0)
    return strides


#: the most rows that `sum_to` multiplies by ones
_MANY = 4096


@functools.lru_cache(64)
def _ones(n: int, dtype: DType) -> Array:
    return np.ones(n, dtype)


@twin
def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
    """Sum `x` down to `shape`, which broadcasts to x's: the transpose of broadcasting."""
    if is_narrow(x.dtype):
        return astype(sum_to(x.astype(_FLOAT32), shape), x.dtype)
    lead = x.ndim - len(shape)
    if lead == 1 and x.ndim == 2 and x.shape[0] < _MANY and (x.dtype is _FLOAT32 or x.dtype is _FLOAT64):
        x = _ones(x.shape[0], x.dtype).dot(x)  # the gradient of a bias; BLAS adds up rows in a third of the time
    elif lead > 0:
        x = np.add.reduce(x, axis=tuple(range(lead)))
    if 1 in shape:
        axes = tuple([i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1])
        if axes:
            x = np.add.reduce(x, axis=axes, keepdims=True)
    return np.asarray(x)


cpu = CpuNamespace()
