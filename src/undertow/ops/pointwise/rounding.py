"""Rounding: constant between its jumps, so the derivative is zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import adapter, alias
from undertow.ops.pointwise.unary import no_slope, unary


def jumping(name: str, forward: Callable[..., Any]) -> Any:
    return unary(
        name,
        forward=forward,
        vjp=no_slope,
        promote=None,
        variants="function method in_place in_place_function foreach",
        piecewise_constant=True,
    )


floor = jumping("floor", lambda xp, input: xp.floor(input))
ceil = jumping("ceil", lambda xp, input: xp.ceil(input))
trunc = jumping("trunc", lambda xp, input: xp.trunc(input))


def rounded(xp: Namespace, input: Array, *, decimals: int = 0) -> Array:
    require_kinds("round", input, "biuf")
    return xp.rint(input) if decimals == 0 and input.dtype.kind == "f" else xp.round(input, decimals)


round = jumping("round", rounded)

frac = unary(
    "frac",
    forward=lambda xp, input: input - xp.trunc(input),
    vjp=lambda xp, g: g,
    promote=None,
    variants="function method in_place in_place_function foreach",
)


alias("fix", trunc, variants="function method in_place in_place_function")
adapter("rint")(round)
