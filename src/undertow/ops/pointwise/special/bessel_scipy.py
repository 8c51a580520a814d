"""Bessel functions and Airy's, by SciPy's kernels (the extra `special`). Their derivatives are of their own kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.backend.special import scipy_function
from undertow.ops.declare import alias, composite
from undertow.ops.pointwise.special.bessel_i import i0, special_i1, where_not_zero
from undertow.ops.pointwise.special.error_functions import Kernel, in_double
from undertow.ops.pointwise.unary import unary


def _by_scipy(name: str, kernel: str, vjp: Callable[..., Any]) -> Any:
    """Declare a function that SciPy computes."""
    return unary(
        name,
        forward=lambda xp, input: in_double(xp, name, lambda xp, x: scipy_function(kernel)(x), input),
        vjp=vjp,
    )


# ---- of the first and second kind

special_bessel_j0 = _by_scipy("special_bessel_j0", "j0", lambda xp, g, input: -g * xp.special_bessel_j1(input))
special_bessel_j1 = _by_scipy(
    "special_bessel_j1",
    "j1",
    lambda xp, g, input, out: g * where_not_zero(xp, input, lambda x: xp.special_bessel_j0(input) - out / x),
)
special_bessel_y0 = _by_scipy("special_bessel_y0", "y0", lambda xp, g, input: -g * xp.special_bessel_y1(input))
special_bessel_y1 = _by_scipy(
    "special_bessel_y1", "y1", lambda xp, g, input, out: g * (xp.special_bessel_y0(input) - out / input)
)

# ---- modified

special_modified_bessel_k0 = _by_scipy(
    "special_modified_bessel_k0", "k0", lambda xp, g, input: -g * xp.special_modified_bessel_k1(input)
)
special_modified_bessel_k1 = _by_scipy(
    "special_modified_bessel_k1",
    "k1",
    lambda xp, g, input, out: -g * (xp.special_modified_bessel_k0(input) + out / input),
)
special_scaled_modified_bessel_k0 = _by_scipy(
    "special_scaled_modified_bessel_k0",
    "k0e",
    lambda xp, g, input, out: g * (out - xp.special_scaled_modified_bessel_k1(input)),
)
special_scaled_modified_bessel_k1 = _by_scipy(
    "special_scaled_modified_bessel_k1",
    "k1e",
    lambda xp, g, input, out: g * (out * (1 - 1 / input) - xp.special_scaled_modified_bessel_k0(input)),
)
alias("special_modified_bessel_i0", i0)
alias("special_modified_bessel_i1", special_i1)

# ---- of any order: the derivative by the neighbours in order


def _of_order(name: str, kernel: str, lower: float, upper: float) -> Any:
    """Declare `name(input, v)`, whose derivative is lower * f(v - 1) + upper * f(v + 1)."""

    def vjp(xp: Namespace, g: Array, input: Array, v: float) -> Array:
        neighbour = getattr(xp, name)
        return g * (neighbour(input, v - 1) * lower + neighbour(input, v + 1) * upper)

    return unary(
        name,
        forward=lambda xp, input, v: in_double(xp, name, lambda xp, x: scipy_function(kernel)(v, x), input),
        vjp=vjp,
    )


_bessel_jv = _of_order("_bessel_jv", "jv", 0.5, -0.5)
_bessel_yv = _of_order("_bessel_yv", "yv", 0.5, -0.5)
_bessel_iv = _of_order("_bessel_iv", "iv", 0.5, 0.5)
_bessel_kv = _of_order("_bessel_kv", "kv", -0.5, -0.5)


def _plain_order(name: str, v: Any) -> float:
    if not isinstance(v, Real):
        raise TypeError(f"{name}(): the order must be a number, not {type(v).__name__}: there is no derivative by it")
    return float(v)


@composite
def special_jv(v: float, input: Array) -> Array:
    """The Bessel function of the first kind, of real order v.

    >>> import undertow as ut
    >>> ut.special.jv(0.0, ut.tensor([0.5]))
    tensor([0.9385])
    """
    return _bessel_jv(input, _plain_order("jv", v))


@composite
def special_yv(v: float, input: Array) -> Array:
    """The Bessel function of the second kind, of real order v.

    >>> import undertow as ut
    >>> ut.special.yv(0.0, ut.tensor([0.5]))
    tensor([-0.4445])
    """
    return _bessel_yv(input, _plain_order("yv", v))


@composite
def special_iv(v: float, input: Array) -> Array:
    """The modified Bessel function of the first kind, of real order v.

    >>> import undertow as ut
    >>> ut.special.iv(0.0, ut.tensor([0.5]))
    tensor([1.0635])
    """
    return _bessel_iv(input, _plain_order("iv", v))


@composite
def special_kv(v: float, input: Array) -> Array:
    """The modified Bessel function of the second kind, of real order v.

    >>> import undertow as ut
    >>> ut.special.kv(0.0, ut.tensor([0.5]))
    tensor([0.9244])
    """
    return _bessel_kv(input, _plain_order("kv", v))


# ---- spherical


def _spherical(xp: Namespace, x: Array) -> Array:
    zero = x == 0
    return xp.where(zero | xp.isinf(x), 1.0 * zero, xp.sin(xp.where(xp.isinf(x), 0.0, x)) / xp.where(zero, 1.0, x))


def _spherical_rule(xp: Namespace, g: Array, input: Array) -> Array:
    square = input * input
    slope = (input * xp.cos(input) - xp.sin(input)) / square
    return xp.where(xp.equal(square, 0), 0, g * slope)


special_spherical_bessel_j0 = unary(
    "special_spherical_bessel_j0",
    forward=lambda xp, input: in_double(xp, "spherical_bessel_j0", _spherical, input),
    vjp=_spherical_rule,
)


# ---- Airy: y'' = x y

#: beyond it SciPy has no Airy function
FAR = 1e6


def _airy(order: int) -> Kernel:
    """Ai or its derivative; far out, on the left, the leading terms of their expansions."""

    def kernel(xp: Namespace, x: Array) -> Array:
        near = xp.abs(x) <= FAR
        value = xp.where(near | xp.isnan(x), scipy_function("airy")(xp.where(near, x, xp.nan))[order], 0.0)
        far = x < -FAR
        root = xp.sqrt(-x[far])
        phase = 2 / 3 * root * -x[far] + math.pi / 4
        value[far] = -xp.cos(phase) * xp.sqrt(root / math.pi) if order else xp.sin(phase) / xp.sqrt(root * math.pi)
        return value

    return kernel


special_airy_ai = unary(
    "special_airy_ai",
    forward=lambda xp, input: in_double(xp, "airy_ai", _airy(0), input),
    vjp=lambda xp, g, input: g * xp._airy_ai_slope(input),
)
_airy_ai_slope = unary(
    "_airy_ai_slope",
    forward=lambda xp, input: in_double(xp, "airy_ai", _airy(1), input),
    vjp=lambda xp, g, input: g * input * xp.special_airy_ai(input),
)
