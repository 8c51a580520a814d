"""The graph as a user sees it: nodes, edges, hooks on several tensors, and what is running now."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from typing import Any

from undertow.autograd.edges import GradientEdge as GradientEdge
from undertow.autograd.edges import get_gradient_edge as get_gradient_edge
from undertow.autograd.saved_tensors import are_saved_tensors_hooks_enabled as are_saved_tensors_hooks_enabled
from undertow.autograd.saved_tensors import disable_saved_tensors_hooks as disable_saved_tensors_hooks
from undertow.autograd.saved_tensors import make_saved_tensor as make_saved_tensor
from undertow.autograd.saved_tensors import save_on_cpu as save_on_cpu
from undertow.autograd.saved_tensors import saved_tensors_hooks as saved_tensors_hooks
from undertow.engine.engine import engine, execution_order
from undertow.engine.tasks import current_task
from undertow.engine.validate import conform, expected
from undertow.graph import node as _node
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from undertow.modes import current
from undertow.graph.saved import SavedTensor as SavedTensor
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
    if not isinstance(node, _node.Node):
        raise RuntimeError(f"will_execute_node expects an grad_fn, but got {type(node).__name__}")
    if task is None:
        raise RuntimeError("will_execute_node should only be called during the backward pass: no pass is running")
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


def current_graph_task_execution_order() -> list[_node.Node]:
    """The nodes of the running backward pass in the order they run in; needs multithreading switched off."""
    task = current_task()
    if task is None:
        raise RuntimeError("current_graph_task_execution_order should only be called during the backward pass")
    if current().multithreading:
        raise RuntimeError(
            "current_graph_task_execution_order expects the current backward to be executed with multithreading "
            "disabled, e.g. by running: with undertow.autograd.set_multithreading_enabled(False): ..."
        )
    return execution_order(task)


def queue_callback(callback: Callable[[], None]) -> None:
    """Call `callback()` once, when the backward pass that is running in this thread has finished."""
    engine.queue_callback(callback)


class MultiGradHook:
    """One hook on several tensors; see `register_multi_grad_hook`. Counts per backward pass, under a lock."""

    def __init__(self, tensors: Sequence[Tensor], function: Callable[[Any], None], mode: str) -> None:
        self.function = function
        self.mode = mode
        self.nodes = [get_gradient_edge(t).node for t in tensors]
        # Guards `expected` and `arrived`: passes of several threads, and device threads of one pass, come here at once.
        self.lock = threading.Lock()
        self.expected: dict[int, int] = {}
        self.arrived: dict[int, list[Any]] = {}
        self.handles = [t.register_hook(self.arrival(i)) for i, t in enumerate(tensors)]  # type: ignore[attr-defined]

    def arrival(self, index: int) -> Callable[[Any], None]:
        def hook(grad: Any) -> None:
            due = self.collect(index, grad)
            if due is not None:
                self.function(due)

        return hook

    def collect(self, index: int, grad: Any) -> Any:
        """What the user's function is to be called with now, or None."""
        task = current_graph_task_id()
        with self.lock:
            if task not in self.arrived:
                self.arrived[task] = [None] * len(self.nodes)
                self.expected[task] = sum(_is_reached(node) for node in self.nodes) if self.mode == "all" else 1
                queue_callback(lambda: self.forget(task))
                if self.mode == "any":
                    return grad
            if self.mode == "any":
                return None
            self.arrived[task][index] = grad
            self.expected[task] -= 1
            return list(self.arrived[task]) if self.expected[task] == 0 else None

    def forget(self, task: int) -> None:
        with self.lock:
            self.arrived.pop(task, None)
            self.expected.pop(task, None)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def _is_reached(node: _node.Node) -> bool:
    """Whether a gradient arrives at the node in the running pass: it runs, or is captured on its way in."""
    task = current_task()
    assert task is not None
    return node in task.dependencies and (task.exec_info is None or node in task.exec_info)


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all") -> Any:
    """Call `fn` once per backward pass, when gradients of several tensors are there.

    mode  "all": when all gradients that this pass computes have come; `fn` gets a list, None for the others
          "any": at the first one; `fn` gets that gradient

    >>> import undertow as ut
    >>> a, b = ut.ones(2, requires_grad=True), ut.ones(2, requires_grad=True)
    >>> handle = ut.autograd.graph.register_multi_grad_hook((a, b), lambda grads: print(len(grads)))
    >>> (a * b).sum().backward()
    2
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    return MultiGradHook(tensors, fn, mode)


__all__ = [
    "GradientEdge", "Node", "call_node", "current_graph_task_execution_order",
    "current_graph_task_id", "current_node", "get_gradient_edge",
    "increment_version", "is_graph_kept", "queue_callback", "register_multi_grad_hook", "will_execute_node",
]  # fmt: skip
