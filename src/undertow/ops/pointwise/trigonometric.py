"""Trigonometric and hyperbolic functions, and their inverses; degrees and radians."""

from __future__ import annotations

import math
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import Joint, adapter, alias, primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.pointwise.powers import as_float
from undertow.ops.pointwise.unary import one_for, unary

sin = unary(
    "sin",
    forward=lambda xp, input: xp.sin(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.cos(input)),
    variants="function method in_place in_place_function foreach",
)


cos = unary(
    "cos",
    forward=lambda xp, input: xp.cos(input),
    vjp=lambda xp, g, input: -g * xp.conj(xp.sin(input)),
    variants="function method in_place in_place_function foreach",
)


tan = unary(
    "tan",
    forward=lambda xp, input: xp.tan(input),
    vjp=lambda xp, g, out: g * xp.conj(out * out + 1),
    variants="function method in_place in_place_function foreach",
)


asin = unary(
    "asin",
    forward=lambda xp, input: xp.arcsin(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.rsqrt(1 - input * input)),
    variants="function method in_place in_place_function foreach",
)


acos = unary(
    "acos",
    forward=lambda xp, input: xp.arccos(input),
    vjp=lambda xp, g, input: -g * xp.conj(xp.rsqrt(1 - input * input)),
    variants="function method in_place in_place_function foreach",
)


atan = unary(
    "atan",
    forward=lambda xp, input: xp.arctan(input),
    vjp=lambda xp, g, input: g / xp.conj(input * input + 1),
    variants="function method in_place in_place_function foreach",
)


sinh = unary(
    "sinh",
    forward=lambda xp, input: xp.sinh(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.cosh(input)),
    variants="function method in_place in_place_function foreach",
)


cosh = unary(
    "cosh",
    forward=lambda xp, input: xp.cosh(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.sinh(input)),
    variants="function method in_place in_place_function foreach",
)


tanh = unary(
    "tanh",
    forward=lambda xp, input: xp.tanh(input),
    vjp=lambda xp, g, out: xp.tanh_backward(g, out),
    variants="function method in_place in_place_function foreach",
)


@twin
def tanh_gradient(xp: Namespace, grad_output: Array, output: Array) -> Array:
    one = one_for(xp, grad_output, output)
    if one is None:
        return grad_output * xp.conj(1 - output * output)
    slope = output * output
    xp.subtract(one, slope, slope)
    return xp.multiply(grad_output, slope, slope)


tanh_backward = primitive(
    "tanh_backward",
    forward=tanh_gradient,
    vjp={
        "grad_output": lambda xp, g, output: xp.tanh_backward(g, xp.conj(output)),
        "output": lambda xp, g, grad_output, output: xp.conj(g) * grad_output * xp.conj(output) * -2,
    },
    jvp={
        "grad_output": lambda xp, t, output: xp.tanh_backward(t, output),
        "output": lambda xp, t, grad_output, output: grad_output * xp.conj(output * t) * -2,
    },
    batch=ELEMENTWISE,
    variants="",
)


asinh = unary(
    "asinh",
    forward=lambda xp, input: xp.arcsinh(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.rsqrt(input * input + 1)),
    variants="function method in_place in_place_function",
)


def _acosh_rule(xp: Namespace, g: Array, input: Array) -> Array:
    # over the complex numbers the root of the product is not always the product of the roots
    if input.dtype.kind == "c":
        return g * xp.conj(xp.rsqrt(input + 1) * xp.rsqrt(input - 1))
    return g * xp.rsqrt(input * input - 1)


acosh = unary(
    "acosh",
    forward=lambda xp, input: xp.arccosh(input),
    vjp=_acosh_rule,
    variants="function method in_place in_place_function",
)


atanh = unary(
    "atanh",
    forward=lambda xp, input: xp.arctanh(input),
    vjp=lambda xp, g, input: g / xp.conj(1 - input * input),
    variants="function method in_place in_place_function",
)


def _sinc_rule(xp: Namespace, g: Array, input: Array) -> Array:
    angle = input * math.pi
    slope = (angle * xp.cos(angle) - xp.sin(angle)) / (input * angle)
    return xp.where(xp.equal(input * angle, 0), 0, g * xp.conj(slope))


sinc = unary(
    "sinc",
    forward=lambda xp, input: xp.sinc(input),
    vjp=_sinc_rule,
    variants="function method in_place in_place_function",
)


def _in_other_units(name: str, input: Array, factor: float) -> Array:
    require_kinds(name, input, "biuf")
    return input * factor


deg2rad = unary(
    "deg2rad",
    forward=lambda xp, input: _in_other_units("deg2rad", input, math.pi / 180),
    vjp=lambda xp, g: g * (math.pi / 180),
    jvp=LINEAR,
    node="Deg2RadBackward0",
    variants="function method in_place in_place_function",
)


rad2deg = unary(
    "rad2deg",
    forward=lambda xp, input: _in_other_units("rad2deg", input, 180 / math.pi),
    vjp=lambda xp, g: g * (180 / math.pi),
    jvp=LINEAR,
    node="Rad2DegBackward0",
    variants="function method in_place in_place_function",
)


alias("arcsin", asin, variants="function method in_place in_place_function")
alias("arccos", acos, variants="function method in_place in_place_function")
alias("arctan", atan, variants="function method in_place in_place_function")
alias("arcsinh", asinh, variants="function method in_place in_place_function")
alias("arccosh", acosh, variants="function method in_place in_place_function")
alias("arctanh", atanh, variants="function method in_place in_place_function")
adapter("degrees")(rad2deg)
adapter("radians")(deg2rad)


def _atan2_rule(xp: Namespace, g: Array, needs: Any, input: Array, other: Array) -> tuple[Any, ...]:
    """x / r**2 and -y / r**2, and 0 at the origin."""
    y, x = as_float(xp, input, g.dtype), as_float(xp, other, g.dtype)
    square = y * y + x * x
    scaled = xp.where(xp.equal(square, 0), 0, g / square)
    return scaled * x if needs[0] else None, scaled * -y if needs[1] else None


atan2 = primitive(
    "atan2",
    forward=lambda xp, input, other: xp.arctan2(input, other),
    vjp=Joint(("input", "other"), _atan2_rule),
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="float",
    variants="function method in_place",
)


alias("arctan2", atan2, variants="function method in_place")
