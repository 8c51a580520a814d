"""What numbers are made of: mantissa and exponent, the next number. Signs are in abs_sign.py."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.exp_log import LN2
from undertow.ops.pointwise.powers import as_float


def _next_number(xp: Namespace, input: Array, other: Array) -> Array:
    require_kinds("nextafter_cpu", input, "f")
    return xp.nextafter(input, other)


nextafter = primitive(
    "nextafter",
    forward=_next_number,
    half_precision="as_is",
    vjp={
        "input": lambda xp, g, input, other: xp.where(xp.not_equal(input, other), g, 0),
        "other": lambda xp, g, other: xp.zeros_like(other),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="same",
    variants="function method in_place",
)


def _mantissa_and_exponent(xp: Namespace, input: Array) -> tuple[Array, ...]:
    if input.dtype.kind != "f":
        raise RuntimeError(
            f"torch.frexp() only supports floating-point dtypes, but got {dtypes.SCALAR_NAMES[input.dtype]}"
        )
    mantissa, exponent = xp.frexp(input)
    return mantissa, xp.asarray(exponent, dtypes.int32)


def _unscaled(xp: Namespace, x: Array, exponent: Array) -> Array:
    return x / xp.exp2(xp.astype(exponent, x.dtype))


frexp_parts = primitive(
    "_frexp",
    forward=_mantissa_and_exponent,
    vjp={"input": lambda xp, g, exponent: _unscaled(xp, g, exponent)},
    jvp={"input": lambda xp, t, exponent: _unscaled(xp, t, exponent)},
    batch=lambda call, args, in_dims: (call(args[0]), in_dims[0]),
    outputs=("mantissa", "exponent"),
    nondifferentiable=("exponent",),
    node="FrexpBackward0",
    order="operands",
)


@composite(variants="function method", out=True)
def frexp(input: Array) -> Any:
    """Each number as mantissa * 2 ** exponent, with the mantissa in [0.5, 1): (mantissa, exponent).

    >>> import undertow as ut
    >>> ut.frexp(ut.tensor([6.0])).mantissa.tolist()
    [0.75]
    """
    return return_types.frexp(frexp_parts(input))


def _scaled_by_power_of_two(xp: Namespace, input: Array, other: Array) -> Array:
    return input * (xp.exp(other * LN2) if other.dtype.kind == "c" else xp.exp2(other))


def _ldexp_input_rule(xp: Namespace, g: Array, other: Array) -> Array:
    return g * xp.conj(xp.exp2(as_float(xp, other, g.dtype)))


ldexp = primitive(
    "ldexp",
    forward=_scaled_by_power_of_two,
    vjp={"input": _ldexp_input_rule, "other": lambda xp, g, out: g * xp.conj(out) * LN2},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="float",
    variants="function method in_place in_place_function",
)
