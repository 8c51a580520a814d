"""Powers and roots."""

from __future__ import annotations

from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import NUMBERS, as_operand, require_tensor, result_type_of
from undertow.ops.declare import adapter, composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.unary import unary
from undertow.tensor import Tensor


def as_float(xp: Namespace, value: Array, dtype: DType) -> Array:
    """Integers as `dtype`, so that a rule neither overflows nor computes in half precision."""
    return value if value.dtype.kind in "fc" else xp.astype(value, dtype)


def number_like(xp: Namespace, number: Any, like: Array) -> Array:
    """A Python number as an array or a tensor of the shape and dtype of `like`."""
    return xp.zeros_like(like) + number


# ---- roots and reciprocals

sqrt = unary(
    "sqrt",
    forward=lambda xp, input: xp.sqrt(input),
    vjp=lambda xp, g, out: g / (xp.conj(out) * 2),
    variants="function method in_place in_place_function foreach",
)

rsqrt = unary(
    "rsqrt",
    forward=lambda xp, input: 1 / xp.sqrt(input),
    vjp=lambda xp, g, out: g * xp.conj(out * out * out) * -0.5,
    variants="function method in_place in_place_function foreach",
)

# NumPy's; PyTorch has none
cbrt = unary(
    "cbrt",
    forward=lambda xp, input: xp.cbrt(input),
    vjp=lambda xp, g, out: g / (out * out * 3),
    variants="",
)

# np.reciprocal of integers divides integers
reciprocal = unary(
    "reciprocal",
    forward=lambda xp, input: xp.divide(1, input),
    vjp=lambda xp, g, out: -g * xp.conj(out * out),
    variants="function method in_place in_place_function foreach",
)

# ---- powers

#: what the core's loops multiply; NumPy's ** takes logarithms, and a hundred times as long for negative numbers
MULTIPLIED = frozenset({*range(3, 9), *range(-8, -1), -0.5})


def _raised(xp: Namespace, input: Array, exponent: Any) -> Array:
    """input ** exponent"""
    if xp is cpu and input.dtype.kind == "f" and type(exponent) in (int, float) and exponent in MULTIPLIED:
        return cpu.power(input, exponent)
    return input**exponent


@twin
def power(xp: Namespace, input: Array, exponent: Array) -> Array:
    if input.dtype.kind in "fc":
        return _raised(xp, input, exponent)
    if hasattr(exponent, "dtype"):
        return _integer_power(xp, input, exponent)
    if isinstance(exponent, int) and exponent < 0:
        raise RuntimeError(
            "Integers to negative integer powers are not allowed. Convert the tensor to a floating-point dtype first."
        )
    return input**exponent


def _integer_power(xp: Namespace, input: Array, exponent: Array) -> Array:
    """Integer powers of integers; a negative one is 0 (or 1 or -1, for those bases), as PyTorch has it."""
    if input.dtype.kind == "b":
        return input | ~exponent
    whole = xp.power(input, xp.where(exponent < 0, 0, exponent))
    inverse = xp.where(abs(input) == 1, input ** (exponent & 1), 0)
    return xp.where(exponent < 0, inverse, whole)


def _pow_input_rule(xp: Namespace, g: Array, input: Array, exponent: Array) -> Array:
    if hasattr(exponent, "dtype"):
        # 0 * input ** -1 would be no number at 0, at numbers that have no reciprocal, and at nan; nor its derivatives
        invertible = xp.greater_equal(xp.abs(input), dtypes.float_limits(g.dtype).tiny)
        flat = xp.logical_and(xp.equal(exponent, 0), xp.logical_not(invertible))
        base = xp.where(flat, xp.ones_like(input), input)
        exponent = as_float(xp, exponent, g.dtype)  # 0 - 1 is 255 in uint8
        return xp.where(flat, 0, g * xp.conj(exponent * base ** (exponent - 1)))
    if exponent == 2:
        return g * (xp.conj(input) * 2)
    if exponent == 0:
        return xp.zeros_like(g)
    return g * xp.conj(_raised(xp, input, exponent - 1) * exponent)


def _is_nonnegative(xp: Namespace, value: Array) -> Array:
    if value.dtype.kind == "c":
        return xp.logical_and(xp.equal(xp.imag(value), 0), xp.greater_equal(xp.real(value), 0))
    return xp.greater_equal(value, 0)


def _pow_exponent_rule(xp: Namespace, g: Array, input: Array, exponent: Array, out: Array) -> Array:
    """At 0 ** b: 0 for b >= 0, and -inf for b < 0, the limit from the right."""
    if not hasattr(input, "dtype"):
        input = number_like(xp, input, out)
    base = input if input.dtype == out.dtype else xp.astype(input, out.dtype)
    flat = xp.logical_and(xp.equal(input, 0), _is_nonnegative(xp, exponent))
    return g * xp.conj(out * xp.log(xp.where(flat, xp.ones_like(out), base)))


pow = primitive(
    "pow",
    forward=power,
    vjp={"input": _pow_input_rule, "exponent": _pow_exponent_rule},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="PowBackward1",
    number_node="PowBackward0",
    promote="same",
    number="exponent",
    number_edge=False,
    variants="function method in_place foreach",
    numbers="one",
)


def _power_of_number(xp: Namespace, exponent: Array, self: Any) -> Array:
    dtype = result_type_of((self, Tensor(exponent, xp)))
    return power(xp, xp.asarray(self, dtype), exponent.astype(dtype, copy=False))


_pow_of_number = primitive(
    "_pow_of_number",
    forward=_power_of_number,
    vjp={"exponent": lambda xp, g, exponent, self, out: _pow_exponent_rule(xp, g, self, exponent, out)},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="PowBackward2",
    order="rows",
)


@composite
def _rpow(exponent: Array, input: Array) -> Array:
    """`input ** exponent` of a tensor on the right-hand side."""
    return _pow_of_number(exponent, input) if isinstance(input, NUMBERS) else pow(input, exponent)


@composite(variants="function method in_place in_place_function", out=True)
def square(input: Array) -> Any:
    """The square of every element.

    >>> import undertow as ut
    >>> ut.square(ut.tensor([1.0, 2.0, 3.0]))
    tensor([1., 4., 9.])
    """
    return pow(input, 2)


def _as_double(value: Array, dtype: DType) -> Any:
    if isinstance(value, NUMBERS) or value.dtype == dtype:
        return value
    return recorded.astype(as_operand("float_power", "input", value), dtype)


@composite(variants="function method in_place", out=True)
def float_power(input: Array, exponent: Array) -> Array:
    """`pow` in double precision, whatever the dtypes.

    exponent  a tensor or a number; broadcast with `input`

    >>> import undertow as ut
    >>> ut.float_power(ut.tensor([2, 3]), -1).tolist()
    [0.5, 0.3333333333333333]
    """
    require_tensor("float_power", input=input, exponent=exponent)
    operands = as_operand("float_power", "input", input), as_operand("float_power", "exponent", exponent)
    complex_ = result_type_of(operands).kind == "c"
    dtype = dtypes.complex128 if complex_ else dtypes.float64
    return pow(_as_double(input, dtype), _as_double(exponent, dtype))


# ---- triangles

hypot = primitive(
    "hypot",
    forward=lambda xp, input, other: xp.hypot(input, other),
    vjp={
        "input": lambda xp, g, input, out: g * (input / out),
        "other": lambda xp, g, other, out: g * (other / out),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="float",
    variants="function method in_place",
)


adapter("power")(pow)
adapter("square")(square)
