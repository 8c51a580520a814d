"""Grids of places in an image, and what is read there."""

from __future__ import annotations

from tests.samples import Sample, constant, normal, unit

F = lambda name: lambda torch, *args, **kwargs: getattr(torch.nn.functional, name)(*args, **kwargs)
PADDINGS = ("zeros", "border", "reflection")
GRID_MODES = [(m, p, c) for m in ("bilinear", "bicubic") for p in PADDINGS for c in (True, False)]

SAMPLES = [
    Sample("affine_grid", normal(2, 2, 3), (2, 3, 4, 5), kwargs={"align_corners": True}, reference=F("affine_grid")),
    Sample("affine_grid", normal(2, 3, 4), (2, 1, 2, 3, 2), kwargs={"align_corners": False}, reference=F("affine_grid"),
           note="volumes"),
    *[Sample("grid_sample", normal(2, 2, 3, 4), unit(2, 2, 3, 2), m, p, c, reference=F("grid_sample"),
             note=f"{m}-{p}-{c}")
      for m, p, c in GRID_MODES],
    *[Sample("grid_sample", normal(1, 2, 3, 4), constant([[[[1.7, -1.3], [0.3, 2.9], [-5.2, 0.1]]]]), m, p, False,
             reference=F("grid_sample"), note=f"outside-{m}-{p}")
      for m in ("bilinear", "bicubic", "nearest") for p in PADDINGS],
    Sample("grid_sample", normal(2, 2, 3, 2, 4), unit(2, 2, 1, 3, 3), "bilinear", "zeros", True,
           reference=F("grid_sample"), note="volumes"),
    Sample("grid_sample", normal(1, 2, 3, 4), constant([[[[1.0, -1.0], [0.0, 1.0]]]]), "bilinear", "border", True,
           kink=True, gradgrad=False, reference=F("grid_sample"), note="edges"),
]  # fmt: skip
