"""Intermediates that a custom Function keeps: a second derivative through them is an error, not a wrong number.

`forward` runs without recording, so what it computes and keeps on `ctx` has no history: a backward (or jvp) that uses
it would take it for a constant, although it changes with the inputs. So forward is tracked: an InputTracking follows
the inputs through its operations. Where backward or jvp is itself differentiated, a kept intermediate that changes with
an input is handed out with an Error node as its history, and with unknown tangents (unknown_tangent.py).

Note [Functions that are tracked]: tracking makes a call with small tensors take about twice its time, and most
Functions keep only inputs and outputs. So the first call is tracked (for each choice of tensors that require
gradients), and later ones only if some call has kept an intermediate. If one does so unexpectedly, it is not known what
the intermediate depends on: it then counts as depending on every input.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.autograd.batched_tensor import BatchedTensor, physical
from undertow.autograd.forward.tangents import levels_of, set_tangent
from undertow.autograd.forward.unknown_tangent import UnknownTangent
from undertow.autograd.function.input_tracking import CONTAINERS, InputTracking
from undertow.autograd.interceptors.stack import active, beneath
from undertow.autograd.slopes import is_continuous
from undertow.errors import AutogradError
from undertow.graph.end_nodes import Error
from undertow.graph.node import OutputEdge
from undertow.modes import current
from undertow.tensor import Tensor, share_memory
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.graph.node import Node

HOLDING = (Tensor, *CONTAINERS)
PLAIN = {int, float, bool, str, type(None)}
#: attributes of a FunctionNode that are not the user's
OWN = {"_dirty", "_is_pure_view", "_materialize_non_diff_grads", "_non_differentiable", "_non_differentiable_outputs",
       "_saved_for_forward", "materialize_grads"}  # fmt: skip


# ---- what was kept


class Kept(NamedTuple):
    """The intermediates of one call that change with its inputs.

    saved       place in save_for_backward -> the reach
    for_jvp     place in save_for_forward -> the reach
    attributes  id of a tensor that is, or is in, an attribute of `ctx` -> Attribute
    levels      dual level -> the inputs that had a tangent, as a reach
    is_known    whether the call was tracked
    """

    saved: dict[int, int]
    for_jvp: dict[int, int]
    attributes: dict[int, Attribute]
    levels: dict[Any, int]
    is_known: bool


class Attribute(NamedTuple):
    """A weak reference to an intermediate, its reach, and what it is an alias of (None: it is none)."""

    tensor: Any
    reach: int
    original: Tensor | None = None


def needed_inputs(inputs: Sequence[Tensor], recording: bool) -> tuple[bool, ...]:
    """Of the tensors among the arguments, which a derivative is taken by; () if none."""
    needed = tuple([
        (recording and (t._edge is not None or requires_grad(t))) or (has_extra(t) and bool(levels_of(physical(t))))
        for t in inputs
    ])  # fmt: skip
    return needed if True in needed else ()


def has_extra(tensor: Tensor) -> bool:
    """Whether it may have tangents: they are in its extra, or in that of what is below vmap levels."""
    return tensor._extra is not None or type(tensor) is BatchedTensor


def tracking_for(cls: Any, inputs: Sequence[Tensor], needed: tuple[bool, ...]) -> InputTracking | None:
    """What follows the inputs through this call, if it is to be tracked. See Note [Functions that are tracked]."""
    if needed and cls._keeps_intermediates.get(needed, True):
        return InputTracking.of(inputs, needed, beneath(current().intercept))
    return None


def note_intermediates(
    node: Node, inputs: Sequence[Tensor], needed: tuple[bool, ...], output: Any, tracking: InputTracking | None
) -> None:
    """After forward: remember which of the kept tensors change with the inputs."""
    usual = node._forward_cls._keeps_intermediates
    if may_keep(node, output):
        passed = set(map(id, [*inputs, *output] if isinstance(output, tuple) else [*inputs, output]))
        reach_of = everything(needed) if tracking is None else tracking.reach

        def reaches(tensors: Sequence[Any]) -> dict[int, int]:
            return {k: reach_of(t) for k, t in enumerate(tensors) if id(t) not in passed and is_unrecorded(t)}

        held = held_by(node)
        found = [reaches(tensors) for tensors in (node._to_save, node._saved_for_forward, held)]
        if any(found):
            usual[needed] = True
            keep(node, inputs, found, held, tracking is not None)
            return
    if tracking is not None:
        usual.setdefault(needed, False)


def may_keep(node: Node, output: Any) -> bool:
    """Whether a closer look is worth its time."""
    for tensor in (*node._to_save, *node._saved_for_forward):
        if tensor is not None and tensor._edge is None and tensor is not output:
            return True
    if node.__dict__:
        for _, value in attributes_of(node):
            if type(value) not in PLAIN and isinstance(value, HOLDING):
                return True
    return False


def is_unrecorded(value: Any) -> bool:
    return is_continuous(value) and value._edge is None


def held_by(node: Node) -> list[Any]:
    """The user's attributes of `ctx`, and what is in those that are lists, tuples or dicts."""
    found: list[Any] = []
    for _, value in attributes_of(node):
        if not isinstance(value, CONTAINERS):
            found.append(value)
        else:
            found += value.values() if isinstance(value, dict) else value
    return found


def attributes_of(node: Node) -> Iterator[tuple[str, Any]]:
    """The user's attributes of `ctx`."""
    return iter([item for item in node.__dict__.items() if item[0] not in OWN])


def everything(needed: Sequence[bool]) -> Callable[[Tensor], int]:
    """The reach of a tensor of which nothing is known."""
    reach = sum(1 << k for k, is_needed in enumerate(needed) if is_needed)
    return lambda tensor: reach


def keep(node: Any, inputs: Sequence[Tensor], found: list[dict[int, int]], held: list[Any], is_known: bool) -> None:
    saved, for_jvp, in_attributes = [{k: reach for k, reach in places.items() if reach} for places in found]
    if saved or for_jvp or in_attributes:
        attributes = {id(held[k]): Attribute(weakref.ref(held[k]), reach) for k, reach in in_attributes.items()}
        node._intermediates = Kept(saved, for_jvp, attributes, levels_reached(inputs), is_known)


def levels_reached(inputs: Sequence[Tensor]) -> dict[Any, int]:
    levels: dict[Any, int] = {}
    for k, tensor in enumerate(inputs):
        for level in levels_of(physical(tensor)):
            levels[level] = levels.get(level, 0) | 1 << k
    return levels


# ---- what backward and jvp are given


def is_guarding(node: Node) -> bool:
    """Whether what is computed from the intermediates now can be differentiated."""
    return node._intermediates is not None and (current().grad_enabled or bool(active().duals))


def guard_saved(node: Node, tensors: tuple[Any, ...], for_jvp: bool = False) -> tuple[Any, ...]:
    """The saved tensors, with a history and tangents for the intermediates among them."""
    reaches = node._intermediates.for_jvp if for_jvp else node._intermediates.saved
    return tuple(
        [guarded(node, t, reaches[k], f"saved_tensors[{k}]") if k in reaches else t for k, t in enumerate(tensors)]
    )


def guard_attributes(node: Node, history: bool = True) -> None:
    """Put guarded tensors in the place of the intermediates among the attributes of `ctx`.

    history  False: for tangents alone
    """
    for name, value in list(attributes_of(node)):
        node.__dict__[name] = guard_in(node, value, name, history)


def guard_in(node: Node, value: Any, place: str, history: bool) -> Any:
    """The value of an attribute; a list or dict stays the object it is."""
    if isinstance(value, list | dict):
        for key, part in enumerate(value) if isinstance(value, list) else list(value.items()):
            guarded_part = guard_one(node, part, f"{place}[{key!r}]", history)
            if guarded_part is not part:
                value[key] = guarded_part
        return value
    if isinstance(value, tuple):
        parts = [guard_one(node, part, f"{place}[{nr}]", history) for nr, part in enumerate(value)]
        changed = any([new is not old for new, old in zip(parts, value, strict=True)])
        return value if not changed else type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return guard_one(node, value, place, history)


def guard_one(node: Node, value: Any, place: str, history: bool) -> Any:
    attributes = node._intermediates.attributes
    found = attributes.get(id(value))
    if found is None or found.tensor() is not value:
        return value
    original = value if found.original is None else found.original
    alias = guarded(node, original, found.reach, place, history)
    if alias is not original:  # the next pass may be differentiated otherwise, and starts again from the original
        attributes[id(alias)] = Attribute(weakref.ref(alias), found.reach, original)
        if value is not original:
            del attributes[id(value)]
    return alias


def guarded(node: Node, tensor: Tensor, reach: int, place: str, history: bool = True) -> Tensor:
    """An alias of the tensor that nobody can differentiate by the inputs that it depends on.

    Between it and those that require grad is an Error node; its tangents are unknown where those have some.
    """
    if not is_unrecorded(tensor):
        return tensor
    if type(tensor) is BatchedTensor:
        alias = guarded(node, tensor._value, reach, place, history)
        return tensor if alias is tensor._value else BatchedTensor(alias, tensor._dim, tensor._level)
    recording = history and current().grad_enabled
    edges = tuple([edge if recording and reach >> k & 1 else None for k, edge in enumerate(node.next_edges)])
    levels = [d for d in active().duals if node._intermediates.levels.get(d, 0) & reach]
    has_history = any([edge is not None for edge in edges])
    if not levels and not has_history:
        return tensor
    error = error_of(node, place)
    alias = Tensor(tensor._array, tensor._xp)
    if has_history:
        alias._edge = OutputEdge((Error(error, edges, [tensor._array.shape], [tensor._array.dtype]), 0))
    share_memory(tensor, alias)
    for level in levels:
        set_tangent(alias, level, UnknownTangent(alias, error))
    return alias


def error_of(node: Node, place: str) -> AutogradError:
    name = node.name().removesuffix("Backward")
    doubt = "" if node._intermediates.is_known else (
        " (Earlier calls kept nothing like it, so this one was not watched, and the tensor may be a constant after "
        "all: if it is, call the Function again.)"
    )  # fmt: skip
    return AutogradError(
        f"{name} cannot be differentiated twice through ctx.{place}, an intermediate that {name}.forward computed from "
        "its inputs: forward is not recorded, so the derivative of the intermediate is unknown, and without it the "
        f"second derivative would be wrong.{doubt} Save the inputs and compute it again in backward; or return it as "
        "an output, save that, and let backward take its gradient; or keep intermediate.detach() if it is meant to "
        "be a constant."
    )
