"""`x[index] = value` for the indices that NumPy and PyTorch mean alike: ints, slices, None and `...`.

This is how NumPy programs fill tensors row by row, so it goes a short way: no view is made, the value is written into
the part of the memory that the index shows, and if anything is to be recorded, one Assignment.
Everything else, errors included, is left to the general way in index/setitem.py.
"""

from __future__ import annotations

import sys
from operator import getitem, setitem
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes
from undertow.backend.cpu import broadcasts_to
from undertow.backend.interface import Array, Namespace
from undertow.backend.silence import quietly
from undertow.compiled import keep_apart
from undertow.graph.accumulate import leaf_edge
from undertow.graph.copy_slices import CopySlices
from undertow.graph.history import leave_behind, recorded_edge, set_edge, shows_base
from undertow.graph.node import extra_on, freed_error, next_sequence_nr
from undertow.graph.user_lines import is_site_recording_enabled
from undertow.modes import current
from undertow.ops.inplace.methods import is_free
from undertow.ops.inplace.overwriting import copy
from undertow.own_files import user_frame
from undertow.refcounts import IN_VARIABLE_OF_CALLER
from undertow.tensor import LEAF, Tensor, counter_of
from undertow.tensor.extra import DEFAULT
from undertow.tensor.memory import overlap, unlocked
from undertow.tensor.tensor import requires_grad
from undertow.tensor.views import Replay, current_replay

if TYPE_CHECKING:
    from undertow.graph.edges import Edge
    from undertow.graph.node import Node
    from undertow.graph.saved import Freed

getrefcount = sys.getrefcount
new = object.__new__

# ---- its history


class Assignment(CopySlices):
    """The CopySlices of an assignment. What it would wrap, a CopyBackwards, is made only for those who look at it.

    outer  how to find the tensor that was assigned to in something shaped as the base; None if it is the base
    key    the part of that tensor
    """

    __slots__ = ("key", "outer")

    key: tuple[Any, ...]
    outer: Replay | None

    # the same for all, so that making one is short
    layout = None
    position = 0
    params = ()

    @property
    def node(self) -> Node:  # type: ignore[override]
        """A CopyBackwards whose first edge, to what was there before, is never needed: nothing of it is left."""
        node = new(copy.op.node_class)
        node.next_edges = (None, self.next_edges[1])
        node.sequence_nr, node.params = self.sequence_nr, ()
        found = self.part_of(cpu, cpu.empty(self.shape, self.dtype))
        node.shape, node.dtype, node.extra = found.shape, found.dtype, None
        node.code, node.lasti = self.code, self.lasti
        return node

    @property
    def replay(self) -> Replay:
        return Replay(self.outer, getitem, (self.key,), None)

    def release(self, freed: Freed) -> None:
        self.saved = freed

    def part_of(self, xp: Namespace, whole: Array) -> Array:
        """The part of an array shaped as the base that was assigned to, to be written to."""
        if self.outer is None:
            return whole[self.key]
        found = self.outer.of_array(xp, whole)[self.key]
        return found if found.flags.writeable else unlocked(xp, found, whole)

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        if type(self.saved) is not tuple:
            raise freed_error(self, self.saved)
        if isinstance(grad, Tensor):
            return self.pull_recorded(xp, grad, edges, keep)
        if not keep:
            self.saved = keep
        before, given = edges
        if before is None:
            return [None, self.part_of(xp, grad).copy()]
        if getrefcount(grad) > IN_VARIABLE_OF_CALLER or grad.base is not None or not grad.flags.writeable:
            grad = grad.copy(order="C")  # else it is the engine's own, and seen by nobody after this
        found = self.part_of(xp, grad)
        values = None if given is None else found.copy()
        found[...] = 0
        return [grad, values]


Assignment.__name__ = Assignment.__qualname__ = "CopySlices"  # whoever looks at a graph sees PyTorch's nodes


# ---- making it


def assign(tensor: Tensor, index: Any, value: Array) -> bool:
    """The short way to `tensor[index] = value`; it says whether it could be gone."""
    state = current()
    key = (index, Ellipsis) if type(index) is int else basic_key(index)
    if key is None or state.unusual:
        return False
    is_tensor = type(value) is Tensor
    if state.grad_enabled and (
        tensor._edge is not None or requires_grad(tensor) or (is_tensor and requires_grad(value))
    ):
        return state.record is None and _record_assignment(tensor, key, value, is_tensor)
    if not is_free(tensor, state) or not _is_simple(value, tensor):
        return False
    try:
        if is_tensor and _may_share_memory(tensor, tensor._array, value):
            return _assign_own_memory(tensor, tensor._array[key], value._array)
        quietly(setitem, tensor._array, key, value._array if is_tensor else value)
    except (IndexError, ValueError):
        return False
    counter_of(tensor).bump("__setitem__")
    return True


def _assign_own_memory(tensor: Tensor, target: Array, array: Array) -> bool:
    """Assign an array that lies in the same memory, if that is not refused; the general way says so."""
    shared = overlap(tensor._xp, target, array) if array.size == target.size else "none"
    if shared == "part" or not target.flags.writeable or not broadcasts_to(array.shape, target.shape):
        return False
    if shared != "whole":
        target[...] = array.copy()  # NumPy would read elements of vectors that it has overwritten
    counter_of(tensor).bump("__setitem__")
    return True


def basic_key(index: Any) -> tuple[Any, ...] | None:
    """The index as a NumPy key that always gives an array, or None if it is not of the simple kinds."""
    items = index if type(index) is tuple else (index,)
    for item in items:
        kind = type(item)
        if kind is slice:
            step = item.step
            if step is not None and (type(step) is not int or step <= 0):
                return None
            if not (item.start is None or type(item.start) is int) or not (item.stop is None or type(item.stop) is int):
                return None
        elif kind is not int and item is not None and item is not Ellipsis:
            return None
    return items if Ellipsis in items else (*items, Ellipsis)


def _is_simple(value: Array, tensor: Tensor) -> bool:
    """Whether the value needs no cast."""
    dtype = tensor._array.dtype
    if type(value) is Tensor:
        return value._array.dtype is dtype and value._xp is tensor._xp
    if type(value) is float:
        return dtypes.is_floating(dtype)
    return type(value) is int and (dtypes.is_floating(dtype) or (dtype.kind == "i" and 0 <= value < 128))


def _record_assignment(tensor: Tensor, key: tuple[Any, ...], value: Array, is_tensor: bool) -> bool:
    extra, array = tensor._extra, tensor._array
    base, outer = tensor, None
    if extra is not None and extra.view is not None:
        base, outer = extra.view.base, current_replay(tensor)
        if not _may_be_rebased(tensor, extra.view) or outer.sees_memory():
            return False
    if base._edge is LEAF or not _is_simple(value, tensor):
        return False
    try:
        target = array[key]
    except IndexError:
        return False
    if outer is None and shows_all(target, array):
        return False  # no slice of it, so its history is that of copy_
    if not target.flags.writeable or (is_tensor and value._array.shape != target.shape):
        return False
    shared = is_tensor and _may_share_memory(tensor, target, value)
    if shared and overlap(tensor._xp, target, value._array) == "part":
        return False
    edge = _value_edge(value) if is_tensor else None
    target[...] = value._array.copy() if shared else value._array if is_tensor else value
    node = new(Assignment)
    node.outer, node.key = outer, key
    node.next_edges = (base._edge, edge)
    node.sequence_nr = next_sequence_nr()
    node.saved = ()
    node.shape, node.dtype = base._array.shape, base._array.dtype
    node.extra = None if base._xp is cpu else extra_on(base._xp)
    keep_apart(node)
    _count_assignment(base, node)
    if base._extra.rare is None:  # type: ignore[union-attr]
        base._edge = node
    else:
        set_edge(base, node)
    if outer is not None:
        leave_behind(tensor, extra.view)  # type: ignore[union-attr, arg-type]
    return True


def shows_all(part: Array, array: Array) -> bool:
    """Whether what a basic index shows of an array is the array as it is."""
    return bool(part.shape == array.shape and part.strides == array.strides)


def _may_share_memory(tensor: Tensor, target: Array, value: Tensor) -> bool:
    mine, other = tensor._array, value._array
    if type(mine) is type(other) is cpu.ndarray and mine.base is None and other.base is None:
        return mine is other  # two arrays that own their memory
    return bool(tensor._xp.may_share_memory(target, other))


def _may_be_rebased(tensor: Tensor, view: Any) -> bool:
    """Whether a change of the view can be followed; a view that is a leaf itself cannot."""
    followed = view.creation is DEFAULT and shows_base(tensor, view.base)
    return followed and (tensor._edge is None or view.base._edge is not None)


def _value_edge(value: Tensor) -> Edge:
    extra = value._extra
    edge = value._edge if extra is None or extra.view is None else recorded_edge(value)
    return leaf_edge(value) if edge is LEAF else edge


def _count_assignment(base: Tensor, node: Assignment) -> None:
    """Count a version, and note the line of the program with the counter and the node."""
    extra = base._extra
    counter: Any = counter_of(base) if extra is None or extra.counter is None else extra.counter
    frame = user_frame(past=4)  # this, _record_assignment, assign and setitem
    counter.value += 1
    counter.operation = "__setitem__"
    counter.code = node.code = frame.f_code
    counter.lasti = node.lasti = frame.f_lasti
    if not is_site_recording_enabled():
        node.code = None
