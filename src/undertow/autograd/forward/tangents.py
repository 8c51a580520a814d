"""Tangents of tensors: where they are kept, and how they are laid out in memory.

A tensor keeps its tangents in its Extra, one for each dual level, laid out as the tensor itself, so that the view
operations that work on the one work on the other. A view's tangent is a view of its base's tangent: a base that gets
one later shows it to its views, and a view that gets one first gives its base one that is zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.autograd.batched_tensor import BatchedTensor, physical, zeros_like_batch
from undertow.backend.interface import DType
from undertow.graph.node import node_extra
from undertow.ops import REGISTRY
from undertow.ops.inplace.methods import copy_
from undertow.ops.views.as_strided import geometry_of, memory_of
from undertow.tensor import LEAF, Tensor, extra_of
from undertow.tensor.extra import Tangents

if TYPE_CHECKING:
    from undertow.autograd.forward.level import DualLevel


def tangent_of(tensor: Tensor, level: DualLevel) -> Tensor | None:
    """The tensor's tangent at a dual level, or None."""
    extra = tensor._extra
    if extra is None:
        return None
    if extra.rare is not None and extra.rare.tangents is not None and level in extra.rare.tangents:
        own = extra.rare.tangents[level]
        return shown_by_base(tensor, level, own.base, own.replay) if type(own) is CutView else own
    view = extra.view
    if view is None or view.base._extra is None:
        return None
    return shown_by_base(tensor, level, view.base, view.replay)


def shown_by_base(tensor: Tensor, level: DualLevel, base: Tensor, replay: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The tangent that a view gets from that of its base, if there is one."""
    of_base = tangent_of(base, level)
    if of_base is None:
        return None
    tangent = level.below(replay, of_base)
    set_tangent(tensor, level, tangent)
    return tangent


class CutView:
    """In the place of a tangent: the tensor is a view of `base`, an alias that is cut off from its own base."""

    __slots__ = ("base", "replay")

    def __init__(self, base: Tensor, replay: Callable[[Tensor], Tensor]) -> None:
        self.base = base
        self.replay = replay


def levels_of(tensor: Tensor) -> list[Any]:
    """The dual levels at which the tensor has a tangent."""
    extra = tensor._extra
    if extra is None:
        return []
    own = extra.tangents or {}
    of_base = [] if extra.view is None else [d for d in levels_of(extra.view.base) if d not in own]
    return of_base + [level for level in list(own) if tangent_of(tensor, level) is not None]


def cut_of(tensor: Tensor, level: DualLevel) -> CutView | Any | None:
    """None: the tensor is an alias that has no tangent although its base may have one. A CutView: a view of such."""
    extra = tensor._extra
    rare = None if extra is None else extra.rare
    return ... if rare is None or rare.tangents is None else rare.tangents.get(level, ...)


def spread_cut(source: Tensor, level: DualLevel, view: Tensor, look: Callable[[Tensor], Tensor]) -> None:
    """Cut a view off, if what it is a view of is. `look` makes the one of the other."""
    cut = cut_of(source, level)
    if type(cut) is CutView:
        set_tangent(view, level, CutView(cut.base, lambda tangent: look(cut.replay(tangent))))
    elif cut is None:
        set_tangent(view, level, CutView(source, look))


def set_tangent(tensor: Tensor, level: DualLevel, tangent: Tensor | CutView | None) -> None:
    """Let the tensor have this tangent, as it is. None cuts it off from the tangent of its base."""
    extra = extra_of(tensor)
    tangents = extra.tangents
    if tangents is None:
        tangents = extra.tangents = Tangents()
    if level not in tangents:
        level.add_holder(tangents)
    tangents[level] = tangent


def remember_for_node(tensor: Tensor, level: DualLevel) -> None:
    """Let the node that made the tensor know its tangents: twins of a saved output must have them, too."""
    edge = tensor._edge
    if edge is None or edge is LEAF or not getattr(edge[0], "keeps_outputs", False):
        return
    extra = node_extra(edge[0])
    if extra.tangents is None:
        extra.tangents = {}
    kept = extra.tangents.setdefault(edge[1], Tangents())
    if level not in kept:
        level.add_holder(kept)
    kept[level] = extra_of(tensor).tangents[level]


# ---- layout


def same_layout(a: Tensor, b: Tensor, storage: bool = True) -> bool:
    """Whether the elements of both lie in memory in the same way, and (storage) in as much memory.

    Of a batch, the layout of one example is looked at, and of a batch of tensors (b) only for `storage`.
    """
    one, other = a._array, b._array
    if one.shape != other.shape:
        return False
    batched = type(a) is BatchedTensor or type(b) is BatchedTensor
    if not one.size or (type(b) is BatchedTensor and not storage):
        return True
    if one.strides != other.strides or one.itemsize != other.itemsize:
        steps = zip(one.shape, one.strides, other.strides, strict=True)
        if any(n > 1 and s * other.itemsize != t * one.itemsize for n, s, t in steps):
            return False
    if batched or not storage or (one.base is None and other.base is None):
        return True
    return memory_of(a._xp, one).size == memory_of(b._xp, other).size


def overlap(a: Tensor, b: Tensor) -> bool:
    return bool(a._xp.may_share_memory(physical(a)._array, physical(b)._array))


def zeros_in_layout(tensor: Tensor, like: Tensor, dtype: DType) -> Tensor:
    """A tensor of zeros that lies in memory of its own as `tensor` does in its, batched as `like` is.

    Each example of a batch lies as the tensor does.
    """
    levels, sizes = [], []
    while type(like) is BatchedTensor:
        levels.append(like._level)
        sizes.append(like._value.shape[like._dim])
        like = like._value
    xp, array = tensor._xp, tensor._array
    memory = xp.zeros((*sizes[::-1], max(memory_of(xp, array).size, 1)), dtype)
    geometry = geometry_of(xp, array)
    strides = (*memory.strides[:-1], *[s * memory.itemsize for s in geometry.strides])
    shape = (*memory.shape[:-1], *array.shape)
    found = Tensor(xp.lib.stride_tricks.as_strided(memory[..., geometry.offset :], shape, strides), xp)
    for level in levels[::-1]:
        found = BatchedTensor(found, 0, level)
    return found


def laid_out_as(tangent: Tensor, tensor: Tensor) -> Tensor:
    """A recorded copy of the tangent, laid out as the tensor."""
    overlapping = any(n > 1 and s == 0 for n, s in zip(tensor._array.shape, tensor._array.strides, strict=True))
    if type(tensor) is BatchedTensor or overlapping:
        return REGISTRY["clone"].function(tangent)
    return copy_(zeros_in_layout(tensor, tangent, tangent._array.dtype), tangent)


def fresh(tangent: Tensor, tensor: Tensor, given: list[Any]) -> Tensor:
    """The tangent of a new tensor: laid out as that, and not in the memory of the tangents it was made from."""
    if not same_layout(tangent, tensor, storage=False):
        return laid_out_as(tangent, tensor)
    own = physical(tangent)._array
    for other in given:
        array = physical(other)._array
        if own is array or ((own.base is not None or array.base is own) and overlap(tangent, other)):
            return laid_out_as(tangent, tensor)
    return tangent


# ---- changes in place


def set_first_tangent(tensor: Tensor, level: DualLevel, tangent: Tensor) -> None:
    """Give a tensor that was changed in place its first tangent, and the base it is a view of, too."""
    cut = cut_of(tensor, level)
    view = cut if type(cut) is CutView else None if tensor._extra is None else tensor._extra.view
    if view is None or cut is None:
        set_tangent(tensor, level, tangent if same_layout(tangent, tensor) else laid_out_as(tangent, tensor))
        return
    base = view.base
    if same_layout(tangent, base) and same_layout(tangent, tensor) and same_layout(base, tensor):
        set_tangent(base, level, tangent)
        set_tangent(tensor, level, tangent)
        return
    whole = zeros_for(base, tangent)
    part = view.replay(whole)
    copy_(part, tangent)
    set_tangent(base, level, whole)
    set_tangent(tensor, level, part)


def zeros_for(tensor: Tensor, like: Tensor) -> Tensor:
    """A zero tangent of the tensor, batched as `like` is."""
    if type(tensor) is BatchedTensor:
        return zeros_like_batch(like, tensor._array.shape, tensor._array.dtype)
    return zeros_in_layout(tensor, like, tensor._array.dtype)
