"""In-place view operations (`transpose_`, `squeeze_`, ...), which change how a tensor looks at its memory.

An in-place view operation is recorded whether or not grad mode is on: the elements stay where they are, so the tensor's
history must say how they are looked at now. On a view it adds a step to the view's replay; on a base it makes the
replays of existing views useless, and those find their elements by their places in memory instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.graph.history import set_edge
from undertow.modes import Interceptor, current, in_state
from undertow.ops.declare import REGISTRY
from undertow.ops.inplace.forms import check_in_place, described
from undertow.ops.pointwise.complex import _view_as_complex, pairs_of_parts, view_as_real
from undertow.ops.views.as_strided import Geometry, _as_strided, geometry_of, layout_of
from undertow.tensor import LEAF, Tensor, counter_of, current_edge, extra_of
from undertow.tensor.extra import DEFAULT
from undertow.tensor.version_counter import NO_COUNTER
from undertow.tensor.views import Replay, current_replay

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
    self._array = result._array
    if leaf:
        _reshape_accumulation(self)
    else:
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


def is_view(tensor: Tensor) -> bool:
    return tensor._extra is not None and tensor._extra.view is not None


def count_change(tensor: Tensor, name: str) -> int:
    """Count a version; its number (0 for inference tensors, which have none)."""
    counter = counter_of(tensor)
    counter.bump(name)
    return 0 if counter is NO_COUNTER else counter.value


def _reshape_accumulation(leaf: Tensor) -> None:
    """Let the gradient of a leaf whose shape was changed under no_grad have the new shape."""
    accumulate = None if leaf._extra is None or leaf._extra.accumulate is None else leaf._extra.accumulate()
    if accumulate is not None:
        accumulate.shape, accumulate.dtype = leaf._array.shape, leaf._array.dtype


METHODS: dict[str, Any] = {
    name + "_": in_place_view(name, REGISTRY[name].function)
    for name in ("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
}


# ---- by memory


def by_memory(tensor: Tensor) -> Replay:
    """One as_strided step; between complex numbers and their parts, on those."""
    xp, base = tensor._xp, tensor._extra.view.base  # type: ignore[union-attr]
    mine, memory = tensor._array, base._array
    if mine.dtype == memory.dtype:
        return _strided_step(xp, None, mine, memory)
    if memory.dtype.kind == "c":
        return _strided_step(xp, Replay(None, view_as_real, (), None), mine, pairs_of_parts(xp, memory))
    return Replay(_strided_step(xp, None, pairs_of_parts(xp, mine), memory), _view_as_complex, (), None)


def _strided_step(xp: Namespace, before: Replay | None, mine: Array, memory: Array) -> Replay:
    """The step that finds the elements of `mine` in the memory that `memory` shows."""
    found, source = geometry_of(xp, mine), geometry_of(xp, memory)
    if not found.lies_in(source, xp):
        return Replay(None, _refuse_lost, (), None)
    return Replay(before, _as_strided, (found.shape, found.strides, found.offset, source), None)


def _refuse_lost(base: Tensor) -> Tensor:
    """In place of the replay of a view that shows more than its base does by now."""
    raise RuntimeError(
        "this view shows memory that its base, since an in-place view operation (as_strided_), no longer shows: the "
        "history of those elements cannot be found again. Take the view of a clone(), or use as_strided."
    )


def layout_for(replay: Replay, base: Tensor) -> Geometry | None:
    """How the base lies in memory, if the replay depends on that."""
    return layout_of(base) if replay.sees_memory() else None


# ---- the same view of another tensor


def view_func(self: Tensor, new_base: Tensor) -> Tensor | None:
    """The same view of another tensor; None if this is no view, or the tensor does not lie in memory as its base does.

    >>> import undertow as ut
    >>> row = ut.zeros(2, 3)[1]
    >>> row._view_func(ut.ones(2, 3))
    tensor([1., 1., 1.])
    """
    if not is_view(self):
        return None
    base = self._extra.view.base  # type: ignore[union-attr]
    if geometry_of(base._xp, base._array) != geometry_of(new_base._xp, new_base._array):
        return None
    return current_replay(self)(new_base)


METHODS["_view_func"] = view_func
