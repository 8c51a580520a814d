"""What a custom Function returns: how the tensors that `forward` handed back join the graph.

A new tensor gets the Function's node as its history. An input returned as it is becomes a view of itself; an input that
was marked dirty stays the object it is and moves to the new history; views refuse later in-place changes, which would
go past the Function's own backward, unless the Function says that it is nothing but a view (`ctx._is_pure_view`).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from undertow.autograd.function.intermediates import attributes_of
from undertow.backend import cpu, dtypes
from undertow.graph.history import rebase_history
from undertow.graph.node import NodeExtra, OutputEdge, place_node
from undertow.graph.saved import SavedTensor
from undertow.graph.user_lines import warn_user
from undertow.modes import current, in_state
from undertow.ops import REGISTRY
from undertow.ops.inplace.checks import check_history
from undertow.tensor import LEAF, Tensor, counter_of, version_of, without_history
from undertow.tensor.extra import CUSTOM_FUNCTION, DEFAULT, MULTIPLE_OUTPUTS, View
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.graph.node import Node


def wrap_outputs(node: Node, inputs: list[Tensor], output: Any, recording: bool, separate_setup: bool) -> Any:
    """Point the outputs at the node, by the rules above, and save what `ctx` was told to save."""
    single = not isinstance(output, tuple)
    outputs = (output,) if single else output
    if node._is_pure_view and (len(inputs), len(outputs)) != (1, 1):
        raise RuntimeError(
            "Pure view custom Function can only have one input Tensor and one output Tensor. Open an issue if you need "
            "to support more."
        )
    if any(isinstance(o, Tensor) and o._xp is not cpu for o in outputs):
        place_node(node, [o._xp if isinstance(o, Tensor) else cpu for o in outputs])
    for dirty in node._dirty:
        counter_of(dirty).bump(node.name().removesuffix("Backward"))  # however forward changed it
    wrapping = Wrapping(node, inputs, len(outputs), recording, separate_setup)
    results = tuple([wrapping.add(nr, out) for nr, out in enumerate(outputs)])
    wrapping.finish(results)
    return results[0] if single else results


class Wrapping:
    """The outputs of one call, wrapped one by one."""

    def __init__(self, node: Any, inputs: list[Tensor], count: int, recording: bool, separate_setup: bool) -> None:
        self.node = node
        self.inputs = inputs
        self.count = count
        self.recording = recording
        self.dirty = {id(t) for t in node._dirty}
        saved = (*node._to_save, *node._saved_for_forward) if separate_setup else ()
        self.saved_in_setup = {id(t) for t in saved}
        self.wrapped: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.differentiable = 0

    def add(self, nr: int, out: Any) -> Any:
        is_tensor = isinstance(out, Tensor)
        self.node._shapes.append(out._array.shape if is_tensor else ())
        self.node._dtypes.append(out._array.dtype if is_tensor else None)
        if not is_tensor:
            return out
        known = self.wrapped.get(id(out))
        if known is None or (self.is_input(out) and id(out) not in self.dirty):
            self.wrapped[id(out)] = known = self.wrap(nr, out)  # an input returned twice is two views of itself
        elif id(out) in self.numbers and known is out:
            self.numbers[id(out)] = nr  # a tensor returned twice is one object, whose gradient arrives last
            out._edge = OutputEdge((self.node, nr))
        return known

    def wrap(self, nr: int, out: Tensor) -> Tensor:
        is_input, is_dirty = self.is_input(out), id(out) in self.dirty
        result = out
        if not self.is_differentiable(nr, out):
            result = self.without_history(out, is_input, is_dirty)
        else:
            self.differentiable += 1
            self.numbers[id(out)] = nr
            if is_dirty:
                self.rebase_dirty(nr, out, is_input)
            else:
                result = self.with_history(nr, out, is_input)
        view = view_of(result)
        if view is not None and not (is_input and is_dirty):
            view.creation = DEFAULT if self.node._is_pure_view else CUSTOM_FUNCTION
        return result

    def is_input(self, out: Tensor) -> bool:
        return any([out is t for t in self.inputs])

    def is_differentiable(self, nr: int, out: Tensor) -> bool:
        if any([out is t for t in self.node._non_differentiable]):
            self.node._non_differentiable_outputs |= {nr}
            return False
        return self.recording and dtypes.is_differentiable(out._array.dtype)

    def without_history(self, out: Tensor, is_input: bool, is_dirty: bool) -> Tensor:
        if not requires_grad(out):
            return self.as_view(out) if is_input and not is_dirty else out
        if is_input:
            return without_history(out)
        return out if view_of(out) is not None else without_history(out)

    def with_history(self, nr: int, out: Tensor, is_input: bool) -> Tensor:
        if is_input:
            out = self.as_view(out)
        elif out._edge is not None and view_of(out) is None:
            out = without_history(out)  # it was recorded elsewhere, and keeps that history
        view = view_of(out)
        if view is not None:
            view.version = version_of(out)
        out._edge = OutputEdge((self.node, nr))
        return out

    def as_view(self, out: Tensor) -> Tensor:
        """The input as a view of itself, made (as everything in forward) without recording."""
        if id(out) in self.saved_in_setup:
            raise RuntimeError(
                "An input that has been returned as-is as output is being saved for backward. This is not supported if "
                "you override setup_context. You should return and save a view of the input instead, e.g. with "
                "x.view_as(x) or setup ctx inside the forward function itself."
            )
        return in_state(current().with_grad(False), REGISTRY["view_as"].function, out, out)

    def rebase_dirty(self, nr: int, out: Tensor, is_input: bool) -> None:
        view = view_of(out)
        if out._edge is LEAF:
            raise RuntimeError(
                "a leaf Variable that requires grad has been used in an in-place operation: a Function marked it "
                "dirty. Pass a clone() of it."
            )
        if not is_input:
            message = (
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
                "should be passed to ctx.mark_dirty()."
            )
            if view is not None:
                raise RuntimeError(message)
            warnings.warn(message, stacklevel=6)
        if view is not None and self.count > 1:
            raise RuntimeError(
                "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot "
                "return more than one Tensor, because the in-place change must be replayed on that other Tensor. "
                "Either make sure the input is not a view (pass a clone()), or split the Function in two: one that "
                "does the change and returns a single Tensor, and one that does the rest."
            )
        check_history(out, self.node.name().removesuffix("Backward"))
        position = next((k for k, t in enumerate(self.inputs) if t is out), 0)
        rebase_history(out, OutputEdge((self.node, nr)), position)

    def finish(self, results: tuple[Any, ...]) -> None:
        if self.differentiable > 1:
            for result in results:
                view = view_of(result) if isinstance(result, Tensor) else None
                if view is not None:
                    view.creation = MULTIPLE_OUTPUTS
        if not self.dirty <= self.wrapped.keys():
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )
        if self.recording:
            self.save()

    def save(self) -> None:
        node = self.node
        node._kept = tuple([self.saved(t) for t in node._to_save])
        if node._dirty or node._non_differentiable:
            node._dirty = node._non_differentiable = ()
        finish_node(node)

    def saved(self, tensor: Tensor | None) -> SavedTensor:
        if id(tensor) not in self.numbers:
            return SavedTensor(tensor)
        return SavedTensor.of_output(self.wrapped[id(tensor)], edge=(self.node, self.numbers[id(tensor)]))


def wrap_new_output(node: Any, inputs: list[Tensor], out: Any) -> bool:
    """The same for the usual call that is recorded, of one new tensor on the CPU; whether it is such a call."""
    if (
        type(out) is not Tensor
        or out._edge is not None
        or out._xp is not cpu
        or node._dirty
        or node._non_differentiable
        or node._is_pure_view
        or (out._extra is not None and out._extra.view is not None)
        or not dtypes.is_differentiable(out._array.dtype)
    ):
        return False
    for tensor in inputs:
        if out is tensor:
            return False
    array = out._array
    node._shapes.append(array.shape)
    node._dtypes.append(array.dtype)
    out._edge = OutputEdge((node, 0))
    if node._to_save:
        node._kept = tuple([SavedTensor.of_output(t) if t is out else SavedTensor(t) for t in node._to_save])
    finish_node(node)
    return True


def finish_node(node: Any) -> None:
    """After the outputs are wrapped and what is kept is noted."""
    node._to_save = ()
    check_names(node)
    if node.__dict__:
        warn_of_cycle(node)
    state = current()
    if state.record is not None:
        state.record(node, state)


def check_names(node: Node) -> None:
    """Refuse attributes of `ctx` that took the place of what the engine keeps there."""
    if node.extra is None and type(node.recorded_edges) is tuple and type(node.sequence_nr) is int:
        return
    for name, kind in (("extra", NodeExtra | None), ("next_edges", tuple), ("sequence_nr", int)):
        if not isinstance(getattr(node, name), kind):
            raise AttributeError(f"ctx.{name} is what {node.name()} keeps for the engine; choose another name")


def warn_of_cycle(node: Node) -> None:
    """Say so if an attribute of `ctx` is an output of the Function: node and output then keep each other alive."""
    for name, value in attributes_of(node):
        if type(value) is Tensor and value._edge is not None and value._edge[0] is node:
            call = node.name().removesuffix("Backward")
            warn_user(
                f"{call}.forward keeps its own output as ctx.{name}: a reference cycle, which keeps the output, and "
                "all that the graph has saved, alive until the garbage collector runs. Call "
                "ctx.save_for_backward(...) with the output and read ctx.saved_tensors in backward; saved that way it "
                "makes no cycle."
            )


def view_of(tensor: Tensor) -> View | None:
    return None if tensor._extra is None else tensor._extra.view
