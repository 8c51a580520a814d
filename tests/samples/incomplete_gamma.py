"""The incomplete gamma functions: differentiable in their second argument only."""

from typing import Any

import numpy as np

from tests.samples import Sample, constant, integers, positive


def in_floats(name: str) -> Any:
    """PyTorch's function; of integers it would take lgamma in single precision."""
    return lambda torch, a, x: getattr(torch, name)(a.to(x.dtype), x)


FIRST = integers(3, 4, low=1, high=6)  # a float would be given a tangent, which it cannot have
ORDERS = constant(np.array([1, 1, 2, 30, 30]))
PLACES = constant([0.1, 1.5, 6.0, 5.0, 60.0])

SAMPLES = [
    Sample("igamma", FIRST, positive(3, 4), reference=in_floats("igamma")),
    Sample("igamma", integers(4, low=1, high=6), positive(3, 1), note="broadcast", reference=in_floats("igamma")),
    Sample("igamma", integers(low=1, high=6), positive(), note="0-d", reference=in_floats("igamma")),
    Sample("igamma", integers(0), positive(0), note="empty", reference=in_floats("igamma")),
    Sample("igamma", ORDERS, PLACES, note="regions", reference=in_floats("igamma")),
    Sample("igammac", FIRST, positive(3, 4), reference=in_floats("igammac")),
    Sample("igammac", integers(4, low=1, high=6), positive(3, 1), note="broadcast", reference=in_floats("igammac")),
    Sample("igammac", integers(low=1, high=6), positive(), note="0-d", reference=in_floats("igammac")),
    Sample("igammac", integers(0), positive(0), note="empty", reference=in_floats("igammac")),
    Sample("igammac", ORDERS, PLACES, note="regions", reference=in_floats("igammac")),
]
