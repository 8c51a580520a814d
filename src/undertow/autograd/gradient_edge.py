"""GradientEdge: a point of the graph, without the tensor that was there."""

from __future__ import annotations

from typing import Any, NamedTuple

from undertow.graph.accumulate import gradient_edge
from undertow.graph.node import Node
from undertow.tensor import Tensor


class GradientEdge(NamedTuple):
    """A node and the number of its output; usable wherever grad() and backward() take a tensor.

    It owns the node, so the graph stays alive although the tensor is gone.

    output_nr        the number of its output
    ownership_token  an object that is kept alive with the edge

    >>> import undertow as ut
    >>> x = ut.ones(2, requires_grad=True)
    >>> edge = ut.autograd.graph.get_gradient_edge(2 * x)
    >>> edge.node.name(), edge.output_nr
    ('MulBackward0', 0)
    """

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge at which the gradient of `tensor` arrives.

    >>> import undertow as ut
    >>> x = ut.ones(2, requires_grad=True)
    >>> ut.autograd.graph.get_gradient_edge(x * 2).node.name()
    'MulBackward0'
    """
    edge = gradient_edge(tensor)
    if edge is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients. "
            "Call requires_grad_() on it, or compute it from a tensor that requires grad."
        )
    return GradientEdge(edge[0], edge[1])
