"""How a random number moves with a parameter of its distribution while the probability below it stays.

That is -dP/dparameter over the density, for P the cumulative probability: what gradients through samples are made of.
P is a sum of positive terms, each a multiple of the one before, and so are their derivatives; terms are in units of the
density, which therefore is never computed. The compiled core has the same sums (csrc/kernels/quantile_slopes.c).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.pointwise.special.gamma import digamma_kernel

#: terms are summed until they change nothing
NOTHING = 1e-17
#: below, a series of gamma's has few terms, and its first ones do not grow long
FEW_TERMS = 3
#: between the points of integrals
STEP = 0.1


def _in_double(xp: Namespace, slope: Callable[..., Array], *operands: Array) -> Array:
    """A slope of arrays of one shape, in the dtype of the first; computed element by element, so in one dimension."""
    given = [xp.asarray(operand, dtype=dtypes.float64).reshape(-1) for operand in operands]
    with cpu.errstate(all="ignore"):
        return xp.asarray(slope(xp, *given), dtype=operands[0].dtype).reshape(operands[0].shape)


def gamma_slope(xp: Namespace, alpha: Array, x: Array) -> Array:
    """Of a gamma variable x of rate 1, by its concentration alpha."""
    return _in_double(xp, _gamma_slope, *xp.broadcast_arrays(alpha, x))


def _gamma_slope(xp: Namespace, alpha: Array, x: Array) -> Array:
    found = kernels.gamma_slopes(xp, alpha, x)
    if found is not None:
        return found
    out, small = xp.empty_like(x), x < FEW_TERMS
    out[small] = _gamma_slope_by_series(xp, alpha[small], x[small])
    out[~small] = _gamma_slope_by_integral(xp, alpha[~small], x[~small])
    return out


def _gamma_slope_by_series(xp: Namespace, alpha: Array, x: Array) -> Array:
    """The terms of P are x^(alpha + n) exp(-x) / gamma(alpha + n + 1)."""
    term, log, psi, n = x / alpha, xp.log(x), digamma_kernel(xp, alpha + 1), 0
    total, change = xp.zeros_like(x), term
    while n < FEW_TERMS or (xp.abs(change) > NOTHING * xp.abs(total)).any():
        change = term * (log - psi)
        total -= change
        n += 1
        psi += 1 / (alpha + n)
        term *= x / (alpha + n)
    return total


def _gamma_slope_by_integral(xp: Namespace, alpha: Array, x: Array) -> Array:
    """The derivative of the density, integrated from x to the nearer end over v = log(t / x): a sum of few terms that
    nearly all have one sign, where those of the series cancel.
    """
    side = xp.where(x < alpha, -1.0, 1.0)
    width = side / (xp.abs(x - alpha) + xp.sqrt(x))
    log = xp.log(x) - digamma_kernel(xp, alpha)
    total = xp.zeros_like(x)
    for point, weight in exponential_nodes():
        v = point * width
        total += weight * (log + v) * xp.exp(alpha * v - x * xp.expm1(v))
    return total * x * width


@functools.cache
def exponential_nodes() -> list[tuple[float, float]]:
    """Points and weights for integrals from 0 to infinity of what falls exponentially: points exp(t - exp(-t)) of equal
    steps in t, where the sum over them is exact but for the rounding.
    """
    steps = [STEP * k for k in range(round(-3.8 / STEP), round(4.3 / STEP) + 1)]
    points = [math.exp(t - math.exp(-t)) for t in steps]
    return [(point, STEP * point * (1 + math.exp(-t))) for t, point in zip(steps, points, strict=True)]


def beta_slope(xp: Namespace, x: Array, a: Array, b: Array) -> Array:
    """Of a beta variable x, whose density has the exponents a - 1 and b - 1, by a."""
    return _in_double(xp, _beta_slope, *xp.broadcast_arrays(x, a, b))


def _beta_slope(xp: Namespace, x: Array, a: Array, b: Array) -> Array:
    """The terms of P are x^(a + n) (1 - x)^b gamma(a + b + n) / (gamma(b) gamma(a + n + 1)); far to the right, those of
    1 - P are fewer, where x and 1 - x, a and b have changed places.
    """
    found = kernels.beta_slopes(xp, x, a, b)
    if found is not None:
        return found
    left = x * (a + b + 2) <= a + 1
    y, c = xp.where(left, x, 1 - x), xp.where(left, a, b)
    term, n = x * (1 - x) / c, 0
    psi = digamma_kernel(xp, a + b) - digamma_kernel(xp, xp.where(left, a + 1, a))
    psi += xp.where(left, xp.log(x), xp.log1p(-y))
    total = xp.zeros_like(x)
    while True:
        change = term * psi
        total += change
        # on the right, only what comes from gamma(a + b + n) moves with a
        psi += 1 / (a + b + n) - xp.where(left, 1 / (a + n + 1), 0.0)
        term *= y * (a + b + n) / (c + 1 + n)
        n += 1
        if not (xp.abs(change) > NOTHING * xp.abs(total)).any():
            return xp.where(left, -total, total)
