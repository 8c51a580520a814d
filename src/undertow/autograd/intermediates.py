"""Intermediates that a custom Function keeps: a second derivative through them is an error, not a wrong number.

`forward` runs without recording, so what it computes and keeps on `ctx` has no history: a backward that uses it would
take it for a constant, although it changes with the inputs. So forward is watched: a Watch follows the inputs through
its operations. In a backward pass that records, a kept intermediate that changes with an input is handed out with an
Error node as its history.

Note [Functions that are watched]: watching makes a call with small tensors take about twice its time, and most
Functions keep only inputs and outputs. So the first call is watched, and later ones only if some call has kept an
intermediate. If one does so unexpectedly, it is not known what the intermediate depends on: it then counts as depending
on every input.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from undertow.autograd.transforms import plainly, under
from undertow.errors import AutogradError
from undertow.graph.error_node import Error
from undertow.graph.node import OutputEdge
from undertow.modes import Interceptor, current
from undertow.tensor import Tensor, share_memory

#: operations whose result does not change with small changes of the operands
FLAT = {"sign", "floor", "ceil", "trunc", "fix", "round", "_div_rounded", "heaviside"}
#: operations in place that leave nothing of what was there
OVERWRITING = {"zero_", "fill_", "copy_", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_",
               "normal_", "random_", "uniform_"}  # fmt: skip

CONTAINERS = (list, tuple, dict)
HOLDING = (Tensor, *CONTAINERS)
PLAIN = {int, float, bool, str, type(None)}


class Watch(Interceptor):
    """Follows the inputs of one call through the operations of forward.

    A tensor's `reach` is a number with bit k set if it changes with the k-th tensor among the arguments.

    known  id of a tensor -> (weak reference to it, its reach); of a view, the id of its base
    """

    __slots__ = ("known",)

    def __init__(self, inputs: list[Tensor], needed: list[bool]) -> None:
        self.known: dict[int, tuple[Any, int]] = {}
        for k, tensor in enumerate(inputs):
            if needed[k]:
                self.note(tensor, self.reach(tensor) | 1 << k)

    def note(self, tensor: Tensor, reach: int) -> None:
        base = base_of(tensor)
        self.known[id(base)] = weakref.ref(base), reach

    def reach(self, tensor: Tensor) -> int:
        base = base_of(tensor)
        found = self.known.get(id(base))
        return 0 if found is None or found[0]() is not base else found[1]

    def reach_of_all(self, values: Iterable[Any]) -> int:
        reach = 0
        for value in values:
            if isinstance(value, Tensor):
                reach |= self.reach(value)
            elif isinstance(value, CONTAINERS):
                reach |= self.reach_of_all(value.values() if isinstance(value, dict) else value)
        return reach

    # ---- what forward may do

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        result = plainly(function, args)
        op = function.op
        arguments, without = slopes_of(op)
        reach = self.reach_of_all([args[k] for k in arguments])
        if reach and op.kind != "view":  # a view is known by its base
            for nr, out in enumerate((result,) if op.outputs is None else result):
                if nr not in without and has_slope(op, out):
                    self.note(out, reach)
        return result

    def in_place(
        self, name: str, change: Any, function: Any, tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        op = getattr(function, "op", None)
        reach = 0 if op is not None and is_flat(op) else self.reach_of_all((args, kwargs))
        if base_of(tensor) is not tensor or not (name in OVERWRITING or (op is not None and is_flat(op))):
            reach |= self.reach(tensor)
        result = under(None, change, tensor, *args, **kwargs)
        if is_continuous(tensor):
            self.note(tensor, reach)
        return result

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = under(None, cls._call, args, kwargs)
        reach = self.reach_of_all((args, kwargs))
        for nr, out in enumerate(call.outputs):
            if reach and call.is_differentiable(nr):
                self.note(out, reach)
        return call.result

    def draw(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return under(None, function.__wrapped__, *args, **kwargs)

    def check_out(self, name: str, tensors: list[Any]) -> None:
        reach = self.reach_of_all(tensors)
        if reach and name not in FLAT and is_continuous(tensors[-1]):
            self.note(tensors[-1], reach)


def base_of(tensor: Tensor) -> Tensor:
    extra = tensor._extra
    return tensor if extra is None or extra.view is None else extra.view.base


def is_continuous(value: Any) -> bool:
    return type(value) is Tensor and value._array.dtype.kind in "fc"


def has_slope(op: Any, out: Any) -> bool:
    return is_continuous(out) and not (op.name == "sgn" and out._array.dtype.kind == "f")


def is_flat(op: Any) -> bool:
    """Whether the result has no slope: integers, booleans, whole parts, signs, random numbers."""
    return op.kind == "nondifferentiable" or op.name in FLAT or (op.kind != "composite" and "generator" in op.params)


@functools.cache
def slopes_of(op: Any) -> tuple[list[int], set[int]]:
    """The places of the arguments that an operation has a derivative for, and of the results that have none."""
    if is_flat(op):
        return [], set()
    without = {nr for nr, name in enumerate(op.outputs or ()) if name in op.nondifferentiable}
    return [k for k, name in enumerate(op.ordered) if name in op.edges], without


# ---- what was kept


class Kept(NamedTuple):
    """The intermediates of one call that change with its inputs.

    saved       place in save_for_backward -> the reach
    attributes  id of a tensor that is, or is in, an attribute of `ctx` -> (weak reference to it, its reach)
    is_known    whether the call was watched
    """

    saved: dict[int, int]
    attributes: dict[int, tuple[Any, int]]
    is_known: bool


def watch_for(node: Any, inputs: list[Tensor]) -> Watch | None:
    """What follows the inputs through this call, if it is to be watched. See Note [Functions that are watched]."""
    if node._forward_cls._keeps_intermediates.get(node.needs_input_grad, True) and current().intercept is None:
        return Watch(inputs, needed_inputs(node))
    return None


def needed_inputs(node: Any) -> list[bool]:
    """Of the tensors among the arguments, which want a gradient."""
    positions = zip(node._variable_positions, node.needs_input_grad, strict=True)
    return [needed for is_tensor, needed in positions if is_tensor]


def note_intermediates(node: Any, inputs: list[Tensor], output: Any, watch: Watch | None) -> None:
    """After forward: remember which of the kept tensors change with the inputs."""
    usual = node._forward_cls._keeps_intermediates
    if may_keep(node, output):
        passed = set(map(id, [*inputs, *output] if isinstance(output, tuple) else [*inputs, output]))
        saved = [k for k, t in enumerate(node._to_save) if id(t) not in passed and is_unrecorded(t)]
        attributes = [t for t in held_by(node) if id(t) not in passed and is_unrecorded(t)]
        if saved or attributes:
            usual[node.needs_input_grad] = True
            if watch is not None or current().intercept is None:
                keep(node, saved, attributes, watch)
            return
    if watch is not None:
        usual.setdefault(node.needs_input_grad, False)


def may_keep(node: Any, output: Any) -> bool:
    """Whether a closer look is worth its time."""
    for tensor in node._to_save:
        if tensor is not None and tensor._edge is None and tensor is not output:
            return True
    if len(node.__dict__) > node._own_attributes:
        for _, value in attributes_of(node):
            if type(value) not in PLAIN and isinstance(value, HOLDING):
                return True
    return False


def is_unrecorded(value: Any) -> bool:
    return is_continuous(value) and value._edge is None


def held_by(node: Any) -> list[Any]:
    """The user's attributes of `ctx`, and what is in those that are lists, tuples or dicts."""
    found: list[Any] = []
    for _, value in attributes_of(node):
        if not isinstance(value, CONTAINERS):
            found.append(value)
        else:
            found += value.values() if isinstance(value, dict) else value
    return found


def attributes_of(node: Any) -> Iterator[tuple[str, Any]]:
    """The user's attributes of `ctx`: they come after the node's own."""
    return islice(node.__dict__.items(), node._own_attributes, None)


def keep(node: Any, saved: list[int], attributes: list[Tensor], watch: Watch | None) -> None:
    reach_of = everything(node) if watch is None else watch.reach
    places = {k: reach for k in saved if (reach := reach_of(node._to_save[k]))}
    tensors = {id(t): (weakref.ref(t), reach) for t in attributes if (reach := reach_of(t))}
    if places or tensors:
        node._intermediates = Kept(places, tensors, watch is not None)


def everything(node: Any) -> Callable[[Tensor], int]:
    """The reach of a tensor of which nothing is known."""
    reach = sum(1 << k for k, needed in enumerate(needed_inputs(node)) if needed)
    return lambda tensor: reach


# ---- what backward is given


def guard_saved(node: Any, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """The saved tensors, with a history for the intermediates among them."""
    saved = node._intermediates.saved
    return tuple(
        [guarded(node, t, saved[k], f"saved_tensors[{k}]") if k in saved else t for k, t in enumerate(tensors)]
    )


def guard_attributes(node: Any) -> None:
    """Put tensors with a history in the place of the intermediates among the attributes of `ctx`."""
    for name, value in list(attributes_of(node)):
        node.__dict__[name] = guard_in(node, value, name)


def guard_in(node: Any, value: Any, place: str) -> Any:
    """The value of an attribute; a list or dict stays the object it is."""
    if isinstance(value, list | dict):
        for key, part in enumerate(value) if isinstance(value, list) else list(value.items()):
            guarded_part = guard_one(node, part, f"{place}[{key!r}]")
            if guarded_part is not part:
                value[key] = guarded_part
        return value
    if isinstance(value, tuple):
        parts = [guard_one(node, part, f"{place}[{nr}]") for nr, part in enumerate(value)]
        changed = any([new is not old for new, old in zip(parts, value, strict=True)])
        return value if not changed else type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return guard_one(node, value, place)


def guard_one(node: Any, value: Any, place: str) -> Any:
    found = node._intermediates.attributes.get(id(value))
    return value if found is None or found[0]() is not value else guarded(node, value, found[1], place)


def guarded(node: Any, tensor: Any, reach: int, place: str) -> Any:
    """An alias of the tensor, with an Error node between it and the inputs that it depends on."""
    if not is_unrecorded(tensor):
        return tensor
    edges = tuple([edge if reach >> k & 1 else None for k, edge in enumerate(node.next_edges)])
    error = Error(error_of(node, place), edges, [tensor._array.shape], [tensor._array.dtype])
    alias = Tensor(tensor._array, tensor._xp, OutputEdge((error, 0)))
    share_memory(tensor, alias)
    return alias


def error_of(node: Any, place: str) -> AutogradError:
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
