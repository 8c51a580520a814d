"""When operations that are made of others begin and end: `matmul` around `mm`, `group_norm` around all that it takes.

A composite is a plain function (`@composite` in ops/declare) behind a gate, as every function that programs call is:
see Note [Functions that ask] in tensor/torch_function.py. While a profile is under way, gates also time what is behind
them, in C where the profile writes down nothing but times.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import cache
from time import perf_counter_ns
from typing import Any

from undertow.autograd.interceptors.observer import name_of
from undertow.compiled import core
from undertow.ops.declare.op import REGISTRY, Op
from undertow.scopes import common_lock, held, put_back
from undertow.tensor.torch_function import LOOKING_ON, python_function

#: called with an operation, when it began, its arguments, in the order of its parameters, and its result
Ended = Callable[[Op, int, list[Any], Any], None]

#: what is told of the composites of a thread, if somebody wants to be
listener_of_thread: ContextVar[Ended | None] = ContextVar("undertow.profiler.composites", default=None)


@cache
def composites() -> dict[Any, Op]:
    """The composites that are called something, by what programs know them by."""
    ops = {id(op): op for op in REGISTRY.values()}.values()
    names = {name_of(op) for op in ops if op.kind != "composite"}
    return {op.function: op for op in ops if op.kind == "composite" and is_shown(op, names)}


def is_shown(op: Op, names: set[str]) -> bool:
    """Whether a profile has a row for a composite; `names` are those of operations that are not made of others."""
    if op.name.startswith("_") or op.name == "getitem":  # PyTorch shows what indexing is made of
        return False
    if op.random == "new":  # told of by `draw` of an interceptor
        return False
    only_sorts_its_arguments = core is not None and isinstance(op.function, core.Shortcut)
    return not (only_sorts_its_arguments and op.name in names)


def look_on(public: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function behind a gate, and tell the listener of this thread. C calls this, too (csrc/call/gate.c)."""
    ended = listener_of_thread.get()
    op = None if ended is None else composites().get(public)
    if ended is None or op is None:
        return function(*args, **kwargs)
    begin = perf_counter_ns()
    result = function(*args, **kwargs)
    ended(op, begin, in_order_of_parameters(public, args, kwargs), result)
    return result


def in_order_of_parameters(public: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a call, None for those left out; without what `*rest` took."""
    positional, named = parameters_of(public)
    given = args[: len(positional)]
    return [*given, *[kwargs.get(name) for name in (*positional[len(given) :], *named)]]


@cache
def parameters_of(public: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of parameters, and of those that are given by name only."""
    function: Any = inspect.unwrap(python_function(public))  # type: ignore[arg-type]
    code = function.__code__
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[:first], code.co_varnames[first:last]


class Gates:
    """Lets listeners be told of composites, as long as there are some. Listeners of several threads share the gates."""

    def __init__(self) -> None:
        self.listeners: list[Ended] = []  # guarded by the common lock, as is what the gates show

    def listen(self, ended: Ended) -> Token[Ended | None]:
        """Have `ended` told of the composites of this thread, and of what inherits its context."""
        with held(common_lock):
            self.listeners.append(ended)
            if len(self.listeners) == 1:
                self.show(True)
        return listener_of_thread.set(ended)

    def forget(self, ended: Ended, token: Token[Ended | None] | None) -> None:
        """Tell it no more, if it is told."""
        put_back(listener_of_thread, ended, token, None)
        with held(common_lock):
            if ended in self.listeners:
                self.listeners.remove(ended)
                if not self.listeners:
                    self.show(False)

    def show(self, are_shown: bool) -> None:
        if core is not None:
            for public, op in composites().items():
                public.show(op.name if are_shown else None)
        elif are_shown:
            LOOKING_ON.append(look_on)
        else:
            LOOKING_ON.clear()


if core is not None:
    core.bind(look_on=look_on)
