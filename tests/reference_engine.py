"""The first autograd engine, kept as the reference that the real engine must agree with.

It is PyTorch's earliest `ExecutionEngine`, a sequential loop over ready nodes, brought to multi-output
nodes and several roots.  It runs on one thread, knows no hooks, queues, devices or captures, and looks at a
graph only through what a node shows to a user:

- `node.next_functions`: the edges, `(node, input_nr)`, with `(None, 0)` for an input without gradient;
- `node(*gradients)`: apply; a tuple with one entry per edge, or the single entry itself;
- `node._input_metadata[input_nr]`: how many gradients a node takes, and their shape and dtype;
- `node.variable`, on an AccumulateGrad: the leaf.  Such a node is never called, so `.grad` is not touched.

Any library with that surface will do: undertow, and PyTorch itself.  Whether the gradients carry a graph of
their own is the caller's choice of grad mode, since this engine just calls nodes and adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

Tensor = Any
Node = Any
Edge = tuple[Node, int]
Dependencies = dict[Node, list[Counter[Node]]]


class GraphRoot:
    """A node before the roots, so that several, equal or dependent roots are one ordinary case."""

    def __init__(self, roots: Sequence[Edge], gradients: Sequence[Tensor]) -> None:
        self.next_functions = tuple(roots)
        self._gradients = tuple(gradients)

    def __call__(self) -> tuple[Tensor, ...]:
        return self._gradients


class ReferenceEngine:
    """Runs one backward pass at a time, on the calling thread, and returns the gradients of the leaves."""

    def run_backward(self, roots: Sequence[Edge], gradients: Sequence[Tensor]) -> dict[Tensor, Tensor]:
        """Return {leaf: gradient} for every leaf that a gradient reached."""
        graph_root = GraphRoot(roots, gradients)
        dependencies = self._compute_dependencies(graph_root)
        ready: list[tuple[Node, list[Tensor | None]]] = [(graph_root, [])]
        not_ready: dict[Node, list[Tensor | None]] = {}
        leaves: dict[Tensor, Tensor] = {}

        while ready:
            node, received = ready.pop()
            if _is_leaf(node):
                if received[0] is not None:
                    leaves[node.variable] = received[0]
                continue
            for edge, gradient in zip(node.next_functions, _apply(node, received), strict=True):
                next_node, input_nr = edge
                if next_node is None:
                    continue
                buffer = not_ready.setdefault(next_node, [None] * _input_count(next_node))
                buffer[input_nr] = _add(buffer[input_nr], _fit(gradient, next_node, input_nr))
                self._free_backward_dependency(dependencies, edge, node)
                if self._is_ready_for_backward(dependencies, next_node):
                    ready.append((next_node, not_ready.pop(next_node)))

        assert not not_ready, "a node kept waiting for a gradient that never came"
        return leaves

    def _compute_dependencies(self, graph_root: GraphRoot) -> Dependencies:
        """For each input of each node, count the edges that will deliver to it, by the node they leave."""
        dependencies: Dependencies = {}
        seen: set[Node] = {graph_root}
        queue: list[Node] = [graph_root]
        while queue:
            node = queue.pop()
            for next_node, input_nr in node.next_functions:
                if next_node is None:
                    continue
                if next_node not in seen:
                    seen.add(next_node)
                    queue.append(next_node)
                    dependencies[next_node] = [Counter() for _ in range(_input_count(next_node))]
                dependencies[next_node][input_nr][node] += 1
        return dependencies

    def _free_backward_dependency(self, dependencies: Dependencies, edge: Edge, node: Node) -> None:
        """Strike out one delivery of `node` along `edge`."""
        next_node, input_nr = edge
        waiting_for = dependencies[next_node][input_nr]
        waiting_for[node] -= 1
        if waiting_for[node] == 0:
            del waiting_for[node]

    def _is_ready_for_backward(self, dependencies: Dependencies, node: Node) -> bool:
        return not any(dependencies[node])


def _is_leaf(node: Node) -> bool:
    return not node.next_functions and hasattr(node, "variable")


def _input_count(node: Node) -> int:
    return len(node._input_metadata)


def _apply(node: Node, received: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    result = node(*received)
    return result if isinstance(result, tuple) else (result,)


def _add(total: Tensor | None, gradient: Tensor | None) -> Tensor | None:
    """Out of place: a gradient may be shared with another edge, or be the caller's own."""
    if total is None or gradient is None:
        return gradient if total is None else total
    return total + gradient


def _fit(gradient: Tensor | None, node: Node, input_nr: int) -> Tensor | None:
    """Bring a gradient to what its receiver recorded: rules leave broadcasting, dtype and realness alone."""
    if gradient is None:
        return None
    expected = node._input_metadata[input_nr]
    gradient = _sum_to_shape(gradient, tuple(expected.shape))
    if _is_complex(gradient.dtype) and not _is_complex(expected.dtype):
        gradient = gradient.real
    return gradient if gradient.dtype == expected.dtype else gradient.to(expected.dtype)


def _is_complex(dtype: Any) -> bool:
    return "complex" in str(dtype)


def _sum_to_shape(gradient: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(gradient.shape) == shape:
        return gradient
    extra = gradient.ndim - len(shape)
    stretched = [extra + i for i, n in enumerate(shape) if n == 1 and gradient.shape[extra + i] != 1]
    return gradient.sum(dim=(*range(extra), *stretched), keepdim=True).reshape(shape)
