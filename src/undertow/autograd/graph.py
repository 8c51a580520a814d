"""The graph as a user sees it: nodes, edges, hooks on several tensors, and what is running now."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.autograd.gradient_edge import GradientEdge as GradientEdge
from undertow.autograd.gradient_edge import get_gradient_edge as get_gradient_edge
from undertow.autograd.saved_tensors import are_saved_tensors_hooks_enabled as are_saved_tensors_hooks_enabled
from undertow.autograd.saved_tensors import disable_saved_tensors_hooks as disable_saved_tensors_hooks
from undertow.autograd.saved_tensors import make_saved_tensor as make_saved_tensor
from undertow.autograd.saved_tensors import save_on_cpu as save_on_cpu
from undertow.autograd.saved_tensors import saved_tensors_hooks as saved_tensors_hooks
from undertow.engine.dependencies import execution_order
from undertow.engine.devices import set_warn_on_accumulate_grad_stream_mismatch
from undertow.engine.engine import engine
from undertow.engine.parallel_branches import set_parallel_branches
from undertow.engine.tasks import GraphTask, current_task
from undertow.engine.validate import conform, expected
from undertow.graph import node as _node
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.saved import SavedTensor as SavedTensor
from undertow.lazy_names import loaded_when_used as _loaded_when_used
from undertow.modes import current
from undertow.ops.declare.recorded_namespace import recorded
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.autograd.saved_tensors.allow_mutation import MutationContext as MutationContext
    from undertow.autograd.saved_tensors.allow_mutation import (
        allow_mutation_on_saved_tensors as allow_mutation_on_saved_tensors,
    )
    from undertow.autograd.saved_tensors.ledger import SavedTensorsReport as SavedTensorsReport
    from undertow.autograd.saved_tensors.ledger import saved_tensors_report as saved_tensors_report
    from undertow.autograd.saved_tensors.to_disk_or_compressed import compress_saved as compress_saved
    from undertow.autograd.saved_tensors.to_disk_or_compressed import save_on_disk as save_on_disk
    from undertow.autograd.version_counters import increment_version as increment_version
    from undertow.autograd.version_counters import unsafe_preserve_version_counter as unsafe_preserve_version_counter
    from undertow.autograd.version_counters import unsafe_set_version_counter as unsafe_set_version_counter
    from undertow.backend.interface import Array
else:
    __getattr__, __dir__ = _loaded_when_used(
        __name__,
        names={
            "undertow.autograd.saved_tensors.allow_mutation": "MutationContext allow_mutation_on_saved_tensors",
            "undertow.autograd.saved_tensors.ledger": "SavedTensorsReport saved_tensors_report",
            "undertow.autograd.saved_tensors.to_disk_or_compressed": "compress_saved save_on_disk",
            "undertow.autograd.version_counters": "increment_version unsafe_preserve_version_counter "
            "unsafe_set_version_counter",
        },
    )


class Node(abc.ABC):  # noqa: B024  (nobody derives from it)
    """What every grad_fn is an instance of; a virtual base, in no node's mro.

    name()                the name of the class, such as `MulBackward0`
    next_functions        for each differentiable input, the node it came from and the number of that node's output
    metadata              a dict for whatever you like
    register_hook(f)      `f(grad_inputs, grad_outputs)` is called after the node has run, and may return other
                          `grad_inputs`; the handle that is returned removes it
    register_prehook(f)   `f(grad_outputs)` is called before, and may return others

    >>> import undertow as ut
    >>> y = ut.ones(2, requires_grad=True) * 2
    >>> isinstance(y.grad_fn, ut.autograd.graph.Node)
    True
    """

    @classmethod
    def __subclasshook__(cls, subclass: type) -> Any:
        if cls is not Node or subclass is Node:
            return NotImplemented
        return issubclass(subclass, _node.Node)


def call_node(node: _node.Node, *grads: Any) -> Any:
    """Run a node by hand: `grad_fn(*gradients of its outputs)`, recorded if grad mode is on.

    Returns one gradient, or a tuple if the operation has several differentiable inputs. Saved values are kept, and
    hooks do not run: they belong to backward passes.

    *grads  a gradient for each output, or None

    >>> import undertow as ut
    >>> y = 2 * ut.ones(2, requires_grad=True)
    >>> ut.autograd.graph.call_node(y.grad_fn, ut.ones(2))
    (tensor([2., 2.]), None)
    """
    expected_count = len(node._input_metadata)
    if len(grads) != expected_count:
        raise TypeError(f"{node.name()} expected {expected_count} arguments, got {len(grads)} instead")
    for grad in grads:
        if grad is not None and not isinstance(grad, Tensor):
            raise TypeError(f"{node.name()} expected Tensors or None, got {type(grad).__name__}")
    if not node.wants_undefined and all(g is None for g in grads):
        results: list[Any] = [None] * len(node.next_edges)
    else:
        rest = [None] * (node._output_count - expected_count)
        results = node.pull(recorded, [*grads, *rest] if node.multiple_outputs else grads[0], node.next_edges, True)
    fitting = [_conformed(node, index, g) for index, g in enumerate(results)]
    return fitting[0] if len(fitting) == 1 else tuple(fitting)


def _conformed(node: _node.Node, index: int, grad: Tensor | None) -> Tensor | None:
    edge = node.next_edges[index]
    if grad is None or edge is None:
        return grad
    shape, dtype = expected(edge[0], edge[1])
    return conform(node, index, grad, shape, dtype, recorded)


def current_node() -> _node.Node | None:
    """The node whose backward is running in this thread, or None.

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> y = 2 * x
    >>> _ = y.register_hook(lambda g: print(ut.autograd.graph.current_node().name()))
    >>> y.backward()
    MulBackward0
    """
    task = current_task()
    return None if task is None else task.node


def current_graph_task_id() -> int:
    """The number of the backward pass running in this thread, or -1.

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> y = 2 * x
    >>> _ = y.register_hook(lambda g: print(ut.autograd.graph.current_graph_task_id() >= 0))
    >>> y.backward()
    True
    """
    task = current_task()
    return -1 if task is None else task.id


def is_graph_kept() -> bool:
    """Whether the running backward pass keeps the graph.

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> y = 2 * x
    >>> _ = y.register_hook(lambda g: print(ut.autograd.graph.is_graph_kept()))
    >>> y.backward()
    False
    """
    task = current_task()
    if task is None:
        raise RuntimeError("is_graph_kept should only be called during the backward pass")
    return task.keep_graph


def will_execute_node(node: Node) -> bool:
    """Whether the running backward pass has run, or will run, `node`, or captures a gradient on its way into it.

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> y = 2 * x
    >>> _ = y.register_hook(lambda g: print(ut.autograd.graph.will_execute_node(y.grad_fn)))
    >>> y.backward()
    True
    """
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
    return True


def current_graph_task_execution_order() -> list[_node.Node]:
    """The nodes of the running backward pass in the order they run in; needs multithreading switched off.

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> y = 2 * x
    >>> order = ut.autograd.graph.current_graph_task_execution_order
    >>> _ = y.register_hook(lambda g: print([node.name() for node in order()]))
    >>> with ut.autograd.set_multithreading_enabled(False):
    ...     y.backward()
    ['MulBackward0', 'undertow::autograd::AccumulateGrad']
    """
    task = current_task()
    if task is None:
        raise RuntimeError("current_graph_task_execution_order should only be called during the backward pass")
    if current().multithreading:
        raise RuntimeError(
            "current_graph_task_execution_order expects the current backward to be executed with multithreading "
            "disabled, e.g. by running: with undertow.autograd.set_multithreading_enabled(False): ..."
        )
    return execution_order(task)


def queue_callback(callback: Callable[[], None], outermost: bool = False) -> None:
    """Call `callback()` once, when the backward pass that is running in this thread has finished.

    outermost  when the whole pass has finished, if this one runs inside a node of another: a re-entrant checkpoint runs
               a pass of its own, and whoever waits for the gradients of all parameters must not take its end for theirs

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> y = 2 * x
    >>> _ = y.register_hook(lambda g: ut.autograd.graph.queue_callback(lambda: print("the pass is over")))
    >>> y.backward()
    the pass is over
    """
    engine.queue_callback(callback, outermost)


class MultiGradHook:
    """One hook on several tensors; see `register_multi_grad_hook`. It owns neither the tensors nor their graph."""

    def __init__(self, tensors: Sequence[Tensor], function: Callable[[Any], None], mode: str) -> None:
        self.function = function
        self.mode = mode
        if mode == "any":
            tensors = [t for t in tensors if requires_grad(t)]  # no gradient comes to the others
        self.nodes = [_weak_node(t) for t in tensors]
        # Passes of several threads, and device threads of one pass, come here at once, and so may a destructor's that
        # interrupts one of them. So there is no lock: what is shared is changed by single operations of a dict and of a
        # list. Keyed by pass, weakly, so that nothing is left of one that failed half-way.
        self.arrived: weakref.WeakKeyDictionary[GraphTask, Arrivals] = weakref.WeakKeyDictionary()
        self.handles = [t.register_hook(self.arrival(i)) for i, t in enumerate(tensors)]

    def arrival(self, index: int) -> Callable[[Any], None]:
        def hook(grad: Array) -> None:
            due = self.collect(index, grad)
            if due is not None:
                self.function(due)

        return hook

    def collect(self, index: int, grad: Array) -> Any:
        """What the user's function is to be called with now, or None."""
        task = current_task()
        assert task is not None, "tensor hooks run in backward passes only"
        arrivals, known = None, self.arrived.get(task)
        if known is None:
            arrivals = Arrivals([node() for node in self.nodes], task)
            known = self.arrived.setdefault(task, arrivals)
        if self.mode == "any":
            return grad if known is arrivals else None
        return known.add(index, grad)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


class Arrivals:
    """The gradients that have come to a MultiGradHook in one pass, and how many are still to come."""

    def __init__(self, nodes: Sequence[Any], task: GraphTask) -> None:
        self.grads: list[Any] = [None] * len(nodes)
        self.left = list(range(sum(_is_reached(node, task) for node in nodes)))  # each that comes takes one; 0 is last

    def add(self, index: int, grad: Array) -> list[Any] | None:
        """All of them, once the last has come."""
        self.grads[index] = grad
        return self.grads if self.left.pop() == 0 else None


def _weak_node(tensor: Tensor) -> Callable[[], _node.Node | None]:
    """Finds the node that a tensor's gradient arrives at, as long as it exists, without keeping it alive."""
    node = get_gradient_edge(tensor).node
    if not isinstance(node, AccumulateGrad):
        return weakref.ref(node)
    leaf = weakref.ref(tensor)  # its node may die, and be made again for the next graph

    def accumulate_node() -> _node.Node | None:
        alive = leaf()
        return None if alive is None else get_gradient_edge(alive).node

    return accumulate_node


def _is_reached(node: Node, task: GraphTask) -> bool:
    """Whether a gradient arrives at the node in the pass: it runs, or is captured on its way in."""
    return node in task.dependencies and (task.exec_info is None or node in task.exec_info)


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all") -> Any:
    """Call `fn` once per backward pass, when gradients of several tensors are there.

    mode  "all": when all gradients that this pass computes have come; `fn` gets a list, None for the others
          "any": at the first one; `fn` gets that gradient. Tensors that do not require grad are left out

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
    "GradientEdge", "Node", "SavedTensor", "SavedTensorsReport", "allow_mutation_on_saved_tensors",
    "are_saved_tensors_hooks_enabled", "call_node", "compress_saved", "current_graph_task_execution_order",
    "current_graph_task_id", "current_node", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
    "is_graph_kept", "make_saved_tensor", "queue_callback", "register_multi_grad_hook", "save_on_cpu",
    "save_on_disk", "saved_tensors_hooks", "saved_tensors_report", "set_parallel_branches",
    "set_warn_on_accumulate_grad_stream_mismatch", "will_execute_node",
]  # fmt: skip
