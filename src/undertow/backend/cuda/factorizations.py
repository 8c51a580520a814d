"""Factorisations, systems and eigenvalues, under NumPy's names: small ones by kernels of ours, others by cuSOLVER.

cuSOLVER's matrices lie column after column: one of ours, row after row, is its transpose. Whether a matrix has what was
asked for is in numbers on the device, which are looked at where NumPy (and PyTorch) raise: LinAlgError comes from
the call itself. QR, triangular systems and determinants look at nothing, and nobody waits for them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, small_matrices, solver, triangles
from undertow.backend.cuda.blocks import rows
from undertow.backend.cuda.solver import LOWER, PLAIN, RIGHT, SIZE, TRANSPOSED, UPPER, call, call_blas, each, pointers
from undertow.backend.interface import Array

#: sizes up to which cuBLAS's functions for stacks are better than one matrix after the other
LARGEST_OF_STACKS = 512


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return device.extension().empty(shape, dtype)


def is_known(*arrays: Any) -> bool:
    """Whether these are arrays of matrices with elements, of one dtype that the functions know."""
    first = arrays[0]
    kinds = [isinstance(a, device.array_type()) and a.dtype == first.dtype and a.ndim > 1 and a.size for a in arrays]
    return all(kinds) and first.dtype in solver.LETTERS


def can_factorise(A: Any) -> bool:
    """Without cuSOLVER, small matrices alone."""
    return is_known(A) and (small_matrices.serves(*A.shape[-2:]) or solver.cusolver() is not None)


def stacked(A: Array) -> Array:
    """A copy of matrices, or they themselves, row after row, as one stack."""
    return rows(A).reshape(-1, *A.shape[-2:])


def copied(A: Array) -> Array:
    """A copy of matrices as one stack, to be worked on in place."""
    return A.copy("C").reshape(-1, *A.shape[-2:])


def turned(A: Array) -> Array:
    return A.swapaxes(-1, -2)


def whole_numbers(*shape: int) -> Array:
    return empty(shape, dtypes.int32)


def require(info: Array, problem: str) -> None:
    """Wait, and raise an error if one of these numbers is not 0."""
    if info.to_host().any():
        raise np.linalg.LinAlgError(problem)


def served(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of matrices that are known, or NotImplemented; without cuSOLVER it serves small ones alone."""

    @functools.wraps(function)
    def call(A: Any, *others: Any, **options: Any) -> Any:
        return function(A, *others, **options) if can_factorise(A) else NotImplemented

    return call


# ---- Cholesky's


def lower_factors(A: Array) -> tuple[Array, Array]:
    """The factors of a stack, and for each matrix the first minor that is not positive-definite, or 0.

    They lie column after column, as cuSOLVER reads and writes them: its other triangle takes it ten times as long.
    """
    n = A.shape[-1]
    if small_matrices.serves(n):
        return small_matrices.cholesky(stacked(A))
    L = copied(turned(A))
    info = whole_numbers(len(L))
    if len(L) > 1:
        call("potrfBatched", L.dtype, LOWER, n, pointers(L), n, info, len(L))
    else:
        work, size = solver.workspace("potrf", L.dtype, LOWER, n, None, n, SIZE)
        call("potrf", L.dtype, LOWER, n, L, n, work, size, info)
    return turned(A.namespace.triu(L)), info


@served
def cholesky(a: Array, *, upper: bool = False) -> Array:
    L, info = lower_factors(a if not upper else turned(a).conj())
    require(info, "Matrix is not positive definite")
    L = L.reshape(a.shape)
    return turned(L).conj() if upper else L


# ---- L and U


def packed_factors(stack: Array) -> tuple[Array, Array, Array]:
    """L and U of the transposes of a stack, which is overwritten, the exchanges of rows, and numbers of zero pivots."""
    count, m, n = len(stack), stack.shape[-1], stack.shape[-2]
    pivots, info = whole_numbers(count, min(m, n)), whole_numbers(count)
    if count > 1 and m == n <= LARGEST_OF_STACKS:
        call_blas("getrfBatched", stack.dtype, n, pointers(stack), n, pivots, info, count)
    else:
        work, _ = solver.workspace("getrf", stack.dtype, m, n, None, m, SIZE)
        given = (m, n, each(stack), m, work, each(pivots), each(info))
        call("getrf", stack.dtype, *given, times=count)
    return stack, pivots, info


def lu(A: Array) -> tuple[Array, Array, Array]:
    """L and U of a stack of matrices in one, the exchanges of rows, and the numbers, from 1, of zero pivots."""
    if small_matrices.serves(*A.shape[-2:]):
        return small_matrices.lu(stacked(A))
    packed, pivots, info = packed_factors(copied(turned(A)))
    return turned(packed), pivots, info


def solved(A: Array, X: Array) -> tuple[Array, Array]:
    """X of A X = B for stacks of as many matrices; B is overwritten. And numbers of pivots that are zero."""
    if small_matrices.serves(A.shape[-1]):
        LU, pivots, info = small_matrices.lu(A)
        small_matrices.solve(LU, pivots, X)
        return X, info
    LU, pivots, info = packed_factors(A.copy("C"))
    Y = copied(turned(X))
    substitute(LU, pivots, Y, TRANSPOSED)
    return turned(Y), info


def substitute(LU: Array, pivots: Array, Y: Array, operation: int) -> None:
    """Solutions in the place of right sides, each of which is a row here."""
    count, columns, n = Y.shape
    if count > 1 and n <= LARGEST_OF_STACKS:
        outcome = solver.host_word()
        call_blas(
            "getrsBatched", Y.dtype, operation, n, columns, pointers(LU), n, pivots, pointers(Y), n, outcome, count
        )
    else:
        given = (operation, n, columns, each(LU), n, each(pivots), each(Y), n, whole_numbers(1))
        call("getrs", Y.dtype, *given, times=count)


@served
def solve(a: Array, b: Any) -> Array:
    if not is_known(a, b) or b.shape[-2] != a.shape[-1] != a.shape[-2]:
        return NotImplemented
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    space = a.namespace
    A, B = (space.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    X, info = solved(stacked(A), copied(B))
    require(info, "Singular matrix")
    return X.reshape(B.shape)


@served
def inv(a: Array) -> Array:
    n, stack = a.shape[-1], stacked(a)
    unit = a.namespace.eye(n, dtype=a.dtype)
    X = a.namespace.broadcast_to(unit, stack.shape).copy("C")
    if small_matrices.serves(n):
        X, info = solved(stack, X)
    else:  # of the transpose, whose inverse is ours in the other order
        LU, pivots, info = packed_factors(stack.copy("C"))
        substitute(LU, pivots, X, PLAIN)
    require(info, "Singular matrix")
    return X.reshape(a.shape)


def pivots_of(a: Array) -> tuple[Array, Array]:
    """The diagonal of U, and what the exchanges of rows do to the sign of the determinant."""
    n = a.shape[-1]
    if small_matrices.serves(n):
        LU, pivots, _ = small_matrices.lu(stacked(a))
    else:
        LU, pivots, _ = packed_factors(copied(a))
    moved = (pivots != a.namespace.arange(1, n + 1, dtype=dtypes.int32)).sum(axis=-1) % 2
    return LU.diagonal(0, -2, -1), (1 - 2 * moved).astype(a.dtype)


@served
def det(a: Array) -> Array:
    diagonal, sign = pivots_of(a)
    return (a.namespace.prod(diagonal, axis=-1) * sign).reshape(a.shape[:-2])


@served
def slogdet(a: Array) -> tuple[Array, Array]:
    space, (diagonal, sign) = a.namespace, pivots_of(a)
    sizes = space.abs(diagonal)
    phases = space.sign(diagonal) if a.dtype.kind == "f" else diagonal / space.where(sizes == 0, 1, sizes)
    sign = space.prod(phases, axis=-1) * sign
    return sign.reshape(a.shape[:-2]), space.log(sizes).sum(axis=-1).reshape(a.shape[:-2])


# ---- Q and R


def reflections(a: Array) -> tuple[Array, Array]:
    """R and the vectors of reflections, in the transposes of a stack, and the factors of these."""
    m, n = a.shape[-2:]
    work_on = copied(turned(a))
    taus = empty((len(work_on), min(m, n)), a.dtype)
    work, size = solver.workspace("geqrf", a.dtype, m, n, None, m, SIZE)
    given = (m, n, each(work_on), m, each(taus), work, size, whole_numbers(1))
    call("geqrf", a.dtype, *given, times=len(work_on))
    return work_on, taus


def product_of_reflections(vectors: Array, taus: Array, columns: int) -> Array:
    """So many columns of Q, in the transposes of a stack."""
    count, known, m = vectors.shape
    Q = vectors[:, :columns].copy("C") if columns <= known else empty((count, columns, m), vectors.dtype)
    if columns > known:
        Q[:, :known] = vectors
    k = taus.shape[-1]
    work, size = solver.workspace("orgqr", Q.dtype, m, columns, k, None, m, None, SIZE)
    call("orgqr", Q.dtype, m, columns, k, each(Q), m, each(taus), work, size, whole_numbers(1), times=count)
    return Q


@served
def qr(a: Array, mode: str = "reduced") -> Any:
    m, n = a.shape[-2:]
    if mode == "raw":
        if solver.cusolver() is None:
            return NotImplemented
        vectors, taus = reflections(a)
        return vectors.reshape(*a.shape[:-2], n, m), taus.reshape(*a.shape[:-2], -1)
    columns = m if mode == "complete" else min(m, n)
    if small_matrices.serves(m, n):
        Q, R = small_matrices.qr(stacked(a), columns, mode == "r")
    else:
        vectors, taus = reflections(a)
        R = a.namespace.triu(turned(vectors)[:, :columns])
        Q = None if mode == "r" else turned(product_of_reflections(vectors, taus, columns))
    R = R.reshape(*a.shape[:-2], columns, n)
    return R if Q is None else (Q.reshape(*a.shape[:-2], m, columns), R)


# ---- eigenvalues and singular values


def _hermitian(A: Array, vectors: int, triangle: int) -> tuple[Array, Array]:
    """The eigenvalues of a stack, which becomes the conjugate eigenvectors, each a row; numbers of what went wrong."""
    count, n, dtype = len(A), A.shape[-1], A.dtype
    W, info = empty((count, n), solver.REAL.get(dtype, dtype)), whole_numbers(count)
    sizes = (vectors, triangle, n, None, n, None, SIZE)
    if count > 1 and n <= small_matrices.LARGEST:
        work, size = solver.workspace("syevjBatched", dtype, *sizes, "Syevj", count)
        settings = solver.jacobi_settings("Syevj").value
        call("syevjBatched", dtype, *sizes[:3], A, n, W, work, size, info, settings, count)
    elif count > 1 and solver.knows_batches():
        solver.batch_of_eigenvalues(dtype, vectors, triangle, n, count).call(A, W, info)
    elif dtype.itemsize <= (8 if dtype.kind == "c" else 4) and small_matrices.LARGEST < n <= LARGEST_OF_STACKS:
        work, size = solver.workspace("syevj", dtype, *sizes, "Syevj")
        given = (*sizes[:3], each(A), n, each(W), work, size, each(info), solver.jacobi_settings("Syevj").value)
        call("syevj", dtype, *given, times=count)
    else:
        work, size = solver.workspace("syevd", dtype, *sizes)
        call("syevd", dtype, *sizes[:3], each(A), n, each(W), work, size, each(info), times=count)
    require(info, "Eigenvalues did not converge")
    return W, A


def _eigenvalues(a: Array, UPLO: str, vectors: int) -> Any:
    """Our lower triangle is the upper one of cuSOLVER's matrix, the conjugate."""
    if solver.cusolver() is None:
        return NotImplemented
    W, V = _hermitian(copied(a), vectors, UPPER if UPLO.upper() == "L" else LOWER)
    W = W.reshape(a.shape[:-1])
    return (W, turned(V.reshape(a.shape)).conj()) if vectors else W


@served
def eigh(a: Array, UPLO: str = "L") -> Any:
    return _eigenvalues(a, UPLO, 1)


@served
def eigvalsh(a: Array, UPLO: str = "L") -> Any:
    return _eigenvalues(a, UPLO, 0)


def _singular(A: Array, whole: int, vectors: int) -> tuple[Array, Array, Array]:
    """Of a stack, which is overwritten: Vh, the values, and U conjugated and transposed."""
    count, n, m = A.shape
    k, dtype = min(m, n), A.dtype
    S, info = empty((count, k), solver.REAL.get(dtype, dtype)), whole_numbers(count)
    settings, batched = solver.jacobi_settings("Gesvdj").value, count > 1 and small_matrices.serves(m, n)
    whole = whole or batched
    V, U = empty((count, m if whole else k, m), dtype), empty((count, n if whole else k, n), dtype)
    if batched:
        asked = (vectors, m, n, None, m, None, None, m, None, n, SIZE, "Gesvdj", count)
        work, size = solver.workspace("gesvdjBatched", dtype, *asked)
        call("gesvdjBatched", dtype, vectors, m, n, A, m, S, V, m, U, n, work, size, info, settings, count)
    else:
        econ = 1 - int(whole)
        sizes = (vectors, econ, m, n, None, m, None, None, m, None, n, SIZE, "Gesvdj")
        work, size = solver.workspace("gesvdj", dtype, *sizes)
        given = (vectors, econ, m, n, each(A), m, each(S), each(V), m, each(U), n, work, size, each(info), settings)
        call("gesvdj", dtype, *given, times=count)
    require(info, "SVD did not converge")
    return V, S, U


@served
def svd(a: Array, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    if solver.cusolver() is None or hermitian:
        return NotImplemented
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    Vh, S, Uh = _singular(copied(a), int(full_matrices), int(compute_uv))
    S = S.reshape(*lead, k)
    if not compute_uv:
        return S
    rows_of_Vh, columns_of_U = (n, m) if full_matrices else (k, k)
    Vh, U = Vh[:, :rows_of_Vh], turned(Uh[:, :columns_of_U]).conj()
    return U.reshape(*lead, m, columns_of_U), S, Vh.reshape(*lead, rows_of_Vh, n)


# ---- triangular systems


def solve_triangles(A: Array, B: Array, upper: bool, unitriangular: bool) -> Any:
    """X of A X = B, for stacks of triangular matrices; the arrays are contiguous. cuBLAS solves X^T A^T = B^T."""
    n, columns = A.shape[-1], B.shape[-1]
    if not is_known(A, B) or A.shape[:-2] != B.shape[:-2]:
        return None
    if small_matrices.serves(n):
        return triangles.solve_triangles(A, B, upper, unitriangular)
    X, count = B.copy("C"), math.prod(A.shape[:-2])
    triangle = LOWER if upper else UPPER
    given = (RIGHT, triangle, PLAIN, int(unitriangular), columns, n, solver.ONE[A.dtype].ctypes.data)
    if count == 1:
        call_blas("trsm_v2", A.dtype, *given, A, n, X, columns)
    else:
        stacks = stacked(A), X.reshape(count, n, columns)
        call_blas("trsmBatched", A.dtype, *given, pointers(stacks[0]), n, pointers(stacks[1]), columns, count)
    return X


# ---- what operations ask for


def lu_small(A: Array) -> Any:
    """L and U in one matrix, and the rows that rows were exchanged with, of each of a stack."""
    return lu(A)[:2] if can_factorise(A) else None


def first_bad_minors(A: Array) -> Any:
    return lower_factors(A)[1].reshape(A.shape[:-2]) if can_factorise(A) else None


def first_zero_pivots(A: Array) -> Any:
    return lu(A)[2].reshape(A.shape[:-2]) if can_factorise(A) else None


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": cholesky, "solve": solve, "inv": inv, "det": det, "slogdet": slogdet, "qr": qr, "eigh": eigh,
    "eigvalsh": eigvalsh, "svd": svd,
}  # fmt: skip

KERNELS: dict[str, Callable[..., Any]] = {
    "solve_triangles": solve_triangles, "lu_small": lu_small, "first_bad_minors": first_bad_minors,
    "first_zero_pivots": first_zero_pivots, "places_of_rows": small_matrices.places,
}  # fmt: skip
