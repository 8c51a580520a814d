"""igamma, igammac: the regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x).

Whichever of the two is small is computed, the other is 1 minus it. Near x = a, where series are slow for large a,
Temme's uniform expansion; else the power series of P below x = a, and the continued fraction of Q above it. For
small a and x, Q is small although x is below a: there its own series.
"""

from __future__ import annotations

import math
from typing import Any

from undertow.backend import dtypes, special
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import primitive
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.special.error_functions import (
    by_parts,
    horner,
)
from undertow.ops.pointwise.special.gamma import BERNOULLI, LARGE, lgamma_kernel, lgamma_right, near_two

#: no series here is longer
LONGEST = 2000
EPSILON = 2.0**-53


def _log_distance(xp: Namespace, a: Array, x: Array) -> Array:
    """log(x / a) - (x / a - 1), without cancellation where x is near a."""
    ratio = (x - a) / a
    near = xp.abs(ratio) < 0.5
    r = xp.where(near, ratio, 0.0)
    r = r / (2 + r)
    series = horner([1 / (2 * k + 1) for k in range(18, 0, -1)] + [0.0], r * r)
    return xp.where(near, r * (2 * series - ratio), xp.log(x / a) - ratio)


def _gamma_density(xp: Namespace, a: Array, x: Array) -> Array:
    """x ** a * exp(-x) / gamma(a)."""
    large = a >= LARGE
    safe = xp.where(large, a, LARGE)
    series = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI[:8], 1)]
    correction = horner(series[::-1], 1 / (safe * safe)) / safe
    exponent = safe * _log_distance(xp, safe, xp.where(large, x, safe)) - correction
    direct = a * xp.log(x) - x - lgamma_kernel(xp, xp.where(large, 1.0, a))
    return xp.where(large, xp.sqrt(safe / (2 * math.pi)) * xp.exp(exponent), xp.exp(direct))


def _lower_series(xp: Namespace, a: Array, x: Array) -> Array:
    """P, for x not far above a."""
    term, total = xp.ones_like(a), xp.ones_like(a)
    for n in range(1, LONGEST):
        term *= x / (a + n)
        total += term
        if not (term > EPSILON * total).any():
            break
    return _gamma_density(xp, a, x) / a * total


def _upper_fraction(xp: Namespace, a: Array, x: Array) -> Array:
    """Q, for x above a: its continued fraction, by Lentz's method."""
    b = x + 1 - a
    c, d = xp.full_like(a, 1 / 1e-300), 1 / b
    total = d.copy()
    for n in range(1, LONGEST):
        step = -n * (n - a)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        factor = c * d
        total *= factor
        if not (xp.abs(factor - 1) > EPSILON).any():
            break
    return _gamma_density(xp, a, x) * total


def _upper_series(xp: Namespace, a: Array, x: Array) -> Array:
    """Q, for x up to about 1, without cancellation where a is small."""
    term, total = xp.ones_like(a), xp.zeros_like(a)
    for n in range(1, LONGEST):
        term *= -x / n
        total += term / (a + n)
        if not (xp.abs(term / (a + n)) > EPSILON * xp.abs(total)).any():
            break
    log_power = a * xp.log(x)
    small = a < 0.5
    near_one = lambda xp, a: horner(near_two(), a) - xp.log1p(a)
    of_next = by_parts(xp, a, [(small, near_one), (~small, lambda xp, a: lgamma_right(xp, a + 1))])  # lgamma(a + 1)
    return -xp.expm1(log_power - of_next) - xp.exp(log_power - of_next) * a * total


def _uniform_expansion(xp: Namespace, a: Array, x: Array, upper: bool) -> Array:
    """P or Q for large a and x / a near 1 (Temme 1979)."""
    from undertow.ops.pointwise.special.temme import temme_coefficients  # exact fractions, which few programs need

    sign = 1 if upper else -1
    half_square = -_log_distance(xp, a, x)
    eta = xp.copysign(xp.sqrt(2 * half_square), x - a)
    total, power = xp.zeros_like(a), xp.ones_like(a)
    previous = xp.full_like(a, math.inf)
    for row in temme_coefficients():
        term = horner(row[::-1], eta) * power
        size = xp.abs(term)
        term = xp.where(size < previous, term, 0.0)  # an asymptotic series: from its smallest term on it grows
        previous = xp.where(size < previous, size, 0.0)
        total += term
        power = power / a
    rest = xp.exp(-a * half_square) * total / xp.sqrt(2 * math.pi * a)
    return 0.5 * special.erfc(sign * eta * xp.sqrt(a / 2)) + sign * rest


def _incomplete_gamma(xp: Namespace, a: Array, x: Array, upper: bool) -> Array:
    """P or Q, for finite positive a and x."""
    near = (a > 20) & (xp.abs(x - a) < 0.3 * a)
    tiny = (x <= 1.1) & xp.where(x <= 0.5, -0.4 / xp.log(xp.where(x <= 0.5, x, 0.5)) >= a, x * 1.1 >= a) & ~near
    beyond = (x > 1.1) & (x >= a) & ~near
    below = ~(near | tiny | beyond)
    out = xp.empty_like(a)
    for mask, kernel, of_upper in (
        (below, _lower_series, False), (beyond, _upper_fraction, True), (tiny, _upper_series, True)
    ):  # fmt: skip
        if mask.any():
            values = kernel(xp, a[mask], x[mask])
            out[mask] = values if of_upper == upper else 1 - values
    if near.any():
        out[near] = _uniform_expansion(xp, a[near], x[near], upper)
    return out


def _incomplete_gamma_array(name: str, upper: bool) -> Any:
    def forward(xp: Namespace, input: Array, other: Array) -> Any:
        require_kinds(name, input, "f")
        a, x = xp.broadcast_arrays(xp.asarray(input, dtype=dtypes.float64), xp.asarray(other, dtype=dtypes.float64))
        shape, a, x = a.shape, a.reshape(-1), x.reshape(-1)
        good = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
        with xp.errstate(all="ignore"):
            found = _incomplete_gamma(xp, a[good], x[good], upper)
            zero = (x == 0) | (a == math.inf)  # there P is 0; at a = 0 and x = inf it is 1
            undefined = (a < 0) | (x < 0) | xp.isnan(a + x) | ((a == x) & ((a == 0) | (a == math.inf)))
            out = xp.where(undefined, math.nan, xp.where(zero == upper, 1.0, 0.0))
        out[good] = found
        return out.reshape(shape).astype(input.dtype)

    return forward


def _density_of_gamma(xp: Namespace, input: Array, other: Array) -> Array:
    """The derivative of igamma in `other`."""
    input = xp.astype(input, other.dtype)  # it may be of integers
    return xp.exp((input - 1) * xp.log(other) - other - xp.lgamma(input))


def _no_derivative_by_input(name: str) -> Any:
    def rule(xp: Namespace, g: Array) -> Any:
        raise NotImplementedError(
            f"the derivative for '{name}: input' is not implemented. Its formula in the other argument is known: "
            "detach() the first one if its gradient is not needed."
        )

    return rule


def _no_tangent_of_input(name: str) -> Any:
    def rule(xp: Namespace, t: Array) -> Any:
        raise NotImplementedError(
            f"Trying to use forward AD with {name} that does not support it: its derivative in 'input' is not "
            "implemented. Take the primal of the first argument if its tangent is not needed."
        )

    return rule


igamma = primitive(
    "igamma",
    forward=_incomplete_gamma_array("igamma", False),
    vjp={
        "input": _no_derivative_by_input("igamma"),
        "other": lambda xp, g, input, other: g * _density_of_gamma(xp, input, other),
    },
    jvp={
        "input": _no_tangent_of_input("igamma"),
        "other": lambda xp, t, input, other: t * _density_of_gamma(xp, input, other),
    },
    batch=ELEMENTWISE,
    promote="same",
    variants="function method in_place",
)


igammac = primitive(
    "igammac",
    forward=_incomplete_gamma_array("igammac", True),
    vjp={
        "input": _no_derivative_by_input("igammac"),
        "other": lambda xp, g, input, other: -g * _density_of_gamma(xp, input, other),
    },
    jvp={
        "input": _no_tangent_of_input("igammac"),
        "other": lambda xp, t, input, other: -t * _density_of_gamma(xp, input, other),
    },
    batch=ELEMENTWISE,
    promote="same",
    variants="function method in_place",
)
