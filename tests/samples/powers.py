"""Powers, and the other smooth functions of two numbers."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, constant, distinct, integers, normal, positive

ZERO = constant([0.0, 0.0, 0.0, 0.0])
AROUND_ZERO = constant([-1.0, 0.0, 1.0, 2.0])
BASES, EXPONENTS = constant([2, 1, -1, -1, 0, 3]), constant([-1, -2, -2, -3, -2, 4])


SAMPLES = [
    Sample("pow", positive(3, 4), normal(3, 4), complex=True),
    Sample("pow", positive(3, 1), normal(4), complex=True, note="broadcasting"),
    Sample("pow", positive(), normal(), note="0-d"),
    *(Sample("pow", positive(3, 4), exponent, complex=True, note=str(exponent))
      for exponent in [-1, 0, 1, 2, 3, -0.5, 0.5, 2.0, 2.5]),
    Sample("pow", normal(3, 4), 3, note="negative_base"),
    Sample("pow", normal(3, 4), integers(4, low=0, high=4), note="integer_exponents"),
    Sample("pow", 2.5, normal(3, 4), complex=True, note="number_base"),
    Sample("pow", 0, positive(3, 4), gradgrad=False, note="zero_base"),
    Sample("pow", integers(4, low=1, high=5), normal(3, 4), note="integer_base"),
    Sample("pow", BASES, EXPONENTS, note="integers"),
    Sample("pow", integers(4), 3, note="integers_to_a_number"),
    Sample("pow", integers(4), 0.5, note="integers_to_a_fraction"),
    Sample("pow", constant([True, False]), 2, note="bool"),
    Sample("pow", ZERO, AROUND_ZERO, kink=True, gradgrad=False, note="zero"),
    Sample("pow", constant([0.0, 1.0]), 0.5, kink=True, gradgrad=False, note="root_of_zero"),
    *(Sample("_rpow", normal(3, 4), base, complex=True, note=str(base), reference=lambda torch, x, base: base**x)
      for base in [2, 2.5, 1]),
    Sample("_rpow", normal(3, 4), -2, kink=True, gradgrad=False, note="negative",
           reference=lambda torch, x, base: base**x),
    Sample("_rpow", normal(3, 4), positive(4), note="tensor", reference=lambda torch, x, base: base**x),
    Sample("_rpow", integers(4), 2, note="integers", reference=lambda torch, x, base: base**x),
    Sample("_rpow", integers(4), 0.5, note="fraction", reference=lambda torch, x, base: base**x),
    Sample("square", normal(3, 4), complex=True),
    Sample("cbrt", distinct(3, 4), reference=False),
    Sample("float_power", positive(3, 4), normal(4), complex=True),
    Sample("float_power", integers(4, low=1), -2, note="integers"),
    Sample("ldexp", normal(3, 4), integers(4)),
    Sample("ldexp", normal(3, 4), normal(4), complex=True, note="fractions"),
    Sample("logaddexp", normal(3, 4), normal(4), complex=True),
    Sample("logaddexp", constant([900.0, -900.0]), constant([-900.0, -901.0]), gradgrad=False,
           note="far_out"),
    Sample("logaddexp", constant([900.0, -900.0]), constant([-900.0, -901.0]), reference=False,
           note="far_out_twice"),
    Sample("logaddexp2", normal(3, 4), normal(4)),
    Sample("xlogy", normal(3, 4), positive(4)),
    Sample("xlogy", constant([0.0, 0.0, 0.0, 2.0]), constant([0.0, -1.0, 3.0, 0.0]), kink=True,
           gradgrad=False, note="zero"),
    Sample("xlogy", integers(4), positive(3, 4), note="integers"),
    Sample("xlogy", normal(3, 4), 2.5, note="number"),
    Sample("hypot", normal(3, 4), normal(4)),
    Sample("hypot", constant([0.0, 0.0]), constant([0.0, 2.0]), kink=True, gradgrad=False, note="zero"),
    Sample("atan2", normal(3, 4), normal(4)),
    Sample("arctan2", normal(3, 4), normal(4)),
    Sample("atan2", constant([0.0, 0.0, -1.0]), constant([0.0, 2.0, 0.0]), kink=True, gradgrad=False,
           note="origin"),
    Sample("atan2", constant(np.array([100, 2], np.int8)), constant([100.0, 1.0]), reference=False,
           note="small_integers"),
]  # fmt: skip
