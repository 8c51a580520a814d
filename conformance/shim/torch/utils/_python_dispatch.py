from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from undertow import Operation, OpMode
from undertow.autograd.graph import saved_tensors_hooks
from undertow.modes import current

from .._ops import OVERLOADS, overload_of, recorded
from .._undertow import forward

__getattr__ = forward("autograd.", "")


class TorchDispatchMode(OpMode):
    """A mode below autograd: what it is shown has been recorded already, and its call gives the result of that.

    But saved-tensor hooks are shown inputs before it is shown the operation, and results after that; and it is shown
    the operations of these hooks.
    """

    def on_operation(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str.__str__(op)
        func = overload_of(name, OVERLOADS.get(name, "default"))
        saving = Saving(current().saved_hooks, args, self)
        with saving.hooks():
            result = op(*args, **kwargs)
        token = recorded.set((func, args, result))
        try:
            shown = self.__torch_dispatch__(func, (), args, kwargs)
        finally:
            recorded.reset(token)
        saving.save_results()
        return shown


class Saving:
    """Saved-tensor hooks (pairs of functions, of which the last counts) in a mode; they get results when asked to."""

    def __init__(self, hooks: tuple[Any, ...], inputs: tuple[Any, ...], mode: OpMode) -> None:
        self._hooks, self._inputs, self._mode = hooks, inputs, mode
        self._results: list[list[Any]] = []

    def hooks(self) -> Any:
        return saved_tensors_hooks(self._pack, self._unpack) if self._hooks else nullcontext()

    def _pack(self, tensor: Any) -> list[Any]:
        if any(tensor is given for given in self._inputs):
            return [self._packed(tensor)]
        self._results.append([tensor])
        return self._results[-1]

    def _packed(self, tensor: Any) -> Any:
        with self._mode:
            return self._hooks[-1][0](tensor)

    def _unpack(self, saved: list[Any]) -> Any:
        return self._hooks[-1][1](saved[0])

    def save_results(self) -> None:
        for saved in self._results:
            saved[0] = self._packed(saved[0])
        self._results.clear()


def _get_current_dispatch_mode() -> Any:
    """What stands between a function and its operations, which in undertow is an interceptor."""
    return current().intercept
