"""The error function, its complement (scaled, too) and its inverse; and what other special functions are made of.

Kernels compute in double precision, on a flat array; `in_double` casts there and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend import cpu, dtypes, kernels, special
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import float_array, require_kinds
from undertow.ops.pointwise.unary import unary

Kernel = Callable[[Any, Any], Any]
Parts = Sequence[tuple[Any, Kernel]]

#: arrays up to this size are faster through Python's math module, element by element
FEW = 500


def compiled(xp: Namespace, name: str, input: Array) -> Array:
    """The values of a function that the compiled core has, or the device; None if neither does."""
    if xp is cpu and input.ndim and input.dtype.kind == "f":
        input = xp.ascontiguousarray(input)
    return kernels.special_function(xp, name, input)


def in_double(xp: Namespace, name: str, kernel: Kernel, input: Array, compiled_name: str | None = None) -> Array:
    """The kernel's values in double precision, in the dtype and shape of the input."""
    require_kinds(name, input, "biuf")
    found = compiled(xp, compiled_name or name, input)
    if found is not None:
        return found
    flat = xp.asarray(input, dtype=dtypes.float64).reshape(-1)
    found = compiled(xp, compiled_name or name, flat) if input.dtype.kind != "f" else None
    out = (kernel(xp, flat) if found is None else found).reshape(input.shape)
    return out.astype(input.dtype) if input.dtype.kind == "f" else out


def by_parts(xp: Namespace, x: Array, parts: Parts) -> Array:
    """One formula per range: each (mask, kernel) fills the elements that its mask selects."""
    out = xp.empty_like(x)
    for mask, kernel in parts:
        out[mask] = kernel(xp, x[mask])
    return out


def horner(coefficients: Sequence[float], x: Array) -> Array:
    """The polynomial with these coefficients, highest power first."""
    total = x * coefficients[0]
    for c in coefficients[1:-1]:
        total += c
        total *= x
    return total + coefficients[-1]


def elementwise_in_python(function: Callable[[float], float]) -> Kernel:
    return lambda xp, x: xp.frompyfunc(function, 1, 1)(x).astype(dtypes.float64)


def ratio(pair: Sequence[Sequence[float]], x: Array) -> Array:
    return horner(pair[0], x) / horner(pair[1], x)


# ---- erfinv: Wichura's approximations of the normal quantile (AS 241, 1988)

QUANTILE_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
QUANTILE_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
     4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
     2.05319162663775882187e0, 1.0),
)  # fmt: skip
QUANTILE_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
     5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def _quantile_beyond(xp: Namespace, x: Array) -> Array:
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


def _erfinv_kernel(xp: Namespace, x: Array) -> Array:
    parts: Parts = [
        (xp.abs(x) <= 0.85, lambda xp, x: x / 2 * ratio(QUANTILE_CENTRE, 0.180625 - x * x / 4)),
        ((xp.abs(x) > 0.85) & (xp.abs(x) < 1), _quantile_beyond),
        (xp.abs(x) == 1, lambda xp, x: x * math.inf),
        (~(xp.abs(x) <= 1), lambda xp, x: x * math.nan),
    ]
    return by_parts(xp, x, parts) / math.sqrt(2)


erfinv = unary(
    "erfinv",
    forward=lambda xp, input: in_double(xp, "erfinv", _erfinv_kernel, input),
    vjp=lambda xp, g, input: g * xp.exp(xp.erfinv(input) ** 2) * (math.sqrt(math.pi) / 2),
    variants="function method in_place",
)


def _error_function(xp: Namespace, input: Array) -> Array:
    require_kinds("erf", input, "fiub")
    input = float_array(input)
    found = kernels.special_function(xp, "erf", input)
    return special.erf(input) if found is None else found


def _complementary_error_function(xp: Namespace, input: Array) -> Array:
    require_kinds("erfc", input, "fiub")
    input = float_array(input)
    found = compiled(xp, "erfc", input)
    return special.erfc(input) if found is None else found


erf = unary(
    "erf",
    forward=_error_function,
    vjp=lambda xp, g, input: g * xp.exp(-(input * input)) * (2 / math.sqrt(math.pi)),
    variants="function method in_place in_place_function foreach",
)


erfc = unary(
    "erfc",
    forward=_complementary_error_function,
    vjp=lambda xp, g, input: g * xp.exp(-(input * input)) * (-2 / math.sqrt(math.pi)),
    variants="function method in_place in_place_function foreach",
)

special_erfcx = unary(
    "special_erfcx",
    forward=lambda xp, input: in_double(xp, "special_erfcx", lambda xp, x: special.erfcx(x), input),
    vjp=lambda xp, g, input, out: g * (out * input * 2 - 2 / math.sqrt(math.pi)),
)
