"""What numbers are made of: mantissa and exponent, sign, the next number, finite ones in place of others."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.elementary import unary


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


def _mantissa_and_exponent(xp: Namespace, input: Array) -> tuple[Any, ...]:
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


def _finite_part(xp: Namespace, g: Array, input: Array) -> Array:
    """`g` where the input is finite; real and imaginary parts each for themselves."""
    if input.dtype.kind != "c":
        return xp.where(xp.isfinite(input), g, 0)
    return _finite_part(xp, xp.real(g), xp.real(input)) + 1j * _finite_part(xp, xp.imag(g), xp.imag(input))


def _made_finite(
    xp: Namespace, input: Array, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Array:
    nan = 0.0 if nan is None else nan
    if input.dtype.kind != "V":
        return xp.nan_to_num(input, nan=nan, posinf=posinf, neginf=neginf)
    limits = xp.finfo(input.dtype)  # NumPy does not know those of bfloat16
    ends = float(limits.max) if posinf is None else posinf, float(limits.min) if neginf is None else neginf
    return _made_finite(xp, input.astype(dtypes.float32), nan, *ends).astype(input.dtype)


nan_to_num = unary(
    "nan_to_num",
    forward=_made_finite,
    vjp=_finite_part,
    promote=None,
    half_precision="as_is",
    variants="function method in_place in_place_function",
)


def _copysign_rule(xp: Namespace, g: Array, input: Array, out: Array) -> Array:
    return g * xp.where(xp.equal(input, 0), 0, out / input)


copysign = primitive(
    "copysign",
    forward=lambda xp, input, other: xp.copysign(input, other),
    vjp={"input": _copysign_rule, "other": lambda xp, g: xp.zeros_like(g)},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    number_node="CopysignBackward1",
    number_edge=False,
    promote="float",
    number="other",
    variants="function method in_place",
)
