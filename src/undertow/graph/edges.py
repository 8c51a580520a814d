"""Edges: where a gradient goes on to.

Note [Edges]: an edge is a node and the number of one of its outputs, `edge[0]` and `edge[1]`. Since every recorded
operation makes edges, and most nodes have one output and most leaves no node yet, there are four ways to write one:

    a Node        itself, if it has one output: output 0 of it
    OutputEdge    (node, number), if the node has several outputs
    LEAF          (None, 0), as a Tensor's `_edge` only: the tensor is a leaf that asks for a gradient, and its
                  AccumulateGrad node is found, or made, by `gradient_edge`
    a Tensor      in a Node's `recorded_edges` only: a leaf in the place of its AccumulateGrad node
                  (Note [Edges to leaves] in graph/node.py); `next_edges` never holds one

None stands where no gradient is asked for. An Edge is one of the first two.

Whom to ask for the edge of a tensor:

    tensor._edge                 what was noted last; of a view it may be out of date
    current_edge(tensor)         that, after changes of its memory through a relative       tensor/tensor.py
    recorded_edge(tensor)        that, or a Cut: what an operation on the tensor records    graph/history.py
    gradient_edge(tensor)        the current edge with LEAF resolved: an Edge or None       graph/accumulate.py
    leaf_edge(leaf)              the AccumulateGrad of a leaf, made if there is none; `leaf_edge_at`, of the time when a
                                 node was recorded; on the stream of the node that used it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from undertow.graph.node import Node


class OutputEdge(tuple[Any, int]):
    """The edge to one output of a node that has several: (node, output number)."""

    __slots__ = ()


Edge: TypeAlias = "Node | OutputEdge"
