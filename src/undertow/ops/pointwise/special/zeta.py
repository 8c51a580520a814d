"""Hurwitz's zeta function, the gamma and beta functions, and the multivariate gamma function."""

from __future__ import annotations

import math
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import as_operand, require_kinds
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.exp_log import exp
from undertow.ops.pointwise.special.error_functions import elementwise_in_python, in_double
from undertow.ops.pointwise.special.gamma import BERNOULLI, lgamma
from undertow.ops.pointwise.unary import not_implemented, unary

#: terms that are summed one by one, before Euler and Maclaurin's formula takes over
TERMS = 12


def _zeta_sum(xp: Namespace, s: Array, q: Array) -> Array:
    """The sum of (q + k) ** -s over k >= 0, where it converges."""
    terms = TERMS + max(0, math.ceil(-float(q.min()))) if q.size else 0
    total = xp.zeros_like(q)
    for k in range(terms):
        total += (q + k) ** -s
    far = q + terms
    power = far**-s
    total += far * power / (s - 1) + power / 2
    factor, power = s / 2, power / far
    for k, b in enumerate(BERNOULLI, 1):
        total += b * factor * power
        factor = factor * (s + 2 * k - 1) * (s + 2 * k) / ((2 * k + 1) * (2 * k + 2))
        power = power / (far * far)
    return total


def _zeta_array(xp: Namespace, input: Array, other: Array) -> Array:
    require_kinds("zeta", input, "biuf")
    s, q = xp.broadcast_arrays(xp.asarray(input, dtype=dtypes.float64), xp.asarray(other, dtype=dtypes.float64))
    pole = (q <= 0) & (q == xp.floor(q))
    undefined = (s < 1) | ((q < 0) & ~pole & (s != xp.floor(s))) | xp.isnan(s) | xp.isnan(q)
    good = (s > 1) & (s < math.inf) & ~pole & ~undefined & (q < math.inf)
    with xp.errstate(all="ignore"):
        out = _zeta_sum(xp, xp.where(good, s, 2.0), xp.where(good, q, 1.0))
        limit = xp.where(q > 1, 0.0, xp.where(q == 1, 1.0, math.inf))  # of s, or q, to infinity
    out = xp.where(good, out, xp.where(undefined, math.nan, xp.where((s == 1) | pole, math.inf, limit)))
    return out.astype(input.dtype) if input.dtype.kind == "f" else out


special_zeta = primitive(
    "special_zeta",
    forward=_zeta_array,
    vjp={
        "input": not_implemented("zeta", "By its first argument it is no elementary function"),
        "other": lambda xp, g, input, other: g * -input * xp.special_zeta(input + 1, other),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="float",
    numbers="one",
)

# ---- gamma and beta


def _gamma_of_one(x: float) -> float:
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:  # at its poles, and at -inf
        return math.copysign(math.inf, x) if x == 0 else math.nan


special_gamma = unary(
    "special_gamma",
    forward=lambda xp, input: in_double(xp, "special_gamma", elementwise_in_python(_gamma_of_one), input),
    vjp=lambda xp, g, input, out: g * out * xp.digamma(input),
)


@composite
def special_betaln(a: Array, b: Array) -> Array:
    """The logarithm of |beta(a, b)|.

    >>> import undertow as ut
    >>> ut.special.betaln(ut.tensor([0.5]), ut.tensor([0.5]))
    tensor([1.1447])
    """
    return lgamma(a) + lgamma(b) - lgamma(a + b)


@composite
def special_beta(a: Array, b: Array) -> Array:
    """gamma(a) * gamma(b) / gamma(a + b), for positive a and b.

    >>> import undertow as ut
    >>> ut.special.beta(ut.tensor(2.0), ut.tensor(3.0))
    tensor(0.0833)
    """
    return exp(special_betaln(a, b))


# ---- the multivariate gamma function


def _multivariate(xp: Namespace, input: Array, p: int) -> Array:
    """The logarithm, up to a constant: a sum of lgamma at input, input - 1/2, ..., p of them."""
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
    total: Any = p * (p - 1) / 4 * math.log(math.pi)
    for j in range(p):
        total = total + lgamma.op.forward(xp, input - j / 2)
    return total.astype(input.dtype) if input.dtype.kind == "f" else total


def _multivariate_rule(xp: Namespace, g: Array, input: Array, p: int) -> Array:
    slope = xp.digamma(input)
    for j in range(1, p):
        slope = slope + xp.digamma(input - j / 2)
    return g * slope


mvlgamma = unary(
    "mvlgamma", forward=_multivariate, vjp=_multivariate_rule, variants="function method in_place", order="rows"
)


@composite
def special_multigammaln(a: Array, p: int) -> Array:
    """The logarithm of the gamma function of p by p matrices; `mvlgamma` under its other name.

    a  a tensor, whose elements are greater than (p - 1) / 2

    >>> import undertow as ut
    >>> ut.special.multigammaln(ut.tensor([2.0]), 2)
    tensor([0.4516])
    """
    return mvlgamma(as_operand("special_multigammaln", "a", a), p)
