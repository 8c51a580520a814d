"""Random numbers whose parameters are arrays: proposals, until one is accepted.

PyTorch's methods, so that a seed gives the numbers that it gives there. This is how they read; the compiled core's
kernel (csrc/kernels/rejection.c) does the same. A source is what they ask for fractions in [0, 1) and normal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array

#: numbers that PyTorch rounds to single precision
THIRD, SQUEEZE = (float(dtypes.float32.type(number)) for number in (1 / 3, 0.0331))


#: what is computed of parameters alone is rounded to their dtype
Rounding = Callable[[float], float]


class Source(Protocol):
    def fraction(self) -> float: ...

    def normal(self) -> float: ...


def gamma(source: Source, alpha: float, rounded: Rounding = float) -> float:
    """A gamma variable of rate 1, by Marsaglia and Tsang."""
    if not 0 < alpha < math.inf:  # what would wait for ever
        return math.nan if alpha < 0 else alpha
    scale = 1.0
    if alpha < 1:
        scale = (1 - source.fraction()) ** rounded(1 / alpha)
        alpha = rounded(alpha + 1)
    d = rounded(alpha - THIRD)
    c = 1 / math.sqrt(9 * d)
    while True:
        y = 0.0
        while y <= 0:
            x = source.normal()
            y = 1 + c * x
        v, u = y * y * y, 1 - source.fraction()
        if u < 1 - SQUEEZE * (x * x) * (x * x) or math.log(u) < 0.5 * (x * x) + d * (1 - v + math.log(v)):
            return scale * d * v


def poisson(source: Source, rate: float) -> float:
    """A Poisson variable: as many fractions as their product stays above exp(-rate) for."""
    if rate >= 10:
        return _many_poisson(source, rate)
    if rate == 0:
        return 0.0
    least, product, found = math.exp(-rate), 1.0, -1
    while product > least:
        product *= source.fraction()
        found += 1
    return float(found)


def _many_poisson(source: Source, rate: float) -> float:
    """Hörmann's transformed rejection."""
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    log_rate, log_inverse_alpha = math.log(rate), math.log(1.1239 + 1.1328 / (b - 3.4))
    certain = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = source.fraction() - 0.5, source.fraction()
        left = 0.5 - abs(u)
        k = _floor(2 * a, left, b, u, rate + 0.43)
        if left >= 0.07 and v <= certain:
            return k
        if k < 0 or (left < 0.013 and v > left):
            continue
        bound = -rate + k * log_rate - math.lgamma(k + 1)
        if _log(v) + log_inverse_alpha - math.log(a / (left * left) + b) <= bound:
            return k


def _floor(a: float, left: float, b: float, u: float, start: float) -> float:
    """Where a proposal lands; beyond everything, if no distance to the end is left."""
    return float(math.floor((a / left + b) * u + start)) if left else -math.inf


def _log(x: float) -> float:
    return math.log(x) if x else -math.inf


def binomial(source: Source, count: float, prob: float, rounded: Rounding = float) -> float:
    """How many of `count` trials succeed."""
    if count <= 0 or prob <= 0:
        return 0.0
    if prob >= 1:
        return count
    rarer = prob if prob <= 0.5 else rounded(1 - prob)
    draw = _many_binomial if rounded(count * rarer) >= 10 else _few_binomial
    found = draw(source, count, rarer, rounded)
    return found if prob <= 0.5 else count - found


def _few_binomial(source: Source, count: float, prob: float, rounded: Rounding) -> float:
    """Waiting times for one success after the other, until the trials are over."""
    waited, found, log_failure = 0.0, 0, math.log1p(-prob)
    while True:
        u = source.fraction()
        waited += math.ceil(math.log(u) / log_failure) if u else math.inf
        if waited > count:
            return float(found)
        found += 1


def _many_binomial(source: Source, count: float, prob: float, rounded: Rounding) -> float:
    """Hörmann's transformed rejection."""
    mean, failure = rounded(count * prob), rounded(1 - prob)
    deviation = rounded(math.sqrt(rounded(mean * failure)))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    certain, odds, alpha = 0.92 - 4.2 / b, rounded(prob / failure), (2.83 + 5.1 / b) * deviation
    m = math.floor(rounded(rounded(count + 1) * prob))
    while True:
        u, v = source.fraction() - 0.5, source.fraction()
        left = 0.5 - abs(u)
        k = _floor(2 * a, left, b, u, mean + 0.5)
        if left >= 0.07 and v <= certain:
            return k
        if k < 0 or k > count:
            continue
        bound = (m + 0.5) * math.log((m + 1) / (odds * (count - m + 1)))
        bound += (count + 1) * math.log((count - m + 1) / (count - k + 1))
        bound += (k + 0.5) * math.log(odds * (count - k + 1) / (k + 1))
        bound += beyond_stirling(m) + beyond_stirling(count - m) - beyond_stirling(k) - beyond_stirling(count - k)
        if _log(v * alpha / (a / (left * left) + b)) <= bound:
            return k


def beyond_stirling(k: float) -> float:
    """What log(k!) has beyond Stirling's formula."""
    if k <= 9:
        return math.lgamma(k + 1) - (0.5 * math.log(2 * math.pi) + (k + 0.5) * math.log(k + 1) - (k + 1))
    square = (k + 1) * (k + 1)
    return (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)


def each(draw: Callable[..., float], source: Source, *parameters: Array) -> Array:
    """One number for each element, in their order."""
    columns, dtype = [parameter.reshape(-1).tolist() for parameter in parameters], parameters[0].dtype
    options = {"rounded": lambda x: float(dtype.type(x))} if dtype == dtypes.float32 else {}
    found = [draw(source, *values, **options) for values in zip(*columns, strict=True)]
    return cpu.asarray(found, dtype=dtype).reshape(parameters[0].shape)
