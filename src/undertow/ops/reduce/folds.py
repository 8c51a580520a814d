"""Reductions of arrays to extremes, products and sums of powers, which large arrays divide among threads."""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin


@twin
def fold(xp: Namespace, input: Array, name: str, axes: Any, keepdim: bool) -> Array:
    """Along axes: "maximum", "minimum", "multiply", or the sum of "sizes" (of absolute values) or of "squares"."""
    if name in ("sizes", "squares"):
        sizes = xp.abs(input)
        return xp.add.reduce(sizes if name == "sizes" else sizes * sizes, axes, keepdims=keepdim)
    return getattr(xp, name).reduce(input, axes, keepdims=keepdim)


@twin
def places_along(xp: Namespace, input: Array, axis: int, smallest: bool) -> Array:
    """The first place of the largest element along an axis, which stays; or of the smallest."""
    return (input.argmin if smallest else input.argmax)(axis, keepdims=True)
