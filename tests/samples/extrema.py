"""Rows for undertow.ops.reduce.extrema."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, constant, distinct, integers, normal

TIES = [[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]]
WITH_NAN = [[1.0, np.nan, np.nan], [3.0, 3.0, 1.0]]

SAMPLES = [
    *[
        Sample(op, *args, note=note, **options)
        for op in ("amax", "amin")
        for args, note, options in (
            ((distinct(3, 4),), "all", {}),
            ((distinct(),), "0-d", {}),
            ((distinct(), 0), "0-d dim", {}),
            ((distinct(3, 4), 1), "dim", {}),
            ((distinct(2, 3, 4), (0, -1), True), "dims kept", {}),
            ((constant(TIES), 1), "ties", {"kink": True}),
            ((constant(TIES), (0, 1)), "ties over dims", {"kink": True}),
            ((integers(3, 4), 0), "integers", {}),
        )
    ],
    Sample("aminmax", distinct(3, 4), note="all"),
    Sample("aminmax", distinct(3, 4), kwargs={"dim": -1, "keepdim": True}, note="dim kept"),
    Sample("aminmax", constant(TIES), kwargs={"dim": 1}, kink=True, note="ties"),
    Sample("aminmax", distinct(), kwargs={"dim": 0}, note="0-d"),
    *[
        Sample(op, *args, note=note, **options)
        for op in ("max", "min")
        for args, note, options in (
            ((distinct(3, 4),), "all", {}),
            ((distinct(),), "0-d", {}),
            ((constant(TIES),), "ties", {"kink": True}),
            ((constant(WITH_NAN),), "NaN", {"kink": True}),
            ((distinct(3, 4), 1), "dim", {}),
            ((distinct(2, 3, 4), -2, True), "dim kept", {}),
            ((distinct(), 0), "0-d dim", {}),
            ((distinct(4), 0), "1-d dim", {}),
            ((distinct(0, 3), 1), "of no rows", {}),
            ((constant(TIES), 1), "ties along dim", {"kink": True}),
            ((constant(WITH_NAN), 1), "NaN along dim", {"kink": True}),
            ((normal(3, 4), normal(4)), "of two", {}),
            ((integers(3, 4), 1), "integers", {}),
        )
    ],
    *[
        Sample(op, *args, note=note, **options)
        for op in ("argmax", "argmin")
        for args, note, options in (
            ((distinct(3, 4),), "all", {}),
            ((distinct(3, 4), 1), "dim", {}),
            ((distinct(3, 4), -2, True), "dim kept", {}),
            ((distinct(),), "0-d", {}),
            ((integers(3, 4), 0), "integers", {}),
        )
    ],
    Sample(
        "value_selecting_reduction_backward",
        normal(3),
        integers(3, high=4),
        (3, 4),
        1,
        False,
        note="dim gone",
        reference=False,
    ),
    Sample(
        "value_selecting_reduction_backward",
        normal(3, 1),
        integers(3, 1, high=4),
        (3, 4),
        -1,
        True,
        note="dim kept",
        reference=False,
    ),
]
