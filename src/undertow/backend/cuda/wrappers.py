"""How functions of NumPy become functions of a GPU's namespace, where they have no kernel of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, fused, making, tail, views
from undertow.backend.interface import Array, DType


def has_arrays(value: Any) -> bool:
    if type(value) in (tuple, list):
        return any([has_arrays(v) for v in value])
    return tail.is_device_array(value)


#: what NumPy computes with by itself
ON_HOST = (int, float, complex, np.generic, np.ndarray)


def learn(dtype: np.dtype[Any]) -> None:
    """Tell the extension of bfloat16, whose number NumPy gives when ml_dtypes is imported."""
    if dtype.kind == "V" and dtypes.is_bfloat16(dtype):
        device.extension().set_bfloat16(dtype)


def without_detour(own: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy by our own of that name, if that serves: NumPy would look for it among its arguments."""

    def call(*args: Any, **options: Any) -> Any:
        if args and (tail.is_device_array(args[0]) or function in LISTS):
            found = own(*args, **options)
            if found is not NotImplemented:
                return found
        return function(*args, **options)

    return call


#: functions whose first argument is a list of arrays, or may be anything
LISTS = (np.concatenate, np.stack, np.where)


def on_host(ufunc: Array) -> Callable[..., Any]:
    """What computes a ufunc where its kernel does not serve."""

    def call(operands: Any, out: Any) -> Any:
        if out is None and all([isinstance(x, ON_HOST) and not np.ndim(x) for x in operands]):
            return ufunc(*operands)  # of numbers alone
        if out is None:
            return tail.on_host(ufunc.__name__, ufunc, operands, {})
        return tail.on_host(ufunc.__name__, ufunc, operands, {"out": out}, [out])

    return call


def cast_on_host(dtype: np.dtype[Any]) -> Callable[..., Any]:
    def call(operands: Any, out: Any) -> Any:
        if out is not None:
            refuse(f"cast to {dtype}")(operands, out)
        return tail.on_host("astype", np.ndarray.astype, (operands[0], dtype), {})

    return call


def refuse(name: str) -> Callable[..., Any]:
    def call(operands: Any, out: Any) -> Any:
        raise TypeError(
            f"{name} on cuda: there is no kernel for {operands[0]!r}" + ("" if out is None else f" to {out!r}")
        )

    return call


def made_on_host(space: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes an array from numbers: computed on the host, and copied."""

    def make(*args: Any, **options: Any) -> Any:
        args = tuple([a.item() if tail.is_device_array(a) else a for a in args])
        made = function(*args, **options)
        space.here()
        return tail.sent(made, {})

    return make


def arange(space: Any, *args: Any, dtype: DType = None, **options: Any) -> Array:
    """Whole numbers are counted on the device; others are computed as NumPy does."""
    kind = "i" if dtype is None else np.dtype(dtype).kind
    if options or len(args) > 3 or kind not in "iu" or not all([type(a) is int for a in args]):
        named = options if dtype is None else {"dtype": dtype, **options}
        return made_on_host(space, np.arange)(*args, **named)
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    out = space.here().empty((len(range(start, stop, step)),), np.dtype(np.int64))
    fused.count(out, start, step)
    return out if dtype is None else out.astype(dtype, copy=False)


def strided_view(function: Callable[..., Any], x: Array, *args: Any, **options: Any) -> Array:
    return views.of(x, function, (x, *args), options)


def in_order(x: Array, order: str | None) -> Array:
    if order == "F":
        return x if x.is_contiguous_by_columns else making.copied(x, "F")
    return x if x.is_contiguous else making.copied(x, "C")


def conj(space: Any, x: Array) -> Any:
    if isinstance(x, ON_HOST):
        return np.conjugate(x) if np.iscomplexobj(x) else x
    return space.conjugate(x) if x.dtype.kind == "c" else x
