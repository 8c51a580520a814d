"""Rows for undertow.ops.reduce.statistics."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, constant, distinct, fraction, integers, normal

TIES = [[3.0, 1.0, 1.0, 2.0, 1.0, 5.0]]
WITH_NAN = [[3.0, np.nan, 1.0, np.nan], [1.0, 2.0, 4.0, 3.0]]

SAMPLES = [
    *[
        Sample(op, *args, note=note, **options)
        for op in ("var", "std", "var_mean", "std_mean")
        for args, note, options in (
            ((normal(3, 4),), "all", {"complex": True}),
            ((normal(3, 4), 1), "dim", {"complex": True}),
            ((normal(2, 3, 4), (0, -1)), "dims kept", {"kwargs": {"keepdim": True, "correction": 0}}),
            ((normal(3, 4), 0, False), "biased", {}),
            ((normal(3, 4), False), "biased, all", {}),
            ((normal(3, 4),), "half", {"kwargs": {"dim": None, "correction": 0.5}}),
            ((normal(3, 4),), "NumPy's names", {"kwargs": {"axis": -1}}),
            ((constant([[1.0, 1.0, 1.0], [1.0, 2.0, 4.0]]), 1), "equal elements", {"kink": True}),
        )
    ],
    *[
        Sample(op, *args, note=note, **options)
        for op in ("median", "nanmedian")
        for args, note, options in (
            ((distinct(3, 4),), "all", {}),
            ((distinct(5),), "odd", {}),
            ((distinct(),), "0-d", {}),
            ((constant(TIES),), "ties", {"kink": True}),
            ((constant(WITH_NAN),), "NaN", {"kink": True}),
            ((constant([np.nan, np.nan]),), "only NaN", {"kink": True}),
            ((distinct(3, 4), 1), "dim", {}),
            ((distinct(4, 3), -2, True), "dim kept", {}),
            ((distinct(), 0), "0-d dim", {}),
            ((constant(WITH_NAN), 1), "NaN along dim", {"kink": True}),
            ((integers(7),), "integers", {}),
        )
    ],
    Sample("mode", constant([[1.0, 1.0, 2.0, 2.0, 2.0], [2.0, 2.0, 1.0, 1.0, 3.0]]), kink=True, note="last dim"),
    Sample("mode", integers(6, 3), 0, True, note="dim kept"),
    Sample("mode", distinct(3, 4), note="no repetition"),
    Sample("mode", distinct(), note="0-d"),
    *[
        Sample(op, *args, note=note, **options)
        for op in ("quantile", "nanquantile")
        for args, note, options in (
            ((distinct(3, 4), 0.3), "all", {}),
            ((distinct(), 0.3), "0-d", {"kink": True}),
            ((distinct(3, 4), fraction(3), 1), "several, dim", {}),
            ((distinct(3, 4), fraction()), "0-d q", {}),
            ((distinct(3, 4), fraction(3), 0, True), "several, dim kept", {}),
            ((distinct(3, 4), 0.6), "all kept", {"kwargs": {"keepdim": True}}),
            ((distinct(5), 0.5), "on an element", {"kink": True}),
            ((constant(WITH_NAN), 0.4, 1), "NaN", {"kink": True}),
        )
    ],
    *[
        Sample(
            "quantile",
            distinct(3, 5),
            fraction(2).without_gradient(),
            1,
            kwargs={"interpolation": how},
            note=how,
        )
        for how in ("linear", "lower", "higher", "midpoint", "nearest")
    ],
    Sample(
        "percentile",
        distinct(3, 4),
        30.0,
        kwargs={"axis": 1},
        reference=lambda torch, x, q, axis: torch.quantile(x, q / 100, axis),
    ),
]
