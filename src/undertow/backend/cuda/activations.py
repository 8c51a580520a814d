"""Activations, their gradients and special functions: each is one elementwise kernel, of a formula of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.backend.cuda import elementwise
from undertow.backend.cuda.elementwise import Formula
from undertow.backend.interface import Array

ROOT_HALF, DENSITY, ROOT = "T(0.70710678118654752440)", "T(0.39894228040143267794)", "T(0.79788456080286535588)"
INNER = f"((a + a * a * a * T(0.044715)) * {ROOT})"
INNER_OF_B = f"((b + b * b * b * T(0.044715)) * {ROOT})"

#: name -> how many operands, and the formula
FORMULAS = {
    "gelu": (1, f"a * T(0.5) * (T(1) + m_erf(a * {ROOT_HALF}))"),
    "gelu by tanh": (1, f"a * T(0.5) * (T(1) + m_tanh({INNER}))"),
    "slope of gelu": (
        2, f"a * ((m_erf(b * {ROOT_HALF}) + T(1)) * T(0.5) + b * m_exp(b * b * T(-0.5)) * {DENSITY})",
    ),
    "slope of gelu by tanh": (2, f"a * slope_of_gelu(b, m_tanh({INNER_OF_B}))"),
    "silu": (1, "a / (T(1) + m_exp(-a))"),
    "slope of silu": (2, "a * slope_of_silu(b, T(1) / (T(1) + m_exp(-b)))"),
    "logistic": (1, "T(1) / (T(1) + m_exp(-a))"),
    "log1p_of_exp": (1, "(a > T(0) ? a : T(0)) + m_log1p(m_exp(-m_fabs(a)))"),
    "leaky": (3, "b > T(0) ? a : a * c"),
    "erf": (1, "m_erf(a)"), "erfc": (1, "m_erfc(a)"), "lgamma": (1, "m_lgamma(a)"), "special_gamma": (1, "m_gamma(a)"),
    "special_bessel_j0": (1, "m_j0(a)"), "special_bessel_j1": (1, "m_j1(a)"),
    "special_bessel_y0": (1, "m_y0(a)"), "special_bessel_y1": (1, "m_y1(a)"),
}  # fmt: skip

SPECIAL = frozenset(
    {"erf", "erfc", "lgamma", "special_gamma", *[f"special_bessel_{kind}" for kind in ("j0", "j1", "y0", "y1")]}
)


#: functions that formulas call, beside NumPy's
IN_FORMULAS = {"sigmoid": FORMULAS["logistic"][1], "erf": "m_erf(a)", "erfc": "m_erfc(a)"}


@functools.cache
def kernel(name: str) -> Any:
    count, code = FORMULAS[name]
    return elementwise.kernel(name, Formula(count, elementwise.all_alike, lambda dtypes: code), serves_not)


def serves_not(operands: Any, out: Any) -> None:
    """Operands that the kernel does not take: the caller computes the same with array functions."""


def apply(name: str, *operands: Any) -> Array:
    first = operands[0]
    if not dtypes.is_floating(first.dtype) or any([getattr(a, "dtype", first.dtype) != first.dtype for a in operands]):
        return None
    return kernel(name)(*operands)


def gelu(x: Array, by_tanh: bool) -> Array:
    return apply("gelu by tanh" if by_tanh else "gelu", x)


def gelu_gradient(g: Array, x: Array, by_tanh: bool) -> Array:
    return apply("slope of gelu by tanh" if by_tanh else "slope of gelu", g, x)


def leaky(g: Array, x: Array, slope: float) -> Array:
    return apply("leaky", g, x, float(slope))


def special_function(name: str, x: Array) -> Any:
    return apply(name, x) if name in SPECIAL else None


KERNELS: dict[str, Callable[..., Any]] = {
    "gelu": gelu, "gelu_gradient": gelu_gradient, "leaky": leaky, "special_function": special_function,
    "silu_values": functools.partial(apply, "silu"), "silu_slopes": functools.partial(apply, "slope of silu"),
}  # fmt: skip
