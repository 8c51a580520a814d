from __future__ import annotations

from typing import Any

from undertow import Operation, OpMode
from undertow.modes import current

from .._ops import OVERLOADS, overload_of, recorded
from .._undertow import forward

__getattr__ = forward("autograd.", "")


class TorchDispatchMode(OpMode):
    """A mode below autograd: what it is shown has been recorded already, and its call gives the result of that."""

    def on_operation(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str.__str__(op)
        func = overload_of(name, OVERLOADS.get(name, "default"))
        token = recorded.set((func, args, op(*args, **kwargs)))
        try:
            return self.__torch_dispatch__(func, (), args, kwargs)
        finally:
            recorded.reset(token)


def _get_current_dispatch_mode() -> Any:
    """What stands between a function and its operations, which in undertow is an interceptor."""
    return current().intercept
