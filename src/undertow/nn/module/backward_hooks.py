"""Hooks on the gradients of a module's inputs and outputs.

Around a call of a hooked module its tensors are led through two identity nodes, one before it and one behind. A hook
of the first sees all gradients of the inputs at once, one of the second those of the outputs.

Note [Hooked tensors changed in place]: PyTorch gives the module views made inside a custom Function, which cannot be
changed in place. Here an input that is neither a leaf nor a view is passed as an alias: if the module changes it in
place, its new history is handed to the original, and that is what the module returns. An output keeps its identity: the
node is inserted between it and its history. Leaves and views are treated as in PyTorch, so changing them is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.autograd.interceptors.stack import NONE, active
from undertow.backend.interface import Namespace
from undertow.graph.accumulate import gradient_edge
from undertow.graph.history import set_edge
from undertow.graph.hooks import add_hook, hooks_of
from undertow.graph.node import Node, OutputEdge, space_of
from undertow.graph.user_lines import caller_site, is_site_recording_enabled
from undertow.modes import current, no_grad
from undertow.tensor import LEAF, Tensor, counter_of, current_edge, share_memory, version_of
from undertow.tensor.extra import CUSTOM_FUNCTION
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.graph.edges import Edge
    from undertow.nn.module import Module


class BackwardHookFunctionBackward(Node):
    """The identity of several tensors: a place for hooks that see all their gradients."""

    __slots__ = ("_dtypes", "_shapes")

    multiple_outputs = True
    keeps_outputs = False

    def __init__(self, tensors: Sequence[Array]) -> None:
        super().__init__(
            [gradient_edge(t) if requires_grad(t) else None for t in tensors],
            spaces=[t._xp for t in tensors],
            site=caller_site() if is_site_recording_enabled() else None,
        )
        self._shapes = [t._array.shape for t in tensors]
        self._dtypes = [t._array.dtype for t in tensors]
        state = current()
        if state.record is not None:
            state.record(self, state)

    def pull(self, xp: Namespace, grad: Any, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        """The gradients as they come; zeros where none has come, as PyTorch's hooks see them."""
        return [
            g if g is not None or edge is None else self.zeros(xp, nr)
            for nr, (g, edge) in enumerate(zip(grad, edges, strict=True))
        ]

    def zeros(self, xp: Namespace, nr: int) -> Any:
        arrays = space_of(self, nr)
        zeros = arrays.zeros(self._shapes[nr], self._dtypes[nr])
        return Tensor(zeros, arrays) if xp.ndarray is Tensor else zeros


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor was computed and owns its memory, so that an in-place change concerns it alone."""
    view = None if tensor._extra is None else tensor._extra.view
    return view is None and tensor._edge is not LEAF


def alias_of(tensor: Tensor, edge: Edge) -> Tensor:
    """The tensor's memory with another history."""
    if not is_plain(tensor):
        return locked_view(tensor, edge)
    alias = Tensor(tensor._array, tensor._xp, edge)
    share_memory(tensor, alias)
    return alias


def locked_view(tensor: Tensor, edge: Edge) -> Any:
    """A view that cannot be changed in place, because others show the memory and would not learn of it."""
    with no_grad():
        view = ops.view_as(tensor, tensor)
    view._extra.view.creation, view._extra.view.version = CUSTOM_FUNCTION, version_of(view)
    view._edge = edge
    return view


class BackwardWatch:
    """One call of a module whose gradients are watched.

    It keeps the gradients of the outputs from the moment they have come until those of the inputs are there.
    """

    def __init__(self, module: Module, hooks: list[Callable[..., Any]], pre_hooks: list[Callable[..., Any]]) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.grad_outputs: Any = None
        self.inputs = 0
        self.outputs = 0
        self.input_places: list[int] | None = None
        self.output_places: list[int] = []
        self.aliases: list[tuple[Any, Tensor, Any]] = []

    # ---- around the call

    def around_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inputs = len(args)
        places = tensor_places(args)
        if not is_recorded([args[i] for i in places]):
            return args
        node = BackwardHookFunctionBackward([args[i] for i in places])
        add_hook(hooks_of(node).post, self.on_inputs)
        self.input_places = places
        passed = list(args)
        for nr, place in enumerate(places):
            if requires_grad(args[place]):
                edge = OutputEdge((node, nr))
                passed[place] = alias_of(args[place], edge)
                self.aliases.append((args[place], passed[place], edge))
        return tuple(passed) if type(args) is tuple else type(args)(*passed)

    def around_outputs(self, result: Any) -> Any:
        unchanged = {id(alias) for _, alias, edge in self.aliases if alias._edge is edge}
        changed = {
            id(alias): settled(original, alias) for original, alias, edge in self.aliases if alias._edge is not edge
        }
        outputs: list[Any] = [changed.get(id(x), x) for x in (result if isinstance(result, tuple) else (result,))]
        self.aliases = []
        self.outputs = len(outputs)
        places = tensor_places(outputs)
        if not is_recorded([outputs[i] for i in places]):
            return result
        self.output_places = places
        node = BackwardHookFunctionBackward([outputs[i] for i in places])
        add_hook(hooks_of(node).post, self.on_outputs)
        for nr, place in enumerate(places):
            if requires_grad(outputs[place]):
                outputs[place] = led_through(outputs[place], OutputEdge((node, nr)), unchanged)
        if not isinstance(result, tuple):
            return outputs[0]
        return tuple(outputs) if type(result) is tuple else type(result)(*outputs)

    # ---- in the backward pass

    def on_outputs(self, _: Any, grads: tuple[Any, ...]) -> Any:
        self.grad_outputs = spread(self.output_places, grads, self.outputs)
        for hook in self.pre_hooks:
            result = hook(self.module, self.grad_outputs)
            if result is not None:
                self.grad_outputs = checked(result, self.grad_outputs, "Backward pre hook", "grad_output")
        grad_outputs = self.grad_outputs
        if self.input_places is None:
            self.call_without_inputs()
        return tuple([grad_outputs[i] for i in self.output_places])

    def call_without_inputs(self) -> None:
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
            "require gradients.",
            stacklevel=2,
        )
        for hook in self.hooks:
            result = hook(self.module, (None,) * self.inputs, self.grad_outputs)
            if result is not None and not (isinstance(result, tuple) and all(g is None for g in result)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients."
                )
        self.grad_outputs = None

    def on_inputs(self, grads: tuple[Any, ...], _: Any) -> Any:
        if self.grad_outputs is None or self.input_places is None:
            return None  # the gradient came past the module's output, as in a double backward
        grad_inputs = spread(self.input_places, grads, self.inputs)
        for hook in self.hooks:
            result = hook(self.module, grad_inputs, self.grad_outputs)
            if result is not None:
                grad_inputs = checked(result, grad_inputs, "Backward hook", "grad_input")
        self.grad_outputs = None
        return tuple([grad_inputs[i] for i in self.input_places])


def settled(original: Tensor, alias: Tensor) -> Any:
    """The original, with the history of an alias that the module changed; see the Note above.

    The alias becomes a view of it: somebody may keep it, and what is done to one must be known to the other.
    """
    set_edge(original, alias._edge)
    view = ops.view_as(original, original)
    alias._extra, alias._edge = view._extra, view._edge
    return original


def led_through(output: Tensor, edge: Edge, unchanged: set[int]) -> Any:
    """The output with the identity node in front of its history."""
    if not is_plain(output) or id(output) in unchanged:
        return locked_view(output, edge)
    counter_of(output)  # the node that made it may have saved it, and must share the counter; Note [Saved outputs]
    set_edge(output, edge)
    return output


def tensor_places(values: Sequence[Any]) -> list[int]:
    return [i for i, value in enumerate(values) if isinstance(value, Tensor)]


def is_recorded(tensors: list[Array]) -> bool:
    """Whether operations on the tensors make nodes. Inside vmap and forward mode they are not led through any."""
    state = current()
    return state.grad_enabled and active() is NONE and any(current_edge(t) is not None for t in tensors)


def spread(places: list[int], grads: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """The gradients at their places among `count` values, None at the others."""
    found = dict(zip(places, grads, strict=True))
    return tuple([found.get(i) for i in range(count)])


def checked(result: Any, former: tuple[Any, ...], hook: str, what: str) -> tuple[Any, ...]:
    result = (result,) if isinstance(result, Tensor) else result
    if len(result) != len(former):
        raise RuntimeError(
            f"{hook} returned an invalid number of {what}, got {len(result)}, but expected {len(former)}"
        )
    return tuple(result)
