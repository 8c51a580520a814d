"""New arrays on a GPU: like others, filled, copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, tail
from undertow.backend.interface import Array, DType


def strides_like(x: Array, dtype: np.dtype[Any], order: str = "K") -> tuple[int, ...] | None:
    """Strides that keep the order in memory of an array's dimensions; None for rows."""
    if order == "F" or (order == "A" and x.flags.fnc):
        wanted = list(range(x.ndim))[::-1]
    elif order != "K" or x.is_contiguous:
        return None
    else:
        wanted = sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))
    strides, step = [0] * x.ndim, dtype.itemsize
    for d in reversed(wanted):
        strides[d] = step
        step *= max(x.shape[d], 1)
    return tuple(strides)


def empty_like(x: Array, dtype: DType = None, order: str = "K", subok: bool = True, shape: Any = None) -> Array:
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    if shape is not None:
        return device.extension().empty(tuple(np.atleast_1d(shape).tolist()), dtype)
    strides = strides_like(x, dtype, order)
    return device.extension().empty(x.shape, dtype, *(() if strides is None else (strides,)))


def zeros_like(x: Array, dtype: DType = None, order: str = "K", subok: bool = True, shape: Any = None) -> Array:
    return device.extension().zero(empty_like(x, dtype, order, subok, shape))


def full_like(
    x: Array, fill_value: Any, dtype: DType = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Array:
    return filled(empty_like(x, dtype, order, subok, shape), fill_value)


def ones_like(x: Array, dtype: DType = None, order: str = "K", subok: bool = True, shape: Any = None) -> Array:
    return filled(empty_like(x, dtype, order, subok, shape), 1)


def is_number_of(value: Any, dtype: DType) -> bool:
    """Whether a value is a number of Python's that the dtype holds as it is, or rounded."""
    if type(value) is bool:
        return True
    return type(value) in (int, float) if dtype.kind in "fc" else type(value) is int and fits(value, dtype)


def fits(value: int, dtype: DType) -> bool:
    return dtype.kind in "iu" and bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def filled(array: Array, value: Any) -> Array:
    """Write one value everywhere."""
    if type(value) in (bool, int, float) or isinstance(value, np.generic):
        if value == 0 and array.dtype.kind in "bui" and array.is_contiguous:
            return device.extension().zero(array)
        return array.namespace.fill_kernel(array, value if array.dtype.kind != "b" else bool(value), array)
    if not tail.is_device_array(value):
        value = array.namespace.asarray(np.asarray(value).astype(array.dtype))
    copyto(array, value, casting="unsafe")
    return array


def copied(x: Array, order: str = "K") -> Array:
    out = empty_like(x, order=order or "K")
    x.namespace.copy_kernel(x, out)
    return out


def copyto(to: Array, value: Array, casting: Any = "same_kind", where: Any = True) -> Any:
    space = to.namespace
    if not tail.is_device_array(value):
        value = space.asarray(np.asarray(value), to.dtype)
    if not np.can_cast(value.dtype, to.dtype, casting) and not dtypes.is_narrow(to.dtype):
        raise TypeError(f"Cannot cast array data from {value.dtype} to {to.dtype} according to the rule '{casting}'")
    if not to.is_writeable:
        raise ValueError("assignment destination is read-only")
    if where is not True:
        value = space.where(where, value.astype(to.dtype, copy=False), to)
    while value.ndim > to.ndim and value.shape[0] == 1:
        value = value[0]
    if value.ndim > to.ndim:
        raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {to.shape}")
    if value.dtype == to.dtype:
        space.copy_kernel(value, to)
    elif dtypes.is_narrow(to.dtype) or to.dtype.kind in "buifc":
        space.cast_to(to.dtype)(value, to)
    else:
        return NotImplemented
    return None
