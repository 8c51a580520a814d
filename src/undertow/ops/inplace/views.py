"""In-place view operations (`transpose_`, `squeeze_`, ...), which change how a tensor looks at its memory.

An in-place view operation is recorded whether or not grad mode is on: the elements stay where they are, so the tensor's
history must say how they are looked at now. On a view it adds a step to the view's replay; on a base it makes the
replays of existing views useless, and those find their elements by their places in memory instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.interface import Array
from undertow.graph.accumulate import keep_former
from undertow.graph.history import set_edge
from undertow.modes import Interceptor, current, in_state
from undertow.ops.declare import REGISTRY
from undertow.ops.inplace.checks import check_in_place
from undertow.ops.inplace.forms import described
from undertow.tensor import LEAF, Tensor, counter_of, current_edge, extra_of
from undertow.tensor.extra import DEFAULT
from undertow.tensor.version_counter import NO_COUNTER
from undertow.tensor.views import is_view

# ---- another look at the same memory


def in_place_view(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The in-place form of a view operation."""
    shown = name + "_"

    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.in_place_view(change, function, self, args, kwargs)
        check_in_place(self, shown)
        if is_view(self):
            _change_view(self, shown, function, args, kwargs)
        else:
            _change_base(self, shown, function, args, kwargs)
        return self

    return described(change, name, shown)


def _change_base(
    self: Tensor, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    leaf = self._edge is LEAF
    before = Tensor(self._array, self._xp, None if leaf else self._edge)
    result = run(function, True, before, args, kwargs)
    version = count_change(self, name)
    if leaf and geometry_changed(self._array, result._array):
        keep_former(self, name)
    self._array = result._array
    if not leaf:
        set_edge(self, result._edge)
    if version:
        extra_of(self).reshaped_at = version


def _change_view(
    self: Tensor, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    view: Any = self._extra.view  # type: ignore[union-attr]
    followed = view.creation is DEFAULT and self._edge is not LEAF
    recorded = followed and current_edge(self) is not None
    result = run(function, followed, self, args, kwargs)
    version = count_change(self, name)
    self._array = result._array
    view.replay = result._extra.view.replay  # type: ignore[union-attr]
    if recorded:  # without a history the version stays behind: the base may be made to require grad later
        view.version = version
        set_edge(self, result._edge)


def run(function: Callable[..., Any], recorded: bool, tensor: Tensor, args: Any, kwargs: Any) -> Tensor:
    return in_state(current().replace(grad_enabled=recorded, inference=False), function, tensor, *args, **kwargs)


def count_change(tensor: Tensor, name: str) -> int:
    """Count a version; its number (0 for inference tensors, which have none)."""
    counter = counter_of(tensor)
    counter.bump(name)
    return 0 if counter is NO_COUNTER else counter.value


def geometry_changed(old: Array, new: Array) -> bool:
    """Whether an array shows its memory in another way than the other does."""
    return bool(old.shape != new.shape or old.strides != new.strides)


METHODS: dict[str, Any] = {
    name + "_": in_place_view(name, REGISTRY[name].function)
    for name in ("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
}
