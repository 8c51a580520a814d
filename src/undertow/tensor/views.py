"""Views: which tensor's memory a tensor shows, and how to look at it again."""

from __future__ import annotations

from typing import Any

from undertow.tensor.metadata import CUSTOM_FUNCTION as CUSTOM_FUNCTION
from undertow.tensor.metadata import DEFAULT, INFERENCE, MULTIPLE_OUTPUTS, NO_GRAD, Extra, View
from undertow.tensor.tensor import Tensor, version_of


class Replay:
    """A chain of view operations; calling it on a tensor shaped as the base gives the same view of that tensor."""

    __slots__ = ("steps",)

    def __init__(self, steps: tuple[Any, ...]) -> None:
        self.steps = steps

    def __call__(self, base: Tensor) -> Tensor:
        for function, arguments, output in self.steps:
            base = function(base, *arguments)
            if output is not None:
                base = base[output]  # type: ignore[index]
        return base


def attach_view(result: Any, source: Tensor, function: Any, arguments: tuple[Any, ...], state: Any) -> None:
    """Mark `result` (a tensor, or a tuple of them) as made by the view operation `function(source, *arguments)`."""
    view = None if source._extra is None else source._extra.view
    if view is None:
        base, steps, creation = source, (), DEFAULT
    else:
        base, steps, creation = view.base, view.replay.steps, view.creation
    if creation is DEFAULT and not state.grad_enabled:
        creation = INFERENCE if state.inference else NO_GRAD
    version = 0 if base._extra is None else version_of(base)
    if type(result) is tuple:
        creation = MULTIPLE_OUTPUTS if creation is DEFAULT else creation
        for nr, tensor in enumerate(result):
            extra = tensor._extra = Extra()
            extra.view = View(base, Replay((*steps, (function, arguments, nr))), creation, version)
        return
    extra = result._extra = Extra()
    extra.view = View(base, Replay((*steps, (function, arguments, None))), creation, version)
