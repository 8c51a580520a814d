"""Rows for ops/reduce/segments.py, histograms.py and what PyTorch keeps for older programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, distinct, integers, normal, positive

LENGTHS = constant([2, 1, 3])
GAPS = constant([2, 0, 4])  # the second segment is empty
EDGES = [constant([-1.0, 0.0, 2.0]).without_gradient(), constant([0.0, 1.0]).without_gradient()]


def of_tensor(name: str) -> Any:
    return lambda torch, x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


SAMPLES = [
    # PyTorch has no second derivatives of these: finite differences check them in the rows without reference
    *[Sample("segment_reduce", distinct(6, 2), reduce, kwargs={"lengths": LENGTHS}, note=reduce, gradgrad=False)
      for reduce in ("sum", "mean", "max", "min", "prod")],
    Sample("segment_reduce", distinct(6), "sum", kwargs={"lengths": GAPS}, note="gap", gradgrad=False),
    Sample("segment_reduce", distinct(6), "mean", kwargs={"lengths": GAPS, "initial": 1.5}, note="initial",
           gradgrad=False),
    Sample("segment_reduce", distinct(6), "max", kwargs={"offsets": constant([0, 2, 2, 6]), "initial": -9.0},
           note="offsets", gradgrad=False),
    Sample("segment_reduce", distinct(2, 4), "sum", kwargs={"lengths": constant([[1, 3], [2, 2]]), "axis": 1},
           note="axis", gradgrad=False),
    Sample("segment_reduce", distinct(6), "sum", kwargs={"lengths": constant([2, 1]), "unsafe": True}, note="unsafe",
           gradgrad=False),
    *[Sample("segment_reduce", distinct(6, 2), reduce, kwargs={"lengths": LENGTHS}, note=f"{reduce} twice",
             reference=False) for reduce in ("sum", "mean", "max")],
    Sample("histogram", normal(20).without_gradient(), 5, kwargs={"range": (-1.0, 1.0)}),
    Sample("histogram", normal(20).without_gradient(), constant([-1.0, 0.0, 0.5]).without_gradient(), note="edges",
           kwargs={"density": True}),
    Sample("histogram", normal(20).without_gradient(), 4, note="weight",
           kwargs={"weight": positive(20).without_gradient()}),
    Sample("histogramdd", normal(20, 2).without_gradient(), [3, 4]),
    Sample("histogramdd", normal(20, 2).without_gradient(), 3, note="range",
           kwargs={"range": (-1.0, 1.0, -2.0, 2.0), "density": True}),
    Sample("histogramdd", normal(20, 2).without_gradient(), note="edges", kwargs={"bins": EDGES}),
    Sample("spmm", normal(3, 2), normal(2, 4), complex=True),
    Sample("dsmm", normal(3, 2), normal(2, 4)),
    Sample("lu", normal(3, 3), complex=True, call=lambda L, A: L.lu(A)[0], reference=lambda torch, A: torch.lu(A)[0]),
    Sample("lu", constant(np.eye(3)[::-1]).without_gradient(), kwargs={"get_infos": True}, note="infos"),
    Sample("sum_to_size", normal(2, 3), 1, 3, complex=True, reference=of_tensor("sum_to_size")),
    Sample("sum_to_size", normal(4, 2, 3), (2, 1), note="tuple", reference=of_tensor("sum_to_size")),
    Sample("sum_to_size", normal(2, 3), 2, 3, note="same", reference=of_tensor("sum_to_size")),
    Sample("nonzero_static", integers(3, 2), kwargs={"size": 4}),
    Sample("nonzero_static", constant([0, 0, 3, 1]), kwargs={"size": 1, "fill_value": 7}, note="fewer"),
    Sample("_unique2", integers(2, 4), True, True, True),
    Sample("_unique2", integers(2, 4), note="values"),
    Sample("_unique", integers(2, 4), True, True),
]  # fmt: skip
