"""Modified Bessel functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, integers, normal

POINTS = np.array([-800.0, -30.0, -20.0, -5.5, -1.0, -1e-3, 0.0, 0.1, 2.0, 7.9, 19.99, 20.01, 100.0])


def special(name: str, *args: Any, **options: Any) -> Sample:
    return Sample(f"special_{name}", *args, reference=lambda torch, x: getattr(torch.special, name)(x), **options)


SAMPLES = [
    Sample("i0", constant(np.array([-20.01, -3.0, -0.1, 0.5, 2.0, 10.0, 19.9]))),
    Sample("i0", normal(), note="0-d"),
    Sample("i0", integers(3, high=4), note="integers"),
    special("i0e", normal(3, 4)),
    special("i1", normal(3, 4)),
    special("i1e", normal(3, 4)),
    *[special(name, constant(POINTS), kink=True, note="far and near") for name in ("i0e", "i1e")],
    special("i1", constant(np.array([-20.01, 0.0, 0.5, 19.9])), kink=True, note="far and near"),
]
