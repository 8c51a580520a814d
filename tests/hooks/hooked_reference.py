"""The reference engine with hooks: the order of the specification, written down as plainly as can be.

For every node, latest recorded first: tensor hooks of its outputs, retain_grad, captures, pre-hooks, the node, (for a
leaf: accumulation and post-accumulate hooks), post-hooks. Hooks are found in a registry that the test keeps, not in the
nodes, so nothing of the engine under test takes part.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any

from tests.reference_engine import Edge, GraphRoot, Node, ReferenceEngine, _add, _apply, _fit, _input_count, _is_leaf


class Registry:
    """What was registered where, in order: hooks of (node, output number), and of nodes."""

    def __init__(self) -> None:
        self.tensor: dict[Node, dict[int, list[Any]]] = defaultdict(dict)
        self.retained: dict[Node, list[int]] = defaultdict(list)
        self.pre: dict[Node, list[Any]] = defaultdict(list)
        self.post: dict[Node, list[Any]] = defaultdict(list)
        self.accumulated: dict[Node, list[Any]] = defaultdict(list)

    def add_tensor_hook(self, edge: Edge, hook: Any) -> None:
        self.tensor[edge[0]].setdefault(edge[1], []).append(hook)


class HookedReferenceEngine(ReferenceEngine):
    """One pass, with hooks from a registry.

    captures   edges whose gradients are wanted; None: all nodes run
    run_captured   whether the nodes at these edges run too, as for backward(inputs=...)
    After the pass: `leaves` and `retained` hold the gradients that would be in `.grad`, `captured` those asked for.
    """

    def __init__(self, registry: Registry, captures: Sequence[Edge] | None = None, run_captured: bool = False) -> None:
        self.registry = registry
        self.captures = captures
        self.run_captured = run_captured
        self.leaves: dict[Node, Any] = {}
        self.retained: dict[Edge, Any] = {}
        self.captured: dict[Edge, Any] = {}

    def run(self, root: Edge, gradient: Any) -> None:
        graph_root = GraphRoot([root], [gradient])
        dependencies = self._compute_dependencies(graph_root)
        needed, visited = self._find_needed(graph_root)
        arrival = count().__next__
        ready: list[tuple[int, int, Node, list[Any]]] = [(0, arrival(), graph_root, [])]
        not_ready: dict[Node, list[Any]] = {}
        while ready:
            _, _, node, received = heapq.heappop(ready)
            for edge, result in zip(node.next_functions, self._visit(node, received, needed, visited), strict=False):
                below, nr = edge
                if below is None or below not in visited:
                    continue
                buffer = not_ready.setdefault(below, [None] * _input_count(below))
                buffer[nr] = _add(buffer[nr], _fit(result, below, nr))
                self._free_backward_dependency(dependencies, edge, node)
                if self._is_ready_for_backward(dependencies, below):
                    heapq.heappush(ready, (-below._sequence_nr(), arrival(), below, not_ready.pop(below)))

    def _find_needed(self, graph_root: GraphRoot) -> tuple[set[Node], set[Node]]:
        """The nodes that run, and those that a gradient is computed for."""
        nodes, stack = {graph_root}, [graph_root]
        while stack:
            below = {node for node, _ in stack.pop().next_functions if node is not None} - nodes
            nodes |= below
            stack.extend(below)
        if self.captures is None:
            return nodes, nodes
        visited = {edge[0] for edge in self.captures}
        needed = set(visited) if self.run_captured else set()
        visited |= {node for node, _ in graph_root.next_functions}  # the only root has its gradient, wanted or not
        grew = True
        while grew:
            leading = {n for n in nodes if any(below in visited for below, _ in n.next_functions if below is not None)}
            grew = not leading <= needed
            needed |= leading
            visited |= leading
        return needed, visited

    def _visit(self, node: Node, grads: list[Any], needed: set[Node], visited: set[Node]) -> Sequence[Any]:
        if isinstance(node, GraphRoot):
            return node()
        for nr, hooks in self.registry.tensor[node].items():
            for hook in hooks:
                grads[nr] = _replaced(grads[nr], hook(grads[nr]))
        for nr in self.registry.retained[node]:
            self.retained[node, nr] = grads[nr]
        for edge in self.captures or ():
            if edge[0] is node:
                self.captured[edge] = grads[edge[1]]
        if node not in needed:
            return ()
        for hook in self.registry.pre[node]:
            grads = list(_replaced(tuple(grads), hook(tuple(grads))))
        results = self._run(node, list(grads))
        if not hasattr(node, "saved_tensors"):  # only a Function computes gradients that nobody wants
            results = tuple(r if e[0] in visited else None for r, e in zip(results, node.next_functions, strict=False))
        for hook in self.registry.post[node]:
            results = _replaced(results, hook(results, tuple(grads)))
        return results

    def _run(self, node: Node, grads: list[Any]) -> tuple[Any, ...]:
        if not _is_leaf(node):
            return () if all(g is None for g in grads) else _apply(node, grads)
        if grads[0] is not None:
            self.leaves[node] = grads[0]
            for hook in self.registry.accumulated[node]:
                hook(node.variable)
        return ()


def _replaced(old: Any, new: Any) -> Any:
    return old if new is None else new
