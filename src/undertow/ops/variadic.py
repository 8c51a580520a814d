"""Operations on a list of tensors: cat, stack, einsum.

The same declaration as any primitive, with one input, `tensors`. The rule gets `needs` (a bool per tensor) and returns
a list with one gradient (or None) per tensor; it may name `tensors` (then they are saved), `shapes`, and parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from undertow.errors import GraphFreedError
from undertow.graph.accumulate import gradient_edge
from undertow.graph.node import Node, next_sequence_nr
from undertow.graph.saved import SavedTensor
from undertow.modes import current
from undertow.ops.operands import as_operand, promote, same_device
from undertow.ops.recorded import recorded
from undertow.tensor import Tensor


class VariadicNode(Node):
    """saved: a SavedTensor each, or (); params: the values of `value_names`, in order."""

    __slots__ = ()

    rule: Callable[..., Any]
    value_names: tuple[str, ...] = ()
    saves_tensors = False

    def pull(self, xp: Any, grad: Any, edges: tuple[Any, ...], keep: bool) -> list[Any]:
        values = dict(zip(self.value_names, self.params, strict=True))
        if self.saves_tensors:
            values["tensors"] = self.unpack_tensors(xp)
            if not keep:
                self.saved = None
        return list(type(self).rule(xp, grad, [edge is not None for edge in edges], **values))

    def unpack_tensors(self, xp: Any) -> list[Any]:
        if self.saved is None:
            raise GraphFreedError(self.name())
        tensors = [saved.unpack(self) for saved in self.saved]
        return tensors if xp is recorded else [t._array for t in tensors]


def build_variadic(op: Any) -> None:
    """Make the function and the Node class of an op whose single input is `tensors`."""
    rule_names = list(inspect.signature(op.vjp["tensors"]).parameters)[3:]
    value_names = tuple(n for n in rule_names if n != "tensors")
    unknown = set(value_names) - set(op.params) - {"shapes"}
    if unknown:
        raise TypeError(f"{op.name}: the rule uses {sorted(unknown)}, which is neither input nor parameter")
    members = {
        "__slots__": (), "__module__": "undertow", "rule": staticmethod(op.vjp["tensors"]), "op": op,
        "value_names": value_names, "saves_tensors": "tensors" in rule_names, "op_name": op.name,
        "saved_names": {n: ("value", k) for k, n in enumerate(value_names)},
    }  # fmt: skip
    op.node_class = type(op.node_name, (VariadicNode,), members)
    signature = inspect.Signature(list(inspect.signature(op.forward).parameters.values())[1:])

    def function(*args: Any, **kwargs: Any) -> Any:
        state = current()
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        params = dict(bound.arguments)
        if state.intercept is not None:
            return state.intercept(function, tuple(params.values()))
        tensors = [as_operand(op.name, f"tensors[{i}]", t) for i, t in enumerate(params.pop("tensors"))]
        if not tensors:
            raise RuntimeError(f"{op.name}(): expected a non-empty list of Tensors")
        return run_variadic(op, state, tensors, params)

    function.__name__ = function.__qualname__ = op.name
    function.__module__ = "undertow"
    function.__signature__ = signature  # type: ignore[attr-defined]
    op.function = function


def run_variadic(op: Any, state: Any, tensors: list[Tensor], params: dict[str, Any]) -> Tensor:
    xp: Any = same_device(op.name, tuple(tensors)) if any(t._xp is not tensors[0]._xp for t in tensors) else tensors[0]._xp
    arrays = [t._array for t in tensors]
    if op.promote and any(a.dtype is not arrays[0].dtype for a in arrays):
        arrays = promote(tuple(tensors), op.promote)
    out = xp.asarray(op.forward(xp, arrays, **params))
    if not state.grad_enabled or all(t._edge is None for t in tensors) or out.dtype.kind not in "fc":
        return Tensor(out, xp)
    node = object.__new__(op.node_class)
    node.next_edges = tuple([gradient_edge(t) for t in tensors])
    node.sequence_nr = next_sequence_nr()
    node.saved = tuple([SavedTensor(t, f"tensors[{i}]") for i, t in enumerate(tensors)]) if node.saves_tensors else ()
    values = {**params, "shapes": [a.shape for a in arrays]}
    node.params = tuple([values[n] for n in node.value_names])
    node.shape, node.dtype, node.extra = out.shape, out.dtype, None
    if state.record is not None:
        state.record(node, state)
    return Tensor(out, xp, node)
