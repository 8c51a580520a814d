"""LDL factorisations of symmetric and Hermitian matrices, by Bunch and Kaufman's pivoting.

A step takes a pivot of one row and column, or of two where one alone would be too small, and moves it to the front of
what is left. As in LAPACK, which PyTorch calls, the columns of L that are finished are not permuted by later steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, Namespace
from undertow.errors import LinAlgError, NotDifferentiableError
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.rules import LOOP
from undertow.ops.index.gather_scatter import take_along_dim
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.inverse_and_solve import linalg_solve
from undertow.ops.linalg.lu import rows_in_order
from undertow.ops.linalg.triangular import solve_triangular
from undertow.ops.pointwise.where_clamp import where
from undertow.ops.reduce.sorting import argsort
from undertow.ops.shape.triangles_and_diagonals import diag_embed, tril
from undertow.ops.views.dimensions import adjoint, matrix_transpose
from undertow.ops.views.slices import diagonal
from undertow.tensor import Tensor

ALPHA = (1 + math.sqrt(17)) / 8  # the bound that keeps the growth of elements smallest


def refuse(xp: Namespace, g: Array) -> Any:
    raise NotDifferentiableError("linalg_ldl_factor", "Call detach() on its input, or use linalg.solve.")


def _size_of(xp: Namespace, x: Array) -> Array:
    """LAPACK's measure of complex numbers."""
    return xp.abs(x.real) + xp.abs(x.imag)


# ---- one matrix


def _choose_pivot(xp: Namespace, A: Array, k: int) -> tuple[int, int]:
    """The row to move to the front of A[k:, k:], and how many rows the pivot has."""
    if k == len(A) - 1:
        return k, 1
    column = _size_of(xp, A[k + 1 :, k])
    here, largest = float(_size_of(xp, A[k, k])), float(column.max())
    if max(here, largest) == 0 or here >= ALPHA * largest:
        return k, 1
    other = k + 1 + int(column.argmax())
    row = _size_of(xp, xp.concatenate([A[other, k:other], A[other + 1 :, other]])).max()
    if here * row >= ALPHA * largest**2:
        return k, 1
    return other, 1 if _size_of(xp, A[other, other]) >= ALPHA * row else 2


def _exchange(A: Array, first: int, second: int) -> None:
    """Two rows and columns, of what is left of a full (symmetric or Hermitian) matrix."""
    A[[first, second]] = A[[second, first]]
    A[:, [first, second]] = A[:, [second, first]]


def _eliminate(xp: Namespace, A: Array, k: int, rows: int, turned: Callable[..., Any]) -> bool:
    """Divide the columns below the pivot by it and take their product off the rest; False for a pivot of zero."""
    end = k + rows
    pivot, below = A[k:end, k:end], A[end:, k:end]
    if not pivot.any():
        return False
    if rows == 1:
        scaled = below / pivot[0, 0]
    else:
        scaled = xp.linalg.solve(pivot.T, below.T).T
    A[end:, end:] -= scaled @ turned(below)
    A[end:, k:end] = scaled
    return True


def _factor_matrix(xp: Namespace, A: Array, hermitian: bool) -> tuple[Any, Any, int]:
    """(L and D in one matrix, pivots, number of the first pivot that is zero or 0)."""
    turned = (lambda x: x.conj().T) if hermitian else (lambda x: x.T)
    lower = xp.tril(A, -1)
    diagonal = xp.diag(xp.diagonal(A).real if hermitian else xp.diagonal(A))
    work = (lower + diagonal + turned(lower)).astype(A.dtype)
    pivots, info, k = xp.zeros(len(A), dtypes.int32), 0, 0
    while k < len(A):
        found, rows = _choose_pivot(xp, work, k)
        at = k + rows - 1
        _exchange(work[k:, k:], at - k, found - k)
        pivots[k : k + rows] = found + 1 if rows == 1 else -(found + 1)
        if not _eliminate(xp, work, k, rows, turned):
            info = info or k + 1
        k += rows
    return xp.tril(work), pivots, info


def _steps_of(pivots: Array) -> Any:
    """First row, number of rows, and the two rows that were exchanged, of every step."""
    k = 0
    while k < len(pivots):
        rows = 1 if pivots[k] > 0 else 2
        yield k, rows, k + rows - 1, abs(int(pivots[k])) - 1
        k += rows


# ---- stacks of them


def _factor_array(xp: Namespace, A: Array, hermitian: bool = False) -> tuple[Array, ...]:
    check_matrices("linalg.ldl_factor", A)
    lead, n = A.shape[:-2], A.shape[-1]
    if xp is cpu:
        from undertow.backend import lapack  # loaded when first used

        found = lapack.ldl(A.reshape(math.prod(lead), n, n), hermitian)
        if found is not None:
            return tuple(x.reshape((*lead, *x.shape[1:])) for x in found)
    LD, pivots, info = xp.empty(A.shape, A.dtype), xp.empty(A.shape[:-1], dtypes.int32), xp.zeros(lead, dtypes.int32)
    stacks = [x.reshape(math.prod(lead), *x.shape[len(lead) :]) for x in (A, LD, pivots)]
    numbers = info.reshape(-1)
    for k, matrix in enumerate(stacks[0]):
        stacks[1][k], stacks[2][k], numbers[k] = _factor_matrix(xp, matrix, hermitian) if n else (0, 0, 0)
    return LD, pivots, info


_ldl_factor = primitive(
    "_ldl_factor",
    forward=_factor_array,
    vjp={"A": refuse},
    jvp={"A": refuse},
    batch=LOOP,
    node="NotImplemented",
    outputs=("LD", "pivots", "info"),
    nondifferentiable=("pivots", "info"),
    order="columns rows",
)


@composite
@example_by_example
def linalg_ldl_factor_ex(A: Array, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """`linalg.ldl_factor` with a number for each matrix: 0, or that of the first pivot that is zero.

    >>> import undertow as ut
    >>> ut.linalg.ldl_factor_ex(ut.tensor([[4.0, 2.0], [2.0, 3.0]])).info
    tensor(0, dtype=undertow.int32)
    """
    LD, pivots, info = _ldl_factor(as_operand("linalg.ldl_factor", "A", A), hermitian)
    if check_errors:
        _check_pivots(info._array)
    return return_types.linalg_ldl_factor_ex((LD, pivots, info))


def _check_pivots(info: Any) -> None:
    for k, number in enumerate(info.reshape(-1).tolist()):
        if number:
            where = f"(Batch element {k}): " if info.ndim else ""
            raise LinAlgError(
                f"linalg.ldl_factor: {where}The factorization has a zero pivot, number {number}: the input matrix is "
                "singular"
            )


@composite
@example_by_example
def linalg_ldl_factor(A: Array, *, hermitian: bool = False) -> Any:
    """A = L D L^T (L D L^H, if hermitian), up to permutations, of the lower half of A: (L and D in one matrix, pivots).

    >>> import undertow as ut
    >>> LD, pivots = ut.linalg.ldl_factor(ut.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> LD.tolist(), pivots.tolist()
    ([[4.0, 0.0], [0.5, 4.0]], [1, 2])
    """
    return return_types.linalg_ldl_factor(linalg_ldl_factor_ex(A, hermitian=hermitian, check_errors=True)[:2])


# ---- solving


def _places_of(xp: Namespace, pivots: Array) -> tuple[Array, Array, Array]:
    """Of one matrix: the row that every element of L is stored in, the order of the rows, and where D has two rows.

    The finished columns are stored as they were; here the exchanges of the later steps are made up for, so that
    A[order][:, order] = L D L^T.
    """
    n = len(pivots)
    rows, order, pairs = xp.tile(xp.arange(n)[:, None], (1, n)), xp.arange(n), xp.zeros((n, n), dtypes.bool_)
    for k, count, at, other in _steps_of(pivots):
        rows[[at, other], :k] = rows[[other, at], :k]
        order[[at, other]] = order[[other, at]]
        if count == 2:
            pairs[k + 1, k] = True
    return rows, order, pairs


def _places_of_all(xp: Namespace, pivots: Array) -> list[Tensor]:
    *lead, n = pivots.shape
    found = [_places_of(xp, row) for row in pivots.reshape(math.prod(lead), n)]
    kinds = (((n, n), dtypes.int64), ((n,), dtypes.int64), ((n, n), dtypes.bool_))
    return [
        Tensor(xp.asarray([f[k] for f in found], dtype=dtype).reshape(*lead, *shape), xp)
        for k, (shape, dtype) in enumerate(kinds)
    ]


@composite(order="columns")
@example_by_example
def linalg_ldl_solve(LD: Array, pivots: Array, B: Array, *, hermitian: bool = False) -> Tensor:
    """The X with A X = B, given ldl_factor(A).

    LD, pivots  what `ldl_factor` gives

    >>> import undertow as ut
    >>> factored = ut.linalg.ldl_factor(ut.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> ut.linalg.ldl_solve(*factored, ut.tensor([[6.0], [7.0]]))
    tensor([[1.],
            [1.]])
    """
    name = "linalg.ldl_solve"
    LD, B, pivots = as_operand(name, "LD", LD), as_operand(name, "B", B), as_operand(name, "pivots", pivots)
    check_matrices(name, LD)
    if B.ndim < 2:
        raise RuntimeError(f"{name}: Expected B to have at least 2 dimensions, but it has {B.ndim} dimensions instead")
    if B.shape[-2] != LD.shape[-1] or B.dtype != LD.dtype:
        raise RuntimeError(
            f"{name}: Expected LD and B to have as many rows and the same dtype, but LD is {list(LD.shape)} {LD.dtype} "
            f"and B is {list(B.shape)} {B.dtype}"
        )
    if pivots.dtype.kind not in "iu" or tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise RuntimeError(
            f"{name}: Expected pivots to be integers of shape {list(LD.shape[:-1])}, but got {pivots.dtype} "
            f"{list(pivots.shape)}"
        )
    return _solved(LD, pivots, B, adjoint if hermitian else matrix_transpose)


def _solved(LD: Tensor, pivots: Tensor, B: Tensor, turned: Callable[..., Any]) -> Tensor:
    rows, order, pairs = _places_of_all(LD._xp, pivots._array)
    moved = tril(take_along_dim(LD, rows, -2), -1)
    beside = where(pairs, moved, 0)
    D = diag_embed(diagonal(LD, 0, -2, -1)) + beside + turned(beside)
    L = moved - beside + Tensor(LD._xp.eye(LD.shape[-1], dtype=LD.dtype), LD._xp)
    X = solve_triangular(L, rows_in_order(B, order), False, True)
    X = solve_triangular(turned(L), linalg_solve(D, X), True, True)
    return rows_in_order(X, argsort(order, -1))
