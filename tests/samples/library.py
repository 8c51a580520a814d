"""Rows for shuffling, bags, covariance, slopes, number_parts and bessel."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, distinct, integers, normal


def functional(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.nn.functional, name)(*args, **kwargs)


def special(name: str, *args: Any, **options: Any) -> Sample:
    return Sample(f"special_{name}", *args, reference=lambda torch, x: getattr(torch.special, name)(x), **options)


SHUFFLING = [
    Sample("pixel_shuffle", normal(2, 8, 2, 3), 2, complex=True),
    Sample("pixel_shuffle", normal(9, 1, 2), 3, note="unbatched"),
    Sample("pixel_unshuffle", normal(2, 2, 4, 6), 2, complex=True),
    Sample("channel_shuffle", normal(2, 6, 2, 3), 3, complex=True),
]


def bag(*args: Any, note: str, **kwargs: Any) -> Sample:
    return Sample("embedding_bag", *args, kwargs=kwargs, reference=functional("embedding_bag"), note=note)


BAGS = [
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

COVARIANCE = [
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
    *[Sample("pdist", distinct(4, 3), p, reference=functional("pdist"), note=str(p), gradgrad=p not in (1.0,))
      for p in (0.0, 1.0, 1.5, 2.0, 3.0, np.inf)],
    Sample("pdist", normal(1, 3), reference=functional("pdist"), note="one point"),
    Sample("_pair_differences", normal(4, 3), complex=True, reference=False),
    Sample("_pair_differences_backward", normal(6, 3), 4, complex=True, reference=False),
]  # fmt: skip

SLOPES = [
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

POINTS = np.array([-800.0, -30.0, -20.0, -5.5, -1.0, -1e-3, 0.0, 0.1, 2.0, 7.9, 19.99, 20.01, 100.0])

NUMBERS = [
    Sample("gcd", constant(np.array([12, 0, -6, 7])), constant(np.array([18, 0, 9, 1]))),
    Sample("lcm", constant(np.array([[4], [6]])), constant(np.array([6, 5, 0]))),
    # a step of one floating-point number is nothing for differences
    Sample("nextafter", normal(3), normal(2, 1), kink=True),
    Sample("nextafter", constant(np.array([1.0, 2.0])), constant(np.array([1.0, 3.0])), kink=True, note="equal"),
    Sample("frexp", constant(np.array([0.3, -6.0, 1e-10, 1e10])), kink=True),
    Sample("frexp", normal(2, 3)),
    Sample("i0", constant(np.array([-20.01, -3.0, -0.1, 0.5, 2.0, 10.0, 19.9]))),
    Sample("i0", normal(), note="0-d"),
    Sample("i0", integers(3, high=4), note="integers"),
    special("i0e", normal(3, 4)),
    special("i1", normal(3, 4)),
    special("i1e", normal(3, 4)),
    *[special(name, constant(POINTS), kink=True, note="far and near") for name in ("i0e", "i1e")],
    special("i1", constant(np.array([-20.01, 0.0, 0.5, 19.9])), kink=True, note="far and near"),
]

SAMPLES = [*SHUFFLING, *BAGS, *COVARIANCE, *SLOPES, *NUMBERS]
