"""Rows for undertow.ops.reduce.vector_norms."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, constant, distinct, normal

INF = float("inf")
ORDERS = (0, 0.5, 1, 1.5, 2, 3, INF, -INF, -1)
ZEROS = [[0.0, 0.0, 0.0], [1.0, -2.0, 0.0]]


def reference(torch: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return torch.linalg.vector_norm(x, *args, **kwargs)


SAMPLES = [
    *[
        Sample(
            "linalg_vector_norm",
            distinct(3, 4),
            p,
            complex=p not in (0, INF, -INF),
            reference=reference,
            note=f"all, {p}",
        )
        for p in ORDERS
    ],
    *[
        Sample("linalg_vector_norm", distinct(2, 3, 4), p, (0, -1), reference=reference, note=f"dims, {p}")
        for p in ORDERS
    ],
    *[
        Sample(
            "linalg_vector_norm",
            constant(ZEROS),
            p,
            1,
            True,
            reference=reference,
            kink=True,
            gradgrad=False,
            note=f"zeros, {p}",
        )
        for p in ORDERS
    ],
    Sample(
        "linalg_vector_norm",
        distinct(3, 4),
        INF,
        1,
        complex_only=True,
        reference=reference,
        note="inf, complex",
    ),
    Sample("linalg_vector_norm", constant([1.0, -2.0, 2.0]), INF, kink=True, reference=reference, note="ties"),
    Sample("linalg_vector_norm", normal(), 3, reference=reference, note="0-d"),
    Sample("linalg_vector_norm", normal(0, 3), 2, 0, reference=reference, note="of nothing"),
    Sample("norm", normal(3, 4), complex=True, note="all"),
    Sample("norm", normal(3, 4), 1, 1, note="dim"),
    Sample("norm", normal(3, 4), None, -1, True, note="dim kept"),
    Sample("dist", normal(3, 4), normal(4), complex=True, note="broadcast"),
    Sample("dist", distinct(3, 4), normal(3, 4), 3.0, note="order 3"),
    Sample("dist", constant([1.0, 2.0]), constant([1.0, 2.0]), kink=True, gradgrad=False, note="the same point"),
    Sample("cdist", normal(3, 2), normal(4, 2)),
    Sample("cdist", normal(2, 3, 4), normal(5, 4), 1.0, note="batch"),
    Sample("cdist", normal(3, 2), normal(4, 2), 3.0, note="order 3"),
    Sample("cdist", normal(2, 1, 3, 2), normal(3, 4, 2), note="batches that are broadcast"),
    Sample("cdist", normal(27, 2), normal(3, 2), note="by a product"),
    Sample("cdist", normal(2, 2, 3), normal(27, 3), note="by a product, batch"),
    Sample("cdist", normal(3, 2), normal(4, 2), 2.0, "use_mm_for_euclid_dist", note="few by a product"),
    Sample("renorm", normal(3, 4), 2, 0, 1.0, complex=True),
    Sample("renorm", normal(2, 3, 4), 1, -1, 2.0, note="1-norm"),
    Sample(
        "frobenius_norm",
        normal(3, 4),
        (0, 1),
        complex=True,
        reference=lambda torch, x, dim: torch.linalg.vector_norm(x, 2, dim),
    ),
    Sample("nuclear_norm", normal(3, 4), reference=lambda torch, x: torch.linalg.matrix_norm(x, "nuc")),
]
