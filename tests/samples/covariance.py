"""Covariance, correlation, and distances between the rows of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, distinct, integers, normal


def pdist(torch: Any, *args: Any) -> Any:
    return torch.nn.functional.pdist(*args)


SAMPLES = [
    Sample("cov", normal(3, 5), complex=True),
    Sample("cov", normal(5), complex=True, note="vector"),
    Sample("cov", normal(), kwargs={"correction": 0}, note="0-d"),
    Sample("cov", integers(2, 4, high=9), note="integers"),
    Sample("cov", normal(3, 5), kwargs={"correction": 0, "fweights": constant(np.array([1, 2, 0, 3, 1]))},
           note="fweights"),
    Sample("cov", normal(3, 4), kwargs={"aweights": constant(np.array([0.5, 2.0, 1.0, 0.1])).without_gradient()},
           note="aweights"),
    Sample("cov", normal(3, 3), kwargs={"aweights": constant(np.array([0.5, 2.0, 1.0])).without_gradient(),
                                        "fweights": constant(np.array([3, 2, 1]))}, complex=True, note="both"),
    Sample("corrcoef", normal(3, 5), complex=True, kink=True),
    Sample("corrcoef", normal(5), note="vector"),
    *[Sample("pdist", distinct(4, 3), p, reference=pdist, note=str(p), gradgrad=p not in (1.0,))
      for p in (0.0, 1.0, 1.5, 2.0, 3.0, np.inf)],
    Sample("pdist", normal(1, 3), reference=pdist, note="one point"),
    Sample("_pair_differences", normal(4, 3), complex=True, reference=False),
    Sample("_pair_differences_backward", normal(6, 3), 4, complex=True, reference=False),
]  # fmt: skip
