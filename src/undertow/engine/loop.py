"""The loop that a pass spends its time in: of the nodes that are ready, the one recorded last runs next."""

from __future__ import annotations

from heapq import heappop, heappush, heappushpop
from itertools import count
from sys import getrefcount
from typing import Any

from undertow.backend.interface import Array
from undertow.compiled import core
from undertow.engine.evaluate import capture, evaluate
from undertow.engine.failures import describe_failure
from undertow.engine.graph_root import GraphRoot
from undertow.engine.input_buffer import InputBuffer
from undertow.engine.tasks import RUNS, Capture, ExecInfo, GraphTask
from undertow.engine.validate import conform, expected
from undertow.graph.accumulate import AccumulateGrad, refuse_result
from undertow.graph.node import LAST, Node, OutputEdge, StreamExtra
from undertow.refcounts import IN_VARIABLE

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


def _first_gradient(task: GraphTask, edge: Any, grad: Any) -> Any:
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

    The loop an ordinary pass spends its time in. What keeps it short: one ready node stays out of the heap
    (`following`), AccumulateGrad nodes run on the spot, and a node with one output needs no InputBuffer: the first
    gradient stands for it, then the sum of `owned` nodes, which is the engine's own and added to in place.
    """
    xp, keep = task.xp, task.keep
    general, info, wanted = bool(task.watches), task.exec_info, task.wanted_edges
    dependencies, not_ready = task.dependencies, task.not_ready
    heap: list[tuple[int, int, Node, Any]] = []
    arrival = count().__next__
    in_place = task.in_place
    add, ndarray = xp.add, xp.ndarray
    owned: set[Node] = set()
    try:
        while True:
            # run the node; engine.c: run_node
            edges: Any = node.recorded_edges if wanted is None else wanted.get(node, ())
            extra = node.extra
            if (
                general
                or grad is None
                or (extra is not None and type(extra) is not StreamExtra)
                or (info is not None and info.get(node) is not RUNS)
            ):
                results, edges = evaluate(task, node, grad)
            else:
                results = node.pull(xp, grad, edges, keep)
            following = grad = None
            index = -1
            for edge in edges:
                index += 1
                if edge is None:
                    continue
                received = results[index]
                results[index] = None

                # what the node below receives, and whether that is all of it; engine.c: deliver, gather_gradient
                if type(edge) is OutputEdge:
                    below = edge[0]
                    received = _buffered(task, node, index, edge, received)
                    if dependencies[below]:
                        continue
                    waiting = 1
                else:
                    below = edge
                    if received is not None:
                        if type(received) is not ndarray:
                            received = xp.asarray(received)  # looked up, as the first sparse array changes it
                        if received.dtype is not below.dtype or received.shape != below.shape:
                            received = xp.asarray(conform(node, index, received, below.shape, below.dtype, xp))
                    waiting = dependencies[below]
                    dependencies[below] = waiting - 1
                    if waiting == 1 and (not not_ready or below not in not_ready):
                        pass  # the only one
                    elif received is not None:
                        old = not_ready.get(below)
                        if old is None:
                            not_ready[below] = received
                        elif below in owned:
                            add(old, received, old)
                        else:
                            old = add(old, received)
                            if type(old) is not ndarray:  # a number; or sparse, which a dense one would not fit into
                                old = xp.asarray(old)
                            elif in_place:
                                owned.add(below)
                            not_ready[below] = old
                        old = None
                    if waiting != 1:
                        continue
                    if not_ready and below in not_ready:
                        received = not_ready.pop(below)

                # a node that is ready: run it if it is a leaf's, otherwise keep one at hand and the others in the heap
                if type(below) is AccumulateGrad:
                    if general:  # the heap keeps leaves in the order they came, which `following` would not
                        heappush(heap, (-LAST, arrival(), below, received))
                    else:
                        unshared = in_place and received is not None and getrefcount(received) <= IN_VARIABLE
                        _finish_leaf(task, below, received, unshared)
                elif following is None:
                    following, grad = below, received
                else:
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
