"""Rows for ops/linalg/ldl.py, householder.py and low_rank.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, normal

SYMMETRIC = np.array([[0.5, 2.0, -1.0], [2.0, 0.1, 0.7], [-1.0, 0.7, 3.0]])  # its first pivot has two rows
HERMITIAN = SYMMETRIC + 1j * np.array([[0, 0.3, 0.1], [-0.3, 0, -0.4], [-0.1, 0.4, 0]])
LD = np.array([[4.0, 0.0, 0.0], [0.5, 3.0, 0.0], [-0.25, 0.2, 2.0]])
ORDER = constant(np.array([1, 3, 3], np.int32))
PAIR = constant(np.array([1, -3, -3], np.int32))  # the second pivot has two rows


def in_linalg(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.linalg, name)(*args, **kwargs)


def restored(name: str) -> Any:
    """The matrix, from all of its singular values: the vectors may turn, their product does not."""

    def call(L: Any, A: Any, *args: Any, **kwargs: Any) -> Any:
        U, S, V = getattr(L, name)(A, 3, *args, **kwargs)
        return L.matmul(U * L.unsqueeze(S, -2), L.adjoint(V))

    return call


SAMPLES = [
    *[Sample(f"linalg_{name}", constant(SYMMETRIC).without_gradient(), reference=in_linalg(name))
      for name in ("ldl_factor", "ldl_factor_ex")],
    Sample("linalg_ldl_factor", constant(HERMITIAN).without_gradient(), kwargs={"hermitian": True}, note="hermitian",
           reference=in_linalg("ldl_factor")),
    Sample("linalg_ldl_factor", constant(np.stack([SYMMETRIC, LD])).without_gradient(), note="batch",
           reference=in_linalg("ldl_factor")),
    *[Sample("linalg_ldl_solve", constant(matrix).without_gradient(), pivots, normal(3, 2), note=note,
             complex_only=matrix.dtype.kind == "c", kwargs={"hermitian": hermitian}, reference=False)
      for matrix, pivots, hermitian, note in (
          (LD, ORDER, False, "order"), (LD, PAIR, False, "pair"), (LD + 0.3j * LD, PAIR, False, "symmetric"),
          (LD + 0.3j * np.tril(LD, -1), PAIR, True, "hermitian"), (LD + 0.3j * LD, ORDER, False, "symmetric-order"))],
    Sample("linalg_ldl_solve", constant(LD).without_gradient(), ORDER, normal(2, 3, 1), note="batch", reference=False),
    *[Sample("geqrf", normal(*shape).without_gradient(), note=str(shape)) for shape in ((4, 3), (2, 3, 4), (3, 3))],
    *[Sample("ormqr", normal(4, 3), normal(3), other, *more, complex=True, note=note) for other, more, note in (
        (normal(4, 2), (), ""), (normal(2, 4), (False,), "right"), (normal(4, 2), (True, True), "transposed"),
        (normal(2, 4), (False, True), "both"))],
    Sample("ormqr", normal(2, 4, 3), normal(2, 3), normal(2, 4, 2), note="batch"),
    *[Sample("svd_lowrank", normal(*shape), call=restored("svd_lowrank"), reference=lambda torch, A: A * 1,
             note=str(shape)) for shape in ((5, 3), (3, 5), (2, 3, 3))],
    Sample("svd_lowrank", normal(4, 3), kwargs={"M": normal(4, 3)}, note="less M", call=restored("svd_lowrank"),
           reference=lambda torch, A, M: A - M),
    Sample("pca_lowrank", normal(5, 3), call=restored("pca_lowrank"), reference=lambda torch, A: A - A.mean(0)),
    Sample("pca_lowrank", normal(5, 3), kwargs={"center": False}, note="not centred", call=restored("pca_lowrank"),
           reference=lambda torch, A, center: A * 1),
    Sample("linalg_householder_product", normal(4, 3), normal(3), complex=True,
           reference=lambda torch, a, t: torch.linalg.householder_product(a, t)),
    Sample("linalg_householder_product", normal(2, 4, 3), normal(2, 2), note="batch",
           reference=lambda torch, a, t: torch.linalg.householder_product(a, t)),
    Sample("orgqr", normal(4, 3), normal(3)),
]  # fmt: skip
