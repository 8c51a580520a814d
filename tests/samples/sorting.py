"""Rows for undertow.ops.reduce.sorting."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, booleans, constant, distinct, integers, normal

UNSORTED = [[3.0, 1.0, np.nan, 2.0, 1.0], [0.0, 5.0, 5.0, -1.0, np.inf]]

SAMPLES = [
    Sample("sort", distinct(3, 4), note="last dim"),
    Sample("sort", distinct(3, 4), 0, True, note="descending"),
    Sample("sort", constant(UNSORTED), kwargs={"stable": True}, kink=True, note="stable"),
    Sample(
        "sort",
        constant(UNSORTED),
        kwargs={"stable": True, "descending": True},
        kink=True,
        note="stable, descending",
    ),
    Sample("sort", distinct(), note="0-d"),
    Sample("sort", distinct(0, 3), 0, note="of nothing"),
    Sample("sort", booleans(3, 4), kwargs={"stable": True}, note="bools"),
    Sample("msort", distinct(3, 4)),
    Sample("argsort", distinct(3, 4), note="last dim"),
    Sample(
        "argsort",
        constant(UNSORTED),
        kwargs={"stable": True, "descending": True},
        kink=True,
        note="descending",
    ),
    Sample("topk", distinct(3, 5), 2, note="largest"),
    Sample("topk", distinct(5, 3), 4, 0, False, note="smallest"),
    Sample("topk", distinct(3, 5), 0, note="none"),
    Sample("topk", distinct(), 1, note="0-d"),
    Sample("kthvalue", distinct(3, 5), 2, note="last dim"),
    Sample("kthvalue", distinct(3, 5), 3, 0, True, note="dim kept"),
    Sample("kthvalue", distinct(), 1, note="0-d"),
    Sample("kthvalue", constant([1.0, np.nan, 0.0]), 3, kink=True, note="NaN"),
    Sample("searchsorted", constant([1.0, 3.0, 5.0]).without_gradient(), normal(2, 3), note="one row"),
    Sample("searchsorted", constant([1, 3, 5]), 3, kwargs={"right": True}, note="number"),
    Sample(
        "searchsorted",
        constant([[1, 3, 5], [2, 4, 6]]),
        constant([[3, 5], [3, 9]]),
        kwargs={"side": "right"},
        note="several rows",
    ),
    Sample(
        "searchsorted",
        constant([5, 3, 1]),
        constant([3, 4]),
        kwargs={"sorter": constant([2, 1, 0]), "out_int32": True},
        note="sorter",
    ),
    Sample("bucketize", normal(2, 3), constant([-1.0, 0.0, 1.0]).without_gradient()),
    Sample("bucketize", 3, constant([1, 3, 5]), kwargs={"right": True}, note="number"),
    Sample("unique", integers(3, 4), note="all"),
    Sample("unique", integers(3, 4), kwargs={"return_inverse": True, "return_counts": True}, note="everything"),
    Sample(
        "unique",
        integers(5, 2, high=2),
        kwargs={"dim": 0, "return_inverse": True, "return_counts": True},
        note="rows",
    ),
    Sample("unique", booleans(5), kwargs={"return_counts": True}, note="bools"),
    Sample("unique_consecutive", integers(12), note="all"),
    Sample(
        "unique_consecutive",
        integers(3, 4),
        kwargs={"return_inverse": True, "return_counts": True},
        note="everything",
    ),
    Sample(
        "unique_consecutive",
        integers(2, 6, high=2),
        kwargs={"dim": 1, "return_inverse": True},
        note="columns",
    ),
    Sample(
        "unique_consecutive",
        integers(0),
        kwargs={"return_inverse": True, "return_counts": True},
        note="of nothing",
    ),
    Sample("bincount", integers(10, high=5), note="counts"),
    Sample("bincount", integers(10, high=5), kwargs={"minlength": 8}, note="minlength"),
    Sample(
        "bincount",
        integers(10, high=5),
        normal(10),
        note="weights",
        reference=lambda torch, x, w: torch.zeros(int(x.max()) + 1, dtype=w.dtype).index_add(0, x, w),
    ),
    Sample("histc", normal(20), kwargs={"bins": 5}, kink=True, note="own range"),
    Sample("histc", normal(4, 5), kwargs={"bins": 4, "min": -1, "max": 1}, note="given range"),
]
