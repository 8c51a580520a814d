"""Rows for undertow.ops.reduce.cumulative."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, booleans, constant, distinct, integers, normal, positive

SAMPLES = [
    Sample("cumsum", normal(3, 4), 1, complex=True, note="dim"),
    Sample("cumsum", normal(2, 3, 4), -2, note="negative dim"),
    Sample("cumsum", normal(), 0, note="0-d"),
    Sample("cumsum", normal(0, 3), 0, note="of nothing"),
    Sample("cumsum", booleans(2, 3), 1, note="bools"),
    Sample(
        "cumsum",
        integers(2, 3),
        0,
        kwargs={"dtype": np.float64},
        note="dtype",
        reference=lambda torch, x, dim, dtype: torch.cumsum(x, dim, dtype=torch.float64),
    ),
    Sample("cumprod", normal(3, 4), 1, complex=True, note="dim"),
    Sample("cumprod", normal(2, 3, 4), -2, note="negative dim"),
    Sample("cumprod", normal(), 0, note="0-d"),
    Sample("cumprod", normal(0, 3), 0, note="of nothing"),
    Sample("cumprod", constant([[1.0, 0.0, 2.0, 0.0, 3.0], [0.5, 2.0, -1.0, 0.0, 4.0]]), 1, note="zeros"),
    Sample(
        "cumprod",
        constant(np.concatenate([[0.5, 0.0], np.linspace(0.5, 1.5, 80)])),
        0,
        note="long, with zero",
    ),
    Sample("cumprod", integers(2, 3), 1, note="integers"),
    Sample("logcumsumexp", normal(3, 4), 1, complex=True, note="dim"),
    Sample("logcumsumexp", normal(2, 3, 4), 0, note="first dim"),
    Sample("logcumsumexp", normal(), -1, note="0-d"),
    Sample("logcumsumexp", normal(100), 0, note="long"),
    *[
        Sample(op, *args, note=note, **options)
        for op in ("cummax", "cummin")
        for args, note, options in (
            ((distinct(3, 4), 1), "dim", {}),
            ((distinct(2, 3, 4), -3), "negative dim", {}),
            ((distinct(), 0), "0-d", {}),
            ((distinct(0, 3), 1), "of nothing", {}),
            ((constant([1.0, 3.0, 2.0, 3.0, 1.0, 1.0, 0.0]), 0), "ties", {"kink": True}),
            ((constant([1.0, 2.0, np.nan, 3.0, np.nan]), 0), "NaN", {"kink": True}),
            ((integers(3, 4), 1), "integers", {}),
        )
    ],
    Sample("cummaxmin_backward", normal(3, 4), integers(3, 4, high=4), 1, reference=False),
    Sample("cummaxmin_backward", normal(), integers(high=1), 0, reference=False, note="0-d"),
    Sample("_shifted", normal(3, 4), 1, 1, 1.0, complex=True, reference=False, note="forwards"),
    Sample("_shifted", normal(3, 4), -2, -1, 0.0, reference=False, note="backwards"),
    Sample("_linear_recurrence", normal(3, 4), normal(3, 4), 1, complex=True, reference=False),
    Sample("_linear_recurrence", positive(2, 70), normal(2, 70), 1, reference=False, note="long"),
    Sample("diff", normal(3, 5), complex=True, note="last dim"),
    Sample("diff", normal(4, 3), kwargs={"n": 2, "dim": 0}, note="twice"),
    Sample("diff", normal(3), kwargs={"n": 5}, note="more often than there are elements"),
    Sample("diff", normal(2, 3), kwargs={"prepend": normal(2, 1), "append": normal(2, 2)}, note="with ends"),
    Sample("diff", booleans(2, 5), note="bools"),
    Sample("trapezoid", normal(3, 5), complex=True, note="unit distance"),
    Sample("trapezoid", normal(5, 3), kwargs={"dx": 0.5, "dim": 0}, note="dx"),
    Sample("trapezoid", normal(3, 5), normal(5), note="places"),
    Sample("trapezoid", normal(3, 5, 2), normal(3, 5, 2), kwargs={"dim": 1}, note="places of each"),
    Sample("trapezoid", normal(3, 5, 2), normal(5, 2), kwargs={"dim": 1}, note="places of a plane"),
    Sample("trapezoid", normal(3, 1), note="one sample"),
    Sample("trapezoid", normal(3, 0), note="no sample"),
    Sample("trapz", normal(3, 5), kwargs={"dim": 0}, complex=True),
    Sample("cumulative_trapezoid", normal(3, 5), note="unit distance", complex=True),
    Sample("cumulative_trapezoid", normal(3, 5), normal(3), kwargs={"dim": 0}, note="places"),
]
