"""The inverse error function and the gamma family."""

from __future__ import annotations

import math

from tests.samples import Sample, constant, integers, positive, unit

INFINITIES = [math.inf, -math.inf, math.nan]

SAMPLES = [
    Sample("erfinv", unit(3, 4)),
    Sample("erfinv", unit(), note="0-d"),
    Sample("erfinv", unit(0, 3), note="empty"),
    Sample("erfinv", constant([-0.99, -0.86, 0.84, 0.9, 0.95]), note="regions"),
    Sample("erfinv", constant([-1.0, 0.0, 1.0, 2.0, *INFINITIES]), kink=True, gradgrad=False, note="ends"),
    Sample("erfinv", integers(4, low=-1, high=2), note="integers"),
    Sample("lgamma", positive(3, 4)),
    Sample("lgamma", positive(), note="0-d"),
    Sample("lgamma", positive(600), note="many"),
    Sample("lgamma", constant([-3.3, -0.4, 0.1, 1.0, 2.0, 5.0, 40.0]), note="regions"),
    Sample("lgamma", integers(4, low=1, high=9), note="integers"),
    Sample("digamma", positive(3, 4)),
    Sample("digamma", positive(0, 3), note="empty"),
    Sample("digamma", constant([-3.3, -0.4, 1e-2, 1.0, 2.0, 5.0, 40.0]), note="regions"),
    Sample("digamma", integers(4, low=1, high=9), note="integers"),
    # PyTorch's own first one is right to nine digits only
    Sample("polygamma", 1, positive(3, 4), reference=False),
    Sample("polygamma", 1, constant([-3.3, -0.4, 0.1, 5.0, 40.0]), reference=False, note="regions"),
    *(Sample("polygamma", n, positive(3, 4), note=str(n)) for n in (2, 3)),
    Sample("polygamma", 2, constant([-3.3, -0.4, 0.1, 5.0, 40.0]), note="2-regions"),
]
