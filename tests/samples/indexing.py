"""Rows for `x[index]`, slices and elements by index, and masks."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, booleans, constant, integers, normal


def item(torch: Any, x: Any, index: Any) -> Any:
    return x[index]


def getitem(note: str, *args: Any, **options: Any) -> Sample:
    return Sample("getitem", *args, reference=item, note=note, **options)


def aten(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.ops.aten, name)(*args, **kwargs)


def functional(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.nn.functional, name)(*args, **kwargs)


ALL = slice(None)
DISTINCT = constant([2, 0])  # writing twice to a place has no gradient in PyTorch that differences would confirm

SAMPLES = [
    getitem("int", normal(4, 5), 1, complex=True),
    getitem("slice", normal(4, 5), slice(1, 4, 2)),
    getitem("mixed views", normal(4, 5, 3), (None, 2, slice(1, 3), ..., 0)),
    getitem("ellipsis", normal(4, 5), ...),
    getitem("list", normal(4, 5), [0, 2, 2], complex=True),
    getitem("tensor", normal(4, 5), integers(3, 2, high=4), complex=True),
    getitem("second", normal(4, 5), (ALL, integers(6, high=5))),
    getitem("two", normal(4, 5, 3), (integers(2, 1, high=4), integers(3, high=5))),
    getitem("apart", normal(4, 5, 3), (integers(6, high=4), ALL, integers(6, high=3)), complex=True),
    getitem("apart behind", normal(2, 4, 5, 3), (ALL, integers(6, high=4), ALL, integers(6, high=3))),
    getitem("three", normal(4, 5, 3), (integers(4, high=4), integers(4, high=5), integers(4, high=3))),
    getitem("mask", normal(4, 5), booleans(4, 5), complex=True),
    getitem("mask of rows", normal(4, 5), (constant([True, False, True, True]), slice(1, 3))),
    getitem("mask behind", normal(4, 5), (ALL, constant([True, False, True, True, False]))),
    getitem("empty", normal(4, 5), []),
    getitem("true", normal(3), True),
    getitem("of no dimensions", normal(), None),
    getitem("long rows", normal(6, 70), integers(9, high=6)),
    Sample(
        "index",
        normal(4, 5, 3),
        [integers(4, high=4), None, integers(4, high=3)],
        reference=aten("index"),
        complex=True,
    ),
    Sample("index", normal(4, 5), [booleans(4, 5)], reference=aten("index"), note="mask"),
    Sample("index_put", normal(4, 5), (DISTINCT,), normal(2, 5), complex=True),
    Sample("index_put", normal(4, 5), (DISTINCT,), normal(5), note="broadcast"),
    Sample("index_put", normal(4, 5), (integers(6, high=4),), normal(6, 5), True, complex=True, note="accumulate"),
    Sample(
        "index_put",
        normal(4, 5),
        (integers(6, high=4), integers(6, high=5)),
        normal(6),
        True,
        note="accumulate two",
    ),
    Sample("index_put", normal(4, 5), (booleans(4, 5),), normal(), note="mask"),
    Sample("index_put", normal(4, 5), (booleans(4, 5),), normal(1), True, note="mask accumulate"),
    Sample(
        "index_put",
        normal(4, 5),
        (integers(6, high=4), integers(6, high=5)),
        normal(6),
        reference=False,
        note="twice",
    ),
    Sample(
        "index_put",
        normal(3, 4, 5),
        [None, DISTINCT, None],
        normal(3, 2, 5),
        reference=aten("index_put"),
        note="none",
    ),
    Sample("_zeros_for", normal(2), (3, 4), reference=False),
    # slices
    Sample("index_select", normal(4, 5), 0, integers(6, high=4), complex=True),
    Sample("index_select", normal(4, 5), -1, integers(3, high=5), note="negative_dim"),
    Sample("index_select", normal(4, 70), 0, integers(9, high=4), note="long rows"),
    Sample("index_select", normal(4), 0, constant([2]), note="one"),
    Sample("index_select", normal(), 0, constant([0]), note="0d"),
    Sample("index_select", normal(4, 0), 0, integers(3, high=4), note="empty"),
    Sample("index_select_backward", normal(6, 5), (4, 5), 0, integers(6, high=4), reference=False),
    Sample("index_add", normal(4, 5), 0, integers(6, high=4), normal(6, 5), complex=True),
    Sample("index_add", normal(4, 5), -1, integers(6, high=5), normal(4, 6), kwargs={"alpha": 2.5}, note="alpha"),
    Sample("index_add", normal(), 0, constant([0]), normal(), note="0d"),
    Sample("index_copy", normal(4, 5), 0, DISTINCT, normal(2, 5), complex=True),
    Sample("index_copy", normal(4, 5), -1, DISTINCT, normal(4, 2), note="negative_dim"),
    Sample("index_copy", normal(4, 5), 0, constant([1, 3, 1]), normal(3, 5), reference=False, note="twice"),
    Sample("index_fill", normal(4, 5), 0, DISTINCT, 2.5, complex=True),
    Sample("index_fill", normal(4, 5), 1, constant([0, 3, 0]), normal(), complex=True, note="tensor"),
    Sample("index_fill", normal(), 0, constant([0]), 2.5, note="0d"),
    Sample("_index_copied", normal(4, 5), 0, constant([1, 3, 1]), reference=False),
    Sample("_distinct_index", constant([1, -1, 1]), (4, 5), 0, reference=False),
    # elements
    Sample("take", normal(4, 5), integers(3, 2, low=-20, high=20), complex=True),
    Sample("take", normal(), constant([0, 0]), note="0d"),
    Sample("put", normal(4, 5), constant([[3, -1], [0, 7]]), normal(2, 2), complex=True),
    Sample("put", normal(4, 5), integers(8, high=20), normal(2, 4), True, complex=True, note="accumulate"),
    Sample("put", normal(4, 5), constant([3, 3, 0]), normal(3), reference=False, note="twice"),
    Sample("_take_written", normal(4, 5), constant([3, 3, 0]), reference=False),
    Sample("embedding", normal(4, 3), integers(2, 3, high=4)),
    Sample("embedding", normal(4, 3), integers(2, 3, high=3), 3, note="padding"),  # where used: test_indexing.py
    Sample("embedding", normal(4, 3), constant(2), note="0d"),
    Sample("one_hot", integers(2, 3, high=4), 5, reference=functional("one_hot")),
    Sample("one_hot", constant([0, 3, 1]), reference=functional("one_hot"), note="inferred"),
    Sample("_index_is", constant([0, 3, 1]), 3, reference=False),
    Sample("_index_frequency", constant([0, 3, 0]), 4, "float64", reference=False),
    Sample("_flat_index", integers(2, 3), reference=False),
    # parts
    Sample("select_scatter", normal(4, 5), normal(4), 1, -2),
    Sample("select_scatter", normal(4), normal(), 0, 2, note="0d"),
    Sample("slice_scatter", normal(4, 5), normal(2, 5), 0, 1, 4, 2),
    Sample("slice_scatter", normal(4, 5), normal(4, 2), -1, 3, note="open"),
    Sample("diagonal_scatter", normal(4, 5), normal(4), complex=True),
    Sample("diagonal_scatter", normal(3, 4, 5), normal(4, 3), -1, 2, 0, note="dims"),
    # masks
    Sample("masked_fill", normal(4, 5), booleans(4, 5), 2.5, complex=True),
    Sample("masked_fill", normal(5), booleans(4, 5), -1, note="broadcast"),
    Sample("masked_fill", normal(4, 5), booleans(5), normal(), complex=True, note="tensor"),
    Sample("masked_fill", normal(), constant(True), 3.0, note="0d"),
    Sample("masked_select", normal(4, 5), booleans(4, 5), complex=True),
    Sample("masked_select", normal(4, 1), booleans(5), note="broadcast"),
    Sample("masked_select", normal(), constant(True), note="0d"),
    Sample("masked_scatter", normal(4, 5), booleans(4, 5), normal(20), complex=True),
    Sample("masked_scatter", normal(5), booleans(4, 1), normal(4, 6), note="broadcast"),
    Sample(
        "masked_scatter_backward",
        normal(4, 5),
        booleans(4, 5),
        (4, 6),
        reference=aten("masked_scatter_backward"),
        complex=True,
    ),
    Sample("nonzero", booleans(4, 5)),
    Sample("nonzero", booleans(4, 5), kwargs={"as_tuple": True}, note="tuple"),
    Sample("nonzero", constant(True), kwargs={"as_tuple": True}, note="0d tuple"),
    Sample("nonzero", constant(2), note="0d"),
    Sample("argwhere", integers(4, 5)),
    Sample("tril_indices", 3, 4),
    Sample("tril_indices", 4, 3, -1, note="offset"),
    Sample("triu_indices", 3, 4, 1),
    Sample("unravel_index", integers(2, 3, high=12), (3, 4)),
]
