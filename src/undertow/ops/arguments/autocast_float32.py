"""Functions of several operations that autocast computes in float32 as a whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from undertow.modes import Interceptor, current


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Under autocast, let the function have float32 for tensors of lower precision, and no autocast inside."""

    @functools.wraps(function)
    def widened_first(*args: Any, **kwargs: Any) -> Any:
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.in_float32(function, args, kwargs)
        return function(*args, **kwargs)

    return widened_first
