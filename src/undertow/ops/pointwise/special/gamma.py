"""The logarithm of the gamma function and its derivatives: lgamma, digamma, polygamma; incomplete gamma functions."""

from __future__ import annotations

import math
from typing import Any

from undertow.backend import dtypes, special
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.elementary import unary
from undertow.ops.pointwise.special.error_functions import (
    FEW,
    Parts,
    by_parts,
    elementwise_in_python,
    horner,
    in_double,
)

EULER = 0.57721566490153286061
#: B(2), B(4), ..., the Bernoulli numbers of the asymptotic series
BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330]
#: from here on, the asymptotic series are exact in double precision
LARGE = 10


def zeta_minus_one(k: int) -> float:
    """The sum of n ** -k over n >= 2, by Euler and Maclaurin from n = 200 on."""
    n = 200
    tail = n ** (1 - k) / (k - 1) + n**-k / 2 + k * n ** (-k - 1) / 12
    return math.fsum([*(m**-k for m in range(2, n)), tail, -k * (k + 1) * (k + 2) * n ** (-k - 3) / 720])


#: of the series of lgamma(2 + z), highest power first
NEAR_TWO = [(-1) ** k * zeta_minus_one(k) / k for k in range(30, 1, -1)] + [1 - EULER, 0.0]


def from_integer(xp: Any, x: Any) -> Any:
    """How far x is from the nearest integer: sin and cos of pi times it lose no digits."""
    return x - xp.round(x)


# ---- lgamma


def stirling(xp: Any, x: Any) -> Any:
    series = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI[:8], 1)]
    correction = horner(series[::-1], 1 / (x * x)) / x
    return (x - 0.5) * (xp.log(x) - 1) + correction + (math.log(2 * math.pi) - 1) / 2


def lgamma_middle(xp: Any, x: Any) -> Any:
    product = x.copy()
    for k in range(1, 8):
        product *= x + k
    return stirling(xp, x + 8) - xp.log(product)


def lgamma_reflected(xp: Any, x: Any) -> Any:
    finite = x > -math.inf
    size = xp.abs(xp.sin(math.pi * from_integer(xp, xp.where(finite, x, -0.5))))
    value = math.log(math.pi) - xp.log(size) - lgamma_right(xp, xp.where(finite, 1 - x, 1))
    return xp.where(finite, value, math.inf)


def lgamma_right(xp: Any, x: Any) -> Any:
    """For x >= 0, and nan."""
    parts: Parts = [
        (x < 0.5, lambda xp, x: horner(NEAR_TWO, x) - xp.log1p(x) - xp.log(x)),
        ((x >= 0.5) & (x < 1.5), lambda xp, x: horner(NEAR_TWO, x - 1) - xp.log1p(x - 1)),
        ((x >= 1.5) & (x < 2.5), lambda xp, x: horner(NEAR_TWO, x - 2)),
        ((x >= 2.5) & (x < LARGE), lgamma_middle),
        (~(x < LARGE), stirling),
    ]
    return by_parts(xp, x, parts)


def lgamma_of_one(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # at its poles, and where it exceeds every double
        return math.inf


def lgamma_kernel(xp: Any, x: Any) -> Any:
    if x.size <= FEW:
        return elementwise_in_python(lgamma_of_one)(xp, x)
    left = x < 0
    return by_parts(xp, x, [(left, lgamma_reflected), (~left, lgamma_right)])


lgamma = unary(
    "lgamma",
    forward=lambda xp, input: in_double(xp, "lgamma", lgamma_kernel, input),
    vjp=lambda xp, g, input: g * xp.digamma(input),
)

# ---- digamma


def digamma_large(xp: Any, x: Any) -> Any:
    series = [-b / (2 * k) for k, b in enumerate(BERNOULLI[:8], 1)]
    return xp.log(x) - 0.5 / x + horner([*series[::-1], 0.0], 1 / (x * x))


def digamma_right(xp: Any, x: Any) -> Any:
    """For x > 0, and nan."""
    small = x < LARGE

    def shifted(xp: Any, x: Any) -> Any:
        total = 1 / x
        for k in range(1, LARGE):
            total += 1 / (x + k)
        return digamma_large(xp, x + LARGE) - total

    return by_parts(xp, x, [(small, shifted), (~small, digamma_large)])


def digamma_reflected(xp: Any, x: Any) -> Any:
    offset = from_integer(xp, x)
    pole = offset == 0
    value = digamma_right(xp, 1 - x) - math.pi / xp.tan(math.pi * xp.where(pole, 0.5, offset))
    return xp.where(pole, math.nan, value)


def digamma_kernel(xp: Any, x: Any) -> Any:
    zero, left = x == 0, x < 0
    parts: Parts = [
        (zero, lambda xp, x: xp.copysign(math.inf, -x)),
        (left, digamma_reflected),
        (~(zero | left), digamma_right),
    ]
    return by_parts(xp, x, parts)


digamma = unary(
    "digamma",
    forward=lambda xp, input: in_double(xp, "digamma", digamma_kernel, input),
    vjp=lambda xp, g, input: g * xp._polygamma(input, 1),
)

# ---- polygamma: (-1) ** (n + 1) * n! * zeta(n + 1, x), with Hurwitz's zeta function


def hurwitz_zeta(xp: Any, s: int, x: Any) -> Any:
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


def cotangent_derivative(xp: Any, n: int, offset: Any) -> Any:
    """The n-th derivative of pi * cot(pi * x): a polynomial in cot, since cot' = -(1 + cot ** 2)."""
    coefficients = [1.0, 0.0]
    for _ in range(n):
        degree = len(coefficients) - 1
        slope = [-(degree - k) * c for k, c in enumerate(coefficients[:-1])]
        coefficients = [a + b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return horner(coefficients, 1 / xp.tan(math.pi * offset)) * math.pi ** (n + 1)


def polygamma_right(xp: Any, n: int, x: Any) -> Any:
    return (-1) ** (n + 1) * math.gamma(n + 1) * hurwitz_zeta(xp, n + 1, x)


def polygamma_kernel(xp: Any, n: int, x: Any) -> Any:
    left = x < 0
    reflected = lambda xp, x: (
        (-1) ** n * polygamma_right(xp, n, 1 - x) - cotangent_derivative(xp, n, from_integer(xp, x))
    )
    return by_parts(xp, x, [(left, reflected), (~left, lambda xp, x: polygamma_right(xp, n, x))])


_polygamma = unary(
    "_polygamma",
    forward=lambda xp, input, n: in_double(xp, "polygamma", lambda xp, x: polygamma_kernel(xp, n, x), input),
    vjp=lambda xp, g, input, n: g * xp._polygamma(input, n + 1),
    node="PolygammaBackward0",
)


@composite
def polygamma(n: int, input: Any) -> Any:
    """The n-th derivative of digamma.

    >>> import undertow as ut
    >>> ut.polygamma(1, ut.tensor(1.0))  # pi ** 2 / 6
    tensor(1.6449)
    """
    if not isinstance(n, int):
        raise TypeError(f"polygamma(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got {n}.")
    return digamma(input) if n == 0 else _polygamma(input, n)


# ---- igamma, igammac: the regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x)
#
# Whichever of the two is small is computed, the other is 1 minus it. Near x = a, where series are slow for large a,
# Temme's uniform expansion; else the power series of P below x = a, and the continued fraction of Q above it. For
# small a and x, Q is small although x is below a: there its own series.

#: no series here is longer
LONGEST = 2000
EPSILON = 2.0**-53


def log_distance(xp: Any, a: Any, x: Any) -> Any:
    """log(x / a) - (x / a - 1), without cancellation where x is near a."""
    ratio = (x - a) / a
    near = xp.abs(ratio) < 0.5
    r = xp.where(near, ratio, 0.0)
    r = r / (2 + r)
    series = horner([1 / (2 * k + 1) for k in range(18, 0, -1)] + [0.0], r * r)
    return xp.where(near, r * (2 * series - ratio), xp.log(x / a) - ratio)


def gamma_density(xp: Any, a: Any, x: Any) -> Any:
    """x ** a * exp(-x) / gamma(a)."""
    large = a >= LARGE
    safe = xp.where(large, a, LARGE)
    series = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI[:8], 1)]
    correction = horner(series[::-1], 1 / (safe * safe)) / safe
    exponent = safe * log_distance(xp, safe, xp.where(large, x, safe)) - correction
    direct = a * xp.log(x) - x - lgamma_kernel(xp, xp.where(large, 1.0, a))
    return xp.where(large, xp.sqrt(safe / (2 * math.pi)) * xp.exp(exponent), xp.exp(direct))


def lower_series(xp: Any, a: Any, x: Any) -> Any:
    """P, for x not far above a."""
    term, total = xp.ones_like(a), xp.ones_like(a)
    for n in range(1, LONGEST):
        term *= x / (a + n)
        total += term
        if not (term > EPSILON * total).any():
            break
    return gamma_density(xp, a, x) / a * total


def upper_fraction(xp: Any, a: Any, x: Any) -> Any:
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
    return gamma_density(xp, a, x) * total


def upper_series(xp: Any, a: Any, x: Any) -> Any:
    """Q, for x up to about 1, without cancellation where a is small."""
    term, total = xp.ones_like(a), xp.zeros_like(a)
    for n in range(1, LONGEST):
        term *= -x / n
        total += term / (a + n)
        if not (xp.abs(term / (a + n)) > EPSILON * xp.abs(total)).any():
            break
    log_power = a * xp.log(x)
    small = a < 0.5
    near_one = lambda xp, a: horner(NEAR_TWO, a) - xp.log1p(a)
    of_next = by_parts(xp, a, [(small, near_one), (~small, lambda xp, a: lgamma_right(xp, a + 1))])  # lgamma(a + 1)
    return -xp.expm1(log_power - of_next) - xp.exp(log_power - of_next) * a * total


def uniform_expansion(xp: Any, a: Any, x: Any, upper: bool) -> Any:
    """P or Q for large a and x / a near 1 (Temme 1979)."""
    from undertow.ops.pointwise.special.temme import temme_coefficients  # exact fractions, which few programs need

    sign = 1 if upper else -1
    half_square = -log_distance(xp, a, x)
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


def incomplete_gamma(xp: Any, a: Any, x: Any, upper: bool) -> Any:
    """P or Q, for finite positive a and x."""
    near = (a > 20) & (xp.abs(x - a) < 0.3 * a)
    tiny = (x <= 1.1) & xp.where(x <= 0.5, -0.4 / xp.log(xp.where(x <= 0.5, x, 0.5)) >= a, x * 1.1 >= a) & ~near
    beyond = (x > 1.1) & (x >= a) & ~near
    below = ~(near | tiny | beyond)
    out = xp.empty_like(a)
    for mask, kernel, of_upper in (
        (below, lower_series, False), (beyond, upper_fraction, True), (tiny, upper_series, True)
    ):  # fmt: skip
        if mask.any():
            values = kernel(xp, a[mask], x[mask])
            out[mask] = values if of_upper == upper else 1 - values
    if near.any():
        out[near] = uniform_expansion(xp, a[near], x[near], upper)
    return out


def incomplete_gamma_array(name: str, upper: bool) -> Any:
    def forward(xp: Any, input: Any, other: Any) -> Any:
        require_kinds(name, input, "f")
        a, x = xp.broadcast_arrays(xp.asarray(input, dtype=dtypes.float64), xp.asarray(other, dtype=dtypes.float64))
        shape, a, x = a.shape, a.reshape(-1), x.reshape(-1)
        good = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
        with xp.errstate(all="ignore"):
            found = incomplete_gamma(xp, a[good], x[good], upper)
            zero = (x == 0) | (a == math.inf)  # there P is 0; at a = 0 and x = inf it is 1
            undefined = (a < 0) | (x < 0) | xp.isnan(a + x) | ((a == x) & ((a == 0) | (a == math.inf)))
            out = xp.where(undefined, math.nan, xp.where(zero == upper, 1.0, 0.0))
        out[good] = found
        return out.reshape(shape).astype(input.dtype)

    return forward


def density_of_gamma(xp: Any, input: Any, other: Any) -> Any:
    """The derivative of igamma in `other`."""
    input = xp.astype(input, other.dtype)  # it may be of integers
    return xp.exp((input - 1) * xp.log(other) - other - xp.lgamma(input))


def no_derivative_by_input(name: str) -> Any:
    def rule(xp: Any, g: Any) -> Any:
        raise NotImplementedError(
            f"the derivative for '{name}: input' is not implemented. Its formula in the other argument is known: "
            "detach() the first one if its gradient is not needed."
        )

    return rule


def no_tangent_of_input(name: str) -> Any:
    def rule(xp: Any, t: Any) -> Any:
        raise NotImplementedError(
            f"Trying to use forward AD with {name} that does not support it: its derivative in 'input' is not "
            "implemented. Take the primal of the first argument if its tangent is not needed."
        )

    return rule


igamma = primitive(
    "igamma",
    forward=incomplete_gamma_array("igamma", False),
    vjp={
        "input": no_derivative_by_input("igamma"),
        "other": lambda xp, g, input, other: g * density_of_gamma(xp, input, other),
    },
    jvp={
        "input": no_tangent_of_input("igamma"),
        "other": lambda xp, t, input, other: t * density_of_gamma(xp, input, other),
    },
    batch=ELEMENTWISE,
    promote="same",
)

igammac = primitive(
    "igammac",
    forward=incomplete_gamma_array("igammac", True),
    vjp={
        "input": no_derivative_by_input("igammac"),
        "other": lambda xp, g, input, other: -g * density_of_gamma(xp, input, other),
    },
    jvp={
        "input": no_tangent_of_input("igammac"),
        "other": lambda xp, t, input, other: -t * density_of_gamma(xp, input, other),
    },
    batch=ELEMENTWISE,
    promote="same",
)
