"""Rows for undertow.ops.linalg.eigen.

The vectors of a factorisation are free up to a factor of length 1: rows look at what does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.samples import Array, Sample, constant, normal


def spread(*shape: int) -> Array:
    """Matrices with eigenvalues (and singular values) well apart."""

    def draw(rng: np.random.Generator, s: tuple[int, ...]) -> np.ndarray[Any, Any]:
        matrix = 0.4 * rng.standard_normal(s)
        for k in range(min(s[-2:])):
            matrix[..., k, k] += 1.5 * (k + 1)
        return matrix

    return Array(shape, draw)


def hermitian(x: Any) -> Any:
    return x + x.mH


def in_both(op: str, function: Callable[..., Any], *args: Any, **options: Any) -> Sample:
    """A row that calls `function(library, ...)` for undertow and for PyTorch alike."""
    options = {"reference": function, **options}
    return Sample(op, *args, call=function, **options)


def thin(U: Any, S: Any, Vh: Any) -> Any:
    k = S.shape[-1]
    return U[..., :, :k], S, Vh[..., :k, :]


def invariants(U: Any, S: Any, Vh: Any) -> Any:
    U, S, Vh = thin(U, S, Vh)
    return U @ Vh, S, U * U.conj(), (U * (S * S)[..., None, :]) @ U.mH, Vh * Vh.conj()


def complements(lib: Any, A: Any) -> Any:
    """Projections on what is outside of the singular vectors' spaces."""
    U, S, Vh = lib.linalg.svd(A)
    k = S.shape[-1]
    left, right = U[..., :, k:], Vh[..., k:, :]
    return left @ left.mH, right.mH @ right, S


def eigen_invariants(values: Any, vectors: Any) -> Any:
    return values, vectors * vectors.conj(), (vectors * values.cos()[..., None, :]) @ vectors.mH


def sorted_eigenvalues(lib: Any, A: Any) -> Any:
    """Eigenvalues in the order of their real parts, which is the same in every library."""
    values = lib.linalg.eigvals(A)
    return values[..., lib.argsort(values.real.detach())] if A.ndim == 2 else values.sum(-1)


def sorted_eigenvectors(lib: Any, A: Any) -> Any:
    values, vectors = lib.linalg.eig(A)
    order = lib.argsort(values.real.detach())
    vectors = vectors[:, order]
    return values[order], vectors * vectors.conj(), vectors @ vectors.mH


SVD = [
    in_both("linalg_svd", lambda lib, A: invariants(*lib.linalg.svd(A)), spread(3, 3), complex=True),
    in_both("linalg_svd", lambda lib, A: invariants(*lib.linalg.svd(A)), spread(2, 4, 3), complex=True, note="tall"),
    in_both("linalg_svd", lambda lib, A: invariants(*lib.linalg.svd(A)), spread(3, 5), complex=True, note="wide"),
    in_both(
        "linalg_svd",
        lambda lib, A: invariants(*lib.linalg.svd(A, full_matrices=False)),
        spread(2, 5, 3),
        complex=True,
        note="thin, tall",
    ),
    in_both(
        "linalg_svd",
        lambda lib, A: invariants(*lib.linalg.svd(A, full_matrices=False)),
        spread(2, 4),
        complex=True,
        note="thin, wide",
    ),
    in_both("linalg_svd", complements, spread(5, 3), complex=True, reference=False, note="complement, tall"),
    in_both("linalg_svd", complements, spread(2, 4), complex=True, reference=False, note="complement, wide"),
    in_both("linalg_svd", lambda lib, A: lib.linalg.svd(A)[1], normal(0, 3, 2), note="empty"),
    in_both("linalg_svd", lambda lib, A: (lambda U, S, Vh: U * U)(*thin(*lib.linalg.svd(A))), spread(4, 3), note="U"),
    in_both("linalg_svd", lambda lib, A: (lambda U, S, Vh: Vh * Vh)(*thin(*lib.linalg.svd(A))), spread(3, 4), note="V"),
    in_both("linalg_svdvals", lambda lib, A: lib.linalg.svdvals(A), spread(2, 3, 4), complex=True),
    in_both("linalg_svdvals", lambda lib, A: lib.linalg.svdvals(A), constant(np.eye(3)), kink=True, gradgrad=False,
            note="equal values"),
    in_both("svd", lambda lib, A: invariants(*(lambda U, S, V: (U, S, V.mH))(*lib.svd(A))), spread(4, 3), complex=True),
    in_both("svd", lambda lib, A: lib.svd(A, some=False, compute_uv=False), spread(4, 3), note="values"),
]  # fmt: skip

HERMITIAN = [
    in_both(
        "linalg_eigh",
        lambda lib, A: eigen_invariants(*lib.linalg.eigh(hermitian(A))),
        spread(3, 3),
        complex=True,
    ),
    in_both(
        "linalg_eigh",
        lambda lib, A: eigen_invariants(*lib.linalg.eigh(hermitian(A), UPLO="U")),
        spread(2, 3, 3),
        complex=True,
        note="upper, batch",
    ),
    in_both("linalg_eigh", lambda lib, A: lib.linalg.eigh(hermitian(A))[1] ** 2, spread(3, 3), note="vectors"),
    in_both("linalg_eigh", lambda lib, A: lib.linalg.eigh(A)[0], normal(0, 0), note="empty"),
    in_both("linalg_eigvalsh", lambda lib, A: lib.linalg.eigvalsh(hermitian(A)), spread(2, 3, 3), complex=True),
    in_both("linalg_eigvalsh", lambda lib, A: lib.linalg.eigvalsh(hermitian(A)), constant(np.eye(3)), kink=True,
            gradgrad=False, note="equal values"),
]  # fmt: skip

GENERAL = [
    in_both("linalg_eig", sorted_eigenvectors, spread(3, 3), complex=True),
    in_both(
        "linalg_eig",
        sorted_eigenvectors,
        constant([[0.3, 1.0, 0.2], [-1.4, 0.5, 0.1], [0.2, 0.3, 2.5]]),
        kink=True,
        note="conjugate pair",
    ),
    in_both("linalg_eigvals", sorted_eigenvalues, spread(3, 3), complex=True),
    in_both("linalg_eigvals", sorted_eigenvalues, spread(2, 3, 3), complex=True, note="batch"),
]

SAMPLES = [*SVD, *HERMITIAN, *GENERAL]
