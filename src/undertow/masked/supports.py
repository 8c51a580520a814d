"""Supports: which elements of a value can be anything but nothing, carried through the operations of derivative rules.

Note [Nothing and zero]: a gradient element is *absent* when no chosen path leads from it to the loss. Absent elements
are an absorbing zero, written 0/ below, that ordinary numbers are extended by:

    0/ * a = 0/     for every a, also inf and nan          0/ + a = a          0/ / a = 0/

The support of a value is where it is not 0/; there its array holds 0. An ordinary zero is no 0/: in sqrt(x) ** 2 at 0
the gradient that reaches sqrt is 0 by arithmetic, 0 * inf is a true indeterminate, and calling it 0 would be wrong.

Every function below takes an operation and its arguments and returns the support of the result (a list of them if there
are several results), or None where all of it may be anything. None is always safe: 0/ is then taken for a zero, which
is what it is without all this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.ops.declare.rules import BILINEAR, LINEAR
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op

#: finds the support of an argument: a bool array, or None for all of it
SupportOf = Callable[[Any], Any]

#: random weights, so that what an operation subtracts never cancels
_weights = cpu.module.random.default_rng(20)

#: beyond those declared so: linear in their differentiable inputs, whose elements they copy, choose or spread
COPYING = {"copy", "cummaxmin_backward", "threshold_backward", "value_selecting_reduction_backward",
           "_pick_class", "_put_class"}  # fmt: skip
#: linear where the number they write is 0
WRITING = {"_index_fill_number", "_masked_fill_number", "_scatter_number", "constant_pad_nd", "fill"}
#: beyond those declared so: bilinear when they are given no bias
BILINEAR_WITHOUT_BIAS = {"_convolve", "_convolve_transposed", "linear"}
#: elementwise, and linear in the argument of this name
ELEMENT_BY_ELEMENT = {"sigmoid_backward": "grad_output", "tanh_backward": "grad_output"}
#: of a whole slice along `dim`
BY_SLICE = {"softmax_backward_data", "log_softmax_backward_data"}
#: views that look at numbers as numbers of another kind
OTHER_KIND = {"_imag", "_real", "_view_as_complex", "view_as_real"}


def support_of_result(
    op: Op, args: tuple[Any, ...], result: Array, support_of: SupportOf, declared: bool, choosing: bool
) -> Array | None:
    """The support of `op(*args)`.

    declared  whether it is part of a declared operation's rule, where a Python number is a constant of the program;
              elsewhere (in a custom Function) it may have been computed from data
    choosing  whether the rule belongs to an operation that chooses: the zeros it writes, and a False that it
              multiplies by, then stand for what was not chosen
    """
    values = op.by_name(args)
    if op.name in ("mul", "multiply"):
        return product(values, result, support_of, declared, choosing)
    if op.name == "true_divide":
        return quotient(values, result, support_of, declared)
    if op.name == "_where":
        return choice(values, result, support_of, choosing)
    if op.name == "_zeros_for":
        return cpu.zeros(result.shape, bool)
    if is_bilinear(op, values):
        return image(op, values, support_of)
    if is_linear(op, values):
        return linear(op, values, support_of)
    if op.name in ELEMENT_BY_ELEMENT:
        return spread(support_of(values[ELEMENT_BY_ELEMENT[op.name]]), result)
    if op.name in BY_SLICE:
        return by_slice(values, result, support_of)
    return None


def is_bilinear(op: Op, values: dict[str, Any]) -> bool:
    return op.jvp is BILINEAR or (op.name in BILINEAR_WITHOUT_BIAS and values.get("bias") is None)


def is_linear(op: Op, values: dict[str, Any]) -> bool:
    if op.name == "_view_dtype":
        return False
    return op.jvp is LINEAR or op.name in COPYING or (op.name in WRITING and is_zero(values["value"]))


def is_zero(value: Array) -> bool:
    return isinstance(value, int | float | complex) and value == 0


def spread(support: Array | None, result: Tensor) -> Array | None:
    return None if support is None else cpu.broadcast_to(support, result.shape)


# ---- elementwise


def factor(value: Array, support_of: SupportOf, declared: bool, choosing: bool) -> Array | None:
    if declared and is_zero(value):
        return cpu.asarray(False)
    if choosing and isinstance(value, Tensor) and value._array.dtype.kind == "b":
        return value._array
    return support_of(value)


def product(
    values: dict[str, Any], result: Tensor, support_of: SupportOf, declared: bool, choosing: bool
) -> Array | None:
    found = [factor(v, support_of, declared, choosing) for v in values.values()]
    both = [s for s in found if s is not None]
    return spread(both[0] & both[-1], result) if both else None


def quotient(values: dict[str, Any], result: Tensor, support_of: SupportOf, declared: bool) -> Array | None:
    return spread(factor(values["input"], support_of, declared, False), result)


def choice(values: dict[str, Any], result: Tensor, support_of: SupportOf, choosing: bool) -> Array | None:
    sides = []
    for value in (values["input"], values["other"]):
        support = cpu.asarray(False) if choosing and is_zero(value) else support_of(value)
        sides.append(True if support is None else support)
    if sides[0] is True and sides[1] is True:
        return None
    return spread(cpu.where(values["condition"]._array, *sides), result)


def by_slice(values: dict[str, Any], result: Tensor, support_of: SupportOf) -> Array | None:
    support = support_of(values["grad_output"])
    if support is None or not support.ndim:
        return support
    return spread(support.any(axis=values["dim"], keepdims=True), result)


# ---- linear and bilinear: apply the operation to random weights on the supports, and see where something arrives


def linear(op: Op, values: dict[str, Any], support_of: SupportOf) -> Array | None:
    full = all(support_of(v) is None for n in op.edges for v in listed(values[n]))
    if full and (op.kind == "view" or op.elementwise) and op.name not in WRITING | COPYING | {"zero"}:
        return None
    if op.kind == "view" and op.name not in OTHER_KIND:
        return call(op, {**values, op.edges[0]: support_of(values[op.edges[0]])})
    return image(op, values, support_of)


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def image(op: Op, values: dict[str, Any], support_of: SupportOf, parts: dict[str, Any] | None = None) -> Array:
    """Where the operation's result depends on the supports (or, for the inputs in `parts`, on that part of them)."""
    weights = {n: weighted(values[n], support_of, (parts or {}).get(n)) for n in op.edges}
    out = call(op, {**values, **weights})
    return [cpu.asarray(o) != 0 for o in out] if isinstance(out, tuple | list) else cpu.asarray(out) != 0


def weighted(value: Any, support_of: SupportOf, part: Array | None) -> Any:
    """Random numbers from 1 to 2 on the support of a value, of the same kind as the value."""
    if isinstance(value, list | tuple):
        return [weighted(v, support_of, part) for v in value]
    if not isinstance(value, Tensor):
        return value
    shape = value._array.shape
    weights = _weights.uniform(1, 2, shape)
    if value._array.dtype.kind == "c":
        weights = weights + 1j * _weights.uniform(1, 2, shape)
    for mask in (support_of(value), part):
        weights = weights if mask is None else cpu.where(mask, weights, 0)
    return cpu.asarray(weights)


def call(op: Op, values: dict[str, Any]) -> Array:
    """The operation's forward on arrays."""
    arrays = {n: v._array if isinstance(v, Tensor) else v for n, v in values.items()}
    return op.compute(cpu, arrays)


def reached_by_infinities(op: Op, args: tuple[Any, ...], support_of: SupportOf) -> Array:
    """Where an inf or nan of one operand of a bilinear operation meets the support of the other."""
    values = op.by_name(args)
    a, b = op.edges
    reached = False
    for name in (a, b):
        wild = ~cpu.isfinite(values[name]._array)
        reached = image(op, values, support_of, {name: wild}) | reached
    return reached
