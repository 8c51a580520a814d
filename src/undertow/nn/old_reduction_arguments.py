"""`size_average` and `reduce`: how the reduction of a loss was chosen before there was `reduction`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from undertow.graph.user_lines import warn_user

OLD = ("size_average", "reduce")


def reduction_of(size_average: bool | None, reduce: bool | None) -> str:
    """The reduction that the two old arguments ask for."""
    average, whole = (True if value is None else value for value in (size_average, reduce))
    found = "none" if not whole else "mean" if average else "sum"
    warn_user(
        f"size_average and reduce args will be deprecated, please use reduction='{found}' instead, which means the same"
    )
    return found


def takes_old_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with `reduction` that also understands the old arguments, given by name."""
    if set(OLD) & set(inspect.signature(function).parameters):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "size_average" in kwargs or "reduce" in kwargs:
            chosen = [kwargs.pop(name, None) for name in OLD]
            if chosen != [None, None]:
                kwargs["reduction"] = reduction_of(*chosen)
        return function(*args, **kwargs)

    call.__module__ = "undertow.nn.functional" if "." not in function.__qualname__ else function.__module__
    return call
