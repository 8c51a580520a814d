"""Rounding: constant between its jumps, so the derivative is zero."""

from __future__ import annotations

from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import adapter, alias
from undertow.ops.pointwise.unary import no_slope, unary

floor = unary(
    "floor",
    forward=lambda xp, input: xp.floor(input),
    vjp=no_slope,
    promote=None,
    variants="function method in_place in_place_function foreach",
    piecewise_constant=True,
)


ceil = unary(
    "ceil",
    forward=lambda xp, input: xp.ceil(input),
    vjp=no_slope,
    promote=None,
    variants="function method in_place in_place_function foreach",
    piecewise_constant=True,
)


trunc = unary(
    "trunc",
    forward=lambda xp, input: xp.trunc(input),
    vjp=no_slope,
    promote=None,
    variants="function method in_place in_place_function foreach",
    piecewise_constant=True,
)


def rounded(xp: Namespace, input: Array, *, decimals: int = 0) -> Array:
    require_kinds("round", input, "biuf")
    return xp.rint(input) if decimals == 0 and input.dtype.kind == "f" else xp.round(input, decimals)


round = unary(
    "round",
    forward=rounded,
    vjp=no_slope,
    promote=None,
    variants="function method in_place in_place_function foreach",
    piecewise_constant=True,
)


frac = unary(
    "frac",
    forward=lambda xp, input: input - xp.trunc(input),
    vjp=lambda xp, g: g,
    promote=None,
    variants="function method in_place in_place_function foreach",
)


alias("fix", trunc, variants="function method in_place in_place_function")
adapter("rint")(round)
