"""What functions that others call can say of themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def async_execution(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function that others call return a Future: they are answered when that has its result.

    So a call that has to wait for others keeps no thread.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = wrapper  # type: ignore[attr-defined]
    return wrapper
