"""Approximate singular values of large matrices, by the range of their products with a few random vectors."""

from __future__ import annotations

from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.linalg.matmul import matmul
from undertow.ops.linalg.qr import linalg_qr
from undertow.ops.linalg.svd import linalg_svd
from undertow.ops.random.tensors import randn
from undertow.ops.reduce.sums_and_products import mean
from undertow.ops.views.dimensions import adjoint, expand
from undertow.tensor import Tensor


def times(A: Tensor, M: Tensor | None, X: Tensor, turned: bool = False) -> Tensor:
    """(A - M) @ X, or with the adjoint of A - M."""
    of = (lambda B: matmul(adjoint(B), X)) if turned else (lambda B: matmul(B, X))
    return of(A) if M is None else of(A) - of(M)


def _approximate_basis(A: Tensor, M: Tensor | None, q: int, niter: int) -> Tensor:
    """q orthonormal columns that span most of what A - M maps to (Halko, Martinsson and Tropp, 2011)."""
    qr = linalg_qr
    Q = qr(times(A, M, randn(A.shape[-1], q, dtype=A.dtype, device=A.device)))[0]
    for _ in range(niter):
        Q = qr(times(A, M, Q, turned=True))[0]
        Q = qr(times(A, M, Q))[0]
    return Q


@composite
def svd_lowrank(A: Array, q: int | None = 6, niter: int = 2, M: Array | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The first q singular values of A (of A - M), approximately, and their vectors: (U, S, V), A near U diag(S) V^H.

    Every call draws other random vectors. Exact, up to rounding, where the rank of A is at most q.

    niter  how many times the random vectors are multiplied with A A^H: more are more exact

    >>> import undertow as ut
    >>> U, S, V = ut.svd_lowrank(ut.ones(4, 3), q=2)
    >>> ut.allclose(U @ ut.diag(S) @ V.mT, ut.ones(4, 3), atol=1e-5)
    True
    """
    A = as_operand("svd_lowrank", "A", A)
    M = None if M is None else expand(as_operand("svd_lowrank", "M", M), tuple(A.shape))
    _check_matrices("svd_lowrank", A)
    wide = A.shape[-2] < A.shape[-1]
    if wide:
        A, M = adjoint(A), None if M is None else adjoint(M)
    Q = _approximate_basis(A, M, 6 if q is None else q, niter)
    small = adjoint(times(A, M, Q, turned=True))
    U, S, Vh = linalg_svd(small, full_matrices=False)
    U, V = matmul(Q, U), adjoint(Vh)
    return (V, S, U) if wide else (U, S, V)


def _check_matrices(name: str, A: Array) -> None:
    if A.ndim < 2:
        raise RuntimeError(f"{name}: matrices expected, got a tensor of {A.ndim} dimensions")


@composite
def pca_lowrank(A: Array, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """The first q principal components of the rows of A: `svd_lowrank` of A with the mean of its columns taken off.

    center  whether the mean is taken off
    niter   how many times the random vectors are multiplied with A A^H: more are more exact

    >>> import undertow as ut
    >>> ut.pca_lowrank(ut.eye(3), q=2)[1].shape
    undertow.Size([2])
    """
    A = as_operand("pca_lowrank", "A", A)
    _check_matrices("pca_lowrank", A)
    least = min(A.shape[-2:])
    q = min(6, least) if q is None else q
    if not 0 <= q <= least:
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={least}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if not center:
        return svd_lowrank(A, q, niter)
    return svd_lowrank(A - mean(A, dim=-2, keepdim=True), q, niter)
