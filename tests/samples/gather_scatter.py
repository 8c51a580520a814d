"""Rows for gather, scatter and the reductions of what is scattered."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, constant, distinct, integers, normal

APART = constant([[2, 0, 1], [0, 2, 3]])  # along dimension 0 or 1, no place twice
WITH_ZEROS = constant([[0.0, 1.5, -2.0], [1.2, 0.0, 0.7], [2.0, -1.0, 0.0]])
TIES = constant([[1.0, 2.0, 2.0], [1.0, 2.0, 0.5], [1.0, 0.0, 2.0]])


def with_reduce(torch: Any, input: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    """What torch.scatter computes, which has no gradient there."""
    src = src if hasattr(src, "shape") else torch.full(index.shape, src, dtype=input.dtype)
    if reduce == "add":
        return torch.scatter_add(input, dim, index, src)
    return torch.scatter_reduce(input, dim, index, src, "prod")


def scatter_with_reduce(ut: Any, input: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    return ut.ops.scatter(input, dim, index, src, reduce=reduce)


def reductions(op: str, reduce: str, **options: Any) -> list[Sample]:
    index = (integers(3, 3, high=4),) if op == "scatter_reduce" else (constant([2, 0, 2]),)
    target = normal(4, 3) if reduce in ("sum", "prod", "mean") else distinct(4, 3)
    src = normal(3, 3) if reduce in ("sum", "prod", "mean") else distinct(3, 3)
    rows = []
    for include_self in (True, False):
        kwargs = {"include_self": include_self}
        note = f"{reduce}{'' if include_self else ' alone'}"
        rows.append(Sample(op, target, 0, *index, src, reduce, kwargs=kwargs, note=note, **options))
    return rows


SAMPLES = [
    Sample("gather", normal(3, 4), 1, integers(3, 2, high=4), complex=True),
    Sample("gather", normal(3, 4, 2), 0, integers(5, 3, 1, high=3), note="smaller"),
    Sample("gather", normal(3, 4), -2, integers(5, 4, high=3), note="negative_dim"),
    Sample("gather", normal(4), 0, constant([1, 1, 1]), note="repeated"),
    Sample("gather", normal(), 0, constant(0), note="0d"),
    Sample("gather", normal(), 0, constant([0, 0]), note="0d vector"),
    Sample("gather", normal(3, 4), 0, integers(0, 4), note="empty"),
    Sample("gather_backward", normal(3, 2), (3, 4), 1, integers(3, 2, high=4), reference=False, complex=True),
    Sample("take_along_dim", normal(3, 4), integers(3, 2, low=-4, high=4), 1, complex=True),
    Sample("take_along_dim", normal(3, 4), integers(1, 4, high=3), 0, note="broadcast"),
    Sample("take_along_dim", normal(3, 1), integers(1, 4, high=3), 0, note="broadcast input"),
    Sample("take_along_dim", normal(3, 4), integers(2, 3, high=12), note="flat"),
    Sample("_wrapped_index", integers(3, low=-4, high=4), 4, 0, reference=False),
    Sample("scatter", normal(4, 4), 0, APART, normal(2, 3), complex=True),
    Sample("scatter", normal(3, 4), 1, APART, normal(3, 3), reference=False, note="larger src"),
    Sample("scatter", normal(3, 4), -1, APART, 2.5, complex=True, note="number"),
    Sample("scatter", normal(3, 4), 0, constant([[0, 0], [0, 0]]), normal(2, 2), reference=False, note="twice"),
    Sample(
        "scatter",
        normal(3, 4),
        0,
        integers(4, 4),
        normal(4, 4),
        "add",
        call=scatter_with_reduce,
        reference=with_reduce,
        note="add",
    ),
    Sample(
        "scatter",
        normal(3, 4),
        0,
        integers(4, 4),
        normal(4, 4),
        "multiply",
        call=scatter_with_reduce,
        reference=with_reduce,
        note="multiply",
    ),
    Sample(
        "scatter",
        normal(4, 4),
        0,
        APART,
        2.5,
        "multiply",
        call=scatter_with_reduce,
        reference=with_reduce,
        note="multiply number",
    ),
    Sample("scatter", normal(3, 4), 0, integers(0, 4), normal(3, 4), reference=False, note="empty"),
    Sample("scatter", normal(), 0, constant(0), normal(), note="0d"),
    Sample("_gather_written", normal(3, 4), 0, constant([[0, 0], [0, 0]]), reference=False),
    Sample("scatter_add", normal(3, 4), 0, integers(5, 4), normal(5, 4), complex=True),
    Sample(
        "scatter_add",
        normal(3, 4),
        1,
        integers(3, 2, high=4),
        normal(3, 5),
        reference=False,
        note="larger src",
    ),
    Sample("scatter_add", normal(), 0, constant(0), normal(), note="0d"),
    *reductions("scatter_reduce", "sum"),
    *reductions("scatter_reduce", "mean"),
    *reductions("scatter_reduce", "prod"),
    *reductions("scatter_reduce", "amax"),
    *reductions("scatter_reduce", "amin"),
    Sample(
        "scatter_reduce",
        normal(4, 3),
        -1,
        integers(4, 2),
        normal(4, 2),
        "sum",
        reference=False,
        complex=True,
        note="complex sum",
    ),
    Sample(
        "scatter_reduce",
        normal(4, 3),
        -1,
        integers(4, 2),
        normal(4, 2),
        "prod",
        reference=False,
        complex=True,
        note="complex prod",
    ),
    Sample(
        "scatter_reduce",
        normal(2, 3),
        0,
        integers(3, 3, high=2),
        WITH_ZEROS,
        "prod",
        gradgrad=False,
        note="zeros",
    ),
    Sample(
        "scatter_reduce",
        normal(4, 3),
        0,
        constant([[0] * 3, [1] * 3, [2] * 3]),
        WITH_ZEROS,
        "prod",
        note="a zero",
    ),
    Sample("scatter_reduce", WITH_ZEROS, 0, integers(3, 3), normal(3, 3), "prod", note="zeros in input"),
    Sample("scatter_reduce", TIES, 0, integers(3, 3), TIES, "amax", kink=True, note="ties"),
    Sample(
        "scatter_reduce",
        normal(3, 4),
        0,
        integers(2, 3),
        normal(4, 4),
        "mean",
        reference=False,
        note="larger src",
    ),
    *reductions("index_reduce", "mean"),
    *reductions("index_reduce", "prod"),
    *reductions("index_reduce", "amax"),
    *reductions("index_reduce", "amin"),
    Sample("index_reduce", normal(3, 4), 1, constant([0, 0, 3]), WITH_ZEROS, "prod", gradgrad=False, note="zeros"),
    Sample("_group_sizes", integers(3, 3), (4, 3), 0, True, "float64", reference=False),
    Sample(
        "_extreme_shares",
        TIES.without_gradient(),
        0,
        integers(3, 3),
        TIES.without_gradient(),
        TIES.without_gradient(),
        True,
        reference=False,
    ),
    Sample("_zeros_in_groups", WITH_ZEROS.without_gradient(), (3, 3), 0, integers(3, 3), reference=False),
    Sample("_ones_for", normal(3), reference=False),
    Sample("_spread_index", integers(3), 0, (3, 4), reference=False),
]
