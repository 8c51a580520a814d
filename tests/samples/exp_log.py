"""Functions of one number."""

from __future__ import annotations

import math
from typing import Any

from tests.samples import Sample, constant, distinct, fraction, integers, normal, positive, unit

EXPONENTIAL = ["exp", "exp2", "expm1", "sinh", "cosh", "tanh", "sigmoid"]
ENTIRE = [*EXPONENTIAL, "sin", "cos", "tan", "atan", "asinh", "sinc"]
OF_POSITIVE = ["sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p"]
WITHIN_ONE = ["asin", "acos", "atanh"]
STEPS = ["sign", "floor", "ceil", "trunc", "round"]
GRADIENTS = ["tanh_backward", "sigmoid_backward"]
OTHER_NAMES = {"arcsin": unit, "arccos": unit, "arctanh": unit, "arctan": normal, "arcsinh": normal}


def aten(name: str) -> Any:
    return lambda torch, *args: getattr(torch.ops.aten, name)(*args)


SAMPLES = [
    *(Sample(name, normal(3, 4), complex=True) for name in ENTIRE),
    *(Sample(name, positive(3, 4), complex=True) for name in OF_POSITIVE),
    *(Sample(name, unit(3, 4), complex=True) for name in WITHIN_ONE),
    *(Sample(name, distinct(3, 4)) for name in STEPS),
    *(Sample(name, make(2, 3)) for name, make in OTHER_NAMES.items()),
    *(Sample(name, normal(), note="0-d") for name in ["exp", "sin", "tanh", "sigmoid", "sinc", "abs"]),
    *(Sample(name, normal(0, 3), note="empty") for name in ["exp", "sigmoid", "sinc", "floor", "sgn"]),
    *(Sample(name, integers(4, low=1, high=5), note="integers")
      for name in [*OF_POSITIVE, "exp", "sigmoid", "sinc", "abs", "sgn", "sign", "round", "deg2rad"]),
    Sample("acosh", constant([1.2, 2.0, 5.0]), complex=True),
    Sample("acosh", constant([-0.7, 0.4, 3.0]), complex_only=True, note="branches"),
    Sample("arccosh", constant([1.2, 2.0, 5.0]), complex=True),
    Sample("abs", distinct(3, 4), complex=True),
    Sample("absolute", distinct(3, 4), complex=True),
    Sample("abs", constant([-1.0, 0.0, 2.0]), kink=True, complex=True, note="zero"),
    Sample("sgn", distinct(3, 4), complex=True),
    Sample("sgn", constant([0.0, -0.0, 2.0]), kink=True, complex=True, note="zero"),
    Sample("sign", constant([0.0, -0.0, 2.0]), kink=True, note="zero"),
    Sample("sign", constant([True, False]), note="bool"),
    *(Sample(name, constant([True, False]), note="bool") for name in ["sgn", "sigmoid", "exp", "reciprocal"]),
    Sample("sinc", constant([-1.0, 0.0, 0.5, 2.0]), kink=True, gradgrad=False, complex=True, note="zero"),
    Sample("sqrt", constant([0.0, 4.0]), kink=True, gradgrad=False, note="zero"),
    Sample("fix", distinct(3, 4)),
    Sample("round", distinct(3, 4), kwargs={"decimals": 1}, note="decimals"),
    Sample("round", constant([0.5, 1.5, 2.5, -0.5]), kink=True, note="half_to_even"),
    Sample("frac", distinct(3, 4)),
    Sample("deg2rad", normal(3, 4)),
    Sample("rad2deg", normal(3, 4)),
    Sample("expit", normal(3, 4), reference=lambda torch, x: torch.special.expit(x), complex=True),
    Sample("sigmoid", constant([-800.0, -50.0, 50.0, 800.0]), note="far_out"),
    *(Sample(name, normal(3, 4), normal(3, 4), reference=aten(name), complex=True) for name in GRADIENTS),
    *(Sample(name, normal(), normal(), reference=aten(name), note="0-d") for name in GRADIENTS),
    *(Sample(name, normal(3, 1), normal(4), reference=aten(name), note="broadcast") for name in GRADIENTS),
    Sample("logit", fraction(3, 4)),
    Sample("logit", fraction(3, 4), kwargs={"eps": 0.2}, note="eps"),
    Sample("logit", constant([0.0, 0.1, 0.9, 1.0]), kwargs={"eps": 0.1}, kink=True, note="eps_at_the_bounds"),
    Sample("logit", constant([-0.5, 0.5, 1.5]), kink=True, gradgrad=False, note="outside"),
    Sample("nan_to_num", normal(3, 4)),
    Sample("nan_to_num", constant([math.nan, math.inf, -math.inf, 2.0]), kink=True, note="all_kinds"),
    Sample("nan_to_num", constant([math.nan, math.inf, -math.inf, 2.0]),
           kwargs={"nan": 1.5, "posinf": 9.0, "neginf": -9.0}, kink=True, note="given"),
    Sample("nan_to_num", integers(4), note="integers"),
]  # fmt: skip
