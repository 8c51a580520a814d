"""One node, with everything that may hang on it.

Note [Hook order]: for a node: tensor hooks of its outputs, retain_grad, captures for grad()/inputs=, node pre-hooks,
apply, node post-hooks. For a leaf: tensor hooks, pre-hooks, accumulation, post-accumulate hooks, post-hooks.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

from undertow.engine.failures import describe_failure
from undertow.engine.tasks import GraphRoot, GraphTask
from undertow.engine.validate import conform, conform_to_receiver, expected
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from undertow.graph.node import Node
from undertow.refcounts import IN_LIST_AND_VARIABLE

if TYPE_CHECKING:
    from undertow.graph.edges import Edge


def evaluate(task: GraphTask, node: Node, grad: Any, unshared: bool = False) -> tuple[list[Any], tuple[Any, ...]]:
    """Run one node with everything that may hang on it: hooks, captures, undefined gradients, chosen inputs.

    unshared: nobody outside the engine holds `grad`.
    Returns its results and the edges they are for (None where nobody wants one).
    """
    edges = _wanted_edges(task, node)
    if type(node) is GraphRoot:  # which nobody watches, and which has no hooks
        return list(node.grads), edges
    xp = task.xp
    task.node = node
    try:
        if grad is not None and not task.watches and task.exec_info is None and _has_no_hooks(node):
            return _evaluate_unhooked(task, node, grad, edges), edges
        grads = list(grad) if node.multiple_outputs and grad is not None else [grad]
        if node.multiple_outputs and grad is None:
            grads = [None] * node._output_count
        grads = run_tensor_hooks(node, grads, xp)
        if task.exec_info is not None and not capture(task, node, grads):
            return [], ()
        grads = run_pre_hooks(node, grads, xp)
        for nr, g in enumerate(grads):
            if g is not None:
                shape, dtype = expected(node, nr)
                grads[nr] = conform(node, nr, g, shape, dtype, xp)
        for watch in task.watches:
            watch.before(node, grads)
        post_hooks = _post_hooks(node)
        if type(node) is AccumulateGrad:
            _accumulate(task, node, grads, unshared if grads[0] is grad else task.in_place)
            results = []
        else:
            keep = True if node.extra is not None or task.watches else task.keep
            results = _pull(task, node, grads, edges, keep)
        if _post_hooks(node):
            # hooks that were registered while the node ran do not see the gradients it was given
            results = _fitted(task, node, results)
            results = run_post_hooks(node, results, grads if post_hooks else [None] * len(grads), xp)
        for watch in task.watches:
            watch.after(node, grads, results)
        if (node.extra is not None or task.watches) and not task.keep_graph:
            node.release(task.keep)
        return results, edges
    except BaseException as error:
        describe_failure(task, node, error)
        raise
    finally:
        task.node = None


def _has_no_hooks(node: Node) -> bool:
    """Whether a node of an operation is here for what it saved alone."""
    return node.extra is not None and node.extra.hooks is None and not type(node).is_of_leaf


def _evaluate_unhooked(task: GraphTask, node: Node, grad: Any, edges: tuple[Edge | None, ...]) -> list[Any]:
    """Run a node whose saved tensors were packed, or asked for: they are released as its class does it."""
    if node.multiple_outputs:
        grads = list(grad)
        for nr, g in enumerate(grads):
            if g is not None:
                shape, dtype = expected(node, nr)
                if g.shape != shape or g.dtype is not dtype:
                    grads[nr] = conform(node, nr, g, shape, dtype, task.xp)
        results = _pull(task, node, grads, edges, True)
    else:
        if grad.shape != node.shape or grad.dtype is not node.dtype:
            grad = conform(node, 0, grad, node.shape, node.dtype, task.xp)
        results = node.pull(task.xp, grad, edges, True)
    if _post_hooks(node):  # registered while the node ran
        unseen = [None] * (node._output_count if node.multiple_outputs else 1)
        results = run_post_hooks(node, _fitted(task, node, results), unseen, task.xp)
    if not task.keep_graph:
        node.release(task.keep)
    return results


def _fitted(task: GraphTask, node: Node, results: list[Any]) -> list[Any]:
    """The results as they would arrive at the other ends of their edges, which is what post-hooks are to see.

    Among them are gradients that a Function has computed and that nobody wants.
    """
    recorded = None if task.in_place else task.xp
    return [
        None if edge is None else conform_to_receiver(node, index, results[index], edge, recorded)
        for index, edge in enumerate(node.next_edges)
    ]


def _post_hooks(node: Node) -> Any:
    return node.extra is not None and node.extra.hooks is not None and node.extra.hooks.post


def _accumulate(task: GraphTask, node: AccumulateGrad, grads: list[Any], unshared: bool) -> None:
    """`unshared` is what is known of the array; a hook that returned it may have kept it."""
    if grads[0] is not None:
        node.accumulate(grads[0], unshared and getrefcount(grads[0]) <= IN_LIST_AND_VARIABLE)
        node.run_post_accumulate_hooks()


def _pull(task: GraphTask, node: Node, grads: list[Any], edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
    if not node.wants_undefined and all(g is None for g in grads):
        if not keep:
            node.release(keep)
        return [None] * len(edges)
    return node.pull(task.xp, grads if node.multiple_outputs else grads[0], edges, keep)


def _wanted_edges(task: GraphTask, node: Node) -> tuple[Any, ...]:
    if task.wanted_edges is None:
        return node.next_edges
    return task.wanted_edges.get(node) or (None,) * len(node.next_edges)


def capture(task: GraphTask, node: Node, grads: list[Any]) -> bool:
    """Store the gradients that were asked for on their way into the node; whether the node is to run."""
    assert task.exec_info is not None
    info = task.exec_info[node]
    for capture in info.captures:
        grad = grads[capture.input_idx]
        for hook in capture.hooks:
            grad = hook(grad)
        task.captured_vars[capture.output_idx] = grad
    return info.needed
