"""Sums, means and largest values of bags of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, distinct, integers, normal


def in_torch(torch: Any, *args: Any, **kwargs: Any) -> Any:
    return torch.nn.functional.embedding_bag(*args, **kwargs)


def bag(*args: Any, note: str, **kwargs: Any) -> Sample:
    return Sample("embedding_bag", *args, kwargs=kwargs, reference=in_torch, note=note)


SAMPLES = [
    *[bag(integers(3, 2, high=5), distinct(5, 3), mode=mode, note=f"2-d, {mode}") for mode in ("sum", "mean", "max")],
    *[
        bag(integers(6, high=5), distinct(5, 3), constant(np.array([0, 2, 2])), mode=mode, note=f"offsets, {mode}")
        for mode in ("sum", "mean", "max")
    ],
    bag(integers(6, high=5), normal(5, 3), constant(np.array([0, 2, 6])), include_last_offset=True, note="last offset"),
    *[
        bag(integers(4, 3, high=3), distinct(3, 2), mode=mode, padding_idx=1, note=f"padding, {mode}")
        for mode in ("sum", "mean", "max")
    ],
    bag(integers(3, 2, high=5), normal(5, 3), mode="sum", per_sample_weights=normal(3, 2), note="weights"),
]
