"""Rows for norms, pinv_and_lstsq, triangular, matrix_exp and tensor_equations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.samples import Sample, constant, integers, normal
from tests.samples.eigen import hermitian, in_both, spread

INF = math.inf


def row(name: str, *args: Any, **options: Any) -> Sample:
    """A row of torch.linalg.<name>."""
    return Sample(
        f"linalg_{name}", *args, reference=lambda torch, *a, **k: getattr(torch.linalg, name)(*a, **k), **options
    )


def first_of(function: Any) -> Any:
    return lambda lib, *args: function(lib, *args)[0]


ORDERS = ("fro", "nuc", 1, -1, 2, -2, INF, -INF)
#: without equal sums of rows or columns
MATRIX = constant([[[1.0, -2.0, 0.5], [0.3, 3.0, -1.2]], [[2.0, 0.7, -0.2], [1.1, -0.4, 4.0]]])

SINGULAR = constant(np.stack([np.ones((2, 2)), [[2.0, 1.0], [0.5, 3.0]]]))


def product_of_norms(torch: Any, A: Any, p: Any) -> Any:
    """What linalg.cond is: PyTorch's own has no derivative, because it changes the inverse in place."""
    return torch.linalg.matrix_norm(A, p) * torch.linalg.matrix_norm(torch.linalg.inv(A), p)


def powers(torch: Any, x: Any, N: Any = None, increasing: bool = False) -> Any:
    """What vander is: PyTorch's own has no second derivative, because it changes an operand in place."""
    N = len(x) if N is None else N
    columns = [x**k for k in (range(N) if increasing else reversed(range(N)))]
    return torch.stack(columns, -1)


NORMS = [
    *[row("matrix_norm", spread(3, 4), p, complex=True, note=str(p)) for p in ORDERS],
    *[row("matrix_norm", MATRIX, p, (0, 2), True, note=f"dims, keepdim, {p}") for p in ORDERS],
    *[row("matrix_norm", MATRIX, p, (2, 0), note=f"dims, {p}") for p in ORDERS],
    row("matrix_norm", normal(2, 3), note="default"),
    *[
        row("matrix_norm", normal(0, 3).without_gradient(), p, kink=True, note=f"empty, {p}")
        for p in ("fro", "nuc", 1, 2, INF)
    ],
    row("norm", normal(2, 3), complex=True),
    row("norm", normal(3), 3, note="vector"),
    row("norm", spread(3, 3), 2, note="matrix"),
    row("norm", spread(2, 3, 4), "nuc", (0, 2), note="nuclear"),
    row("norm", normal(2, 3), 1, 1, True, note="dim"),
    row("norm", normal(2, 3, 4), None, (0, 1), note="two dims"),
    *[row("cond", spread(2, 3, 3), p, complex=True, note=str(p)) for p in (None, 2, -2, "nuc")],
    *[
        Sample("linalg_cond", spread(2, 3, 3), p, complex=True, reference=product_of_norms, note=str(p))
        for p in ("fro", 1, -1, INF, -INF)
    ],
    row("cond", spread(4, 3), 2, note="rectangular"),
    *[row("cond", SINGULAR.without_gradient(), p, note=f"singular, {p}") for p in (1, "fro")],
    row("cond", normal(2, 0, 0).without_gradient(), 1, note="empty"),
]  # fmt: skip

LEAST_SQUARES = [
    row("pinv", spread(3, 3), complex=True),
    row("pinv", spread(2, 4, 3), complex=True, note="tall"),
    row("pinv", spread(2, 4), complex=True, note="wide"),
    row("pinv", normal(0, 3), note="empty"),
    # reads half of the matrix, but its derivative is that within Hermitian matrices: no differences
    in_both("linalg_pinv", lambda lib, A: lib.linalg.pinv(hermitian(A), hermitian=True), spread(3, 3), complex=True,
            kink=True, note="hermitian"),
    row("pinv", constant(np.outer([1.0, 2.0, 0.5], [0.3, 1.0])), kink=True, gradgrad=False, note="rank 1"),
    row("pinv", spread(3, 3), kwargs={"rtol": 1e-3}, note="rtol"),
    row("pinv", spread(3, 3), kwargs={"atol": 1e-3}, note="atol"),
    row("pinv", spread(2, 4, 3), kwargs={"rtol": constant([1e-3, 1e-4]).without_gradient()}, note="rtol for each"),
    row("matrix_rank", normal(2, 3, 4).without_gradient(), kwargs={"atol": constant([0.0, 1.5]).without_gradient()},
        note="atol for each"),
    Sample("pinverse", spread(3, 2)),
    Sample("_pinv", spread(3, 2), 0.0, 1e-10, reference=False, complex=True),
    in_both("linalg_lstsq", first_of(lambda lib, A, B: lib.linalg.lstsq(A, B)), spread(4, 3), normal(4, 2),
            complex=True),
    in_both("linalg_lstsq", first_of(lambda lib, A, B: lib.linalg.lstsq(A, B)), spread(2, 2, 3), normal(2, 2, 2),
            complex=True, note="wide"),
    in_both("linalg_lstsq", first_of(lambda lib, A, B: lib.linalg.lstsq(A, B)), spread(2, 3, 3), normal(2, 3),
            note="vectors"),
    *[
        in_both("linalg_lstsq", lambda lib, A, B, d=driver: lib.linalg.lstsq(A, B, driver=d), spread(2, 4, 3),
                normal(2, 4, 2), note=driver)
        for driver in ("gels", "gelsd", "gelss")
    ],
    in_both("linalg_lstsq", lambda lib, A, B: lib.linalg.lstsq(A, B)[2:], spread(2, 4, 3), normal(2, 4, 2),
            note="gelsy"),
    row("matrix_rank", constant(np.diag([1.0, 2.0, 0.0]))),
    row("matrix_rank", constant(np.diag([1.0, 2.0, 0.1])), kwargs={"atol": 0.5}, note="atol"),
    row("matrix_rank", constant(np.diag([1.0, -2.0, 0.1])), kwargs={"hermitian": True, "rtol": 0.2}, note="hermitian"),
    row("matrix_rank", normal(2, 3, 4), complex=True, note="batch"),
    Sample("_matrix_rank", normal(2, 3), 0.0, 1e-10, reference=False),
]  # fmt: skip


def solve_triangular(name: str, *args: Any, **kwargs: Any) -> Sample:
    return row("solve_triangular", *args, kwargs=kwargs, complex=True, note=name)


TRIANGULAR = [
    solve_triangular("upper", spread(3, 3), normal(3, 2), upper=True),
    solve_triangular("lower", spread(3, 3), normal(3, 2), upper=False),
    solve_triangular("unit", spread(3, 3), normal(3, 2), upper=False, unitriangular=True),
    solve_triangular("right", spread(3, 3), normal(2, 3), upper=True, left=False),
    solve_triangular("broadcast", spread(2, 1, 3, 3), normal(4, 3, 2), upper=True),
    row("solve_triangular", constant([[1.0, 2.0], [0.0, 0.0]]), normal(2, 1), kwargs={"upper": True}, kink=True,
        gradgrad=False, note="singular"),
    Sample("triangular_solve", normal(3, 2), spread(3, 3), complex=True),
    Sample("triangular_solve", normal(3, 2), spread(3, 3), False, True, note="transposed"),
    Sample("triangular_solve", normal(2, 3, 2), spread(2, 3, 3), True, False, True, note="unit"),
    # PyTorch's derivative for L counts the other triangle, too, though that is never read
    in_both("cholesky_solve", lambda lib, B, L: lib.cholesky_solve(B, lib.tril(L)), normal(3, 2), spread(3, 3),
            complex=True),
    in_both("cholesky_solve", lambda lib, B, L: lib.cholesky_solve(B, lib.triu(L), True), normal(3, 2), spread(2, 3, 3),
            note="upper"),
    in_both("cholesky_inverse", lambda lib, A: lib.cholesky_inverse(lib.linalg.cholesky(A @ A.mH)), spread(2, 3, 3),
            complex=True),
    in_both("cholesky_inverse", lambda lib, L: lib.cholesky_inverse(lib.triu(L), upper=True), spread(3, 3),
            note="upper"),
]  # fmt: skip

LU = [
    Sample("lu_solve", normal(3, 2), constant([[2.0, 1.0, 0.5], [0.5, 3.0, 1.0], [0.1, 0.2, 1.5]]),
           constant(np.array([1, 2, 3], np.int32)),
           reference=lambda torch, b, LU, p: torch.linalg.lu_solve(LU, p, b)),
    row("lu", normal(3, 3), complex=True),
    row("lu", normal(2, 4, 3), complex=True, note="tall"),
    row("lu", normal(2, 2, 4), complex=True, note="wide"),
    row("lu", normal(2, 0, 3), note="empty"),
    row("lu_factor", normal(2, 3, 3), complex=True),
    row("lu_factor", normal(4, 3), note="tall"),
    row("lu_factor", normal(2, 3), note="wide"),
    in_both("lu_unpack", lambda lib, A: lib.lu_unpack(*lib.linalg.lu_factor(A)), normal(2, 4, 3), complex=True),
    in_both("lu_unpack", lambda lib, A: lib.lu_unpack(*lib.linalg.lu_factor(A), unpack_pivots=False), normal(3, 4),
            note="data"),
    *[
        in_both(
            "linalg_lu_solve",
            lambda lib, A, B, left=left, adjoint=adjoint: lib.linalg.lu_solve(
                *lib.linalg.lu_factor(A), B, left=left, adjoint=adjoint
            ),
            spread(2, 3, 3),
            normal(3, 3),
            complex=True,
            note=f"left={left}, adjoint={adjoint}",
        )
        for left in (True, False)
        for adjoint in (False, True)
    ],
]  # fmt: skip

OTHERS = [
    Sample("matrix_exp", normal(3, 3), complex=True),
    Sample("matrix_exp", normal(2, 2, 2), note="batch"),
    Sample("matrix_exp", normal(2, 0, 0), note="empty"),
    row("matrix_exp", constant([[[10.0, 3.0], [2.0, -7.0]], [[1e-3, 0.0], [0.0, 1e-5]]]), note="far and near"),
    row("matrix_exp", constant([[0.0, 1.0], [0.0, 0.0]]), note="nilpotent"),
    row("tensorinv", spread(4, 4), 1, note="matrix"),
    in_both("linalg_tensorinv", lambda lib, A: lib.linalg.tensorinv(A.reshape(2, 3, 6)), spread(6, 6), complex=True),
    in_both("linalg_tensorsolve", lambda lib, A, B: lib.linalg.tensorsolve(A.reshape(2, 3, 6), B), spread(6, 6),
            normal(2, 3), complex=True),
    in_both("linalg_tensorsolve", lambda lib, A, B: lib.linalg.tensorsolve(A.reshape(2, 6, 3), B, dims=(0, 2)),
            spread(6, 6), normal(6), note="dims"),
    Sample("linalg_vander", normal(3), complex=True, reference=lambda torch, x: powers(torch, x, None, True)),
    Sample("linalg_vander", normal(2, 3), kwargs={"N": 4}, note="batch",
           reference=lambda torch, x, N: powers(torch, x, N, True)),
    row("vander", integers(3), kwargs={"N": 2}, note="integers"),
    Sample("vander", normal(3), complex=True, reference=powers),
    Sample("vander", normal(3), 4, True, reference=powers, note="increasing"),
    Sample("vander", normal(3).without_gradient(), 1, note="ones"),
    Sample("logdet", spread(3, 3), complex_only=True, note="complex"),
]  # fmt: skip

SAMPLES = [*NORMS, *LEAST_SQUARES, *TRIANGULAR, *LU, *OTHERS]
