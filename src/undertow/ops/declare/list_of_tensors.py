"""Operations on a list of tensors: cat, stack, einsum.

The same declaration as any primitive, with one input, `tensors`. The rule gets `needs` (a bool per tensor) and returns
a list with one gradient (or None) per tensor; it may name `tensors` (then they are saved), `shapes`, and parameters.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from typing import Any

from undertow.backend import cpu
from undertow.compiled import core
from undertow.graph.accumulate import leaf_edge
from undertow.graph.history import recorded_edge
from undertow.graph.node import extra_on, freed_error, next_sequence_nr
from undertow.graph.saved import Freed, OperationNode, SavedTensor
from undertow.graph.user_lines import caller_site, is_site_recording_enabled, register_code
from undertow.modes import current
from undertow.ops.arguments.bfloat16 import NARROW, is_narrow, rounded, wide
from undertow.ops.arguments.operands import as_operand, promote, same_device
from undertow.ops.declare.recorded_namespace import recorded
from undertow.tensor import LEAF, Tensor


class VariadicNode(OperationNode):
    """saved: a SavedTensor each, or (); params: the values of `value_names`, in order."""

    __slots__ = ()

    rule: Callable[..., Any]
    value_names: tuple[str, ...] = ()
    saves_tensors = False
    keeps_outputs = False

    def pull(self, xp: Any, grad: Any, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        values = dict(zip(self.value_names, self.params, strict=True))
        if self.saves_tensors:
            values["tensors"] = self.unpack_tensors(xp)
            if not keep:
                self.saved = keep
        if NARROW and xp is not recorded:
            grad, values = wide(grad), {n: wide(v) for n, v in values.items()}
        return list(type(self).rule(xp, grad, [edge is not None for edge in edges], **values))

    def unpack_tensors(self, xp: Any) -> list[Any]:
        if type(self.saved) is Freed:
            raise freed_error(self, self.saved)
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
    parameters = list(inspect.signature(op.forward).parameters.values())[1:]
    names = ", ".join(p.name for p in parameters)
    arguments = ", ".join(p.name + ("" if p.default is p.empty else f"=default_{p.name}") for p in parameters)
    params = "".join(p.name + ", " for p in parameters[1:])
    scope = {"op": op, "current": current, "run_variadic": run_variadic}
    is_usual = core is not None and "tensors" not in rule_names
    if is_usual:
        places = tuple([-1 if n == "shapes" else op.params.index(n) for n in value_names])
        scope["usual_case"] = core.Variadic(op.forward, op.node_class, places)
    template = COMPILED_SOURCE if is_usual else SOURCE
    source = template.format(name=op.name, arguments=arguments, names=names, params=params)
    scope.update({f"default_{p.name}": p.default for p in parameters if p.default is not p.empty})
    op.function = compile_function(source, op.name, f"<undertow {op.name}>", scope)


SOURCE = """
def {name}({arguments}):
    _state = current()
    if _state.intercept is not None:
        return _state.intercept({name}, ({names},))
    return run_variadic(op, _state, tensors, ({params}))
"""

#: the same, with the usual case by the compiled core (csrc/call/list_of_tensors.c)
COMPILED_SOURCE = SOURCE.replace(
    "    return run_variadic",
    """    _result = usual_case(_state, tensors, ({params}))
    if _result is not NotImplemented: return _result
    return run_variadic""",
)


def compile_function(source: str, name: str, filename: str, scope: dict[str, Any]) -> Any:
    """Compile a generated function; linecache lets tracebacks show its lines."""
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    exec(compile(source, filename, "exec"), scope)
    function = scope[name]
    function.__module__ = "undertow"
    register_code(function.__code__)
    return function


def run_variadic(op: Any, state: Any, given: Any, params: tuple[Any, ...]) -> Tensor:
    tensors = [t if type(t) is Tensor else as_operand(op.name, f"tensors[{i}]", t) for i, t in enumerate(given)]
    if not tensors:
        raise RuntimeError(f"{op.name}(): expected a non-empty list of Tensors")
    xp: Any = tensors[0]._xp
    dtype = tensors[0]._array.dtype
    arrays, edges, same = [], [], True
    for tensor in tensors:
        array = tensor._array
        arrays.append(array)
        if array.dtype is not dtype:
            same = False
        if tensor._xp is not xp:
            xp = same_device(op.name, tuple(tensors))
        if state.grad_enabled:
            edges.append(tensor._edge if tensor._extra is None else recorded_edge(tensor))
    if op.promote and not same:
        arrays = promote(tuple(tensors), op.promote)
    rounds = NARROW and is_narrow(arrays[0])
    if NARROW:
        arrays = wide(arrays)
    out = op.forward(xp, arrays, *params)
    if type(out) is not xp.ndarray:
        out = xp.asarray(out)
    if rounds:
        out = rounded(out)
    if edges.count(None) == len(edges) or out.dtype.kind not in "fcV":
        result = Tensor(out, xp)
        result._extra = state.extra
        return result
    node = object.__new__(op.node_class)
    node.next_edges = tuple([leaf_edge(t) if e is LEAF else e for e, t in zip(edges, tensors, strict=True)])
    node.sequence_nr = next_sequence_nr()
    node.saved = tuple([SavedTensor(t, f"tensors[{i}]") for i, t in enumerate(tensors)]) if node.saves_tensors else ()
    values = dict(zip(op.params, params, strict=True))
    values["shapes"] = [a.shape for a in arrays]
    node.params = tuple([values[n] for n in node.value_names])
    node.shape, node.dtype, node.extra = out.shape, out.dtype, None if xp is cpu else extra_on(xp)
    if is_site_recording_enabled():
        site = caller_site()
        node.code, node.lasti = site.code, site.lasti
    if state.record is not None:
        state.record(node, state)
    return Tensor(out, xp, node)
