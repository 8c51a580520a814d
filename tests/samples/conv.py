"""Rows for undertow.ops.network.conv_kernels."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, integers, normal


def both(name: str, *args: Any, **options: Any) -> Sample:
    return Sample(name, *args, complex=True, **options)


CONVOLUTIONS = [
    both("conv1d", normal(2, 3, 6), normal(4, 3, 3)),
    both("conv1d", normal(3, 6), normal(4, 3, 2), normal(4), note="unbatched"),
    both("conv1d", normal(2, 4, 7), normal(6, 2, 3), normal(6), 2, 1, 2, 2, note="all"),
    both("conv1d", normal(1, 2, 5), normal(2, 2, 4), normal(2), kwargs={"padding": "same"}, note="same, odd"),
    Sample("conv1d", integers(1, 2, 5), integers(3, 2, 2), note="integers"),
    both("conv2d", normal(2, 3, 5, 4), normal(4, 3, 3, 2), normal(4)),
    both("conv2d", normal(2, 2, 5, 5), normal(3, 2, 1, 1), note="pointwise"),
    both("conv2d", normal(3, 4, 5), normal(2, 3, 2, 2), note="unbatched"),
    both("conv2d", normal(2, 4, 6, 7), normal(4, 2, 3, 2), normal(4), (2, 3), (1, 2), (2, 1), 2, note="all"),
    both("conv2d", normal(2, 3, 5, 5), normal(3, 1, 3, 3), normal(3), kwargs={"groups": 3, "padding": 1},
         note="depthwise"),
    both("conv2d", normal(1, 2, 5, 4), normal(2, 2, 2, 3), kwargs={"padding": "same", "dilation": (1, 2)}, note="same"),
    both("conv2d", normal(1, 2, 5, 4), normal(2, 2, 2, 3), kwargs={"padding": "valid"}, note="valid"),
    both("conv2d", normal(0, 2, 5, 4), normal(2, 2, 2, 3), normal(2), note="empty"),
    both("conv2d", normal(2, 33, 4, 4), normal(2, 33, 2, 3), normal(2), 2, 1, note="many channels"),
    both("conv3d", normal(2, 2, 3, 4, 3), normal(3, 2, 2, 2, 2), normal(3)),
    both("conv3d", normal(1, 2, 4, 5, 4), normal(2, 1, 2, 3, 2), None, (1, 2, 1), 1, (2, 1, 1), 2, note="all"),
]  # fmt: skip

TRANSPOSED = [
    both("conv_transpose1d", normal(2, 3, 4), normal(3, 2, 3)),
    both("conv_transpose1d", normal(3, 4), normal(3, 2, 3), normal(2), note="unbatched"),
    both("conv_transpose1d", normal(2, 4, 4), normal(4, 2, 3), normal(4), 2, 1, 1, 2, 2, note="all"),
    both("conv_transpose1d", normal(1, 2, 3), normal(2, 2, 2), None, 1, 0, 2, 1, 3, note="room for more windows"),
    both("conv_transpose2d", normal(2, 3, 3, 4), normal(3, 2, 2, 3), normal(2)),
    both("conv_transpose2d", normal(2, 4, 3, 2), normal(4, 1, 3, 2), normal(2), (2, 1), (1, 0), (1, 0), 2, note="all"),
    both("conv_transpose2d", normal(1, 2, 3, 3), normal(2, 33, 2, 2), normal(33), 2, 1, note="many channels"),
    both("conv_transpose3d", normal(1, 2, 2, 3, 2), normal(2, 2, 2, 2, 2), normal(2)),
    both("conv_transpose3d", normal(1, 2, 2, 3, 2), normal(2, 1, 2, 2, 2), None, 2, 1, 1, 2, note="all"),
    Sample("convolution", normal(2, 2, 4), normal(2, 1, 3), normal(2), (1,), (1,), (1,), False, (0,), 2),
    Sample("convolution", normal(2, 2, 4), normal(2, 1, 3), None, (2,), (1,), (1,), True, (1,), 1, note="transposed"),
]

KERNELS = [
    Sample("_convolve_weight", normal(2, 2, 5), normal(2, 3, 2), (2,), (2,), (0,), (2,), 1, complex=True,
           reference=False),
    Sample("_convolve_weight", normal(2, 4, 3, 4), normal(2, 2, 3, 3), (2, 2), (1, 1), (1, 0), (2, 1), 2, complex=True,
           reference=False, note="groups"),
    Sample("_convolve_weight", normal(1, 33, 4), normal(1, 2, 3), (2,), (1,), (0,), (1,), 1, reference=False,
           note="many channels"),
]  # fmt: skip

SAMPLES = [*CONVOLUTIONS, *TRANSPOSED, *KERNELS]
