"""What a picture of a graph shows: nodes with a title and facts, and edges; nothing of the graph itself is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.autograd.saved_tensors.ledger import nodes_below
from undertow.graph.accumulate import AccumulateGrad
from undertow.instrument.replay import facts
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.graph.node import Node

#: beyond this many nodes a picture helps nobody
MOST_NODES = 400


class Drawn(NamedTuple):
    """One node: its title, the shape of its gradient, where it was recorded, and whether it is a leaf."""

    title: str
    shape: str
    line: str
    is_leaf: bool


class Graph(NamedTuple):
    """nodes in the order they were recorded; edges as (from, to), the way gradients flow, None for an input without."""

    nodes: list[Drawn]
    edges: list[tuple[int, int]]
    roots: list[int]


def read_graph(outputs: Any, names: Any = None, most: int = MOST_NODES) -> Graph:
    """The graph of `outputs`: a tensor, a node, a gradient edge, or a sequence of them.

    names  of leaves: a module, or a mapping from names to tensors
    """
    nodes = nodes_below(outputs)
    if len(nodes) > most:
        raise ValueError(
            f"the graph has {len(nodes)} nodes, and a picture of more than {most} shows nothing: fold it by module in "
            "the page that undertow.instrument.watch writes, or pass most_nodes="
        )
    known = names_of_leaves(names)
    numbers = {node: k for k, node in enumerate(nodes)}
    lines = facts.Lines()
    drawn = [
        Drawn(title_of(node, known), facts.shape_of(node), short(lines.of(node)[0]), isinstance(node, AccumulateGrad))
        for node in nodes
    ]
    edges = [(k, numbers[edge[0]]) for node, k in numbers.items() for edge in node.next_edges if edge is not None]
    reached = {below for _, below in edges}
    return Graph(drawn, edges, [k for k in range(len(nodes)) if k not in reached])


def title_of(node: Node, names: Mapping[int, str]) -> str:
    if isinstance(node, AccumulateGrad):
        return names.get(id(node.variable), "leaf")
    return facts.title_of(node)


def names_of_leaves(names: Any) -> dict[int, str]:
    """By the identity of the tensor."""
    if names is None:
        return {}
    if hasattr(names, "named_parameters"):
        names = dict(names.named_parameters())
    if not isinstance(names, Mapping) or not all(isinstance(value, Tensor) for value in names.values()):
        raise TypeError("names must be a module, or a mapping from names to tensors")
    return {id(tensor): name for name, tensor in names.items()}


def short(line: str) -> str:
    """A line of the program with the name of its file only."""
    return os.path.basename(line.partition(" in ")[0]) if line else ""


def children_of(graph: Graph) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in graph.nodes]
    for above, below in graph.edges:
        found[above].append(below)
    return found


def several(numbers: Sequence[int]) -> set[int]:
    """Those that occur more than once."""
    seen: set[int] = set()
    return {n for n in numbers if n in seen or seen.add(n)}  # type: ignore[func-returns-value]
