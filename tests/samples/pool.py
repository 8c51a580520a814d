"""Rows for pooling, and for im2col and col2im."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, distinct, integers, normal, positive

TIES = np.array([[[1.0, 1.0, 0.0, 2.0, 2.0, 2.0]]])


def row(name: str, *args: Any, **options: Any) -> Sample:
    """A row of torch.nn.functional.<name>."""
    return Sample(name, *args, reference=lambda torch, *a, **k: getattr(torch.nn.functional, name)(*a, **k), **options)


LARGEST = [
    row("max_pool1d", distinct(2, 3, 7), 2),
    row("max_pool1d", distinct(3, 8), 3, 2, 1, 1, True, True, note="unbatched, indices"),
    row("max_pool1d", constant(TIES), 2, kink=True, note="ties"),
    row("max_pool1d", constant(TIES), 3, 1, 1, 1, False, True, kink=True, note="ties, overlapping"),
    row("max_pool2d", distinct(2, 2, 5, 6), 2),
    row("max_pool2d", distinct(2, 7, 6), (3, 2), (2, 1), (1, 1), note="padding"),
    row("max_pool2d", distinct(1, 2, 7, 8), 2, 3, 1, 2, True, True, note="dilation, ceil, indices"),
    row("max_pool2d", distinct(0, 2, 4, 4), 2, note="empty"),
    row("max_pool2d", integers(1, 2, 4, 4, high=9), 2, kwargs={"return_indices": True}, note="integers"),
    row("max_pool2d", constant(np.full((1, 1, 4, 4), -np.inf)).without_gradient(), 3, 1, 1, 1, False, True,
        note="infinities"),
    row("max_pool2d", constant(np.array([[[[np.nan, 1.0, 2.0], [np.nan, 0.0, 1.0]]]])).without_gradient(), 2, 1,
        kwargs={"return_indices": True}, note="nan"),
    row("max_pool3d", distinct(1, 2, 4, 5, 4), 2),
    row("max_pool3d", distinct(2, 4, 5, 4), (2, 3, 2), 1, (1, 0, 1), 1, False, True, note="all"),
    row("adaptive_max_pool1d", distinct(2, 3, 7), 3),
    row("adaptive_max_pool2d", distinct(2, 3, 7, 5), (3, None), True, note="indices"),
    row("adaptive_max_pool2d", distinct(3, 5, 5), 2, note="unbatched"),
    row("adaptive_max_pool2d", constant(np.array([[[[np.nan, 1.0, np.nan], [0.0, 0.0, 1.0]]]])).without_gradient(), 1,
        True, note="nan"),
    row("adaptive_max_pool3d", distinct(1, 2, 4, 5, 3), (2, 2, 2)),
]  # fmt: skip

MEANS = [
    row("avg_pool1d", normal(2, 3, 7), 2),
    row("avg_pool1d", normal(3, 7), 3, 2, 1, True, False, note="unbatched, all"),
    row("avg_pool2d", normal(2, 2, 5, 6), 2),
    row("avg_pool2d", normal(2, 6, 6), (3, 2), (2, 3), 1, True, True, note="ceil"),
    row("avg_pool2d", normal(1, 2, 6, 7), 3, 2, 1, True, False, note="without padding"),
    row("avg_pool2d", normal(1, 2, 6, 6), 3, 2, 1, False, True, 5, note="divisor"),
    row("avg_pool2d", normal(0, 2, 4, 4), 2, note="empty"),
    row("avg_pool3d", normal(1, 2, 4, 5, 4), 2),
    row("avg_pool3d", normal(2, 5, 5, 4), (3, 2, 2), 2, (1, 0, 1), True, False, note="all"),
    row("adaptive_avg_pool1d", normal(2, 3, 7), 3),
    row("adaptive_avg_pool2d", normal(2, 3, 7, 5), (3, 2)),
    row("adaptive_avg_pool2d", normal(3, 5, 6), (None, 8), note="more than there are"),
    row("adaptive_avg_pool2d", normal(2, 3, 4, 4), 1, note="one"),
    row("adaptive_avg_pool3d", normal(1, 2, 4, 5, 3), (2, 2, 3)),
    row("lp_pool1d", positive(2, 3, 6), 3.0, 2),
    row("lp_pool2d", positive(2, 2, 4, 5), 2.0, (2, 3), 1, note="all"),
    row("lp_pool3d", positive(1, 2, 4, 4, 4), 2.0, 2),
]

FOLDING = [
    Sample("im2col", normal(2, 2, 4, 5), (2, 3), complex=True,
           reference=lambda torch, x, k: torch.nn.functional.unfold(x, k)),
    Sample("im2col", normal(2, 5, 5), 2, 2, 1, (2, 1), complex=True, note="unbatched, all",
           reference=lambda torch, *a: torch.nn.functional.unfold(*a)),
    Sample("col2im", normal(2, 8, 9), (4, 4), 2, complex=True,
           reference=lambda torch, *a: torch.nn.functional.fold(*a)),
    Sample("col2im", normal(8, 15), (5, 5), 2, 2, 1, (2, 1), complex=True, note="unbatched, all",
           reference=lambda torch, *a: torch.nn.functional.fold(*a)),
]  # fmt: skip

BACKWARD = [
    Sample("max_pool_backward", normal(2, 3), constant(np.array([[0, 2, 2], [1, 1, 3]])), (4,), reference=False),
    Sample("avg_pool_backward", normal(2, 2, 2), (4, 4), (2, 2), (2, 2), (0, 0), reference=False),
    Sample("adaptive_avg_pool_backward", normal(2, 2, 2), (3, 4), reference=False),
]

SAMPLES = [*LARGEST, *MEANS, *FOLDING, *BACKWARD]
