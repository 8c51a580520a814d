"""Products of matrices and vectors, einsum, and linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Array, Sample, constant, integers, normal


def functional(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.nn.functional, name)(*args, **kwargs)


def linalg(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.linalg, name)(*args, **kwargs)


PRODUCTS = [
    Sample("mm", normal(2, 3), normal(3, 4), complex=True),
    Sample("mm", normal(2, 0), normal(0, 4), note="empty"),
    Sample("mm", normal(1, 3), normal(3, 1), note="one"),
    Sample("mm", integers(2, 3), integers(3, 2), note="integers"),
    Sample("mv", normal(2, 3), normal(3), complex=True),
    Sample("mv", normal(3, 0), normal(0), note="empty"),
    Sample("dot", normal(4), normal(4), complex=True),
    Sample("dot", normal(0), normal(0), note="empty"),
    Sample("vdot", normal(4), normal(4), complex=True),
    Sample("bmm", normal(2, 3, 4), normal(2, 4, 2), complex=True),
    Sample("bmm", normal(0, 3, 4), normal(0, 4, 2), note="empty"),
    Sample("matmul", normal(3), normal(3), note="1-1", complex=True),
    Sample("matmul", normal(3), normal(3, 2), note="1-2", complex=True),
    Sample("matmul", normal(2, 3), normal(3), note="2-1", complex=True),
    Sample("matmul", normal(2, 3), normal(3, 2), note="2-2", complex=True),
    Sample("matmul", normal(2, 2, 3), normal(3), note="3-1", complex=True),
    Sample("matmul", normal(3), normal(2, 3, 2), note="1-3", complex=True),
    Sample("matmul", normal(2, 2, 3), normal(3, 4), note="3-2", complex=True),
    Sample("matmul", normal(2, 3), normal(2, 3, 4), note="2-3", complex=True),
    Sample("matmul", normal(2, 2, 3), normal(2, 3, 2), note="3-3", complex=True),
    Sample("matmul", normal(2, 1, 2, 3), normal(3, 3, 2), note="broadcast", complex=True),
    Sample("matmul", normal(1, 2, 3), normal(2, 3, 3, 2), note="3-4"),
    Sample("matmul", normal(2, 0, 3), normal(3, 2), note="empty"),
    Sample(
        "_matmul_stacks",
        normal(2, 2, 3),
        normal(2, 3, 2),
        reference=lambda torch, a, b: torch.matmul(a, b),
        complex=True,
    ),
    Sample("outer", normal(2), normal(3), complex=True),
    Sample("outer", normal(2), integers(3), note="mixed dtypes"),
    Sample("ger", normal(2), normal(3), complex=True),
    Sample("linear", normal(2, 3), normal(4, 3), normal(4), complex=True, reference=functional("linear")),
    Sample("linear", normal(2, 3), normal(4, 3), note="no bias", reference=functional("linear")),
    Sample("linear", normal(3), normal(4, 3), normal(4), note="vector", reference=functional("linear")),
    Sample(
        "linear", normal(2, 2, 3), normal(4, 3), normal(4), note="3-d", complex=True, reference=functional("linear")
    ),
    Sample("linear", normal(0, 3), normal(4, 3), normal(4), note="empty", reference=functional("linear")),
    Sample("linear", normal(2, 3), normal(3), note="one output", reference=functional("linear")),
    Sample("linear", normal(2, 2, 3), normal(3), note="3-d, one output", reference=functional("linear")),
    Sample("linear", normal(3), normal(3), note="vectors", reference=functional("linear")),
    Sample(
        "bilinear",
        normal(2, 3),
        normal(2, 4),
        normal(5, 3, 4),
        normal(5),
        reference=functional("bilinear"),
    ),
    Sample("bilinear", normal(3), normal(4), normal(5, 3, 4), note="no bias", reference=functional("bilinear")),
    Sample(
        "linalg_vecdot", normal(3, 4), normal(4), complex=True, reference=lambda torch, x, y: torch.linalg.vecdot(x, y)
    ),
    Sample(
        "linalg_vecdot",
        normal(3, 4),
        normal(3, 4),
        kwargs={"dim": 0},
        note="dim",
        reference=lambda torch, x, y, dim: torch.linalg.vecdot(x, y, dim=dim),
    ),
]

SUMS_OF_PRODUCTS = [
    Sample("addmm", normal(2, 4), normal(2, 3), normal(3, 4), complex=True),
    Sample("addmm", normal(4), normal(2, 3), normal(3, 4), kwargs={"beta": 0.5, "alpha": -2.0}, note="broadcast"),
    Sample("addmm", normal(), normal(2, 3), normal(3, 4), kwargs={"beta": 0}, note="beta 0"),
    Sample(
        "addmm",
        normal(2, 4),
        normal(2, 3),
        normal(3, 4),
        kwargs={"beta": 1 + 2j, "alpha": 2 - 1j},
        complex_only=True,
        note="complex factors",
    ),
    Sample("addmv", normal(2), normal(2, 3), normal(3), complex=True),
    Sample("addmv", normal(), normal(2, 3), normal(3), kwargs={"beta": 0.5, "alpha": 2.0}, note="broadcast"),
    Sample("addr", normal(2, 3), normal(2), normal(3), complex=True),
    Sample("addr", normal(3), normal(2), normal(3), kwargs={"beta": 0.5, "alpha": 2.0}, note="broadcast"),
    # PyTorch promotes here, but its own gradient does not
    Sample("addr", normal(2, 3), normal(2), integers(3), note="mixed dtypes", reference=False),
    Sample("baddbmm", normal(2, 2, 4), normal(2, 2, 3), normal(2, 3, 4), complex=True),
    Sample(
        "baddbmm", normal(4), normal(2, 2, 3), normal(2, 3, 4), kwargs={"beta": 0.5, "alpha": 2.0}, note="broadcast"
    ),
    Sample("addbmm", normal(2, 4), normal(3, 2, 3), normal(3, 3, 4), complex=True),
    Sample("addbmm", normal(4), normal(2, 2, 3), normal(2, 3, 4), kwargs={"beta": 0.5, "alpha": 2.0}, note="broadcast"),
]

EINSUMS = [
    Sample(
        "_einsum_pair",
        normal(2, 3),
        normal(3, 4),
        "ij,jk->ki",
        complex=True,
        reference=lambda torch, a, b, e: torch.einsum(e, a, b),
    ),
    Sample("_einsum_pair", normal(2, 3), normal(2, 3), "ij,ij->ij", note="elementwise", reference=False),
    Sample("_einsum_pair", normal(2, 3), normal(2, 3), "ij,ij->", note="all", reference=False),
    Sample("_einsum_pair", normal(2), normal(3), "i,j->ji", note="outer", reference=False),
    Sample("_einsum_pair", normal(4, 2, 3), normal(3, 4, 5), "bij,jbk->kib", note="batched", reference=False),
    Sample("einsum", "ij,jk->ik", normal(2, 3), normal(3, 4), complex=True),
    Sample("einsum", "ij,jk", normal(2, 3), normal(3, 4), note="implicit output"),
    Sample("einsum", "bA,ab", normal(2, 3), normal(4, 2), note="implicit order"),
    Sample("einsum", "ij->ji", normal(2, 3), note="transpose", complex=True),
    Sample("einsum", "ij->", normal(2, 3), note="sum"),
    Sample("einsum", "ij->j", normal(2, 3), note="sum of rows"),
    Sample("einsum", "ii->i", normal(3, 3), note="diagonal", complex=True),
    Sample("einsum", "ii", normal(3, 3), note="trace"),
    Sample("einsum", "iii->i", normal(3, 3, 3), note="diagonal of three"),
    Sample("einsum", "i,i->", normal(3), normal(3), note="dot"),
    Sample("einsum", "i,j->ij", normal(2), normal(3), note="outer"),
    Sample("einsum", "bij,bjk->bik", normal(2, 2, 3), normal(2, 3, 2), note="batched", complex=True),
    Sample("einsum", "...ij,...jk->...ik", normal(2, 2, 3), normal(3, 2), note="ellipsis"),
    Sample("einsum", "...i->...", normal(2, 3, 4), note="ellipsis kept"),
    Sample("einsum", "i...,...j->ij...", normal(2, 3), normal(3, 4), note="ellipsis inside"),
    Sample("einsum", "ij,jk,kl->il", normal(2, 3), normal(3, 4), normal(4, 2), note="three", complex=True),
    Sample("einsum", "i,j,k->ijk", normal(2), normal(3), normal(2), note="three, nothing summed"),
    Sample("einsum", "bn,anm,bm->ba", normal(2, 3), normal(4, 3, 2), normal(2, 2), note="bilinear"),
    Sample("einsum", "ij,jk->ik", normal(2, 1), normal(3, 4), note="broadcast"),
    Sample("einsum", "ij,kl->k", normal(2, 3), normal(3, 4), note="sums before products"),
    Sample("einsum", "ii,ij->j", normal(3, 3), normal(3, 2), note="diagonal and product"),
    Sample("einsum", "i j , j k -> i k", normal(2, 3), normal(3, 4), note="spaces"),
    Sample("einsum", normal(2, 3), [0, 1], normal(3, 4), [1, 2], [0, 2], note="lists of labels"),
    Sample("einsum", normal(2, 3), [0, 1], normal(3, 4), [1, 27], note="lists, implicit output"),
    Sample("tensordot", normal(2, 3, 4), normal(3, 4, 2), complex=True),
    Sample("tensordot", normal(2, 3), normal(3, 4), 1, note="one"),
    Sample("tensordot", normal(2), normal(3), 0, note="none"),
    Sample("tensordot", normal(2, 3, 4), normal(4, 5, 2), kwargs={"dims": ([0, -1], [2, 0])}, note="lists"),
    Sample("inner", normal(2, 3), normal(4, 3), complex=True),
    Sample("inner", normal(3), normal(3), note="vectors"),
    Sample("inner", normal(), normal(2, 3), note="0-d"),
]

MATRICES = [
    Sample("trace", normal(3, 3), complex=True),
    Sample("trace", normal(2, 4), note="wide"),
    Sample("trace", integers(3, 2), note="integers"),
    Sample("trace_backward", normal(), (2, 3), reference=False, complex=True),
    Sample("trace_backward", normal(2), (3, 2), note="several", reference=False),
    Sample("linalg_cross", normal(2, 3), normal(2, 3), complex=True, reference=linalg("cross")),
    Sample("linalg_cross", normal(3, 2), normal(3, 1), kwargs={"dim": 0}, note="broadcast", reference=linalg("cross")),
    Sample("cross", normal(2, 3), normal(2, 3), 1, complex=True),
    Sample("cross", normal(3, 3), normal(3, 3), note="first dimension of size 3"),
    Sample("kron", normal(2, 3), normal(2, 2), complex=True),
    Sample("kron", normal(2), normal(2, 2), note="padded"),
    Sample("kron", normal(), normal(2), note="0-d"),
    Sample("linalg_multi_dot", [normal(2, 3), normal(3, 4), normal(4, 2)], complex=True, reference=linalg("multi_dot")),
    Sample("linalg_multi_dot", [normal(3), normal(3, 2), normal(2)], note="vectors", reference=linalg("multi_dot")),
    Sample("chain_matmul", normal(2, 3), normal(3, 4), normal(4, 2), complex=True),
]


def regular(*shape: int) -> Array:
    """Matrices that are far from singular."""
    return Array(shape, lambda rng, s: rng.uniform(-0.5, 0.5, s) + 2 * np.eye(s[-1]))


def positive_definite(x: Any) -> Any:
    """x x^H + 1, for tensors of either library."""
    ones = np.eye(x.shape[-1], dtype=x._array.dtype) if hasattr(x, "_array") else x.new_ones(x.shape[-1]).diag()
    return x @ x.mH + ones


# cholesky reads half of the matrix, but its derivative is that within Hermitian matrices: no differences
HERMITIAN = {"kink": True}

SOLVERS = [
    Sample("linalg_inv", regular(3, 3), complex=True, reference=linalg("inv")),
    Sample("linalg_inv", regular(2, 2, 2), note="stack", reference=linalg("inv")),
    Sample("linalg_inv", normal(0, 0), note="empty", reference=linalg("inv")),
    Sample("inverse", regular(2, 2), complex=True),
    Sample("det", regular(3, 3), complex=True),
    Sample("det", regular(2, 2, 2), note="stack"),
    Sample("det", normal(1, 1), note="one"),
    Sample("linalg_det", regular(2, 2), reference=linalg("det"), complex=True),
    # PyTorch's gradient at a singular matrix is zero, although that of the determinant is not
    Sample("linalg_det", constant([[1.0, 2.0], [2.0, 4.0]]), note="singular", reference=False, gradgrad=False),
    Sample(
        "det_backward",
        regular(3, 3),
        complex=True,
        reference=lambda torch, A: torch.linalg.det(A).conj() * torch.linalg.inv(A).mH,
    ),
    Sample("slogdet", regular(3, 3), complex=True),
    Sample("slogdet", regular(2, 2, 2), note="stack"),
    Sample("linalg_slogdet", regular(2, 2), reference=linalg("slogdet"), complex=True),
    Sample("logdet", regular(3, 3)),
    Sample("linalg_solve", regular(3, 3), normal(3, 2), complex=True, reference=linalg("solve")),
    Sample("linalg_solve", regular(3, 3), normal(3), note="vector", complex=True, reference=linalg("solve")),
    Sample("linalg_solve", regular(2, 3, 3), normal(2, 3), note="vectors", reference=linalg("solve")),
    Sample("linalg_solve", regular(2, 1, 3, 3), normal(2, 3, 2), note="broadcast", reference=linalg("solve")),
    Sample(
        "linalg_solve",
        regular(3, 3),
        normal(2, 3),
        kwargs={"left": False},
        note="right",
        complex=True,
        reference=linalg("solve"),
    ),
    Sample("_solve_matrices", regular(3, 3), normal(3, 2), reference=linalg("solve"), complex=True),
    Sample(
        "linalg_cholesky",
        normal(3, 3),
        complex=True,
        call=lambda ut, x: ut.ops.linalg_cholesky(positive_definite(x)),
        reference=lambda torch, x: torch.linalg.cholesky(positive_definite(x)),
        **HERMITIAN,
    ),
    Sample(
        "linalg_cholesky",
        normal(2, 2, 2),
        note="stack, upper",
        complex=True,
        call=lambda ut, x: ut.ops.linalg_cholesky(positive_definite(x), upper=True),
        reference=lambda torch, x: torch.linalg.cholesky(positive_definite(x), upper=True),
        **HERMITIAN,
    ),
    Sample(
        "cholesky",
        normal(3, 3),
        call=lambda ut, x: ut.ops.cholesky(positive_definite(x)),
        reference=lambda torch, x: torch.linalg.cholesky(positive_definite(x)),
        **HERMITIAN,
    ),
    Sample(
        "_cholesky_lower",
        normal(3, 3),
        call=lambda ut, x: ut.ops._cholesky_lower(positive_definite(x)),
        reference=False,
        **HERMITIAN,
    ),
    Sample("linalg_qr", normal(3, 3), complex=True, reference=linalg("qr")),
    Sample("linalg_qr", normal(4, 2), note="tall", complex=True, reference=linalg("qr")),
    Sample("linalg_qr", normal(2, 4), note="wide", complex=True, reference=linalg("qr")),
    Sample("linalg_qr", normal(2, 3, 2), note="stack", reference=linalg("qr")),
    Sample("linalg_qr", normal(2, 3), "complete", note="complete", reference=linalg("qr")),
    Sample("_qr_reduced", normal(3, 2), "reduced", reference=linalg("qr"), complex=True),
    Sample("qr", normal(3, 2), complex=True),
    Sample("matrix_power", regular(3, 3), 5, complex=True),
    Sample("matrix_power", regular(2, 2, 2), -2, note="negative"),
    Sample("matrix_power", regular(2, 2), 1, note="one"),
    Sample("matrix_power", regular(2, 2), 0, note="zero"),
    Sample("matrix_power", integers(2, 2), 3, note="integers"),
]

SAMPLES = [*PRODUCTS, *SUMS_OF_PRODUCTS, *EINSUMS, *MATRICES, *SOLVERS]
