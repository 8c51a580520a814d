"""Finite differences."""

import numpy as np

from tests.samples import Sample, constant, integers, normal

SAMPLES = [
    Sample("gradient", normal(5), complex=True),
    Sample("gradient", normal(3, 4), kwargs={"spacing": 0.5, "edge_order": 2}, complex=True, note="order 2"),
    Sample("gradient", normal(3, 4), kwargs={"spacing": (2.0, 3.0)}, note="spacings"),
    Sample("gradient", normal(3, 2, 4), kwargs={"dim": (2, 0), "spacing": [0.5, 2.0]}, note="dims"),
    Sample("gradient", normal(2, 3), kwargs={"dim": 0}, note="two values"),
    Sample("gradient", integers(4, high=9), note="integers"),
    *[
        Sample("gradient", normal(4, 3), complex=True, note=f"coordinates, {order}",
               kwargs={"spacing": [constant(np.array([0.0, 1.0, 1.5, 3.0])), constant(np.array([1.0, 2.5, 3.0]))],
                       "edge_order": order})
        for order in (1, 2)
    ],
]  # fmt: skip
