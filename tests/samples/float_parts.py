"""Neighbours and parts of a number."""

import numpy as np

from tests.samples import Sample, constant, normal

SAMPLES = [
    # a step of one floating-point number is nothing for differences
    Sample("nextafter", normal(3), normal(2, 1), kink=True),
    Sample("nextafter", constant(np.array([1.0, 2.0])), constant(np.array([1.0, 3.0])), kink=True, note="equal"),
    Sample("frexp", constant(np.array([0.3, -6.0, 1e-10, 1e10])), kink=True),
    Sample("frexp", normal(2, 3)),
]
