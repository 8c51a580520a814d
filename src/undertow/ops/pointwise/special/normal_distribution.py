"""The normal distribution and its tails (ndtr, log_ndtr, ndtri); products with logarithms (entr, xlog1py)."""

from __future__ import annotations

import math

from undertow.backend import special as kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.powers import as_float
from undertow.ops.pointwise.special.error_functions import (
    QUANTILE_CENTRE,
    QUANTILE_MIDDLE,
    QUANTILE_TAIL,
    Parts,
    by_parts,
    erfc,
    in_double,
    ratio,
)
from undertow.ops.pointwise.unary import unary

SQRT2, SQRT_PI = math.sqrt(2), math.sqrt(math.pi)


@composite
def special_ndtr(input: Array) -> Array:
    """The probability that a standard normal number is below each element.

    >>> import undertow as ut
    >>> ut.special.ndtr(ut.tensor([0.0, 1.96]))
    tensor([0.5000, 0.9750])
    """
    return erfc(input * (-1 / SQRT2)) * 0.5


def _log_ndtr_kernel(xp: Namespace, x: Array) -> Array:
    with xp.errstate(divide="ignore", invalid="ignore"):
        left = lambda xp, x: xp.log(kernels.erfcx(-x / SQRT2) / 2) - x * x / 2
        right = lambda xp, x: xp.log1p(-xp.erfc(x / SQRT2) / 2)
        return by_parts(xp, x, [(x < -1, left), (~(x < -1), right)])


special_log_ndtr = unary(
    "special_log_ndtr",
    forward=lambda xp, input: in_double(xp, "special_log_ndtr", _log_ndtr_kernel, input),
    vjp=lambda xp, g, input: g / xp.special_erfcx(input * (-1 / SQRT2)) * (SQRT2 / SQRT_PI),
)


def _tail_quantile(xp: Namespace, p: Array) -> Array:
    """Wichura's approximation, for p outside of (0.075, 0.925)."""
    depth = xp.sqrt(-xp.log(xp.minimum(p, 1 - p)))
    far = depth > 5
    parts: Parts = [
        (far, lambda xp, r: ratio(QUANTILE_TAIL, r - 5)),
        (~far, lambda xp, r: ratio(QUANTILE_MIDDLE, r - 1.6)),
    ]
    return xp.copysign(by_parts(xp, depth, parts), p - 0.5)


def _ndtri_kernel(xp: Namespace, p: Array) -> Array:
    centre = xp.abs(p - 0.5) <= 0.425
    inside = (p > 0) & (p < 1)
    parts: Parts = [
        (centre, lambda xp, p: (p - 0.5) * ratio(QUANTILE_CENTRE, 0.180625 - (p - 0.5) ** 2)),
        (inside & ~centre, _tail_quantile),
        ((p == 0) | (p == 1), lambda xp, p: (p - 0.5) * math.inf),
        (~((p >= 0) & (p <= 1)), lambda xp, p: xp.full_like(p, math.nan)),
    ]
    return by_parts(xp, p, parts)


special_ndtri = unary(
    "special_ndtri",
    forward=lambda xp, input: in_double(xp, "special_ndtri", _ndtri_kernel, input),
    vjp=lambda xp, g, out: g * xp.exp(out * out / 2) * (SQRT2 * SQRT_PI),
)

# ---- logarithms times something


def entropy(xp: Namespace, input: Array) -> Array:
    """-x log(x), 0 at 0, and -inf where there is no logarithm."""
    safe = xp.where(input > 0, input, 1)
    return xp.where(xp.isnan(input), input, xp.where(input < 0, -math.inf, -input * xp.log(safe)))


special_entr = unary(
    "special_entr",
    forward=lambda xp, input: in_double(xp, "special_entr", entropy, input),
    vjp=lambda xp, g, input: g * -(xp.log(input) + 1),
)


def _x_log_1p_y(xp: Namespace, input: Array, other: Array) -> Array:
    """input * log1p(other), and 0 where input is 0, unless other is nan."""
    if input.dtype.kind == "f":
        other = xp.asarray(other, dtype=input.dtype)
    return input * xp.log1p(xp.where((input == 0) & (other == other), 0, other))


def _xlog1py_input_rule(xp: Namespace, g: Array, input: Array, other: Array) -> Array:
    flat = xp.logical_and(xp.equal(input, 0), xp.less_equal(other, -1))
    return xp.where(flat, 0, xp.special_xlog1py(g, xp.where(flat, 0, as_float(xp, other, g.dtype))))


special_xlog1py = primitive(
    "special_xlog1py",
    forward=_x_log_1p_y,
    vjp={"input": _xlog1py_input_rule, "other": lambda xp, g, input, other: g * input / (other + 1)},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="SpecialXlog1PyBackward0",
    promote="float",
    numbers="one",
)
