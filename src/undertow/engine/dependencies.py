"""What a pass will run: what every node waits for, and which nodes lead to what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from undertow.compiled import core
from undertow.engine.tasks import RUNS, Capture, ExecInfo, GraphTask
from undertow.graph.accumulate import resolve_leaves
from undertow.graph.node import LAST, Node, OutputEdge, sequence_order, topological_numbers

NO_HOOKS: Mapping[int, Any] = MappingProxyType({})


def min_topological_nr(
    root: Node, captures: Sequence[Any], targets: Sequence[Node]
) -> tuple[int, dict[Node, int] | None]:
    """No node with a number below the first of these leads to a capture or target; and the numbers of the nodes.

    Sequence numbers grow along every path from a leaf, so they are topological numbers (the second is then None): they
    are drawn from one counter for all threads. Where a program has set one, longest paths are measured instead.
    """
    wanted = [edge[0] if type(edge) is OutputEdge else edge for edge in captures] + list(targets)
    if sequence_order.trusted:
        found = [node.sequence_nr for node in wanted]
        return 0 if LAST in found else min(found), None
    numbers = topological_numbers(root)
    return min([numbers.get(node, 0) for node in wanted]), numbers


def compute_dependencies(task: GraphTask, root: Node, lowest: int, numbers: dict[Node, int] | None = None) -> None:
    """Count, for every node below root, the edges that lead to it.

    Nodes with a number below `lowest` are not entered; their numbers are `numbers` or, if that is None, sequence
    numbers.
    """
    dependencies = task.dependencies
    if core is not None and numbers is None:
        core.compute_dependencies(dependencies, root, lowest)
        return
    stack = [root]
    while stack:
        node = stack.pop()
        edges = node.recorded_edges
        if type(edges) is list:
            resolve_leaves(node, edges)  # See Note [Edges to leaves]
        for edge in edges:
            if edge is not None:
                below = edge[0] if type(edge) is OutputEdge else edge
                if below in dependencies:
                    dependencies[below] += 1
                else:
                    dependencies[below] = 1
                    if not lowest or (below.sequence_nr if numbers is None else numbers[below]) >= lowest:
                        stack.append(below)


def init_to_execute(
    task: GraphTask,
    root: Node,
    captures: Sequence[Any],
    targets: Sequence[Node],
    hooks: Mapping[int, Any] = NO_HOOKS,
    entered_all: bool = True,
) -> None:
    """Fill `exec_info`: mark captures and targets, and every node from which one of them can be reached.

    `wanted_edges` gets, for each of these, its edges to others of these, unless these are all edges.
    """
    info: dict[Node, ExecInfo] = {}
    for index, edge in enumerate(captures):
        node, number = edge if type(edge) is OutputEdge else (edge, 0)
        if node not in info:
            info[node] = ExecInfo()
        info[node].captures.append(Capture(number, index, hooks.get(index, ())))
    for node in targets:
        info.setdefault(node, ExecInfo()).needed = True
    if entered_all and _are_all_ends(task.dependencies, info):
        _choose_all(task, info)
    else:
        _choose_some(task, root, info)
    task.exec_info = info
    task.captured_vars = [None] * len(captures)


def _are_all_ends(nodes: dict[Node, int], chosen: dict[Node, ExecInfo]) -> bool:
    """Whether every one of the nodes that leads nowhere is among the chosen."""
    if core is not None:
        return bool(core.are_all_ends(nodes, chosen))
    return all([node in chosen for node in nodes if not any(node.recorded_edges)])


def _choose_all(task: GraphTask, info: dict[Node, ExecInfo]) -> None:
    """For a graph in which all paths end in nodes that were asked for, as they do where all leaves were."""
    asked = list(info.items())
    info |= dict.fromkeys(task.dependencies, RUNS)
    for node, its_own in asked:
        its_own.needed |= node in task.dependencies and any(node.recorded_edges)
        info[node] = its_own


def _choose_some(task: GraphTask, root: Node, info: dict[Node, ExecInfo]) -> None:
    wanted = task.wanted_edges = {}
    for node in _inputs_first(task, root):
        edges = node.next_edges
        chosen = [e if e is not None and (e[0] if type(e) is OutputEdge else e) in info else None for e in edges]
        if chosen.count(None) < len(chosen):
            wanted[node] = tuple(chosen)
            if node in info:
                info[node].needed = True
            else:
                info[node] = RUNS
    if task.seed is not None:  # the tensor hooks of an only root fire even if no input can be reached
        info.setdefault(root, ExecInfo())


def _inputs_first(task: GraphTask, root: Node) -> list[Node]:
    """Every node of the task, each after the nodes its edges lead to."""
    if not sequence_order.trusted:
        return _topological_order(task, root)[::-1]
    order = sorted([n for n in task.dependencies if n.sequence_nr != LAST], key=attrgetter("sequence_nr"))
    return [*order, root] if task.seed is None else order


def _topological_order(task: GraphTask, root: Node) -> list[Node]:
    """Every node of the task, each before the nodes its edges lead to."""
    waiting = dict(task.dependencies)
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        order.append(node)
        for edge in node.next_edges:
            if edge is not None and edge[0] in waiting:
                waiting[edge[0]] -= 1
                if not waiting[edge[0]]:
                    stack.append(edge[0])
    return order


def execution_order(task: GraphTask) -> list[Node]:
    """The nodes of a task in the order in which it runs them."""
    again = GraphTask(task.keep_graph, task.create_graph, task.xp, None)
    assert task.root is not None
    compute_dependencies(again, task.root, 0)
    order: list[Node] = []
    arrival = count().__next__
    heap = [(-task.root.sequence_nr, arrival(), task.root)]
    while heap:
        node = heappop(heap)[2]
        order.append(node)
        for edge in node.next_edges:
            if edge is not None and (task.exec_info is None or edge[0] in task.exec_info):
                again.dependencies[edge[0]] -= 1
                if not again.dependencies[edge[0]]:
                    heappush(heap, (-edge[0].sequence_nr, arrival(), edge[0]))
    return order[1:] if task.seed is None else order
