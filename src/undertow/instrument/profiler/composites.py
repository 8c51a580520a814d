"""When operations that are made of others begin and end: `matmul` around `mm`, `group_norm` around all that it takes.

A composite is a plain function (`@composite` in ops/declare) with nothing in front of it, which costs nothing while
nobody looks. Python itself says when one is entered and left: `sys.monitoring` for these functions alone, which no
other function notices (monitoring.py). Python 3.11 does not have that: there, what these functions run is exchanged
while a profile looks on (stand_ins.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import cache
from types import CodeType, FrameType, FunctionType
from typing import Any

from undertow.autograd.interceptors.observer import name_of
from undertow.compiled import core
from undertow.ops.declare.op import REGISTRY, Op
from undertow.scopes import common_lock, held
from undertow.tensor.torch_function import python_function

#: called with an operation, when it began, and a frame with its arguments, which is about to end
Ended = Callable[[Op, int, FrameType], None]

#: what is told of the composites of a thread, if somebody wants to be
listener_of_thread: ContextVar[Ended | None] = ContextVar("undertow.profiler.composites", default=None)


@cache
def composites() -> dict[CodeType, tuple[FunctionType, Op]]:
    """The composites that are called something, by what Python runs for them."""
    found: dict[CodeType, tuple[FunctionType, Op]] = {}
    ops = {id(op): op for op in REGISTRY.values()}.values()
    names = {name_of(op) for op in ops if op.kind != "composite"}
    for op in ops:
        if op.kind == "composite" and is_shown(op, names):
            public: Any = python_function(op.function)
            function: Any = inspect.unwrap(public)
            if function.__code__ in found:  # made by the same factory: told apart by the name
                function.__code__ = function.__code__.replace(co_name=op.name)
            found[function.__code__] = function, op
            if core is not None and isinstance(op.function, core.Shortcut):
                op.function.show(op.name)
    return found


def is_shown(op: Op, names: set[str]) -> bool:
    """Whether a profile has a row for a composite; `names` are those of operations that are not made of others."""
    if op.name.startswith("_") or op.name == "getitem":  # PyTorch shows what indexing is made of
        return False
    only_sorts_its_arguments = core is not None and isinstance(op.function, core.Shortcut)
    return not (only_sorts_its_arguments and op.name in names)


class Switch:
    """Lets listeners be told of composites, as long as there are some. Listeners of several threads share it."""

    def __init__(self) -> None:
        self.listeners = 0  # guarded, as what the two methods below keep, by the common lock

    def turn_on(self) -> None:
        """Called for each listener: it may be on already."""
        raise NotImplementedError

    def turn_off(self) -> None:
        raise NotImplementedError

    def listen(self, ended: Ended) -> Token[Ended | None]:
        """Have `ended` told of the composites of this thread, and of what inherits its context."""
        with held(common_lock):
            self.listeners += 1
            try:
                self.turn_on()
            except BaseException:
                self._one_less()
                raise
        return listener_of_thread.set(ended)

    def forget(self, token: Token[Ended | None]) -> None:
        listener_of_thread.reset(token)
        with held(common_lock):
            self._one_less()

    def _one_less(self) -> None:
        self.listeners -= 1
        if self.listeners == 0:
            self.turn_off()
