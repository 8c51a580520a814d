"""`torch.ops.aten`: an overload of an operation is its name, which is what undertow's checkpoint policies are given."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any

import undertow

#: operations whose usual overload is not called `default`
OVERLOADS = {"add": "Tensor", "sub": "Tensor", "mul": "Tensor", "div": "Tensor"}

#: the operation that a TorchDispatchMode is shown, its arguments and its result
recorded: ContextVar[Any] = ContextVar("torch.recorded", default=(None, (), None))


class OpOverload(str):
    overload: str

    @property
    def __name__(self) -> str:
        return f"{str.__str__(self)}.{self.overload}"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        func, shown, result = recorded.get()
        if func is self and len(args) == len(shown) and all(a is b for a, b in zip(args, shown, strict=True)):
            return result
        return getattr(undertow, str.__str__(self))(*args, **kwargs)


@functools.cache
def overload_of(name: str, overload: str) -> OpOverload:
    """One object for each, because modes compare them with `is`."""
    found = OpOverload(name)
    found.overload = overload
    return found


class OpOverloadPacket:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return overload_of(self._name, overload)


class _Namespace:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return OpOverloadPacket(name)


aten = _Namespace()
