"""Evaluating an operation's jvp: from tangents of its inputs to the tangent of its output. All of them are tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from undertow.backend import dtypes
from undertow.errors import NotDifferentiableError
from undertow.ops.arguments.operands import NUMBERS, number_tensor
from undertow.ops.declare import Joint, Op
from undertow.ops.declare.formula import parameters
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import BILINEAR, ELEMENTWISE, LINEAR
from undertow.tensor import Tensor


def apply_jvp(op: Op, values: Mapping[str, Any], tangents: Mapping[str, Any], out: Any = None) -> Any:
    """The tangent of the operation's output.

    values    every argument by name (see `Op.by_name`)
    tangents  input name -> its tangent; inputs that are absent (or None) have none, and those without a
              derivative need none. For an operation on a list of tensors: {"tensors": [...]}, with None
              where there is none
    out       the operation's result, if it is known already

    Returns one tangent, or a tuple with one per output; None for an output that has no tangent.
    """
    given = {name: t for name, t in tangents.items() if name in op.edges and not _is_missing(t)}
    values = {**values, **{n: _operand(op, n, values[n]) for n in op.inputs}}
    out = _call(op, values) if out is None else out
    if not given:
        return _settle_all(op, None, out, missing=True)
    return _settle_all(op, _evaluate(op, values, given, out), out)


def _is_missing(tangent: Any) -> bool:
    return tangent is None or (isinstance(tangent, list) and all(t is None for t in tangent))


def _operand(op: Op, name: str, value: Any) -> Any:
    """A Python number as the 0-d tensor that the operation makes of it (unless it has a path of its own)."""
    if not isinstance(value, NUMBERS) or (name == op.number and type(value) in (int, float)):
        return value
    return number_tensor(value)


def _evaluate(op: Op, values: Mapping[str, Any], tangents: dict[str, Any], out: Any) -> Any:
    rule = op.jvp
    if rule is ELEMENTWISE:
        return _elementwise(op, values, tangents, out)
    if rule is LINEAR:
        return _call(op, _with_zeros(op, values, tangents))
    if rule is BILINEAR:
        return _sum([_call(op, {**values, n: t}) for n, t in _one_at_a_time(values, tangents)])
    if isinstance(rule, Mapping):
        known = [(rule[n], t) for n, t in tangents.items() if rule.get(n) is not None]
        return _sum([r(recorded, t, *_named(op, r, 2, values, out)) for r, t in known])
    if callable(rule):
        given = tangents["tensors"] if op.kind == "variadic" else tangents
        return rule(recorded, given, *_named(op, rule, 2, values, out))
    raise NotDifferentiableError(
        op.name, f"Trying to use forward AD with {op.name} that does not support it: it declares no jvp."
    )


def _call(op: Op, values: Mapping[str, Any]) -> Any:
    return op.by_position(*[values[n] for n in op.ordered])


def _elementwise(op: Op, values: Mapping[str, Any], tangents: dict[str, Any], out: Any) -> Any:
    """conj(rule(conj(t))): the transpose of a diagonal Jacobian is itself, up to conjugation."""
    array = _differentiable_outputs(op, out)[0]._array
    shape = tuple(array.shape)
    parts = []
    for name, tangent in tangents.items():
        given = tangent._array
        aligned = tangent if tuple(given.shape) == shape else recorded.broadcast_to(tangent, shape)
        if array.dtype.kind == "c" or given.dtype.kind == "c":
            parts.append(recorded.conj(_vjp(op, name, recorded.conj(aligned), values, out)))
        else:
            parts.append(_vjp(op, name, aligned, values, out))
    return _sum(parts)


def _vjp(op: Op, name: str, g: Tensor, values: Mapping[str, Any], out: Any) -> Any:
    """The gradient for one input."""
    if isinstance(op.vjp, Joint):
        needs = tuple(n == name for n in op.edges)
        return op.vjp.rule(recorded, g, needs, *_named(op, op.vjp.rule, 3, values, out))[op.edges.index(name)]
    rule: Any = op.vjp[name]
    return rule(recorded, g, *_named(op, rule, 2, values, out))


def _one_at_a_time(values: Mapping[str, Any], tangents: dict[str, Any]) -> list[tuple[str, Any]]:
    """(name, value) pairs, each with one tangent in the place of its input."""
    places = []
    for name, tangent in tangents.items():
        if isinstance(tangent, list):
            present = [k for k, t in enumerate(tangent) if t is not None]
            places += [(name, [*values[name][:k], tangent[k], *values[name][k + 1 :]]) for k in present]
        else:
            places.append((name, tangent))
    return places


def _with_zeros(op: Op, values: Mapping[str, Any], tangents: dict[str, Any]) -> dict[str, Any]:
    """The arguments with every differentiable input replaced by its tangent, or by zeros."""
    replaced = dict(values)
    for name in op.edges:
        value, tangent = values[name], tangents.get(name)
        if isinstance(tangent, list):
            replaced[name] = [_zeros(v) if t is None else t for v, t in zip(value, tangent, strict=True)]
        elif value is not None:
            replaced[name] = _zeros(value) if tangent is None else tangent
    return replaced


def _zeros(like: Any) -> Any:
    return Tensor(like._xp.zeros_like(like._array), like._xp) if isinstance(like, Tensor) else 0


def _sum(parts: list[Any]) -> Any:
    """The sum of contributions, each a tensor or a tuple with one per output."""
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = tuple(map(_add, total, part)) if isinstance(total, tuple) else total + part
    return total


def _add(a: Tensor | None, b: Tensor | None) -> Any:
    return b if a is None else a if b is None else a + b


# ---- sums of terms


class Term(NamedTuple):
    """What the tangent of one operand adds to that of the result."""

    place: int  # of the operand among the arguments
    rule: Callable[..., Any]  # rule(xp, tangent, ...)
    wanted: tuple[int, ...]  # what it takes behind the tangent: places of arguments, -1 for the result
    whole: bool  # whether it expects the tangent in the shape of the result, as rules for gradients do


@cache
def terms_of(op: Op) -> list[Term] | None:
    """What `apply_jvp` sums up for an operation on tensors with one result; None if it does something else."""
    if op.outputs is not None or op.kind not in ("primitive", "view"):
        return None
    places = {n: k for k, n in enumerate(op.ordered)}
    if op.jvp is BILINEAR or (op.jvp is LINEAR and len(op.edges) == 1 and not op.elementwise):
        everything = tuple(range(len(op.ordered)))
        return [Term(places[n], _in_place_of(op, n), everything, False) for n in op.edges]
    whole = op.jvp is ELEMENTWISE or (op.jvp is LINEAR and op.elementwise)
    rules: Any = op.vjp if whole else op.jvp
    if not isinstance(rules, Mapping) or any([rules.get(n) is None for n in op.edges]):
        return None
    places["out"] = -1
    wanted = {n: _names_of(rules[n])[2:] for n in op.edges}
    if not all([places.keys() >= set(names) for names in wanted.values()]):
        return None
    return [Term(places[n], rules[n], tuple([places[other] for other in wanted[n]]), whole) for n in op.edges]


def _in_place_of(op: Op, name: str) -> Callable[..., Any]:
    """The operation with a tangent in the place of an operand."""
    place, function = op.ordered.index(name), op.by_position
    return lambda xp, t, *args: function(*args[:place], t, *args[place + 1 :])


def sum_of_terms(given: list[tuple[Tensor, Term]], args: Sequence[Any], result: Tensor) -> Any:
    """The tangent of the result, from tangents of operands."""
    shape, total = tuple(result._array.shape), None
    for tangent, (_, rule, wanted, whole) in given:
        if whole and tuple(tangent._array.shape) != shape:
            tangent = recorded.broadcast_to(tangent, shape)
        part = rule(recorded, tangent, *[result if k < 0 else args[k] for k in wanted])
        total = part if total is None else total + part
    return _settle(total, result)


# ---- what a rule names


def _named(op: Op, rule: Callable[..., Any], skip: int, values: Mapping[str, Any], out: Any) -> list[Any]:
    """The values of the names that a rule takes after its first `skip` arguments."""
    return [_value(op, name, values, out) for name in _names_of(rule)[skip:]]


@cache
def _names_of(rule: Callable[..., Any]) -> tuple[str, ...]:
    return ("xp", *parameters(rule).names)


def _value(op: Op, name: str, values: Mapping[str, Any], out: Any) -> Any:
    if name in values:
        return values[name]
    if name == "out":
        return out
    if isinstance(op.outputs, tuple) and name in op.outputs:
        return out[op.outputs.index(name)]
    if name == "shapes":
        return [tuple(t.shape) for t in values["tensors"]]
    stem, _, fact = name.rpartition("_")
    if stem in values and fact in ("shape", "dtype"):
        return _fact(values[stem], fact)
    raise TypeError(f"{op.name}: its jvp rule uses {name!r}, which is neither input, output nor parameter")


def _fact(value: Any, fact: str) -> Any:
    """Shape or dtype of an input, as vjp rules are told them: a Python number has shape () and dtype None."""
    if value is None or not hasattr(value, "dtype"):
        return () if fact == "shape" and value is not None else None
    return tuple(value.shape) if fact == "shape" else value.dtype


# ---- making tangents fit the outputs


def _differentiable_outputs(op: Op, out: Any) -> list[Tensor]:
    if op.outputs is None:
        return [out]
    if op.outputs == "list":
        return list(out)
    return [o for n, o in zip(op.outputs, out, strict=True) if n not in op.nondifferentiable]


def _settle_all(op: Op, found: Any, out: Any, missing: bool = False) -> Any:
    if op.outputs is None:
        return None if missing else _settle(found, out)
    if missing:
        return (None,) * len(out)
    names = op.outputs if isinstance(op.outputs, tuple) else range(len(out))
    skipped = [n in op.nondifferentiable for n in names]
    if not isinstance(found, tuple | list):  # a rule may speak of the only differentiable output alone
        found = [None if skip else found for skip in skipped]
    return tuple(None if s else _settle(f, o) for f, o, s in zip(found, out, skipped, strict=True))


def _settle(tangent: Tensor | None, out: Tensor) -> Tensor | None:
    """The tangent in the shape and dtype of the output; zeros where no input contributed."""
    wanted = out._array
    if not dtypes.is_differentiable(wanted.dtype):
        return None
    if tangent is None:
        return _zeros(out)
    found = tangent._array
    if found.dtype is not wanted.dtype:
        if found.dtype.kind == "c" and wanted.dtype.kind != "c":
            tangent = recorded.real(tangent)
        if tangent.dtype != out.dtype:
            tangent = recorded.astype(tangent, out.dtype)
    if tuple(found.shape) != tuple(wanted.shape):
        tangent = recorded.broadcast_to(tangent, tuple(wanted.shape))
    return tangent
