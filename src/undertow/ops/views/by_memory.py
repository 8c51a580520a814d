"""The same view found again: by its places in memory, and of another tensor."""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.ops.pointwise.complex import _view_as_complex, pairs_of_parts, view_as_real
from undertow.ops.views.as_strided import Geometry, _as_strided, geometry_of, layout_of, order_of
from undertow.tensor import Tensor
from undertow.tensor.views import Replay, current_replay, is_view


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
    """How the base lies in memory, if the replay depends on that; if not, in which order its elements do.

    A view of several dimensions as one, for example, can only be taken where these lie one behind the other. None is
    row by row.
    """
    return layout_of(base) if replay.sees_memory() else order_of(base)


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


METHODS: dict[str, Any] = {"_view_func": view_func}
