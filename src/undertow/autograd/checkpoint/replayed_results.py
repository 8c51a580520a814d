"""Operations whose results are known already: they record their node as always, and compute nothing."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from undertow.autograd.interceptors.stack import under
from undertow.modes import current
from undertow.ops.declare.lazy import lazy_function
from undertow.ops.declare.list_of_tensors import run_variadic
from undertow.ops.declare.templates import Build

#: the array (or tuple of arrays) that stands for the forward of the operation that is called
_known: ContextVar[Any] = ContextVar("undertow.known_results")


def call_with_known(function: Any, args: tuple[Any, ...], arrays: Any) -> Any:
    """What `function(*args)` returns and records, with `arrays` as its result; below all interceptors."""
    op = function.op
    token = _known.set(arrays)
    try:
        return under(None, _recording_function(op), *args)
    finally:
        _known.reset(token)


@functools.cache
def _recording_function(op: Any) -> Callable[..., Any]:
    """The operation's function, compiled with the known result in the place of its formula. Takes all arguments."""
    if op.kind == "variadic":
        twin = copy.copy(op)
        twin.forward = lambda *args: _known.get()
        return lambda tensors, *params: run_variadic(twin, current(), tensors, params)
    scope = op.function.__globals__
    found = _compiled(op, (), scope)
    if op.number:
        number = scope[f"{op.name}_number"]
        found.__globals__[f"{op.name}_number"] = _compiled(op, (op.number,), number.__globals__)
    return _by_position(op, found)


def _compiled(op: Any, numbers: tuple[str, ...], scope: dict[str, Any]) -> Any:
    build = _KnownResult(op, numbers)
    build.scope = {**scope, "known_result": _known.get}
    return lazy_function(build.name, f"<undertow {build.name} known>", build.scope, build.function_source)


def _by_position(op: Any, function: Any) -> Callable[..., Any]:
    if not op.keyword_only:
        return function

    def call(*args: Any) -> Any:
        named = dict(zip(op.ordered, args, strict=True))
        by_name = {name: named.pop(name) for name in op.ordered if name in op.keyword_only}
        return function(*named.values(), **by_name)

    return call


class _KnownResult(Build):
    """The compilation of an operation whose result is known."""

    def forward_expression(self) -> str:
        return "known_result()"
