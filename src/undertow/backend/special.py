"""Special functions that NumPy lacks, on arrays.

erf and erfc use W. J. Cody's rational approximations ("Rational Chebyshev approximation for the error function",
Mathematics of Computation 23, 1969): one for |x| <= 0.46875, one up to 4, one beyond. For erf in single precision, one
of our own serves everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from undertow.backend.cpu import cpu
from undertow.backend.interface import Array

# numerators and denominators, highest power first
SMALL_P = (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2,
           3.20937758913846947e3)  # fmt: skip
SMALL_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
MIDDLE_P = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
            2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
            1.23033935479799725e3)  # fmt: skip
MIDDLE_Q = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
            3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3)  # fmt: skip
LARGE_P = (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
           1.60837851487422766e-2, 6.58749161529837803e-4)  # fmt: skip
LARGE_Q = (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2,
           2.33520497626869185e-3)  # fmt: skip
ONE_OVER_SQRT_PI = 5.6418958354775628695e-1

# erf(x) / x as a function of x * x, for |x| <= 4, within 3e-8
SINGLE_P = (1.9867682039339933e-06, 2.845662261994309e-04, 3.883386160271366e-03, 5.310188781263052e-02,
            1.9354612196594898e-01, 1.1283791393279798)  # fmt: skip
SINGLE_Q = (3.7420040806455516e-05, 1.1855799046844107e-03, 1.5207341310438738e-02, 1.1535043809889693e-01,
            5.048583405397719e-01, 1.0)  # fmt: skip

#: up to this many elements, a loop over Python's own function is faster than the region-wise formulas
FEW = 128


def erf(x: Array) -> Array:
    """The error function, elementwise: within 1e-15, in single precision within 5e-7."""
    if x.dtype in (np.float32, np.float64) and hasattr(cpu, "error_function"):
        return cpu.error_function(x)  # the compiled core's
    if x.size <= FEW:
        return _by_element(math.erf, x)
    return _erf_single(x) if x.dtype == np.float32 else _by_region(x, _erf_small, _erf_tail)


def erfc(x: Array) -> Array:
    """1 - erf(x), elementwise, without cancellation for large x."""
    return _by_element(math.erfc, x) if x.size <= FEW else _by_region(x, lambda y: 1 - _erf_small(y), _erfc_tail)


def _by_element(function: Callable[..., Any], x: Array) -> Array:
    values = [function(v) for v in x.ravel().tolist()]
    return np.array(values, dtype=x.dtype).reshape(x.shape)


def _by_region(x: Array, small: Callable[..., Any], tail: Callable[..., Any]) -> Array:
    y = np.atleast_1d(x).astype(np.float64)
    out = np.empty_like(y)
    near = np.abs(y) <= 0.46875
    out[near] = small(y[near])
    out[~near] = tail(y[~near])
    return out.reshape(x.shape).astype(x.dtype)


def _polynomial(coefficients: tuple[float, ...], t: Array) -> Array:
    total = np.full_like(t, coefficients[0])
    for c in coefficients[1:]:
        total *= t
        total += c
    return total


def _erf_single(x: Array) -> Array:
    y = np.clip(x, -4.0, 4.0)
    z = y * y
    return np.clip(y * _polynomial(SINGLE_P, z) / _polynomial(SINGLE_Q, z), -1.0, 1.0)


def _erf_small(y: Array) -> Array:
    z = y * y
    return y * (_polynomial(SMALL_P, z) / _polynomial(SMALL_Q, z))


def erfcx(x: Array) -> Array:
    """exp(x * x) * erfc(x), elementwise, without overflow for positive x."""
    return _by_region(x, lambda y: np.exp(y * y) * (1 - _erf_small(y)), _erfcx_tail)


def _erfcx_tail(y: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.where(y < 0, 2 / _exp_of_minus_square(np.clip(y, -40.0, 0.0)), 0) + np.copysign(
            _erfcx_positive(np.abs(y)), y
        )


def _erfc_positive(y: Array) -> Array:
    """erfc for y > 0.46875 (NaN stays NaN)."""
    y = np.minimum(y, 40.0)  # where erfc is 0 already, and nothing overflows
    return _exp_of_minus_square(y) * _erfcx_positive(y)


def _erfcx_positive(y: Array) -> Array:
    middle = y <= 4
    ratio = np.empty_like(y)
    t = y[middle]
    ratio[middle] = _polynomial(MIDDLE_P, t) / _polynomial(MIDDLE_Q, t)
    t = y[~middle]
    z = 1 / (t * t)
    ratio[~middle] = (ONE_OVER_SQRT_PI - z * (_polynomial(LARGE_P, z) / _polynomial(LARGE_Q, z))) / t
    return ratio


def _exp_of_minus_square(y: Array) -> Array:
    """exp(-y*y), with y*y split into a part that is exact and a small rest, so that no digits are lost."""
    exact = np.trunc(y * 16) / 16
    return np.exp(-exact * exact) * np.exp((exact - y) * (exact + y))


def _erf_tail(y: Array) -> Array:
    return np.copysign(1 - _erfc_positive(np.abs(y)), y)


def _erfc_tail(y: Array) -> Array:
    positive = _erfc_positive(np.abs(y))
    return np.where(y < 0, 2 - positive, positive)


@cache
def scipy_function(name: str) -> Array:
    """scipy.special.<name>, of functions that undertow has no kernel of its own for. SciPy is imported on first use."""
    try:
        from scipy import special
    except ImportError:
        raise ImportError(
            f"scipy.special.{name} is needed here, and SciPy is not installed: it comes with the extra 'special', "
            "pip install 'undertow[special]'."
        ) from None
    return getattr(special, name)
