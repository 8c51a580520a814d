"""Triangular systems that are too large for the kernels of small ones.

Halves of halves, down to what these kernels take; what couples two halves is a matrix product, which is where the work
is. NumPy has no triangular solver (it would factorise the triangle first), and does float32 in double precision.

Where the kernels do not serve the result is None: the caller then computes the same with NumPy.
"""

from __future__ import annotations

from undertow.backend import kernels
from undertow.backend.interface import Array, Namespace
from undertow.backend.kernels import SMALL_MATRIX, take_matrix


def solve_triangles(xp: Namespace, A: Array, B: Array, upper: bool, unitriangular: bool) -> Array | None:
    """The X with A X = B, of which one triangle of A is read."""
    if A.ndim == 2 and B.ndim > 2 and B.size:  # one matrix for all: what stands on the right are columns of one
        right = xp.moveaxis(B, -2, 0)
        found = solve_triangles(xp, A, right.reshape(A.shape[0], -1), upper, unitriangular)
        return None if found is None else xp.moveaxis(found.reshape(right.shape), 0, -2)
    if A.shape[:-1] != B.shape[:-1] or A.dtype is not B.dtype or not A.size:
        return None
    X = xp.array(B, order="C")
    return X if _substitute(xp, A, X, upper, unitriangular) else None


def _substitute(xp: Namespace, A: Array, X: Array, upper: bool, unitriangular: bool) -> bool:
    """Put the solution into the place of the right side; whether that could be done."""
    n = A.shape[-1]
    if take_matrix(xp, n):
        found = kernels.solve_triangles(xp, xp.ascontiguousarray(A), xp.ascontiguousarray(X), upper, unitriangular)
        if found is None:
            return False
        X[...] = found
        return True
    half = _half(n)
    head, tail = slice(None, half), slice(half, None)
    first, second = (tail, head) if upper else (head, tail)
    if not _substitute(xp, A[..., first, first], X[..., first, :], upper, unitriangular):
        return False
    X[..., second, :] -= xp.matmul(A[..., second, first], X[..., first, :])
    return _substitute(xp, A[..., second, second], X[..., second, :], upper, unitriangular)


def _half(n: int) -> int:
    """About half, in whole blocks."""
    return (n // SMALL_MATRIX + 1) // 2 * SMALL_MATRIX
