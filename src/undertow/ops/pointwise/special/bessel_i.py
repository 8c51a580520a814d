"""Modified Bessel functions of the first kind, of order 0 and 1, also scaled by exp(-|x|).

Up to LARGE by the power series, whose terms all have one sign, then by the asymptotic one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.pointwise.special.error_functions import Kernel, by_parts, horner, in_double
from undertow.ops.pointwise.unary import unary

LARGE = 20.0

#: of the power series in x ** 2 / 4, highest power first
SERIES = {order: [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(60, -1, -1)] for order in (0, 1)}


def _asymptotic(order: int) -> list[float]:
    """Of the asymptotic series in 1 / x, highest power first."""
    terms = [1.0]
    for k in range(1, 31):
        terms.append(-terms[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return terms[::-1]


ASYMPTOTIC = {order: _asymptotic(order) for order in (0, 1)}


def near(order: int, scaled: bool) -> Kernel:
    def kernel(xp: Namespace, x: Array) -> Array:
        value = horner(SERIES[order], x * x / 4) * (x / 2 if order else 1.0)
        return value * xp.exp(-x) if scaled else value

    return kernel


def far(order: int, scaled: bool) -> Kernel:
    def kernel(xp: Namespace, x: Array) -> Array:
        value = horner(ASYMPTOTIC[order], 1 / x) / (math.sqrt(2 * math.pi) * xp.sqrt(x))
        if scaled:
            return value
        half = xp.exp(x / 2)  # in two steps, because exp(x) overflows before the value does
        return xp.where(xp.isinf(x), x, value * half * half)

    return kernel


def _bessel(order: int, scaled: bool) -> Kernel:
    def kernel(xp: Namespace, x: Array) -> Array:
        size = xp.abs(x)
        large = size > LARGE
        with xp.errstate(over="ignore", invalid="ignore"):
            value = by_parts(xp, size, [(large, far(order, scaled)), (~large, near(order, scaled))])
        return xp.copysign(value, x) if order else value

    return kernel


def function(name: str, order: int, scaled: bool, vjp: Callable[..., Any], node: str, **options: Any) -> Any:
    kernel = _bessel(order, scaled)
    return unary(name, forward=lambda xp, input: in_double(xp, name, kernel, input), vjp=vjp, node=node, **options)


def where_not_zero(xp: Namespace, input: Array, slope: Callable[[Any], Any]) -> Array:
    """The slope of a function of order 1, which at 0, and at numbers that have no reciprocal, is one half."""
    zero = xp.less(xp.abs(input), dtypes.float_limits(input.dtype).tiny)
    return xp.where(zero, 0.5, slope(xp.where(zero, 1.0, input)))


# NumPy's own i0 warns at infinities
i0 = function(
    "i0",
    0,
    False,
    lambda xp, g, input: g * xp.special_i1(input),
    "I0Backward0",
    variants="function method in_place in_place_function",
)

special_i0e = function(
    "special_i0e",
    0,
    True,
    lambda xp, g, input, out: g * (xp.special_i1e(input) - xp.sgn(input) * out),
    "SpecialI0EBackward0",
)

special_i1 = function(
    "special_i1",
    1,
    False,
    lambda xp, g, input, out: g * where_not_zero(xp, input, lambda x: xp.i0(input) - out / x),
    "SpecialI1Backward0",
)

special_i1e = function(
    "special_i1e",
    1,
    True,
    lambda xp, g, input, out: (
        g * where_not_zero(xp, input, lambda x: xp.special_i0e(input) - out * (xp.sgn(x) + 1 / x))
    ),
    "SpecialI1EBackward0",
)
