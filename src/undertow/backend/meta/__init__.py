"""The meta device: tensors with a shape, a dtype and strides, and no memory.

geometry  arrays at addresses where nothing is     outcomes  what a function would return
arrays    MetaArray
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from undertow.backend.cpu import cpu, sum_to
from undertow.backend.interface import Array, ArrayNamespace, Device, DType
from undertow.backend.meta.arrays import MetaArray, apply, copied_in, covered, empty_like, uncovered
from undertow.backend.meta.geometry import unmapped
from undertow.backend.meta.outcomes import outcome_of_operation
from undertow.errors import NoValuesError


class MetaStream:
    """The only stream of a device on which nothing happens."""

    def __init__(self, namespace: MetaNamespace) -> None:
        self.namespace, self.device = namespace, namespace.device

    def record_event(self, event: Any = None) -> Any:
        return event

    def wait_stream(self, other: Any) -> None:
        """There is nothing to wait for; and so below."""

    wait_event = wait_stream

    def synchronize(self) -> None:
        pass


class MetaNamespace(ArrayNamespace):
    """The array functions of the meta device."""

    def __init__(self) -> None:
        super().__init__(Device("meta"), cpu.module)
        self.ndarray = MetaArray
        MetaArray.namespace = self
        self.default_stream = MetaStream(self)
        for name, make in MAKERS.items():
            setattr(self, name, make)
        tricks = np.lib.stride_tricks
        self.lib = SimpleNamespace(
            stride_tricks=SimpleNamespace(as_strided=as_strided, sliding_window_view=tricks.sliding_window_view)
        )
        self.conj = cpu.conj
        self.finfo = cpu.finfo

    def current_stream(self) -> MetaStream:
        return self.default_stream

    def outcome_of(self, name: str, forward: Callable[..., Any], args: Any) -> Any:
        found: list[MetaArray] = []
        args = uncovered(list(args), found)
        return covered(outcome_of_operation(name, forward, args, [array._data for array in found]), [])

    def __getattribute__(self, name: str) -> Any:
        """The forward of an operation, as rules call it, is run whole where it asks for values."""
        found = object.__getattribute__(self, name)
        forward = None if name in KEPT_METHODS else getattr(found, "__func__", None)
        return found if forward is None else partial(self.call_forward, name, forward)

    def call_forward(self, name: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return forward(self, *args, **kwargs)
        except NoValuesError:
            return self.outcome_of(name, lambda xp, *values: forward(xp, *values[0], **values[1]), (list(args), kwargs))

    def take_over(self, array: Array) -> MetaArray:
        return MetaArray(empty_like(getattr(array, "_data", array)))


#: methods of the namespace that are no operations
KEPT_METHODS = {"__init__", "__class__", "__dict__", "__repr__", "current_stream", "take_over", "outcome_of",
                "call_forward", "define"}  # fmt: skip


# ---- functions that NumPy does not ask arrays about


def made(shape: Any, dtype: DType = float, order: str = "C") -> MetaArray:
    return MetaArray(copied_in(order, np.dtype(dtype), tuple(np.atleast_1d(shape).tolist())))


def full(shape: Any, fill_value: Any, dtype: DType = None, order: str = "C") -> MetaArray:
    dtype = np.result_type(getattr(fill_value, "dtype", fill_value)) if dtype is None else dtype
    return made(shape, dtype, order)


def arange(*args: Any, dtype: DType = None, **options: Any) -> MetaArray:
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    length = max(math.ceil((stop - start) / step), 0)
    dtype = np.arange(start, start + step, step).dtype if dtype is None else dtype
    return made((length,), dtype)


def eye(n: int, m: int | None = None, k: int = 0, dtype: DType = float, **options: Any) -> MetaArray:
    return made((n, n if m is None else m), dtype)


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: DType = None, **options: Any) -> Any:
    if isinstance(start, MetaArray) or isinstance(stop, MetaArray) or options:
        return apply("linspace", np.linspace, (start, stop, num, endpoint), {"dtype": dtype, **options})
    return made((num,), np.result_type(float, start, stop) if dtype is None else dtype)


def broadcast_to(array: Array, shape: Any) -> Array:
    return apply("broadcast_to", np.broadcast_to, (asarray(array), shape), {})


def as_strided(array: Array, *args: Any, **options: Any) -> Array:
    return apply("as_strided", np.lib.stride_tricks.as_strided, (array, *args), options)


def asarray(value: Any, dtype: DType = None, order: Any = None, copy: Any = None, **options: Any) -> Array:
    """The array itself where it is one of this device that fits; values are forgotten."""
    if not isinstance(value, MetaArray):
        found: list[MetaArray] = []
        value = uncovered(value, found)
        if found:
            value = covered(apply("stack", np.stack, (value,), {}), [])
        else:
            value = np.asarray(value)
            value = MetaArray(empty_like(value))
    if dtype is not None and value.dtype != dtype:
        value = value.astype(dtype)
    if order in ("C", "F") and not value.flags[order]:
        value = MetaArray(copied_in(order, value.dtype, value.shape))
    return value


def array(value: Array, dtype: DType = None, order: str = "K", copy: bool = True, **options: Any) -> MetaArray:
    value = asarray(value, dtype)
    return MetaArray(empty_like(value._data, order="K" if order is None else order))


def in_order(order: str) -> Callable[..., MetaArray]:
    return lambda value, dtype=None, **options: asarray(value, dtype, order)


def summed_to(array: MetaArray, shape: tuple[int, ...]) -> Array:
    if array.shape == tuple(shape):
        return array
    if array.size <= 1 << 16:
        return apply("sum_to", sum_to, (array, shape), {})
    return MetaArray(unmapped(shape, array.dtype))


MAKERS: dict[str, Callable[..., Any]] = {
    "empty": made, "zeros": made, "ones": made, "full": full, "arange": arange, "eye": eye, "identity": eye,
    "linspace": linspace, "broadcast_to": broadcast_to, "asarray": asarray, "asanyarray": asarray, "array": array,
    "ascontiguousarray": in_order("C"), "asfortranarray": in_order("F"), "sum_to": summed_to,
}  # fmt: skip


def namespace() -> MetaNamespace:
    """The array functions of the meta device. There is one; undertow.backend keeps it."""
    return MetaNamespace()
