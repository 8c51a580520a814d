"""Hooks: functions of the user's that see, and may replace, gradients on their way.

Tensor hooks of a leaf live with the leaf; those of any other tensor with its node, under the output's number: they
stay with the version of the tensor they were registered on. Hooks never own the tensor.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

from undertow.backend import namespace_of_array
from undertow.graph.node import Node, node_extra
from undertow.tensor import LEAF, Tensor, current_edge, extra_of

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
    return handle


def tensor_hooks_of(tensor: Tensor) -> OrderedDict[int, Any]:
    """The dictionary of the tensor's hooks, made if there is none."""
    edge = current_edge(tensor)
    if edge is None or edge is LEAF:
        extra = extra_of(tensor)
        if extra.hooks is None:
            extra.hooks = OrderedDict()
        return extra.hooks  # type: ignore[no-any-return]
    return hooks_of(edge[0]).tensor.setdefault(edge[1], OrderedDict())


# ---- running them; gradients are arrays or, in a recorded pass, Tensors: hooks always see Tensors


def _shown(grad: Any, xp: Any) -> Any:
    return grad if grad is None or isinstance(grad, Tensor) else Tensor(grad, namespace_of_array(grad))


def _taken(grad: Any, recorded: bool) -> Any:
    return grad if grad is None or recorded else grad._array


def run_tensor_hooks(node: Node, grads: list[Any], xp: Any) -> list[Any]:
    """Tensor hooks of the node's outputs, then retain_grad."""
    recorded = xp.ndarray is Tensor
    variable = getattr(node, "variable", None)
    if variable is not None and variable._extra is not None and variable._extra.hooks:
        grads = [_run_each(variable._extra.hooks, grads[0], xp, recorded)]
    hooks = None if node.extra is None else node.extra.hooks
    if hooks is None:
        return grads
    for nr, found in hooks.tensor.items():
        grads[nr] = _run_each(found, grads[nr], xp, recorded)
    for nr, reference in hooks.retain.items():
        tensor = reference()
        if tensor is not None and grads[nr] is not None:
            _retain(tensor, _shown(grads[nr], xp), recorded)
    return grads


def _run_each(hooks: dict[int, Any], grad: Any, xp: Any, recorded: bool) -> Any:
    for hook in list(hooks.values()):
        result = hook(_shown(grad, xp))
        if result is not None:
            grad = _taken(_checked(hook, result), recorded)
    return grad


def _checked(hook: Any, result: Any) -> Any:
    if not isinstance(result, Tensor):
        name = getattr(hook, "__name__", type(hook).__name__)
        raise TypeError(f"expected a Tensor or None, but hook '{name}' returned {type(result).__name__}")
    return result


def _retain(tensor: Tensor, grad: Tensor, recorded: bool) -> None:
    extra = extra_of(tensor)
    if recorded:
        extra.grad = grad if extra.grad is None else extra.grad + grad  # type: ignore[operator]
    elif extra.grad is None:
        extra.grad = Tensor(grad._array.copy(), grad._xp)
    else:
        extra.grad = Tensor(grad._xp.asarray(extra.grad._array + grad._array), grad._xp)


def run_pre_hooks(node: Node, grads: list[Any], xp: Any) -> list[Any]:
    hooks = None if node.extra is None else node.extra.hooks
    if hooks is None or not hooks.pre:
        return grads
    recorded = xp.ndarray is Tensor
    for hook in list(hooks.pre.values()):
        result = hook(tuple([_shown(g, xp) for g in grads]))
        if result is not None:
            grads = _replaced(hook, result, len(grads), recorded)
    return grads


def run_post_hooks(node: Node, results: Any, grads: list[Any], xp: Any) -> Any:
    recorded = xp.ndarray is Tensor
    for hook in list(node.extra.hooks.post.values()):  # type: ignore[union-attr]
        shown = tuple([_shown(None if r is None else r, xp) for r in _arrays(results, xp, recorded)])
        result = hook(shown, tuple([_shown(g, xp) for g in grads]))
        if result is not None:
            results = _replaced(hook, result, len(results), recorded)
    return results


def _arrays(results: Any, xp: Any, recorded: bool) -> list[Any]:
    return list(results) if recorded else [r if r is None or hasattr(r, "namespace") else xp.asarray(r) for r in results]


def _replaced(hook: Any, result: Any, count: int, recorded: bool) -> list[Any]:
    result = result if isinstance(result, tuple | list) else (result,)
    if len(result) != count:
        raise RuntimeError(f"hook {hook!r} has returned an incorrect number of values: {len(result)}, not {count}")
    return [_taken(None if r is None else _checked(hook, r), recorded) for r in result]
