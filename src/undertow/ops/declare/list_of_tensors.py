"""Operations on a list of tensors: cat, stack, einsum.

The same declaration as any primitive, with one input, `tensors`. The rule gets `needs` (a bool per tensor) and returns
a list with one gradient (or None) per tensor; it may name `tensors` (then they are saved), `shapes`, and parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.compiled import core
from undertow.graph.accumulate import leaf_edge
from undertow.graph.history import recorded_edge
from undertow.graph.node import extra_on, freed_error
from undertow.graph.operation_node import OperationNode
from undertow.graph.saved import Freed, SavedTensor
from undertow.graph.user_lines import caller_site, is_site_recording_enabled
from undertow.ops.arguments.half_precision import is_narrow, rounded, stays, wide
from undertow.ops.arguments.operands import as_operand, promote, same_device
from undertow.ops.declare import formula
from undertow.ops.declare.apply import call, forward_of, function_of
from undertow.ops.declare.recorded_namespace import recorded
from undertow.tensor import LEAF, Tensor
from undertow.tensor.subclasses import class_of
from undertow.tensor.tensor import SUBCLASSES

if TYPE_CHECKING:
    from undertow.graph.edges import Edge
    from undertow.modes import State
    from undertow.ops.declare.op import Op


class VariadicNode(OperationNode):
    """saved: a SavedTensor each, or (); params: the values of `value_names`, in order."""

    __slots__ = ()

    rule: Callable[..., Any]
    value_names: tuple[str, ...] = ()
    saves_tensors = False
    keeps_outputs = False

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        values = dict(zip(self.value_names, self.params, strict=True))
        if self.saves_tensors:
            values["tensors"] = self.unpack_tensors(xp)
            if not keep:
                self.saved = keep
        if xp is not recorded:
            grad, values = wide(grad), {n: wide(v) for n, v in values.items()}
        return list(type(self).rule(xp, grad, [edge is not None for edge in edges], **values))

    def unpack_tensors(self, xp: Namespace) -> list[Any]:
        if type(self.saved) is Freed:
            raise freed_error(self, self.saved)
        tensors = [saved.unpack(self) for saved in self.saved]
        return tensors if xp is recorded else [t._array for t in tensors]


def build_variadic(op: Any) -> None:
    """Make the function and the Node class of an op whose single input is `tensors`."""
    taken = formula.parameters(op.vjp["tensors"]).names[2:]
    value_names = tuple([n for n in taken if n != "tensors"])
    unknown = set(value_names) - set(op.params) - {"shapes"}
    if unknown:
        raise TypeError(f"{op.name}: the rule uses {sorted(unknown)}, which is neither input nor parameter")
    members = {
        "__slots__": (), "__module__": "undertow", "rule": staticmethod(op.vjp["tensors"]), "op": op,
        "value_names": value_names, "saves_tensors": "tensors" in taken, "op_name": op.name,
        "saved_names": {n: ("value", k) for k, n in enumerate(value_names)},
    }  # fmt: skip
    op.node_class = type(op.node_name, (VariadicNode,), members)
    op.form, op.usual = op, {}  # there is nothing to work out, and always something to bind
    function = function_of(op, lambda args, kwargs: call(op, op.bind(args, kwargs), apply_to_list))
    function.__signature__ = op.signature()
    op.function = function.public = compiled(op, function)


def compiled(op: Op, function: Callable[..., Any]) -> Any:
    """The function, or a C object that passes for it and calls it in unusual cases (csrc/call/list_of_tensors.c)."""
    node: Any = op.node_class
    if core is None or node.saves_tensors:
        return function
    places = tuple([-1 if n == "shapes" else op.params.index(n) for n in node.value_names])
    names = tuple([sys.intern(n) for n in op.params])
    defaults = tuple([(op.defaults[n],) if n in op.defaults else () for n in op.params])
    return core.Variadic(function, op.forward, node, places, names, defaults)


def apply_to_list(op: Any, arguments: tuple[Any, ...], state: State) -> Tensor:
    """What `apply` does, for a list: operands, promotion, forward, record, wrap.

    Beside it, because what `apply` knows from the Form (which arguments are tensors, which slot keeps each) depends on
    how many there are here.
    """
    given, *params = arguments
    # operands
    tensors = [t if type(t) is Tensor else as_operand(op.name, f"tensors[{i}]", t) for i, t in enumerate(given)]
    if not tensors:
        raise RuntimeError(f"{op.name}(): expected a non-empty list of Tensors")
    xp: Any = tensors[0]._xp
    if any([t._xp is not xp for t in tensors]):
        xp = same_device(op.name, tuple(tensors))
    arrays = [t._array for t in tensors]

    # promotion
    dtype = arrays[0].dtype
    if op.promote and any([a.dtype is not dtype for a in arrays]):
        arrays = promote(tuple(tensors), op.promote)
    half = None
    if not (xp.half_forwards and stays(xp.half_forwards, op, arrays)):
        half = arrays[0].dtype if is_narrow(arrays[0]) else None
        arrays = wide(arrays)

    # forward
    out = forward_of(op, xp, (arrays, *params))
    if type(out) is not xp.ndarray:
        out = xp.asarray(out)
    if half is not None:
        out = rounded(out, half)

    # record
    node = None
    if state.grad_enabled and out.dtype.kind in "fcV":
        edges = [recorded_edge(t) for t in tensors]
        if any([edge is not None for edge in edges]):
            node = record(op, tensors, arrays, params, edges, xp, out)
            if state.record is not None:
                state.record(node, state)

    # wrap
    result: Tensor = object.__new__(class_of(tensors) if SUBCLASSES else Tensor)
    Tensor.__init__(result, out, xp, node)
    if node is None:
        result._extra = state.extra
    return result


def record(
    op: Any, tensors: list[Tensor], arrays: list[Array], params: list[Any], edges: list[Any], xp: Namespace, out: Array
) -> Any:
    """The Node of the operation, which keeps what its rule will need."""
    node_class = op.node_class
    values = {**dict(zip(op.params, params, strict=True)), "shapes": [a.shape for a in arrays]}
    saved = [SavedTensor(t, f"tensors[{i}]") for i, t in enumerate(tensors)] if node_class.saves_tensors else ()
    node = node_class(
        [leaf_edge(t) if edge is LEAF else edge for edge, t in zip(edges, tensors, strict=True)],
        shape=out.shape,
        dtype=out.dtype,
        saved=tuple(saved),
        params=tuple([values[n] for n in node_class.value_names]),
        site=caller_site() if is_site_recording_enabled() else None,
    )
    node.extra = None if xp is cpu else extra_on(xp)
    return node
