"""The graph as a user sees it: nodes, edges, hooks on several tensors, and what is running now."""

from __future__ import annotations

import abc
from typing import Any

from undertow.autograd.edges import GradientEdge as GradientEdge
from undertow.autograd.edges import get_gradient_edge as get_gradient_edge
from undertow.engine.tasks import current_task
from undertow.engine.validate import conform, expected
from undertow.graph import node as _node
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from undertow.ops.recorded import recorded
from undertow.tensor import Tensor, counter_of


class Node(abc.ABC):
    """What every grad_fn is an instance of; a virtual base, in no node's mro.

    >>> import undertow as ut
    >>> y = ut.ones(2, requires_grad=True) * 2
    >>> isinstance(y.grad_fn, ut.autograd.graph.Node)
    True
    """

    @classmethod
    def __subclasshook__(cls, subclass: type) -> Any:
        return issubclass(subclass, _node.Node) if cls is Node else NotImplemented


def call_node(node: _node.Node, *grads: Any) -> Any:
    """Run a node by hand: `grad_fn(*gradients of its outputs)`, recorded if grad mode is on.

    Returns one gradient, or a tuple if the operation has several differentiable inputs. Saved values are kept.
    """
    if len(grads) != node.num_outputs:
        raise TypeError(f"{node.name()} expected {node.num_outputs} arguments, got {len(grads)} instead")
    for grad in grads:
        if grad is not None and not isinstance(grad, Tensor):
            raise TypeError(f"{node.name()} expected Tensors or None, got {type(grad).__name__}")
    given = run_pre_hooks(node, run_tensor_hooks(node, list(grads), recorded), recorded)
    if not node.wants_undefined and all(g is None for g in given):
        results: list[Any] = [None] * len(node.next_edges)
    else:
        results = node.pull(recorded, given if node.multiple_outputs else given[0], node.next_edges, True)
    if node.extra is not None and node.extra.hooks is not None and node.extra.hooks.post:
        results = run_post_hooks(node, results, given, recorded)
    fitting = [_conformed(node, index, g) for index, g in enumerate(results)]
    return fitting[0] if len(fitting) == 1 else tuple(fitting)


def _conformed(node: _node.Node, index: int, grad: Any) -> Any:
    edge = node.next_edges[index]
    if grad is None or edge is None:
        return grad
    shape, dtype = expected(edge[0], edge[1])
    return conform(node, index, grad, shape, dtype, recorded)


def increment_version(tensors: Any) -> None:
    """Say that the memory of a tensor (or of several) was changed by somebody else, a NumPy program for instance.

    >>> import undertow as ut
    >>> x = ut.zeros(2)
    >>> x.numpy()[0] = 1
    >>> ut.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    for tensor in (tensors,) if isinstance(tensors, Tensor) else tensors:
        if not (tensor._extra is not None and tensor._extra.inference):
            counter_of(tensor).bump()


def current_node() -> _node.Node | None:
    """The node whose backward is running in this thread, or None."""
    task = current_task()
    return None if task is None else task.node


def current_graph_task_id() -> int:
    """The number of the backward pass running in this thread, or -1."""
    task = current_task()
    return -1 if task is None else task.id


def is_graph_kept() -> bool:
    """Whether the running backward pass keeps the graph."""
    task = current_task()
    if task is None:
        raise RuntimeError("is_graph_kept should only be called during the backward pass")
    return task.keep_graph


def will_execute_node(node: Any) -> bool:
    """Whether the running backward pass has run, or will run, `node`."""
    task = current_task()
    if task is None:
        raise RuntimeError("will_execute_node should only be called during the backward pass: no pass is running")
    if not isinstance(node, _node.Node):
        raise RuntimeError(f"will_execute_node expects an grad_fn, but got {type(node).__name__}")
    if task.exec_info is None:
        return node in task.dependencies
    info = task.exec_info.get(node)
    if info is None or node not in task.dependencies:
        return False
    if info.captures and not info.needed and isinstance(node, AccumulateGrad):
        raise RuntimeError(
            "A leaf node was passed to will_execute_node but we are currently running autograd.grad(). This is "
            "currently not supported."
        )
    return info.needed


__all__ = [
    "GradientEdge", "Node", "call_node", "current_graph_task_id", "current_node", "get_gradient_edge",
    "increment_version", "is_graph_kept", "will_execute_node",
]  # fmt: skip
