"""Size and sign of a number, and the step between the signs."""

from __future__ import annotations

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import alias, nondifferentiable, primitive
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.unary import no_slope, not_implemented, unary
from undertow.ops.pointwise.where_clamp import refuse_unordered


def _sgn_rule(xp: Namespace, g: Array, input: Array, out: Array) -> Array:
    """The derivative of z / |z|: what of `g` is at right angles to z, over |z|."""
    if input.dtype.kind != "c":
        return xp.zeros_like(g)
    size = xp.abs(input)
    return xp.where(xp.equal(size, 0), 0, (g - out * out * xp.conj(g)) / (size * 2))


def direction(xp: Namespace, input: Array) -> Array:
    """NumPy's sign, but 0 for nan."""
    if hasattr(xp, "direction") and input.dtype in (dtypes.float32, dtypes.float64):
        return xp.direction(input)  # the compiled core's
    if input.dtype.kind == "f":
        return (xp.greater(input, 0).view(dtypes.int8) - xp.less(input, 0).view(dtypes.int8)).astype(input.dtype)
    return input.copy() if input.dtype.kind == "b" else xp.sign(input)


def _sign_of_real(xp: Namespace, input: Array) -> Array:
    if input.dtype.kind == "c":
        raise NotImplementedError(
            "Unlike NumPy, sign is not intended to support complex numbers, whose sign could mean several "
            "things. Please use sgn instead."
        )
    return direction(xp, input)


abs = unary(
    "abs",
    forward=lambda xp, input: xp.abs(input),
    vjp=lambda xp, g, input: g * xp.sgn(input),
    promote=None,
    variants="function method in_place in_place_function foreach",
)


# the Jacobian is symmetric, not Hermitian, so that the jvp is the vjp itself
sgn = unary(
    "sgn", forward=direction, vjp=_sgn_rule, jvp={"input": _sgn_rule}, promote=None, variants="function method in_place"
)


sign = unary(
    "sign",
    forward=_sign_of_real,
    vjp=no_slope,
    promote=None,
    variants="function method in_place foreach",
    piecewise_constant=True,
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


signbit = nondifferentiable(
    "signbit",
    lambda xp, input: xp.signbit(input),
    inputs=("input",),
    batch=ELEMENTWISE,
    variants="function method",
)


# ---- a step


def step(xp: Namespace, input: Array, values: Array) -> Array:
    refuse_unordered("heaviside", input)
    return xp.where(input == 0, values, input > 0).astype(input.dtype)


heaviside = primitive(
    "heaviside",
    forward=step,
    vjp={"input": not_implemented("heaviside"), "values": not_implemented("heaviside")},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="NotImplemented",
    promote="same",
    variants="function method in_place",
    piecewise_constant=True,
)


# ---- other names

alias("absolute", abs, variants="function method in_place")
