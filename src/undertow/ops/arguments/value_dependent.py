"""Functions that may look at the values of their tensors: under vmap they are then called once for each example."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from undertow.modes import Interceptor, current


def example_by_example(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let vmap loop over the examples where the function cannot compute them all at once."""

    @functools.wraps(function)
    def whole_or_in_turn(*args: Any, **kwargs: Any) -> Any:
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.in_turn(whole_or_in_turn, args, kwargs)
        return function(*args, **kwargs)

    return whole_or_in_turn
