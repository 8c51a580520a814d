"""Rows for undertow.ops.network.interpolate."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, normal

SHAPES = {1: (2, 2, 5), 2: (1, 2, 4, 5), 3: (1, 2, 3, 4, 3)}
MODES = [
    *[(mode, n) for mode in ("nearest", "nearest-exact", "area") for n in (1, 2, 3)],
    *[("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)],
]


def row(dims: int, mode: str, note: str, **kwargs: Any) -> Sample:
    return Sample(
        "interpolate",
        normal(*SHAPES[dims]),
        kwargs={"mode": mode, **kwargs},
        reference=lambda torch, x, **k: torch.nn.functional.interpolate(x, **k),
        note=f"{mode} {dims}, {note}",
    )


SAMPLES = [
    *[row(n, mode, "size", size=(7, 3, 4)[:n]) for mode, n in MODES],
    *[row(n, mode, "scale", scale_factor=1.7) for mode, n in MODES],
    *[row(n, mode, "shrunk", scale_factor=(0.6, 0.8, 0.9)[:n], recompute_scale_factor=True) for mode, n in MODES],
    *[row(n, mode, "corners", size=(7, 3, 1)[:n], align_corners=True) for mode, n in MODES[9:]],
    *[
        row(2, mode, f"antialias {size}", size=size, antialias=True)
        for mode in ("bilinear", "bicubic")
        for size in ((2, 3), (6, 2))
    ],
    Sample(
        "upsample_backward",
        normal(1, 4, 3),
        (2, 2),
        (None, None),
        False,
        "linear",
        "_upsample_bilinear2d",
        reference=False,
    ),
]
