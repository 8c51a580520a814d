"""Composites in Python 3.11: while somebody listens, their functions run a stand-in, which times the function itself.

A function stays the object that modules have imported; only its `__code__` is exchanged, for one that takes the same
parameters, so that its signature stays what it is. `sys.setprofile` would tell of these calls too, but of all others as
well, which slows the whole program down, and there is only one for debuggers, coverage and us.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache
from time import perf_counter_ns
from types import CodeType, FunctionType
from typing import Any

from undertow.compiled import core
from undertow.instrument.profiler.composites import Switch, composites, listener_of_thread
from undertow.ops.declare.op import Op

# Constants of a code may be any objects: "facts" becomes those of one composite. Its own globals are of no use here,
# because the code runs with the globals of the function that it stands in for.
#
# Python's frames must find the variables of outer functions where the code says that they are, so it mentions as many.
SOURCE = """
def outer():
    {cells} = None
    def stand_in({parameters}):
        _itself, _op, _name, _clock, _written, _listener, _frame = "facts"
        _begin = _clock()
        _result = _itself({arguments})
        if not _written(_name, _begin):
            _ended = _listener()
            if _ended is not None:
                _ended(_op, _begin, _frame())
        return _result
        {mentioned}
    return stand_in
"""


class StandIns(Switch):
    """The exchange of codes."""

    def turn_on(self) -> None:
        for function, _, stand_in in codes():
            function.__code__ = stand_in

    def turn_off(self) -> None:
        for function, code, _ in codes():
            function.__code__ = code


@cache
def codes() -> list[tuple[FunctionType, CodeType, CodeType]]:
    """All composites: their functions, what they run, and what stands in for it."""
    return [(function, code, stand_in_of(code, function, op)) for code, (function, op) in composites().items()]


def stand_in_of(code: CodeType, function: FunctionType, op: Op) -> CodeType:
    itself = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    facts = itself, op, op.name, perf_counter_ns, written_by_core, listener_of_thread.get, sys._getframe
    made = shape_of_stand_in(*parameters_and_arguments(code), len(code.co_freevars))
    return made.replace(
        co_consts=tuple([facts if value == "facts" else value for value in made.co_consts]),
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )


def leave_to_python(name: str, begin: int) -> bool:
    return False


#: writes the row of a composite, if it is one that the compiled core may write
written_by_core = leave_to_python if core is None else core.composite_ran


@cache
def shape_of_stand_in(parameters: str, arguments: str, outer: int) -> CodeType:
    names = [f"_cell_{n}" for n in range(outer)]
    cells, mentioned = " = ".join(names or ["_"]), ", ".join(names or ["None"])
    scope: dict[str, Any] = {}
    exec(SOURCE.format(parameters=parameters, arguments=arguments, cells=cells, mentioned=mentioned), scope)
    code: CodeType = scope["outer"]().__code__
    return code


def parameters_and_arguments(code: CodeType) -> tuple[str, str]:
    """What stands in the head of a function, and what hands all of it on."""
    names = iter(code.co_varnames)
    positional = [next(names) for _ in range(code.co_argcount)]
    named = [next(names) for _ in range(code.co_kwonlyargcount)]
    rest = [f"*{next(names)}"] if code.co_flags & inspect.CO_VARARGS else []
    by_name = [f"**{next(names)}"] if code.co_flags & inspect.CO_VARKEYWORDS else []
    only = [f"{name}={name}" for name in named]
    head = [*positional[: code.co_posonlyargcount], *(["/"] if code.co_posonlyargcount else [])]
    head += [*positional[code.co_posonlyargcount :], *(rest or (["*"] if named else [])), *named, *by_name]
    return ", ".join(head), ", ".join([*positional, *rest, *only, *by_name])
