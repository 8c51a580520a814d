"""Hooks: functions of the user's that see, and may replace, gradients on their way.

Tensor hooks of a leaf live with the leaf; those of any other tensor with its node, under the output's number: they
stay with the version of the tensor they were registered on. Hooks never own the tensor.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from undertow.backend import namespace_of_array
from undertow.backend.interface import Array, Namespace
from undertow.compiled import watch_nodes
from undertow.graph.node import Node, node_extra
from undertow.tensor import LEAF, Tensor, current_edge, extra_of
from undertow.tensor.lent_operations import lent

if TYPE_CHECKING:
    from undertow.graph.edges import Edge

_next_id = count().__next__


class RemovableHandle:
    """What registering a hook returns; `remove()` takes the hook out again, and may be called twice.

    It does not keep the hook alive, nor what the hook refers to.
    """

    def __init__(self, hooks: dict[int, Any]) -> None:
        self.id = _next_id()
        try:
            self._hooks: Callable[[], dict[int, Any] | None] = weakref.ref(hooks)
        except TypeError:  # a plain dict, which a user has put in the place of ours
            self._hooks = lambda: hooks

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class NodeHooks:
    """The hooks of one node.

    tensor   output number -> {id: hook(grad) -> grad or None}
    retain   output number -> weak reference to the tensor whose `.grad` keeps the gradient
    pre      {id: hook(grad_outputs) -> tuple or None}
    post     {id: hook(grad_inputs, grad_outputs) -> tuple or None}
    """

    __slots__ = ("post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, OrderedDict[int, Any]] = {}
        self.retain: dict[int, weakref.ref[Tensor]] = {}
        self.pre: OrderedDict[int, Any] = OrderedDict()
        self.post: OrderedDict[int, Any] = OrderedDict()


def hooks_of(node: Node) -> NodeHooks:
    extra = node_extra(node)
    if extra.hooks is None:
        extra.hooks = NodeHooks()
    return extra.hooks  # type: ignore[no-any-return]


def add_hook(hooks: dict[int, Any], hook: Callable[..., Any]) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    watch_nodes()
    return handle


def add_last_hook(leaf: Tensor, hook: Callable[[Tensor], Any]) -> None:
    """Call `hook(leaf)` when the leaf has its gradient and its post-accumulate hooks have run, whoever adds some later.

    It is how gradients leave for other processes: as they are in the end.
    """
    extra = extra_of(leaf)
    extra.last_hooks = (*extra.last_hooks, hook)


def remove_last_hook(leaf: Tensor, hook: Callable[[Tensor], Any]) -> None:
    extra = extra_of(leaf)
    extra.last_hooks = tuple([other for other in extra.last_hooks if other is not hook])


def tensor_hooks_of(tensor: Tensor) -> OrderedDict[int, Any]:
    """The dictionary of the tensor's hooks, made if there is none."""
    edge = current_edge(tensor)
    if edge is None or edge is LEAF:
        extra = extra_of(tensor)
        if extra.hooks is None:
            extra.hooks = OrderedDict()
        return extra.hooks  # type: ignore[no-any-return]
    return hooks_of(edge[0]).tensor.setdefault(edge[1], OrderedDict())


def retain_at(edge: Edge, tensor: Tensor) -> None:
    """Let the tensor's `.grad` keep the gradient that arrives at the edge, which is the tensor's."""
    extra_of(tensor).retains_grad = True
    hooks_of(edge[0]).retain[edge[1]] = weakref.ref(tensor)


# ---- running them; gradients are arrays or, in a recorded pass, Tensors: hooks always see Tensors


def _shown(grad: Array | None, xp: Namespace) -> Any:
    return grad if grad is None or isinstance(grad, Tensor) else Tensor(grad, namespace_of_array(grad))


def _taken(grad: Array, recorded: bool) -> Array:
    return grad if grad is None or recorded else grad._array


def run_tensor_hooks(node: Node, grads: list[Any], xp: Namespace) -> list[Any]:
    """Tensor hooks of the node's outputs, then retain_grad."""
    recorded = xp.ndarray is Tensor
    if type(node).is_of_leaf:
        variable = node.variable
        if variable._extra is not None and variable._extra.hooks:
            grads = [_run_each(variable._extra.hooks, grads[0], xp, recorded)]
    hooks = None if node.extra is None else node.extra.hooks
    if hooks is None:
        return grads
    for nr, found in list(hooks.tensor.items()):
        grads[nr] = _run_each(found, grads[nr], xp, recorded)
    for nr, reference in list(hooks.retain.items()):
        tensor = reference()
        if tensor is not None and grads[nr] is not None:
            _retain(tensor, _shown(grads[nr], xp), recorded)
    return grads


# A hook removed by another one that runs before it still runs, and one that is added waits for the next pass: the
# functions below go through a copy.


def _run_each(hooks: dict[int, Any], grad: Array, xp: Namespace, recorded: bool) -> Array:
    """All hooks see one tensor, until one of them replaces it: they may leave each other attributes on it."""
    shown = _shown(grad, xp)
    for hook in list(hooks.values()):
        result = hook(shown)
        if result is not None and result is not shown:
            grad = _taken(checked(hook, shown, result), recorded)
            shown = result
    return grad


def _name(hook: Any) -> str:
    return str(getattr(hook, "__name__", type(hook).__name__))


def checked(hook: Callable[..., Any], old: Tensor | None, new: Tensor) -> Tensor | None:
    """What a hook returned for a gradient, if it can take its place."""
    if new is None:
        return None
    if not isinstance(new, Tensor):
        kind = type(new).__name__
        raise TypeError(
            f"expected Variable, but hook returned '{kind}': hook '{_name(hook)}' returns a Tensor, or None for no "
            "change"
        )
    if old is None:
        raise RuntimeError(
            f"can't replace a None gradient with a non-None value: hook '{_name(hook)}' was given None, because no "
            "gradient flowed there"
        )
    if new._array.dtype != old._array.dtype:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the type of value (was {old._array.dtype} got {new._array.dtype}). "
            "Convert what it returns back."
        )
    if new._array.shape != old._array.shape:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the size of value (was {list(old._array.shape)} got "
            f"{list(new._array.shape)})"
        )
    return new


def _retain(tensor: Tensor, grad: Tensor, recorded: bool) -> None:
    extra = extra_of(tensor)
    if grad.stands_for_many:
        return  # a batch of gradients at once: `.grad` has room for one
    if recorded:
        extra.grad = lent().clone(grad) if extra.grad is None else extra.grad + grad
    elif extra.grad is None:
        extra.grad = Tensor(grad._array.copy(), grad._xp)
    else:
        extra.grad = Tensor(grad._xp.asarray(extra.grad._array + grad._array), grad._xp)


def run_pre_hooks(node: Node, grads: list[Any], xp: Namespace) -> list[Any]:
    hooks = None if node.extra is None else node.extra.hooks
    if hooks is None or not hooks.pre:
        return grads
    recorded = xp.ndarray is Tensor
    seen = getattr(type(node), "shown_outputs", None)  # not one that a Function put on ctx
    for hook in list(hooks.pre.values()):
        shown = tuple([_shown(g, xp) for g in grads[:seen]])
        result = hook(shown)
        if result is not None and result is not shown:
            grads = [*_replaced(hook, shown, result, recorded), *grads[len(shown) :]]
    return grads


def run_post_hooks(node: Node, results: list[Any], grads: list[Any], xp: Namespace) -> list[Any]:
    """Hooks see the `results` as they will arrive at the tensors they are for."""
    recorded = xp.ndarray is Tensor
    grads = grads[: getattr(type(node), "shown_outputs", None)]
    for hook in list(node.extra.hooks.post.values()):  # type: ignore[union-attr]
        shown = tuple([_shown(r, xp) for r in results])
        result = hook(shown, tuple([_shown(g, xp) for g in grads]))
        if result is not None and result is not shown:
            results = _replaced(hook, shown, result, recorded)
    return results


def _replaced(hook: Callable[..., Any], shown: tuple[Any, ...], result: Any, recorded: bool) -> list[Any]:
    if not isinstance(result, tuple):
        raise TypeError(
            f"expected tuple, but hook returned '{type(result).__name__}': hook '{_name(hook)}' of a node returns one "
            f"gradient for each of {len(shown)}, as a tuple"
        )
    if len(result) != len(shown):
        raise RuntimeError(
            f"hook '{_name(hook)}' has returned an incorrect number of values (got {len(result)}, but expected "
            f"{len(shown)})"
        )
    return [_taken(checked(hook, old, new), recorded) for old, new in zip(shown, result, strict=True)]
