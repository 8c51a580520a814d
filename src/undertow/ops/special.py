"""Special functions: the error function, its inverse, and the gamma function's logarithm and derivatives.

NumPy has none of them. The kernels are computed in double precision, on a flat array, and cast back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.ops.elementwise import unary

Kernel = Callable[[Any, Any], Any]
Parts = Sequence[tuple[Any, Kernel]]

#: arrays up to this size are faster through Python's math module, element by element
FEW = 500


def in_double(xp: Any, name: str, kernel: Kernel, input: Any) -> Any:
    """The kernel's values in double precision, in the dtype and shape of the input."""
    if input.dtype.kind == "c":
        raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.SCALAR_NAMES[input.dtype]}'")
    out = kernel(xp, xp.asarray(input, dtype=dtypes.float64).reshape(-1)).reshape(input.shape)
    return out.astype(input.dtype) if input.dtype.kind == "f" else out


def by_parts(xp: Any, x: Any, parts: Parts) -> Any:
    """One formula per range: each (mask, kernel) fills the elements that its mask selects."""
    out = xp.empty_like(x)
    for mask, kernel in parts:
        out[mask] = kernel(xp, x[mask])
    return out


def horner(coefficients: Sequence[float], x: Any) -> Any:
    """The polynomial with these coefficients, highest power first."""
    total = x * coefficients[0]
    for c in coefficients[1:-1]:
        total += c
        total *= x
    return total + coefficients[-1]


def elementwise_in_python(function: Callable[[float], float]) -> Kernel:
    return lambda xp, x: xp.frompyfunc(function, 1, 1)(x).astype(dtypes.float64)


# ---- the error function: Cody's rational approximations (1969)

ERF_SMALL = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)  # fmt: skip
ERFC_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
ERFC_FAR = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip


def ratio(pair: Sequence[Sequence[float]], x: Any) -> Any:
    return horner(pair[0], x) / horner(pair[1], x)


def exp_of_minus_square(xp: Any, y: Any) -> Any:
    """exp(-y * y), split so that the rounding of y * y does not spoil its last digits."""
    coarse = xp.trunc(y * 16) / 16
    return xp.exp(-coarse * coarse) * xp.exp((coarse - y) * (coarse + y))


def erfc_far(xp: Any, y: Any) -> Any:
    y = xp.minimum(y, 30)  # where it is 0 already
    z = 1 / (y * y)
    return exp_of_minus_square(xp, y) * (1 / math.sqrt(math.pi) - z * ratio(ERFC_FAR, z)) / y


def erfc_beyond(xp: Any, y: Any) -> Any:
    """erfc for y > 0.46875."""
    far = y > 4
    return by_parts(
        xp, y, [(far, erfc_far), (~far, lambda xp, y: exp_of_minus_square(xp, y) * ratio(ERFC_MIDDLE, y))]
    )


def erf_near(xp: Any, x: Any) -> Any:
    return x * ratio(ERF_SMALL, x * x)


def erf_kernel(xp: Any, x: Any) -> Any:
    if x.size <= FEW:
        return elementwise_in_python(math.erf)(xp, x)
    near = xp.abs(x) <= 0.46875
    outer: Kernel = lambda xp, x: xp.copysign(1 - erfc_beyond(xp, xp.abs(x)), x)
    return by_parts(xp, x, [(near, erf_near), (~near, outer)])


def erfc_kernel(xp: Any, x: Any) -> Any:
    if x.size <= FEW:
        return elementwise_in_python(math.erfc)(xp, x)
    near, left = xp.abs(x) <= 0.46875, x < -0.46875
    parts: Parts = [
        (near, lambda xp, x: 1 - erf_near(xp, x)),
        (left, lambda xp, x: 2 - erfc_beyond(xp, -x)),
        (~(near | left), erfc_beyond),
    ]
    return by_parts(xp, x, parts)


erf = unary(
    "erf",
    forward=lambda xp, input: in_double(xp, "erf", erf_kernel, input),
    vjp=lambda xp, g, input: g * xp.exp(-input * input) * (2 / math.sqrt(math.pi)),
)

erfc = unary(
    "erfc",
    forward=lambda xp, input: in_double(xp, "erfc", erfc_kernel, input),
    vjp=lambda xp, g, input: g * xp.exp(-input * input) * (-2 / math.sqrt(math.pi)),
)

# ---- its inverse: Wichura's approximations of the normal quantile (AS 241, 1988)

QUANTILE_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
QUANTILE_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
QUANTILE_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def quantile_beyond(xp: Any, x: Any) -> Any:
    depth = xp.sqrt(-xp.log((1 - xp.abs(x)) / 2))
    tail = depth > 5
    size = by_parts(
        xp,
        depth,
        [
            (tail, lambda xp, r: ratio(QUANTILE_TAIL, r - 5)),
            (~tail, lambda xp, r: ratio(QUANTILE_MIDDLE, r - 1.6)),
        ],
    )
    return xp.copysign(size, x)


def erfinv_kernel(xp: Any, x: Any) -> Any:
    parts: Parts = [
        (xp.abs(x) <= 0.85, lambda xp, x: x / 2 * ratio(QUANTILE_CENTRE, 0.180625 - x * x / 4)),
        ((xp.abs(x) > 0.85) & (xp.abs(x) < 1), quantile_beyond),
        (xp.abs(x) == 1, lambda xp, x: x * math.inf),
        (~(xp.abs(x) <= 1), lambda xp, x: x * math.nan),
    ]
    return by_parts(xp, x, parts) / math.sqrt(2)


erfinv = unary(
    "erfinv",
    forward=lambda xp, input: in_double(xp, "erfinv", erfinv_kernel, input),
    vjp=lambda xp, g, out: g * xp.exp(out * out) * (math.sqrt(math.pi) / 2),
)
