"""LU decompositions: a permutation of the rows, a unit lower and an upper triangular factor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.half_precision import in_float32, wide
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.composite_order import rearranged
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.index.gather_scatter import take_along_dim
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.rule_parts import adjoint, batch_matrices, columns, rows
from undertow.ops.linalg.triangular import solve_triangular
from undertow.ops.pointwise.arithmetic import add
from undertow.ops.reduce.sorting import argsort
from undertow.ops.shape.padding import constant_pad_nd
from undertow.ops.views.dimensions import expand, unsqueeze
from undertow.tensor import Tensor

# ---- the decomposition


def factors(xp: Namespace, A: Array) -> tuple[Array, ...]:
    check_matrices("linalg.lu", A, square=False)
    *lead, m, n = A.shape
    k = min(m, n)
    work, pivots = _decomposed(xp, A.reshape(math.prod(lead), m, n))
    L = xp.tril(work[:, :, :k], -1) + xp.eye(m, k, dtype=A.dtype)
    U = xp.triu(work[:, :k, :])
    P = permutations(xp, pivots, m, A.dtype)
    return P.reshape(*lead, m, m), L.reshape(*lead, m, k), U.reshape(*lead, k, n), pivots.reshape(*lead, k)


def _decomposed(xp: Namespace, A: Array) -> tuple[Array, Array]:
    """L and U in one matrix, and the rows (from 1) that rows were exchanged with in turn, of each matrix of a stack."""
    found = kernels.lu_small(xp, xp.ascontiguousarray(A))
    if found is None and xp is cpu:
        from undertow.backend import lapack  # loaded when first used

        found = lapack.lu(A)
    return found or _eliminated(xp, A)


def _eliminated(xp: Namespace, A: Array) -> tuple[Array, Array]:
    work, steps = xp.array(A), min(A.shape[1:])
    pivots = xp.empty((len(A), steps), dtypes.int32)
    for k in range(steps):
        _eliminate(xp, work, pivots, k)
    return work, pivots


def _eliminate(xp: Namespace, work: Array, pivots: Array, k: int) -> None:
    """One column: the largest element as pivot, its row up, multiples of that row off those below."""
    each = xp.arange(len(work))
    column = work[:, k:, k]  # by LAPACK's measure of complex numbers
    pivot = k + xp.argmax(xp.abs(column.real) + xp.abs(column.imag), axis=-1)
    work[each, pivot], work[:, k] = work[:, k].copy(), work[each, pivot]
    pivots[:, k] = pivot + 1
    top = work[:, k, k]
    work[:, k + 1 :, k] /= xp.where(top == 0, 1, top)[:, None]
    work[:, k + 1 :, k + 1 :] -= work[:, k + 1 :, k, None] * work[:, None, k, k + 1 :]


def below(xp: Namespace, x: Array) -> Array:
    return xp.tril(x, -1)


def _times_inverse(xp: Namespace, x: Array, U: Array) -> Array:
    """x U^-1, for an upper triangular U."""
    turned = xp._solve_triangular(xp.swapaxes(U, -1, -2), xp.swapaxes(x, -1, -2), False, False)
    return xp.swapaxes(turned, -1, -2)


def _lu_gradient(xp: Namespace, g: Any, P: Array, L: Array, U: Array) -> Array:
    """Of the square part: L^-1 P^T dA U^-1 = L^-1 dL + dU U^-1, a strictly lower and an upper triangle.

    So each factor's gradient is cut to its triangle, and L^-H (...) U^-H brings both back to A.
    """
    m, k, n = L.shape[-2], L.shape[-1], U.shape[-1]
    g_L = xp.zeros_like(L) if g[1] is None else g[1]
    g_U = xp.zeros_like(U) if g[2] is None else g[2]
    L1, U1 = rows(xp, L, 0, k), columns(xp, U, 0, k)
    left = xp.matmul(adjoint(xp, L1), rows(xp, g_L, 0, k))
    right = xp.matmul(columns(xp, g_U, 0, k), adjoint(xp, U1))
    # the rows of L beyond the square part follow U, the columns of U beyond it follow L
    if m > k:
        right = right - xp.matmul(adjoint(xp, rows(xp, L, k, m)), rows(xp, g_L, k, m))
    if n > k:
        left = left - xp.matmul(columns(xp, g_U, k, n), adjoint(xp, columns(xp, U, k, n)))
    inner = below(xp, left) + xp.triu(right)
    top = divided(xp, inner, L1, U1)
    if n > k:
        beyond = xp._solve_triangular(adjoint(xp, L1), columns(xp, g_U, k, n), True, True)
        top = xp.concatenate([top, beyond], axis=-1)
    if m > k:
        beneath = adjoint(xp, xp._solve_triangular(U1, adjoint(xp, rows(xp, g_L, k, m)), True, False))
        top = xp.concatenate([top, beneath], axis=-2)
    return xp.matmul(P, top)


def divided(xp: Namespace, inner: Array, L: Array, U: Array) -> Array:
    """L^-H inner U^-H."""
    left = xp._solve_triangular(adjoint(xp, L), inner, True, True)
    return adjoint(xp, xp._solve_triangular(U, adjoint(xp, left), True, False))


def _lu_tangent(xp: Namespace, t: Array, P: Array, L: Array, U: Array, pivots: Array) -> tuple[Array, ...]:
    m, k, n = L.shape[-2], L.shape[-1], U.shape[-1]
    t = xp.matmul(adjoint(xp, P), t)
    L1, U1 = rows(xp, L, 0, k), columns(xp, U, 0, k)
    inner = _times_inverse(xp, xp._solve_triangular(L1, rows(xp, columns(xp, t, 0, k), 0, k), False, True), U1)
    t_L, t_U = xp.matmul(L1, below(xp, inner)), xp.matmul(xp.triu(inner), U1)
    if m > k:
        moved = rows(xp, t, k, m) - xp.matmul(rows(xp, L, k, m), t_U)
        t_L = xp.concatenate([t_L, _times_inverse(xp, moved, U1)], axis=-2)
    if n > k:
        moved = columns(xp, t, k, n) - xp.matmul(t_L, columns(xp, U, k, n))
        t_U = xp.concatenate([t_U, xp._solve_triangular(L1, moved, False, True)], axis=-1)
    return xp.zeros_like(P), t_L, t_U, xp.zeros_like(pivots)


lu_factors = primitive(
    "_lu",
    forward=factors,
    vjp={"A": _lu_gradient},
    jvp={"A": _lu_tangent},
    batch=batch_matrices,
    outputs=("P", "L", "U", "pivots"),
    nondifferentiable=("P", "pivots"),
    node="LinalgLuBackward0",
    autocast="float32",
)


@composite
def linalg_lu(A: Array, *, pivot: bool = True) -> Any:
    """A permutation P, a lower triangular L with ones on its diagonal, and an upper triangular U: (P, L, U), A = P L U.

    pivot  False, which leaves rows where they are, is an error on the CPU

    >>> import undertow as ut
    >>> ut.linalg.lu(ut.tensor([[1.0, 2.0], [2.0, 2.0]])).U.tolist()
    [[2.0, 2.0], [0.0, 1.0]]
    """
    _require_pivoting(pivot)
    return return_types.linalg_lu(lu_factors(as_operand("linalg.lu", "A", A))[:3])


def _require_pivoting(pivot: bool) -> None:
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")


# ---- both factors in one matrix


@composite(order="columns rows")
@example_by_example
def linalg_lu_factor(A: Array, *, pivot: bool = True) -> Any:
    """L and U in one matrix, and the row (from 1) that each was exchanged with in turn: (LU, pivots).

    A zero on the diagonal of U, with which nothing could be solved, is an error; lu_factor_ex reports it instead.

    pivot  False, which leaves rows where they are, is an error on the CPU

    >>> import undertow as ut
    >>> ut.linalg.lu_factor(ut.tensor([[4.0, 2.0], [2.0, 3.0]])).pivots
    tensor([1, 2], dtype=undertow.int32)
    """
    LU, pivots = _packed_factors("linalg.lu_factor", A, pivot)
    _check_diagonal(LU._xp, LU._array)
    return return_types.linalg_lu_factor((LU, pivots))


def _packed_factors(name: str, A: Array, pivot: bool) -> tuple[Tensor, Tensor]:
    _require_pivoting(pivot)
    _, L, U, pivots = lu_factors(as_operand(name, "A", A))
    m, n = A.shape[-2:]
    k = min(m, n)
    packed = add(constant_pad_nd(recorded.tril(L, -1), (0, n - k, 0, 0)), constant_pad_nd(U, (0, 0, 0, m - k)))
    return packed, pivots


def _check_diagonal(xp: Namespace, LU: Array) -> None:
    zeros = xp.argwhere(xp.diagonal(LU, 0, -2, -1) == 0)
    if len(zeros):
        *batch, k = zeros[0].tolist()
        where = f"(Batch element {', '.join(map(str, batch))}): " if batch else ""
        raise RuntimeError(
            f"torch.linalg.lu_factor: {where}U[{k + 1},{k + 1}] is zero and using it on lu_solve would result in a "
            "division by zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
            "linalg.lu_factor_ex(A, pivot)"
        )


def permutations(xp: Namespace, pivots: Array, m: int, dtype: DType) -> Array:
    """The permutation matrices that exchanges of rows make up."""
    return xp.swapaxes(xp.eye(m, dtype=dtype)[places_of_rows(xp, pivots, m)], -1, -2)


def places_of_rows(xp: Namespace, pivots: Array, m: int) -> Array:
    """The places that rows had before they were exchanged in turn."""
    flat = xp.ascontiguousarray(pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1]))
    order = kernels.places_of_rows(xp, flat, m)
    if order is None:
        order = xp.array(xp.broadcast_to(xp.arange(m), (len(flat), m)))
        each = xp.arange(len(flat))
        for k in range(flat.shape[1]):
            other = flat[:, k] - 1
            order[each, other], order[:, k] = order[:, k].copy(), order[each, other]
    return order.reshape(*pivots.shape[:-1], m)


def rows_in_order(B: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices, in the order of their numbers; of both there may be stacks."""
    lead = B._xp.broadcast_shapes(tuple(order.shape[:-1]), tuple(B.shape[:-2]))
    numbers = expand(unsqueeze(order, -1), (*lead, B.shape[-2], 1))
    return take_along_dim(expand(B, (*lead, *B.shape[-2:])), numbers, -2)


@composite(out=True, order="rows")
@example_by_example
def lu_unpack(LU_data: Array, LU_pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """The factors of what lu_factor gives: (P, L, U); what is not asked for is empty.

    LU_data, LU_pivots  what `linalg.lu_factor` gives
    unpack_data         whether L and U are made
    unpack_pivots       whether P is made

    >>> import undertow as ut
    >>> factors = ut.linalg.lu_factor(ut.eye(2))
    >>> ut.lu_unpack(*factors).L
    tensor([[1., 0.],
            [0., 1.]])
    """
    LU_data, LU_pivots = as_operand("lu_unpack", "LU_data", LU_data), as_operand("lu_unpack", "LU_pivots", LU_pivots)
    if unpack_pivots:
        _check_pivots(LU_pivots)
    xp, (m, n) = LU_data._xp, LU_data.shape[-2:]
    k = min(m, n)
    P = L = U = Tensor(xp.empty((0,), LU_data.dtype), xp)
    if unpack_pivots:
        P = Tensor(permutations(xp, LU_pivots._array, m, LU_data.dtype), xp)
    if unpack_data:
        ones = Tensor(xp.eye(m, k, dtype=LU_data.dtype), xp)
        L = add(recorded.tril(columns(recorded, LU_data, 0, k), -1), ones)
        U = recorded.triu(rows(recorded, LU_data, 0, k))
    return return_types.lu_unpack((P, L, U))


def _check_pivots(pivots: Tensor) -> None:
    if pivots.dtype != dtypes.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype. Note: this "
            "function is intended to be used with the output produced by torch.linalg.lu_factor"
        )


@composite
@example_by_example
@in_float32
def linalg_lu_solve(LU: Array, pivots: Array, B: Array, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """The X with A X = B (or X A = B, if not `left`), given lu_factor(A); with A^H instead, if `adjoint`.

    LU, pivots  what `lu_factor` gives

    >>> import undertow as ut
    >>> factors = ut.linalg.lu_factor(ut.tensor([[4.0, 2.0], [2.0, 3.0]]))
    >>> ut.linalg.lu_solve(*factors, ut.tensor([[8.0], [8.0]]))
    tensor([[1.],
            [2.]])
    """
    name = "linalg.lu_solve"
    LU, pivots, B = as_operand(name, "LU", LU), as_operand(name, "pivots", pivots), as_operand(name, "B", B)
    turn = recorded.swapaxes
    if not left:
        solved = linalg_lu_solve(LU, pivots, recorded.conj(turn(B, -1, -2)), adjoint=not adjoint)
        return rearranged(recorded.conj(turn(solved, -1, -2)), "rows", ())
    check_matrices(name, LU)
    _check_pivots(pivots)
    order = Tensor(places_of_rows(pivots._xp, pivots._array, LU.shape[-1]), pivots._xp)
    if adjoint:
        turned = recorded.conj(turn(LU, -1, -2))
        solved = solve_triangular(turned, solve_triangular(turned, B, False, False), True, True)
        return rearranged(rows_in_order(solved, argsort(order, -1)), "columns", ())
    first = solve_triangular(LU, rows_in_order(B, order), False, True)
    return solve_triangular(LU, first, True, False)


# ---- older forms, and the one that reports instead of raising


@composite(variants="function method", out=True)
def lu_solve(b: Array, LU_data: Array, LU_pivots: Array) -> Array:
    """Solve A x = b by the LU factorisation of A; `linalg.lu_solve` in its older form.

    LU_data, LU_pivots  what `linalg.lu_factor` gives

    >>> import undertow as ut
    >>> factors = ut.linalg.lu_factor(2 * ut.eye(2))
    >>> ut.lu_solve(ut.ones(2, 1), *factors)
    tensor([[0.5000],
            [0.5000]])
    """
    return linalg_lu_solve(LU_data, LU_pivots, b)


@composite(order="columns rows")
@example_by_example
def linalg_lu_factor_ex(A: Array, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """`lu_factor`, and for each matrix the number of its first zero pivot, or 0.

    >>> import undertow as ut
    >>> ut.linalg.lu_factor_ex(ut.tensor([[4.0, 2.0], [2.0, 3.0]])).info
    tensor(0, dtype=undertow.int32)
    """
    LU, pivots = _packed_factors("linalg.lu_factor_ex", A, pivot)
    info = _first_zeros(LU._xp, LU._array)
    if check_errors and info.any():
        raise RuntimeError(
            f"linalg.lu_factor: U[{info.max()},{info.max()}] is zero and using it on lu_solve would "
            "result in a division by zero."
        )
    return return_types.linalg_lu_factor_ex((LU, pivots, Tensor(info, LU._xp)))


def first_zero_pivot(A: Array) -> int:
    """The number, from 1, of the first zero on the diagonal of U in A = P L U; 0 if there is none."""
    check_matrices("linalg.lu", A, square=False)
    return int(_first_zeros(cpu, _decomposed(cpu, A[None])[0])[0])


def _first_zeros(xp: Namespace, LU: Array) -> Array:
    """The number, from 1, of the first zero on the diagonal of each matrix; 0 if there is none."""
    zero = xp.diagonal(LU, 0, -2, -1) == 0
    if not zero.size:
        return xp.zeros(LU.shape[:-2], dtypes.int32)
    return xp.asarray(xp.where(zero.any(-1), zero.argmax(-1) + 1, 0), dtype=dtypes.int32)


def reports(A: Tensor, whole: Callable[..., Any], find: Callable[[Any], int]) -> Tensor:
    """What `find` says of each matrix, in a tensor; by the kernel `whole` where it serves."""
    known = whole(A._xp, wide(A._array))
    if known is not None:
        return Tensor(known, A._xp)
    matrices = wide(cpu.take_over(A._array)).reshape(math.prod(A.shape[:-2]), *A.shape[-2:])
    found = cpu.array([find(m) for m in matrices], dtypes.int32)
    return Tensor(A._xp.asarray(found.reshape(A.shape[:-2])), A._xp)


@composite(variants="function method", out=True)
def lu(A: Array, pivot: bool = True, get_infos: bool = False) -> tuple[Any, ...]:
    """`linalg.lu_factor`: (LU, pivots), with get_infos (LU, pivots, infos).

    A          (..., m, n)
    pivot      False, which leaves rows where they are, is an error on the CPU
    get_infos  also return, for each matrix, 0 or the first zero on U's diagonal

    >>> import undertow as ut
    >>> ut.lu(ut.tensor([[1.0, 2.0], [2.0, 2.0]]))[0].tolist()
    [[2.0, 2.0], [0.5, 1.0]]
    """
    LU, pivots, infos = linalg_lu_factor_ex(A, pivot=pivot)
    return (LU, pivots, infos) if get_infos else (LU, pivots)
