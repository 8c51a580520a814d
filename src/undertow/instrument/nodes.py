"""What instruments ask of nodes and of the results of operations."""

from __future__ import annotations

from types import CodeType
from typing import Any

from undertow.autograd.saved_tensors.ledger import saved_values
from undertow.graph.node import Node
from undertow.tensor import Tensor


def node_of(result: Any) -> Node | None:
    """The node that an operation recorded, if its (first) result has one."""
    if type(result) is tuple and result:
        result = result[0]
    edge = result._edge if isinstance(result, Tensor) else None
    if edge is None or isinstance(edge, Node):
        return edge
    found = edge[0] if isinstance(edge, tuple) else None
    return found if isinstance(found, Node) else None


def place_of(node: Node) -> tuple[CodeType | None, int]:
    """The code that recorded a node, and where in it: leaves have none, and a Function may have set `ctx.code`."""
    code = getattr(node, "code", None)
    return (code, node.lasti) if type(code) is CodeType else (None, 0)


def saved_bytes(node: Node) -> int:
    """How large the tensors are that a node keeps for its backward; those that others keep, too, count."""
    values = [saved.value for saved in saved_values(node)]
    arrays = [value._array if isinstance(value, Tensor) else value for value in values]
    return sum([int(getattr(array, "nbytes", 0)) for array in arrays])
