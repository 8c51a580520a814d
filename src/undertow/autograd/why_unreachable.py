"""Why an input of grad() got no gradient: looked for when the error is raised, in what the graph still knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.autograd.saved_tensors.ledger import nodes_below, saved_values, storage_of
from undertow.backend import dtypes
from undertow.errors import AutogradError, UnreachableInputError
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.end_nodes import Identity
from undertow.graph.node import Node, site_of
from undertow.tensor import Tensor, counter_of, version_of

if TYPE_CHECKING:
    from undertow.graph.edges import Edge


def unreachable(index: int, target: Any, edge: Edge, outputs: Sequence[Any]) -> UnreachableInputError:
    """The error for the target at `index`, whose gradient would have arrived at `edge`."""
    shape = tuple(target._array.shape) if isinstance(target, Tensor) else None
    return UnreachableInputError(index, shape, _reason(target, edge[0], nodes_below(outputs)))


def _reason(target: Any, node: Node, nodes: list[Node]) -> str:
    if node in nodes:
        return "the outputs lead to it, but no gradient arrived: an operation on every path returned None for it"
    if isinstance(target, Tensor):
        cut = _use_without_history(target, nodes)
        if cut is not None:
            how = "through detach(), .data or a view made in no_grad"
            return f"{_named(cut)} used its memory, but not its history: {how}"
        if version_of(target):
            change = counter_of(target).last_change()
            told = f" (the last change was {change})" if change else ""
            return (
                f"it was changed in place{told}, and the outputs were computed before that. Take "
                "graph.get_gradient_edge(tensor) before the change, and pass that"
            )
    if type(node) in (AccumulateGrad, Identity):
        return "no operation between it and the outputs was recorded (it was not used, or in no_grad, or as integers)"
    late = all(node.sequence_nr > other.sequence_nr for other in nodes if type(other) is not AccumulateGrad)
    return f"it is the output of {_named(node)}, " + (
        "which was recorded after the outputs" if late else "which the outputs were not computed from"
    )


def _named(node: Node) -> str:
    site = site_of(node)
    return node.name() + (f" (recorded at {site})" if site else "")


def _use_without_history(target: Tensor, nodes: list[Node]) -> Node | None:
    """A node of the graph that saved a tensor which shows the target's memory and requires no grad."""
    storage = storage_of(target._array)
    for node in nodes:
        for _, kind, value in saved_values(node):
            detached = kind != "packed" and isinstance(value, Tensor) and value._edge is None
            if detached and storage_of(value._array) is storage:
                return node
    return None


def not_differentiated(index: int, target: Tensor) -> AutogradError:
    """The error for a target that has no gradient at all."""
    kind = target._array.dtype.kind
    why = (
        "only floating-point and complex tensors have gradients"
        if kind not in dtypes.DIFFERENTIABLE
        else (
            "call requires_grad_() on it before computing the outputs (it may have been detached, or made in no_grad)"
        )
    )
    return AutogradError(
        f"One of the differentiated Tensors does not require grad: input {index}, of shape {list(target._array.shape)} "
        f"and dtype {target._array.dtype}; {why}."
    )
