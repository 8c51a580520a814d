"""Passes that go on when more gradients come: the part of one process in a backward pass over several.

`prepare` counts dependencies from everything that may ever start a part of the pass. Each start then runs until nothing
is ready; nodes that wait for gradients of another start keep what they have got. When the last one has come, `finish`
runs the final callbacks.

Guarantees: a task made here is run by one thread at a time, whichever it is; whoever calls sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from undertow.backend import devices_in_use
from undertow.backend.interface import Namespace
from undertow.engine.dependencies import compute_dependencies, init_to_execute
from undertow.engine.devices import touches_devices
from undertow.engine.engine import enter_pass, run_callbacks
from undertow.engine.input_buffer import InputBuffer
from undertow.engine.loop import run_from
from undertow.engine.tasks import GraphRoot, GraphTask
from undertow.graph.node import Node, OutputEdge

#: of the nodes of a pass: the edges whose gradients are captured, their hooks by number, and nodes that are to run
Choice = tuple[Sequence[Any], Mapping[int, Sequence[Callable[[Any], Any]]], Sequence[Node]]


def prepare(
    edges: Sequence[Any],
    starts: Sequence[Node],
    *,
    keep_graph: bool,
    xp: Namespace,
    choose: Callable[[Iterable[Node]], Choice],
) -> GraphTask:
    """A task that counts what every node waits for, if it starts with the edges and with all outputs of `starts`.

    choose  called with all nodes of the pass; only what leads to its choice will run
    """
    task = GraphTask(keep_graph, False, xp, None)
    outputs = [OutputEdge((node, k)) for node in starts for k in range(node._output_count)]
    everything = [*edges, *outputs]
    root = task.root = GraphRoot(everything, [None] * len(everything))
    compute_dependencies(task, root, 0)
    if devices_in_use() and touches_devices(task, ()):
        raise RuntimeError(
            "a backward pass over several processes runs on CPUs, and a part of this graph is on another device. Move "
            "tensors to the CPU before they are used in it, or run backward() on the part that is elsewhere."
        )
    captures, hooks, targets = choose(task.dependencies)
    init_to_execute(task, root, captures, targets, hooks)
    return task


def start_at_edges(task: GraphTask, edges: Sequence[Any], grads: Sequence[Any]) -> None:
    """Send gradients into the edges that the task was prepared with."""
    root = GraphRoot(edges, grads)
    if task.wanted_edges is not None:
        task.wanted_edges[root] = tuple([edge if _is_wanted(task, edge[0]) else None for edge in edges])
    execute_graph_task_until_ready_queue_empty(task, root, True)


def execute_graph_task_until_ready_queue_empty(task: GraphTask, node: Node, grad: Any) -> None:
    """Run a node that starts a part of the pass, and then what is ready.

    grad  its gradient; if it has several outputs a list, or None if nothing flowed into any
    """
    if isinstance(node, GraphRoot) or _is_wanted(task, node):
        copy_context().run(_run, task, node, grad)  # see Note [The context of a pass]


def _is_wanted(task: GraphTask, node: Node) -> bool:
    return task.exec_info is None or node in task.exec_info


def _run(task: GraphTask, node: Node, grad: Any) -> None:
    enter_pass(task)
    run_from(task, node, grad)


def finish(task: GraphTask) -> None:
    """Every start has run: so do the final callbacks."""
    if task.final_callbacks:
        copy_context().run(_finish, task)


def _finish(task: GraphTask) -> None:
    enter_pass(task)
    run_callbacks(task)


def unfinished(task: GraphTask) -> list[Node]:
    """The nodes that have got some of their gradients and wait for others."""
    return [n for n, g in task.not_ready.items() if not isinstance(g, InputBuffer) or g.received() is not None]


def go_on_without(task: GraphTask, never: Sequence[Node], coming: Sequence[Node]) -> None:
    """Let the nodes that wait for one of the starts in `never` go on, as if those had not been counted.

    coming  the other starts for which gradients have not come yet
    """
    alive = reached_from([*unfinished(task), *coming])
    ready = []
    for node in reached_from(never) - alive:
        for edge in node.next_edges:
            if edge is not None and edge[0] in alive:
                task.dependencies[edge[0]] -= 1
                if not task.dependencies[edge[0]]:
                    ready.append(edge[0])
    for node in ready:
        grad = task.not_ready.pop(node, None)
        copy_context().run(_run, task, node, grad.received() if isinstance(grad, InputBuffer) else grad)


def reached_from(nodes: Iterable[Node]) -> set[Node]:
    """The nodes, and all below them."""
    found, stack = set(nodes), list(nodes)
    while stack:
        for edge in stack.pop().next_edges:
            if edge is not None and edge[0] not in found:
                found.add(edge[0])
                stack.append(edge[0])
    return found
