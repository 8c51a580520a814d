"""Sums, products, quotients."""

from __future__ import annotations

from tests.samples import Sample, constant, distinct, integers, normal, positive

SIGNED = constant([7, -7, 8, -8])
DIVISOR = constant([2, 2, -3, -3])

SAMPLES = [
    *(Sample(name, normal(3, 4), normal(3, 4), complex=True) for name in ["add", "sub", "rsub", "mul"]),
    *(Sample(name, normal(3, 4), normal(3, 4)) for name in ["subtract", "multiply"]),
    *(Sample(name, normal(3, 1), normal(4), complex=True, note="broadcasting")
      for name in ["add", "sub", "rsub", "mul"]),
    *(Sample(name, normal(3, 4), 2.5, complex=True, note="number")
      for name in ["add", "sub", "rsub", "mul"]),
    *(Sample(name, normal(3, 4), 1 + 2j, complex=True, note="complex_number")
      for name in ["add", "sub", "mul"]),
    *(Sample(name, 2.5, normal(3, 4), note="number_first")
      for name in ["add", "sub", "mul", "true_divide"]),
    *(Sample(name, normal(), normal(), note="0-d") for name in ["add", "sub", "mul"]),
    *(Sample(name, normal(0, 3), normal(3), note="empty") for name in ["add", "sub", "mul"]),
    *(Sample(name, normal(3, 4), normal(4), kwargs={"alpha": 2.5}, complex=True, note="alpha")
      for name in ["add", "sub", "rsub"]),
    *(Sample(name, normal(3, 4), 3, kwargs={"alpha": 0.5}, note="number_alpha")
      for name in ["add", "sub"]),
    *(Sample(name, integers(4), integers(4), kwargs={"alpha": 2}, note="integers")
      for name in ["add", "sub"]),
    Sample("add", constant([True, False, True]), constant([False, False, True]), note="bool"),
    Sample("add", constant([True, False, True]), constant([False, False, True]), kwargs={"alpha": 2},
           note="bool_alpha"),
    Sample("mul", constant([True, False, True]), constant([False, False, True]), note="bool"),
    Sample("mul", integers(4), normal(3, 4), note="integers_and_floats"),
    Sample("mul", normal(3, 4), integers(4), complex_only=True, note="integers_and_complex"),
    Sample("neg", normal(3, 4), complex=True),
    Sample("negative", normal(3, 4), complex=True),
    Sample("positive", normal(3, 4), complex=True),
    Sample("addcmul", normal(3, 4), normal(3, 1), normal(4), complex=True),
    Sample("addcmul", normal(3, 4), normal(3, 1), normal(4), kwargs={"value": 2.5}, complex=True,
           note="value"),
    Sample("addcmul", integers(4), integers(4), integers(4), kwargs={"value": 3}, note="integers"),
    Sample("addcmul", normal(4), normal(4), integers(4), kwargs={"value": 3}, note="mixed"),
    Sample("addcdiv", normal(3, 4), normal(3, 1), positive(4), complex=True),
    Sample("addcdiv", normal(3, 4), normal(3, 1), positive(4), kwargs={"value": -2}, complex=True,
           note="value"),
    Sample("lerp", normal(3, 4), normal(4), normal(3, 1), complex=True),
    Sample("lerp", normal(3, 4), normal(4), 0.3, complex=True, note="near"),
    Sample("lerp", normal(3, 4), normal(4), 0.8, complex=True, note="far"),
    *(Sample(name, normal(3, 4), positive(3, 4), complex=True) for name in ["true_divide", "div", "divide"]),
    *(Sample(name, normal(3, 1), positive(4), complex=True, note="broadcasting")
      for name in ["true_divide", "div"]),
    Sample("true_divide", normal(3, 4), 3, complex=True, note="number"),
    Sample("true_divide", integers(4, low=1), integers(4, low=1), note="integers"),
    Sample("true_divide", integers(4, low=1), 2, note="integers_by_number"),
    Sample("true_divide", integers(4, low=1), positive(4), note="integers_by_floats"),
    *(Sample("div", distinct(3, 4), constant(1.7), kwargs={"rounding_mode": mode}, note=mode)
      for mode in ["floor", "trunc"]),
    *(Sample("div", distinct(3, 4), 1.7, kwargs={"rounding_mode": mode}, note=f"{mode}-number")
      for mode in ["floor", "trunc"]),
    *(Sample("div", SIGNED, DIVISOR, kwargs={"rounding_mode": mode}, note=f"{mode}-integers")
      for mode in ["floor", "trunc"]),
    *(Sample(name, SIGNED, DIVISOR, note="integers") for name in ["remainder", "fmod", "floor_divide"]),
    Sample("floor_divide", SIGNED, 3, note="number"),
    *(Sample(name, distinct(3, 4), constant([0.7, -0.7, 1.3, -1.3])) for name in ["remainder", "fmod"]),
    *(Sample(name, distinct(3, 4), 0.7, note="number") for name in ["remainder", "fmod"]),
    Sample("gcd", constant([12, 0, -6, 7]), constant([18, 0, 9, 1])),
    Sample("lcm", constant([[4], [6]]), constant([6, 5, 0])),
]  # fmt: skip
