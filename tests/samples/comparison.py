"""Comparisons, logic and bits."""

from __future__ import annotations

import math

from tests.samples import Sample, booleans, constant, distinct, integers, normal

ORDER = ["lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal"]
EQUALITY = ["eq", "ne", "not_equal"]
LOGIC = ["logical_and", "logical_or", "logical_xor"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ["bitwise_left_shift", "bitwise_right_shift"]
KINDS = ["isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit"]
ODD = constant([math.nan, math.inf, -math.inf, 0.0, -0.0, -1.5])

SAMPLES = [
    *(Sample(name, integers(3, 4), integers(4)) for name in [*ORDER, *EQUALITY]),
    *(Sample(name, integers(3, 4), 1, note="number") for name in [*ORDER[:4], *EQUALITY[:2]]),
    *(Sample(name, distinct(3, 4), integers(4), note="mixed") for name in [*ORDER[:4], *EQUALITY[:2]]),
    *(Sample(name, ODD, ODD, kink=True, note="nan") for name in [*ORDER[:4], *EQUALITY[:2]]),
    *(Sample(name, constant([1 + 2j, 2 + 0j]), constant([1 + 2j, 1j]), kink=True, note="complex")
      for name in EQUALITY[:2]),
    *(Sample(name, integers(3, 4, high=2), booleans(4)) for name in LOGIC),
    *(Sample(name, distinct(3, 4), booleans(4), note="floats") for name in LOGIC),
    Sample("logical_not", integers(3, 4, high=2)),
    *(Sample(name, integers(3, 4, high=9), integers(4, high=9)) for name in BITS),
    *(Sample(name, booleans(3, 4), booleans(4), note="bool") for name in BITS),
    *(Sample(name, integers(3, 4, high=9), 5, note="number") for name in BITS),
    *(Sample(name, integers(3, 4, low=-9, high=9), integers(4, high=5)) for name in SHIFTS),
    *(Sample(name, constant([1, -1]), constant([65, 65]), note="too_far") for name in SHIFTS),
    Sample("bitwise_not", integers(3, 4, high=9)),
    Sample("bitwise_not", booleans(3, 4), note="bool"),
    *(Sample(name, ODD, kink=True) for name in KINDS),
    *(Sample(name, integers(4), note="integers") for name in KINDS),
    Sample("isreal", constant([1 + 0j, 1j]), kink=True),
    Sample("isnan", constant([1 + 0j, complex(math.nan, 1)]), kink=True, note="complex"),
    Sample("isclose", constant([1.0, 2.0, math.nan]), constant([1.0 + 1e-7, 2.1, math.nan]), kink=True),
    Sample("isclose", constant([1.0, 2.0, math.nan]), constant([1.2, 2.1, math.nan]),
           kwargs={"rtol": 0.1, "atol": 0, "equal_nan": True}, kink=True, note="loose"),
    Sample("isclose", integers(4), integers(4), note="integers", complex=True),
    Sample("isclose", booleans(4), booleans(4), note="bool"),
    Sample("allclose", constant([1.0, 2.0]), constant([1.0 + 1e-7, 2.0]), kink=True),
    Sample("allclose", constant([1.0, 2.0]), constant([1.0 + 1e-3, 2.0]), kink=True, note="different"),
    Sample("equal", integers(4), integers(4), complex=True),
    Sample("equal", normal(4), normal(3), kink=True, note="shapes"),
    Sample("isin", integers(3, 4, high=9), constant([2, 4, 6])),
    Sample("isin", integers(3, 4, high=9), constant([2, 4, 6]), kwargs={"invert": True}, note="invert"),
]  # fmt: skip
