"""What NumPy does about floating-point errors while undertow computes: nothing.

Note [Silence]: `log(0)`, `1 / 0` and overflows give infinities and NaN, and nobody speaks of it, as in PyTorch. NumPy
keeps what it does about them in a context variable that belongs to the program, whose own calls of NumPy go on to
warn. So the variable is set for the time of a computation, and only then: by `quietly`, and by csrc/quiet.c, which does
the same for ufuncs in a few instructions. A backward pass has a context of its own, in which it is set once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import numpy as np

from undertow.compiled import core
from undertow.scopes import Scope, call_with, set_value


def _errors_variable() -> ContextVar[Any]:
    """The ContextVar in which NumPy keeps how it treats floating-point errors (and the size of its buffers)."""
    context = copy_context()
    context.run(np.seterr)
    return next(variable for variable in context if variable.name == "numpy.ufunc.extobj")


errors_variable = _errors_variable()


class errstate(Scope):
    """np.errstate, whose end no interrupt can prevent; see scopes.py."""

    variable = errors_variable

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def inside(self, outer: Any) -> Any:
        context = copy_context()
        context.run(np.seterr, **self.changes)
        return context[errors_variable]


#: the value in which NumPy ignores them all
QUIET: Any = errstate(all="ignore").inside(None)


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns, while NumPy says nothing of infinities and NaN. See Note [Silence]."""
    outer = errors_variable.get()
    if outer is QUIET:
        return function(*args)
    if core is not None:
        return call_with(errors_variable, QUIET, function, *args)
    try:  # what `call_with` does, without another call
        errors_variable.set(QUIET)
        return function(*args)
    finally:
        errors_variable.set(outer)


_kept = copy_context()
_kept.run(errors_variable.set, QUIET)
#: run_in_kept_silence(function, *args): the same in a tenth of the time, for functions that look at no context variable
#: but NumPy's. A RuntimeError if it is in use: by another thread, or by what a signal's handler has interrupted
run_in_kept_silence: Callable[..., Any] = _kept.run


def be_quiet() -> None:
    """Let NumPy say nothing from now on, in this context."""
    set_value(errors_variable, QUIET)
