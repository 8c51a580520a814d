"""The coefficients of Temme's expansion of the incomplete gamma functions, computed when first needed."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

#: how many powers of 1 / a, and of eta, the expansion takes
ORDERS, POWERS = 15, 25


@functools.cache
def temme_coefficients() -> list[list[float]]:
    """Row k: the coefficients of C_k(eta), lowest power first (DLMF 8.12.12), from those of x / a - 1 in eta."""
    alpha = [Fraction(0), Fraction(1)]
    for n in range(2, 2 + POWERS + 2 * ORDERS):
        cross = sum((j * alpha[j] * alpha[n - j + 1] for j in range(2, n)), Fraction(0))
        alpha.append((alpha[n - 1] - cross) / (n + 1))
    row = first = [2 * alpha[2] - 1] + [(n + 2) * alpha[n + 2] for n in range(1, len(alpha) - 2)]
    stirling_series = stirling_numbers(ORDERS)
    rows = [row]
    for k in range(1, ORDERS):
        row = [(-1) ** k * stirling_series[k] * first[n] + (n + 2) * row[n + 2] for n in range(len(row) - 2)]
        rows.append(row)
    return [[float(c) for c in row[:POWERS]] for row in rows]


def stirling_numbers(count: int) -> list[Fraction]:
    """The coefficients of gamma(a) / (sqrt(2 * pi / a) * (a / e) ** a) in 1 / a, by exponentiating those of its log."""
    bernoulli = bernoulli_numbers(count + 1)
    logs = [Fraction(0)] + [bernoulli[n + 1] / (n * (n + 1)) if n % 2 else Fraction(0) for n in range(1, count)]
    found = [Fraction(1)]
    for n in range(1, count):
        found.append(sum((k * logs[k] * found[n - k] for k in range(1, n + 1)), Fraction(0)) / n)
    return found


def bernoulli_numbers(count: int) -> list[Fraction]:
    found = [Fraction(1)]
    for n in range(1, count + 1):
        found.append(-sum((math.comb(n + 1, k) * found[k] for k in range(n)), Fraction(0)) / (n + 1))
    return found
