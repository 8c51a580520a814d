"""`x[index] = value` for the indices that NumPy and PyTorch mean alike: ints, slices, None and `...`.

This is how NumPy programs fill tensors row by row, so it goes a short way: no view is made, the value is written into
the part of the memory that the index shows, and if anything is to be recorded, one CopySlices around one CopyBackwards.
Everything else, errors included, is left to the general way in indexing.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from undertow.graph.accumulate import gradient_edge
from undertow.graph.copy_slices import CopySlices
from undertow.graph.history import STALE, recorded_edge, set_edge
from undertow.graph.node import next_sequence_nr
from undertow.graph.sites import is_site_recording_enabled, user_frame
from undertow.modes import current
from undertow.ops.inplace import copy, fits, is_free
from undertow.tensor import LEAF, Tensor, counter_of
from undertow.tensor.metadata import DEFAULT
from undertow.tensor.tensor import requires_grad
from undertow.tensor.views import PartReplay, Replay, current_replay

CopyBackwards: Any = copy.op.node_class

getframe = sys._getframe


def assigner(getitem: Callable[..., Any]) -> Callable[[Tensor, Any, Any], bool]:
    """The short way to `tensor[index] = value`; it says whether it could be gone."""

    def part(tensor: Any, key: Any) -> Any:
        return getitem(tensor, key)

    part.op = SimpleNamespace(name="part", forward=lambda xp, array, key: array[key])  # type: ignore[attr-defined]

    def assign(tensor: Tensor, index: Any, value: Any) -> bool:
        state, key = current(), basic_key(index)
        if key is None or state.unusual:
            return False
        if state.grad_enabled and (requires_grad(tensor) or (type(value) is Tensor and requires_grad(value))):
            return state.record is None and record_assignment(tensor, part, key, value)
        if not is_free(tensor, state) or not is_simple(value, tensor):
            return False
        try:
            tensor._array[key] = value._array if type(value) is Tensor else value
        except (IndexError, ValueError):
            return False
        counter_of(tensor).bump("__setitem__")
        return True

    return assign


def basic_key(index: Any) -> tuple[Any, ...] | None:
    """The index as a NumPy key that always gives an array, or None if it is not of the simple kinds."""
    if type(index) is int:
        return (index, Ellipsis)
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


def is_simple(value: Any, tensor: Tensor) -> bool:
    """Whether the value needs no cast."""
    dtype = tensor._array.dtype
    if type(value) is Tensor:
        return value._array.dtype is dtype and value._xp is tensor._xp
    if type(value) is float:
        return dtype.kind == "f"
    return type(value) is int and (dtype.kind == "f" or (dtype.kind == "i" and 0 <= value < 128))


def record_assignment(tensor: Tensor, part: Any, key: tuple[Any, ...], value: Any) -> bool:
    view = None if tensor._extra is None else tensor._extra.view
    base = tensor if view is None else view.base
    if base._edge is LEAF or (view is not None and not may_be_rebased(tensor, view)) or not is_simple(value, tensor):
        return False
    try:
        target = tensor._array[key]
    except IndexError:
        return False
    is_tensor = type(value) is Tensor
    if not target.flags.writeable or (is_tensor and not is_fitting(value._array.shape, target.shape)):
        return False
    node = assignment_node(target, gradient_of(value) if is_tensor else None)
    replay = PartReplay(part, key) if view is None else Replay((*current_replay(tensor).steps, (part, (key,), None)))
    slices = CopySlices(base, gradient_edge(base), replay, node)
    target[...] = value._array if is_tensor else value
    counter_of(tensor).bump("__setitem__")
    set_edge(base, slices)
    if view is not None:
        view.version = STALE
    return True


def is_fitting(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return shape == target or fits(shape, target)


def may_be_rebased(tensor: Tensor, view: Any) -> bool:
    """Whether a change of the view can be followed; a view that is a leaf itself cannot."""
    return view.creation is DEFAULT and (tensor._edge is None or view.base._edge is not None)


def gradient_of(value: Tensor) -> Any:
    edge = recorded_edge(value)
    return gradient_edge(value) if edge is LEAF else edge


def assignment_node(target: Any, edge: Any) -> Any:
    """A CopyBackwards whose first edge, to what was there before, is never needed: nothing of it is left."""
    node = object.__new__(CopyBackwards)
    node.next_edges = (None, edge)
    node.sequence_nr = next_sequence_nr()
    node.params = ()
    node.shape, node.dtype, node.extra = target.shape, target.dtype, None
    if is_site_recording_enabled():
        frame = user_frame(getframe(1))
        node.code, node.lasti = frame.f_code, frame.f_lasti
    else:
        node.code, node.lasti = None, 0
    return node
