"""Divisors, neighbours and parts of a number."""

import numpy as np

from tests.samples import Sample, constant, normal

SAMPLES = [
    Sample("gcd", constant(np.array([12, 0, -6, 7])), constant(np.array([18, 0, 9, 1]))),
    Sample("lcm", constant(np.array([[4], [6]])), constant(np.array([6, 5, 0]))),
    # a step of one floating-point number is nothing for differences
    Sample("nextafter", normal(3), normal(2, 1), kink=True),
    Sample("nextafter", constant(np.array([1.0, 2.0])), constant(np.array([1.0, 3.0])), kink=True, note="equal"),
    Sample("frexp", constant(np.array([0.3, -6.0, 1e-10, 1e10])), kink=True),
    Sample("frexp", normal(2, 3)),
]
