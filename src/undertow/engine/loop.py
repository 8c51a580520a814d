"""The loop that a pass spends its time in: of the nodes that are ready, the one recorded last runs next."""

from __future__ import annotations

from heapq import heappop, heappush, heappushpop
from itertools import count
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array
from undertow.compiled import core
from undertow.engine.evaluate import capture, evaluate
from undertow.engine.failures import describe_failure
from undertow.engine.input_buffer import InputBuffer
from undertow.engine.tasks import RUNS, Capture, ExecInfo, GraphRoot, GraphTask
from undertow.engine.validate import conform, expected
from undertow.graph.accumulate import AccumulateGrad, refuse_result
from undertow.graph.node import Node, OutputEdge, StreamExtra
from undertow.refcounts import IN_VARIABLE

if TYPE_CHECKING:
    from undertow.graph.edges import Edge

#: in place of a gradient, for a GraphRoot, which has the gradients for all roots
ITS_OWN = True


def run_on_this_thread(task: GraphTask, root: Node) -> None:
    run_from(task, root, ITS_OWN if task.seed is None else _first_gradient(task, *task.seed))


def run_from(task: GraphTask, node: Node, grad: Any) -> None:
    """Run a node, and then whatever is ready, until nothing is."""
    if type(node) is AccumulateGrad:
        evaluate(task, node, grad)
    elif core is None or (task.watches and task.rows is None):
        _run_loop(task, node, grad)
    else:
        _run_compiled(task, node, grad)


def _first_gradient(task: GraphTask, edge: Edge, grad: Array) -> Any:
    """What an only root is called with, for the gradient that the caller gave."""
    node, nr = edge[0], edge[1]
    if grad is not None:
        grad = task.xp.asarray(grad)
        shape, dtype = expected(node, nr)
        if grad.shape != shape or grad.dtype is not dtype:
            grad = task.xp.asarray(conform(GraphRoot((edge,), (grad,)), 0, grad, shape, dtype, task.xp))
    if not node.multiple_outputs or grad is None:
        return grad
    received = [None] * len(node._shapes)
    received[nr] = grad
    return received


def _run_loop(task: GraphTask, node: Node, grad: Any) -> None:
    """Run the task, starting with its root and the gradient for that.

    What keeps it short: one ready node stays out of the heap (`following`), AccumulateGrad nodes run on the spot, and
    what a node with one output receives needs no InputBuffer. csrc/backward/engine.c has the same steps.
    """
    xp, keep, in_place, ndarray = task.xp, task.keep, task.in_place, task.xp.ndarray
    general, info, wanted = bool(task.watches), task.exec_info, task.wanted_edges
    dependencies, not_ready, owned = task.dependencies, task.not_ready, set[Node]()
    heap: list[tuple[int, int, Node, Any]] = []
    arrival = count().__next__
    try:
        while True:
            # run the node
            edges: Any = node.recorded_edges if wanted is None else wanted.get(node, ())
            is_special = node.extra is not None and type(node.extra) is not StreamExtra
            if general or is_special or grad is None or (info is not None and info.get(node) is not RUNS):
                results, edges = evaluate(task, node, grad)
            else:
                results = node.pull(xp, grad, edges, keep)

            # deliver its gradients
            following = grad = None
            for index, edge in enumerate(edges):
                if edge is None:
                    continue
                received = results[index]
                results[index] = None
                is_alike = type(edge) is not OutputEdge and type(received) is ndarray and received.dtype is edge.dtype
                if is_alike and received.shape == edge.shape and dependencies[edge] == 1 and edge not in not_ready:
                    below = edge
                    dependencies[below] = 0  # the only gradient for it, and it fits
                else:
                    below = edge[0] if type(edge) is OutputEdge else edge
                    received = _delivered(task, owned, node, index, edge, received)
                    if dependencies[below]:
                        continue

                # a node that is ready: run it if it is a leaf's, otherwise keep one at hand and the others in the heap
                is_leaf = type(below) is AccumulateGrad
                if is_leaf and not general:
                    unshared = in_place and received is not None and getrefcount(received) <= IN_VARIABLE
                    _finish_leaf(task, below, received, unshared)
                elif following is None and not is_leaf:
                    following, grad = below, received
                else:  # and leaves of a watched pass, in the order they came, which `following` would not keep
                    heappush(heap, (-below.sequence_nr, arrival(), below, received))
                received = None

            # the next node: of those that are ready, the one recorded last
            if following is None:
                if not heap:
                    return
                _, _, node, grad = heappop(heap)
            elif heap:
                _, _, node, grad = heappushpop(heap, (-following.sequence_nr, arrival(), following, grad))
            else:
                node = following
    except BaseException as error:
        describe_failure(task, node, error)
        raise


def _delivered(task: GraphTask, owned: set[Node], producer: Node, index: int, edge: Any, grad: Array) -> Any:
    """Count a gradient, and add it to others that came for the node; what the node receives, if it was the last."""
    if type(edge) is OutputEdge:
        return _buffered(task, producer, index, edge, grad)
    if grad is not None:
        grad = task.xp.asarray(grad)
        if grad.dtype is not edge.dtype or grad.shape != edge.shape:
            grad = task.xp.asarray(conform(producer, index, grad, edge.shape, edge.dtype, task.xp))
    task.dependencies[edge] -= 1
    is_only_one = not task.dependencies[edge] and edge not in task.not_ready
    return grad if is_only_one else _gathered(task, owned, edge, grad)


def _gathered(task: GraphTask, owned: set[Node], node: Node, grad: Array) -> Array | None:
    """Add one of several gradients to those that came for a node with one output; their sum, if it is the last.

    The first stands for the sum; then the sum is the engine's own (`owned`), and added to in place.
    """
    not_ready = task.not_ready
    old = not_ready.get(node)
    if grad is not None:
        if old is None:
            not_ready[node] = grad
        elif node in owned:
            task.xp.add(old, grad, old)
        else:
            not_ready[node] = total = task.xp.add(old, grad)
            if type(total) is not task.xp.ndarray:  # a number; or sparse, which a dense one would not fit into
                not_ready[node] = task.xp.asarray(total)
            elif task.in_place:
                owned.add(node)
    return None if task.dependencies[node] else not_ready.pop(node, None)


def _run_compiled(task: GraphTask, root: Node, grad: Any) -> None:
    """What `_run_loop` does, by the compiled core, for a pass that nobody watches but a profile."""
    running = [root]
    try:
        core.run_pass(task, root, grad, running)
    except BaseException as error:
        describe_failure(task, running[0], error)
        raise


def _buffered(task: GraphTask, producer: Node, index: int, edge: OutputEdge, grad: Array | None) -> list[Any] | None:
    """Add a gradient to the InputBuffer of a node with several outputs; its content once nothing is waited for."""
    node, nr = edge
    xp = task.xp
    if grad is not None:
        grad = xp.asarray(grad)
        if grad.shape != node._shapes[nr] or grad.dtype is not node._dtypes[nr]:
            grad = xp.asarray(conform(producer, index, grad, node._shapes[nr], node._dtypes[nr], xp))
    buffer = task.not_ready.get(node)
    if buffer is None:
        if task.dependencies[node] == 1:  # the only one that will come
            task.dependencies[node] = 0
            slots = [None] * len(node._shapes)
            slots[nr] = grad
            return None if grad is None else slots
        buffer = task.not_ready[node] = InputBuffer(len(node._shapes))
    buffer.add(nr, grad, xp, in_place=task.in_place)
    task.dependencies[node] -= 1
    if task.dependencies[node]:
        return None
    del task.not_ready[node]
    return buffer.received()


def _finish_leaf(task: GraphTask, node: AccumulateGrad, grad: Array | None, unshared: bool) -> None:
    """Run an AccumulateGrad node: hooks of the leaf, accumulation, hooks again. See Note [Hook order]."""
    extra = node.variable._extra
    own = node.extra
    rare = None if extra is None else extra.rare
    if own is not None and type(own) is not StreamExtra:
        evaluate(task, node, grad, unshared)
    elif rare is not None and not rare.is_quiet:
        if rare.only_calls_back and grad is not None and task.exec_info is None and not task.watches:
            _accumulate_and_call_back(task, node, grad, unshared)
        else:
            evaluate(task, node, grad, unshared)
    elif task.exec_info is not None and not capture(task, node, [grad]):
        return
    elif grad is not None:
        node.accumulate(grad, unshared and task.exec_info is None)


def _accumulate_and_call_back(task: GraphTask, node: AccumulateGrad, grad: Array, unshared: bool) -> None:
    """What `evaluate` does where nothing hangs on a leaf but functions to call when it has its gradient."""
    task.node = node
    try:
        node.accumulate(grad, unshared)
        node.run_post_accumulate_hooks()
    except BaseException as error:
        describe_failure(task, node, error)
        raise
    finally:
        task.node = None


if core is not None:
    core.bind(
        RUNS=RUNS, ExecInfo=ExecInfo, Capture=Capture, evaluate=evaluate, buffered=_buffered, conform=conform,
        finish_leaf=_finish_leaf, describe_failure=describe_failure, refuse_result=refuse_result, pause=lambda: None,
    )  # fmt: skip
