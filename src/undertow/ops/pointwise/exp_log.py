"""Exponentials and logarithms, of one number and of two."""

from __future__ import annotations

import math

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import primitive
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.powers import as_float, number_like
from undertow.ops.pointwise.unary import unary

LN2 = math.log(2)
LN10 = math.log(10)


# ---- of one number

exp = unary(
    "exp",
    forward=lambda xp, input: xp.exp(input),
    vjp=lambda xp, g, out: g * xp.conj(out),
    variants="function method in_place in_place_function foreach",
)

exp2 = unary(
    "exp2",
    forward=lambda xp, input: xp.exp(input * LN2) if input.dtype.kind == "c" else xp.exp2(input),
    vjp=lambda xp, g, out: g * xp.conj(out) * LN2,
    variants="function method in_place in_place_function",
)

expm1 = unary(
    "expm1",
    forward=lambda xp, input: xp.expm1(input),
    vjp=lambda xp, g, out: g * xp.conj(out + 1),
    variants="function method in_place in_place_function foreach",
)

log = unary(
    "log",
    forward=lambda xp, input: xp.log(input),
    vjp=lambda xp, g, input: g / xp.conj(input),
    variants="function method in_place in_place_function foreach",
)

log2 = unary(
    "log2",
    forward=lambda xp, input: xp.log2(input),
    vjp=lambda xp, g, input: g / (xp.conj(input) * LN2),
    variants="function method in_place in_place_function foreach",
)

log10 = unary(
    "log10",
    forward=lambda xp, input: xp.log10(input),
    vjp=lambda xp, g, input: g / (xp.conj(input) * LN10),
    variants="function method in_place in_place_function foreach",
)

log1p = unary(
    "log1p",
    forward=lambda xp, input: xp.log1p(input),
    vjp=lambda xp, g, input: g / xp.conj(input + 1),
    node="Log1PBackward0",
    variants="function method in_place in_place_function foreach",
)


# ---- of two numbers


def _computes_on_host(xp: Namespace) -> bool:
    """Whether the functions with vectors are those to use, also in programs; a GPU has one for the whole."""
    return xp is cpu or getattr(xp, "traces", False)


def _log_of_sum(xp: Namespace, input: Array, other: Array) -> Array:
    if input.dtype.kind != "c" and not _computes_on_host(xp):
        return xp.logaddexp(input, other)
    if input.dtype.kind != "c":
        together = xp.maximum(input, other) + xp.log1p(xp.exp(-xp.abs(input - other)))
        return xp.where(input == other, input + LN2, together)
    larger = xp.where(input.real >= other.real, input, other)
    smaller = xp.where(input.real >= other.real, other, input)
    return larger + xp.log1p(xp.exp(smaller - larger))


logaddexp = primitive(
    "logaddexp",
    forward=_log_of_sum,
    vjp={
        "input": lambda xp, g, input, other: g * xp.conj(xp.sigmoid(input - other)),
        "other": lambda xp, g, input, other: g * xp.conj(xp.sigmoid(other - input)),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="float",
    variants="function method",
)


def _log2_of_sum(xp: Namespace, input: Array, other: Array) -> Array:
    if not _computes_on_host(xp):
        return xp.logaddexp2(input, other)
    together = xp.maximum(input, other) + xp.log1p(xp.exp2(-xp.abs(input - other))) * (1 / LN2)
    return xp.where(input == other, input + 1, together)


logaddexp2 = primitive(
    "logaddexp2",
    forward=_log2_of_sum,
    vjp={
        "input": lambda xp, g, input, other: g * xp.sigmoid((input - other) * LN2),
        "other": lambda xp, g, input, other: g * xp.sigmoid((other - input) * LN2),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="float",
    variants="function method",
)


def _x_log_y(xp: Namespace, input: Array, other: Array) -> Array:
    """input * log(other), and 0 where input is 0, unless other is nan."""
    if input.dtype.kind == "c":
        raise NotImplementedError('"xlogy" not implemented for complex tensors')
    if input.dtype.kind == "f":
        other = xp.asarray(other, dtype=input.dtype)
    return input * xp.log(xp.where((input == 0) & (other == other), 1, other))


def _xlogy_input_rule(xp: Namespace, g: Array, input: Array, other: Array) -> Array:
    if not hasattr(other, "dtype"):
        other = number_like(xp, other, g)
    flat = xp.logical_and(xp.equal(input, 0), xp.less_equal(other, 0))
    return xp.where(flat, 0, xp.xlogy(g, as_float(xp, other, g.dtype)))


xlogy = primitive(
    "xlogy",
    forward=_x_log_y,
    vjp={"input": _xlogy_input_rule, "other": lambda xp, g, input, other: g * input / other},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    number_node="XlogyBackward2",
    number_edge=False,
    promote="float",
    number="other",
    variants="function method in_place in_place_function",
    numbers="one",
)
