"""The logarithm of the gamma function and its derivatives: lgamma, digamma, polygamma."""

from __future__ import annotations

import math
from functools import cache
from numbers import Integral

from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import composite
from undertow.ops.pointwise.special.error_functions import (
    FEW,
    Parts,
    by_parts,
    compiled,
    elementwise_in_python,
    horner,
    in_double,
)
from undertow.ops.pointwise.unary import unary

EULER = 0.57721566490153286061
#: B(2), B(4), ..., the Bernoulli numbers of the asymptotic series
BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330]
#: from here on, the asymptotic series are exact in double precision
LARGE = 10


def _zeta_minus_one(k: int) -> float:
    """The sum of n ** -k over n >= 2, by Euler and Maclaurin from n = 200 on."""
    n = 200
    tail = n ** (1 - k) / (k - 1) + n**-k / 2 + k * n ** (-k - 1) / 12
    return math.fsum([*(m**-k for m in range(2, n)), tail, -k * (k + 1) * (k + 2) * n ** (-k - 3) / 720])


@cache
def near_two() -> list[float]:
    """The coefficients of the series of lgamma(2 + z), highest power first."""
    return [(-1) ** k * _zeta_minus_one(k) / k for k in range(30, 1, -1)] + [1 - EULER, 0.0]


def _from_integer(xp: Namespace, x: Array) -> Array:
    """How far x is from the nearest integer: sin and cos of pi times it lose no digits."""
    return x - xp.round(x)


# ---- lgamma


def _stirling(xp: Namespace, x: Array) -> Array:
    series = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI[:8], 1)]
    correction = horner(series[::-1], 1 / (x * x)) / x
    return (x - 0.5) * (xp.log(x) - 1) + correction + (math.log(2 * math.pi) - 1) / 2


def _lgamma_middle(xp: Namespace, x: Array) -> Array:
    product = x.copy()
    for k in range(1, 8):
        product *= x + k
    return _stirling(xp, x + 8) - xp.log(product)


def _lgamma_reflected(xp: Namespace, x: Array) -> Array:
    finite = x > -math.inf
    size = xp.abs(xp.sin(math.pi * _from_integer(xp, xp.where(finite, x, -0.5))))
    value = math.log(math.pi) - xp.log(size) - lgamma_right(xp, xp.where(finite, 1 - x, 1))
    return xp.where(finite, value, math.inf)


def lgamma_right(xp: Namespace, x: Array) -> Array:
    """For x >= 0, and nan."""
    parts: Parts = [
        (x < 0.5, lambda xp, x: horner(near_two(), x) - xp.log1p(x) - xp.log(x)),
        ((x >= 0.5) & (x < 1.5), lambda xp, x: horner(near_two(), x - 1) - xp.log1p(x - 1)),
        ((x >= 1.5) & (x < 2.5), lambda xp, x: horner(near_two(), x - 2)),
        ((x >= 2.5) & (x < LARGE), _lgamma_middle),
        (~(x < LARGE), _stirling),
    ]
    return by_parts(xp, x, parts)


def _lgamma_of_one(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # at its poles, and where it exceeds every double
        return math.inf


def lgamma_kernel(xp: Namespace, x: Array) -> Array:
    found = compiled(xp, "lgamma", x)
    if found is not None:
        return found
    if x.size <= FEW:
        return elementwise_in_python(_lgamma_of_one)(xp, x)
    left = x < 0
    return by_parts(xp, x, [(left, _lgamma_reflected), (~left, lgamma_right)])


lgamma = unary(
    "lgamma",
    forward=lambda xp, input: in_double(xp, "lgamma", lgamma_kernel, input),
    vjp=lambda xp, g, input: g * xp.digamma(input),
    variants="function method in_place foreach",
)

# ---- digamma


def _digamma_large(xp: Namespace, x: Array) -> Array:
    series = [-b / (2 * k) for k, b in enumerate(BERNOULLI[:8], 1)]
    return xp.log(x) - 0.5 / x + horner([*series[::-1], 0.0], 1 / (x * x))


def _digamma_right(xp: Namespace, x: Array) -> Array:
    """For x > 0, and nan."""
    small = x < LARGE

    def shifted(xp: Namespace, x: Array) -> Array:
        total = 1 / x
        for k in range(1, LARGE):
            total += 1 / (x + k)
        return _digamma_large(xp, x + LARGE) - total

    return by_parts(xp, x, [(small, shifted), (~small, _digamma_large)])


def _digamma_reflected(xp: Namespace, x: Array) -> Array:
    offset = _from_integer(xp, x)
    pole = offset == 0
    value = _digamma_right(xp, 1 - x) - math.pi / xp.tan(math.pi * xp.where(pole, 0.5, offset))
    return xp.where(pole, math.nan, value)


def digamma_kernel(xp: Namespace, x: Array) -> Array:
    zero, left = x == 0, x < 0
    parts: Parts = [
        (zero, lambda xp, x: xp.copysign(math.inf, -x)),
        (left, _digamma_reflected),
        (~(zero | left), _digamma_right),
    ]
    return by_parts(xp, x, parts)


digamma = unary(
    "digamma",
    forward=lambda xp, input: in_double(xp, "digamma", digamma_kernel, input),
    vjp=lambda xp, g, input: g * xp._polygamma(input, 1),
    variants="function method in_place",
)

# ---- polygamma: (-1) ** (n + 1) * n! * zeta(n + 1, x), with Hurwitz's zeta function


def _hurwitz_zeta(xp: Namespace, s: int, x: Array) -> Array:
    """The sum of (x + k) ** -s over k >= 0, for x > 0: some terms, then Euler and Maclaurin's formula."""
    first = max(LARGE, s)
    total = xp.zeros_like(x)
    for k in range(first):
        total += (x + k) ** -float(s)
    far = x + first
    power = far ** -float(s)
    total += far ** (1.0 - s) / (s - 1) + power / 2
    factor, power = s / 2.0, power / far
    for k, b in enumerate(BERNOULLI, 1):
        total += b * factor * power
        factor *= (s + 2 * k - 1) * (s + 2 * k) / ((2 * k + 1) * (2 * k + 2))
        power = power / (far * far)
    return total


def _cotangent_derivative(xp: Namespace, n: int, offset: Array) -> Array:
    """The n-th derivative of pi * cot(pi * x): a polynomial in cot, since cot' = -(1 + cot ** 2)."""
    coefficients = [1.0, 0.0]
    for _ in range(n):
        degree = len(coefficients) - 1
        slope = [-(degree - k) * c for k, c in enumerate(coefficients[:-1])]
        coefficients = [a + b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return horner(coefficients, 1 / xp.tan(math.pi * offset)) * math.pi ** (n + 1)


def _polygamma_right(xp: Namespace, n: int, x: Array) -> Array:
    return (-1) ** (n + 1) * math.gamma(n + 1) * _hurwitz_zeta(xp, n + 1, x)


def _polygamma_kernel(xp: Namespace, n: int, x: Array) -> Array:
    left = x < 0
    reflected = lambda xp, x: (
        (-1) ** n * _polygamma_right(xp, n, 1 - x) - _cotangent_derivative(xp, n, _from_integer(xp, x))
    )
    return by_parts(xp, x, [(left, reflected), (~left, lambda xp, x: _polygamma_right(xp, n, x))])


_polygamma = unary(
    "_polygamma",
    forward=lambda xp, input, n: in_double(
        xp, "polygamma", lambda xp, x: _polygamma_kernel(xp, n, x), input, "trigamma" if n == 1 else None
    ),
    vjp=lambda xp, g, input, n: g * xp._polygamma(input, n + 1),
    node="PolygammaBackward0",
)


@composite(out=True)
def polygamma(n: int, input: Array) -> Array:
    """The n-th derivative of digamma.

    >>> import undertow as ut
    >>> ut.polygamma(1, ut.tensor(1.0))  # pi ** 2 / 6
    tensor(1.6449)
    """
    if not isinstance(n, Integral):
        raise TypeError(f"polygamma(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got {n}.")
    return digamma(input) if n == 0 else _polygamma(input, n)
