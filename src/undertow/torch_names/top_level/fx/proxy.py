"""What stands for the values of a program while it is traced: whatever is done with a Proxy becomes a node."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from undertow.tensor import Tensor

from .node import Node

if TYPE_CHECKING:
    from .tracer import Tracer


#: the class of that name in tracer.py, which puts it here: it makes Proxies
GraphAppendingTracer: Any = None


class TraceError(ValueError):
    """A program does something that depends on the values, which a trace does not have."""


class Proxy:
    """A value that is not known: the result of a node."""

    def __init__(self, node: Node, tracer: Tracer | None = None) -> None:
        self.node = node
        self.tracer: Any = GraphAppendingTracer(node.graph) if tracer is None else tracer

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found: list[Proxy] = []
        collect((args, kwargs or {}), found)
        if any([func is value for value in vars(Tensor).values()]):
            return found[0].tracer.create_proxy("call_method", func.__name__, args, kwargs or {})
        return found[0].tracer.create_proxy("call_function", func, args, kwargs or {})

    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        for instruction in dis.get_instructions(frame.f_code):
            if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
                return iter([operator.getitem(self, n) for n in range(instruction.argval)])
        return iter(self.tracer.iter(self))

    def __bool__(self) -> bool:
        return bool(self.tracer.to_bool(self))

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"


class Attribute(Proxy):
    """An attribute of a Proxy: a node if it is used as a value, the name of a method if it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def collect(value: Any, found: list[Proxy]) -> None:
    """The Proxies in nested arguments."""
    if isinstance(value, Proxy):
        found.append(value)
    elif isinstance(value, tuple | list):
        for item in value:
            collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            collect(item, found)
    elif isinstance(value, slice):
        collect((value.start, value.stop, value.step), found)


def operator_of(name: str) -> Callable[..., Any]:
    target = getattr(operator, name)

    def method(self: Proxy, *args: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, *args), {})

    return method


def reflected(name: str) -> Callable[..., Any]:
    target = getattr(operator, name)

    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    return method


BINARY = "add sub mul floordiv truediv mod pow lshift rshift and_ xor or_ matmul".split()
for _name in [*BINARY, *"eq ne lt gt le ge pos neg abs invert getitem".split()]:
    setattr(Proxy, f"__{_name.strip('_')}__", operator_of(_name))
for _name in BINARY:
    setattr(Proxy, f"__r{_name.strip('_')}__", reflected(_name))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
