"""Choosing one of two numbers."""

from __future__ import annotations

import math

import numpy as np

from tests.samples import Sample, booleans, constant, distinct, integers, normal

NAN = constant([math.nan, 1.0, math.nan])
OTHER_NAN = constant([1.0, math.nan, math.nan])
TIES = constant([1.0, 2.0, 3.0]), constant([1.0, 3.0, 2.0])
BYTES = constant(np.array([0, 1, 2, 1], np.uint8))
PAIRS = ["maximum", "minimum", "fmax", "fmin"]

SAMPLES = [
    Sample("where", booleans(3, 4), normal(3, 4), normal(3, 4), complex=True),
    Sample("where", booleans(3, 1), normal(4), normal(), complex=True, note="broadcasting"),
    Sample("where", booleans(3, 4), normal(3, 4), 0.5, note="number"),
    Sample("where", booleans(3, 4), 2, normal(3, 4), note="number_first"),
    Sample("where", booleans(3, 4), 2, 5, note="numbers"),
    Sample("where", booleans(3, 4), integers(3, 4), normal(3, 4), note="mixed"),
    Sample("where", BYTES, normal(4), normal(4), note="bytes"),
    Sample("where", booleans(0, 4), normal(0, 4), normal(4), note="empty"),
    Sample("where", booleans(4, 5), note="places"),
    *(Sample(name, distinct(3, 4), distinct(4)) for name in PAIRS),
    *(Sample(name, *TIES, kink=True, note="ties") for name in PAIRS),
    *(Sample(name, NAN, OTHER_NAN, kink=True, note="nan") for name in PAIRS),
    *(Sample(name, integers(4), integers(4), note="integers") for name in PAIRS),
    *(Sample(name, distinct(3, 4), integers(4), note="mixed") for name in PAIRS),
    *(Sample(name, distinct(3, 4), BYTES, note="bytes") for name in PAIRS),
    *(Sample(name, distinct(3, 4), -0.7, 0.7) for name in ["clamp", "clip"]),
    Sample("clamp", distinct(3, 4), -0.7, note="min"),
    Sample("clamp", distinct(3, 4), kwargs={"max": 0.7}, note="max"),
    Sample("clamp", distinct(3, 4), 0.7, -0.7, note="crossed"),
    Sample("clamp", constant([-1.0, 0.0, 1.0, 2.0, math.nan]), 0, 1, kink=True, note="bounds"),
    Sample("clamp", integers(4, high=9), 2, 5, note="integers"),
    Sample("clamp", integers(4, high=9), 2.5, 5, note="integers_to_fractions"),
    Sample("clamp", distinct(3, 4), constant(-0.5), constant([0.3, 0.7, -0.7, 5.0]), note="tensors"),
    Sample("clamp", constant([-1.0, 0.0, 1.0, 2.0]), constant([0.0]), constant([1.0]), kink=True,
           note="tensor_bounds"),
    Sample("clamp", distinct(3, 4), constant([0.3, 0.7, -0.7, 5.0]), note="min_tensor"),
    Sample("clamp", distinct(3, 4), kwargs={"max": constant([0.3, 0.7, -0.7, 5.0])}, note="max_tensor"),
    *(Sample(name, distinct(3, 4), constant([0.3, 0.7, -0.7, 5.0])) for name in ["clamp_min", "clamp_max"]),
    *(Sample(name, distinct(3, 4), 0.7, note="number") for name in ["clamp_min", "clamp_max"]),
    *(Sample(name, constant([0.0, 1.0, 2.0]), constant(1.0), kink=True, note="bound")
      for name in ["clamp_min", "clamp_max"]),
    Sample("copysign", distinct(3, 4), distinct(4)),
    Sample("copysign", distinct(3, 4), -1, note="number"),
    Sample("copysign", constant([0.0, -0.0, 1.0]), constant([-1.0, 1.0, -0.0]), kink=True, note="zero"),
    Sample("copysign", integers(4), constant([-1, 1, -1, 1]), note="integers"),
    Sample("heaviside", constant([-2, 0, 3]), constant([5, 6, 7])),
]  # fmt: skip
