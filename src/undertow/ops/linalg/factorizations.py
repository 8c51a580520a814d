"""Inverses, determinants, linear systems and factorisations of matrices (and stacks of them)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.errors import LinAlgError, NotDifferentiableError
from undertow.modes import current
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.ops.inplace.forms import copy
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.matmul import batch_stacks, matmul
from undertow.ops.pointwise.arithmetic import add
from undertow.ops.pointwise.comparison import eq
from undertow.ops.pointwise.where_clamp import where
from undertow.ops.views.reshape import clone
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad

# ---- checks and small parts


def solve_or_explain(xp: Any, problem: str, function: Callable[..., Any], *arrays: Any) -> Any:
    try:
        return function(*arrays)
    except xp.linalg.LinAlgError:
        raise LinAlgError(problem) from None


def adjoint(xp: Any, x: Any) -> Any:
    """The conjugate transpose of matrices."""
    return xp.swapaxes(xp.conj(x), -1, -2)


def trace_of(xp: Any, x: Any) -> Any:
    return xp.sum(xp.diagonal(x, 0, -2, -1), axis=-1)


def as_matrices(xp: Any, x: Any) -> Any:
    """Numbers as matrices of one element, to be multiplied with matrices."""
    return xp.expand_dims(xp.expand_dims(x, -1), -1)


def batch_matrices(op: Any, args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, int]:
    """One more dimension in front of the matrices."""
    return op(in_front(args[0], in_dims[0]), *args[1:]), 0


# ---- inverse


def inverse_of(xp: Any, A: Any) -> Any:
    check_matrices("linalg.inv", A)
    problem = "linalg.inv: The inversion could not be completed because the input matrix is singular."
    return solve_or_explain(xp, problem, xp.linalg.inv, A)


linalg_inv = primitive(
    "linalg_inv",
    forward=inverse_of,
    vjp={"A": lambda xp, g, out: -xp.matmul(xp.matmul(adjoint(xp, out), g), adjoint(xp, out))},
    jvp={"A": lambda xp, t, out: -xp.matmul(xp.matmul(out, t), out)},
    batch=batch_matrices,
    node="LinalgInvExBackward0",
    autocast="float32",
)


@composite(variants="function method", out=True)
def inverse(input: Any) -> Any:
    """The inverse of square matrices.

    >>> import undertow as ut
    >>> ut.inverse(ut.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return linalg_inv(input)


# ---- determinant


def determinant(xp: Any, A: Any) -> Any:
    check_matrices("linalg.det", A)
    return xp.linalg.det(A)


def cofactors(xp: Any, A: Any) -> Any:
    """The derivative of the determinant, conjugated: conj(det) * inv^H, and its limit where A is singular."""
    try:
        return as_matrices(xp, xp.conj(xp.linalg.det(A))) * adjoint(xp, xp.linalg.inv(A))
    except xp.linalg.LinAlgError:
        return cofactors_by_svd(xp, A)


def cofactors_by_svd(xp: Any, A: Any) -> Any:
    U, S, Vh = xp.linalg.svd(A)
    n = S.shape[-1]
    others = xp.prod(xp.where(xp.eye(n, dtype=bool), 1, S[..., None, :]), axis=-1)
    phase = xp.conj(xp.linalg.det(U) * xp.linalg.det(Vh))
    return as_matrices(xp, phase) * xp.matmul(U * others[..., None, :], Vh)


def cofactors_gradient(xp: Any, g: Any, A: Any, out: Any) -> Any:
    inverse = adjoint(xp, xp.linalg_inv(A))
    scale = as_matrices(xp, xp.sum(xp.conj(g) * out, axis=(-2, -1)))
    return scale * inverse - xp.matmul(xp.matmul(out, adjoint(xp, g)), inverse)


def cofactors_tangent(xp: Any, t: Any, A: Any, out: Any) -> Any:
    inverse = xp.linalg_inv(A)
    change = as_matrices(xp, xp.conj(trace_of(xp, xp.matmul(inverse, t))))
    return change * out - xp.matmul(xp.matmul(adjoint(xp, inverse), adjoint(xp, t)), out)


det_backward = primitive(
    "det_backward",
    forward=cofactors,
    vjp={"A": cofactors_gradient},
    jvp={"A": cofactors_tangent},
    batch=batch_matrices,
    variants="",
)

linalg_det = primitive(
    "linalg_det",
    forward=determinant,
    vjp={"A": lambda xp, g, A: as_matrices(xp, g) * xp.det_backward(A)},
    jvp={"A": lambda xp, t, A: xp.sum(t * xp.conj(xp.det_backward(A)), axis=(-2, -1))},
    batch=batch_matrices,
)


@composite(variants="function method")
def det(input: Any) -> Any:
    """The determinant of square matrices."""
    return linalg_det(input)


def sign_and_log(xp: Any, A: Any) -> Any:
    check_matrices("linalg.slogdet", A)
    return tuple(xp.linalg.slogdet(A))


def slogdet_gradient(xp: Any, g: Any, A: Any, sign: Any) -> Any:
    g_sign, weight = g
    if g_sign is not None and A.dtype.kind == "c":  # the sign of a real determinant does not move
        turn = xp.imag(g_sign * xp.conj(sign)) * 1j
        weight = turn if weight is None else weight + turn
    return None if weight is None else as_matrices(xp, weight) * adjoint(xp, xp.linalg_inv(A))


def slogdet_tangent(xp: Any, t: Any, A: Any, sign: Any) -> Any:
    relative = trace_of(xp, xp.matmul(xp.linalg_inv(A), t))
    moved = sign * xp.imag(relative) * 1j if A.dtype.kind == "c" else xp.zeros_like(sign)
    return moved, xp.real(relative)


linalg_slogdet = primitive(
    "linalg_slogdet",
    forward=sign_and_log,
    vjp={"A": slogdet_gradient},
    jvp={"A": slogdet_tangent},
    batch=batch_matrices,
    outputs=("sign", "logabsdet"),
)


@composite(variants="function method", out=True)
def slogdet(input: Any) -> Any:
    """The sign of the determinant and the logarithm of its absolute value: (sign, logabsdet)."""
    return return_types.slogdet(linalg_slogdet(input))


@composite(variants="function method")
def logdet(input: Any) -> Any:
    """The logarithm of the determinant: nan where a real one is negative, complex where the determinant is."""
    sign, logarithm = linalg_slogdet(input)
    if sign.dtype.kind == "c":
        return add(recorded.log(sign), logarithm)
    return where(eq(sign, -1), float("nan"), logarithm)


# ---- linear systems


def solution(xp: Any, A: Any, B: Any) -> Any:
    problem = "linalg.solve: The solver failed because the input matrix is singular."
    return solve_or_explain(xp, problem, xp.linalg.solve, A, B)


def solve_matrix_gradient(xp: Any, g: Any, A: Any, out: Any) -> Any:
    return -xp.matmul(xp._solve_matrices(adjoint(xp, A), g), adjoint(xp, out))


# A X = B for matrices B
solve_matrices = primitive(
    "_solve_matrices",
    forward=solution,
    vjp={
        "A": solve_matrix_gradient,
        "B": lambda xp, g, A: xp._solve_matrices(adjoint(xp, A), g),
    },
    jvp={
        "A": lambda xp, t, A, out: -xp._solve_matrices(A, xp.matmul(t, out)),
        "B": lambda xp, t, A: xp._solve_matrices(A, t),
    },
    batch=batch_stacks,
    node="LinalgSolveExBackward0",
    autocast="float32",
)


@composite
def linalg_solve(A: Any, B: Any, *, left: bool = True) -> Any:
    """The X with A X = B, or with X A = B if not `left`; B holds matrices, or (as A has one dimension more) vectors.

    >>> import undertow as ut
    >>> ut.ops.linalg_solve(ut.tensor([[2.0, 0.0], [0.0, 4.0]]), ut.tensor([2.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    A, B = as_operand("linalg.solve", "A", A), as_operand("linalg.solve", "B", B)
    check_matrices("linalg.solve", A)
    if A.dtype != B.dtype:
        names = dtypes.SCALAR_NAMES
        raise RuntimeError(
            "linalg.solve: Expected A and B to have the same dtype, but found A of type "
            f"{names[A.dtype]} and B of type {names[B.dtype]} instead"
        )
    if B.ndim == 1 or (B.ndim + 1 == A.ndim and B.shape == A.shape[:-1]):
        return recorded.squeeze(_solve(A, recorded.expand_dims(B, -1), True), -1)
    return _solve(A, B, left)


def _solve(A: Any, B: Any, left: bool) -> Any:
    if B.shape[-2 if left else -1] != A.shape[-1]:
        sizes = " and ".join(f"{x.shape[-2]}x{x.shape[-1]}" for x in (A, B))
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation {equation} ({sizes})")
    if left:
        return solve_matrices(A, B)
    turn = recorded.swapaxes
    return turn(solve_matrices(turn(A, -1, -2), turn(B, -1, -2)), -1, -2)


# ---- Cholesky


def lower_factor(xp: Any, input: Any) -> Any:
    check_matrices("linalg.cholesky", input)
    problem = "linalg.cholesky: The factorization could not be completed because the input is not positive-definite."
    return solve_or_explain(xp, problem, xp.linalg.cholesky, input)


def half_lower(xp: Any, x: Any) -> Any:
    """The lower triangle, with the diagonal halved."""
    return (xp.tril(x) + xp.tril(x, -1)) * 0.5


def cholesky_gradient(xp: Any, g: Any, out: Any) -> Any:
    inner = half_lower(xp, xp.matmul(adjoint(xp, out), g))
    left = xp._solve_matrices(adjoint(xp, out), inner)
    whole = adjoint(xp, xp._solve_matrices(adjoint(xp, out), adjoint(xp, left)))
    return (whole + adjoint(xp, whole)) * 0.5


def cholesky_tangent(xp: Any, t: Any, out: Any) -> Any:
    t = (t + adjoint(xp, t)) * 0.5
    inner = xp._solve_matrices(out, adjoint(xp, xp._solve_matrices(out, t)))
    return xp.matmul(out, half_lower(xp, adjoint(xp, inner)))


# reads the lower triangle, but its derivative is that of a function of Hermitian matrices
cholesky_lower = primitive(
    "_cholesky_lower",
    forward=lower_factor,
    vjp={"input": cholesky_gradient},
    jvp={"input": cholesky_tangent},
    batch=batch_matrices,
    node="LinalgCholeskyExBackward0",
    autocast="float32",
)


@composite
def linalg_cholesky(input: Any, *, upper: bool = False) -> Any:
    """The lower triangular L with L L^H = input (or the upper L^H), for Hermitian positive-definite matrices."""
    factor = cholesky_lower(input)
    return adjoint(recorded, factor) if upper else factor


@composite(variants="function method", out=True)
def cholesky(input: Any, upper: bool = False) -> Any:
    """Another name of `linalg.cholesky`."""
    return linalg_cholesky(input, upper=upper)


# ---- QR


def orthogonal_and_upper(xp: Any, A: Any, mode: str) -> Any:
    check_matrices("linalg.qr", A, square=False)
    return tuple(xp.linalg.qr(A, mode))


def mirrored(xp: Any, x: Any) -> Any:
    """The upper triangle of x, mirrored below; the diagonal is made real."""
    upper = xp.triu(x) + xp.triu(x, 1)
    return (upper + adjoint(xp, upper)) * 0.5


def columns(xp: Any, x: Any, start: int, stop: int) -> Any:
    return xp.slice(x, -1, start, stop)


def qr_gradient(xp: Any, g: Any, A: Any, Q: Any, R: Any, mode: str) -> Any:
    n, m = R.shape[-2], A.shape[-1]
    g_Q = xp.zeros_like(Q) if g[0] is None else g[0]
    g_R = xp.zeros_like(R) if g[1] is None else g[1]
    if n == m:
        return square_qr_gradient(xp, g_Q, g_R, Q, R)
    # wide: the columns beyond the square part only follow, R = [U, Q^H Y]
    g_U, g_V = columns(xp, g_R, 0, n), columns(xp, g_R, n, m)
    g_Q = g_Q + xp.matmul(columns(xp, A, n, m), adjoint(xp, g_V))
    left = square_qr_gradient(xp, g_Q, g_U, Q, columns(xp, R, 0, n))
    return xp.concatenate([left, xp.matmul(Q, g_V)], axis=-1)


def square_qr_gradient(xp: Any, g_Q: Any, g_R: Any, Q: Any, R: Any) -> Any:
    inner = mirrored(xp, xp.matmul(g_R, adjoint(xp, R)) - xp.matmul(adjoint(xp, Q), g_Q))
    return adjoint(xp, xp._solve_matrices(R, adjoint(xp, g_Q + xp.matmul(Q, inner))))


def qr_tangent(xp: Any, t: Any, A: Any, Q: Any, R: Any, mode: str) -> Any:
    n, m = R.shape[-2], A.shape[-1]
    if n == m:
        return square_qr_tangent(xp, t, Q, R)
    t_Q, t_U = square_qr_tangent(xp, columns(xp, t, 0, n), Q, columns(xp, R, 0, n))
    moved = columns(xp, t, n, m) - xp.matmul(t_Q, columns(xp, R, n, m))
    return t_Q, xp.concatenate([t_U, xp.matmul(adjoint(xp, Q), moved)], axis=-1)


def square_qr_tangent(xp: Any, t: Any, Q: Any, R: Any) -> Any:
    scaled = adjoint(xp, xp._solve_matrices(adjoint(xp, R), adjoint(xp, t)))  # t R^-1
    inner = xp.matmul(adjoint(xp, Q), scaled)
    below = xp.tril(inner, -1)
    upward = inner - below + adjoint(xp, below)
    if t.dtype.kind == "c":  # the diagonal of R stays real: its imaginary part turns Q
        diagonal = xp.triu(xp.tril(inner))
        upward = upward - (diagonal - xp.conj(diagonal)) * 0.5
    return scaled - xp.matmul(Q, upward), xp.matmul(upward, R)


qr_reduced = primitive(
    "_qr_reduced",
    forward=orthogonal_and_upper,
    vjp={"A": qr_gradient},
    jvp={"A": qr_tangent},
    batch=batch_matrices,
    outputs=("Q", "R"),
    node="LinalgQrBackward0",
    autocast="float32",
)


@composite
def linalg_qr(A: Any, mode: str = "reduced") -> Any:
    """Matrices Q with orthonormal columns and upper triangular R with Q R = A: (Q, R).

    mode  "reduced": Q is n x k and R is k x m, for k = min(n, m); "complete": Q is square, which has a derivative only
          where that makes no difference; "r": R alone, without derivative
    """
    A = as_operand("linalg.qr", "A", A)
    check_matrices("linalg.qr", A, square=False)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    if mode == "reduced" or (mode == "complete" and A.shape[-2] <= A.shape[-1]):
        return return_types.linalg_qr(qr_reduced(A, mode))
    if requires_grad(A) and current().grad_enabled:
        raise NotDifferentiableError("linalg_qr", _why_not(mode))
    found = A._xp.linalg.qr(A._array, mode)
    arrays = (A._xp.empty((0,), A.dtype), found) if mode == "r" else found
    return return_types.linalg_qr(tuple([Tensor(a, A._xp) for a in arrays]))


def _why_not(mode: str) -> str:
    if mode == "r":
        return (
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
            "linalg.qr(A, mode='reduced') if you are going to require gradients."
        )
    return "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."


@composite(variants="function method", out=True)
def qr(input: Any, some: bool = True) -> Any:
    """The QR decomposition, reduced if `some`, else complete."""
    return linalg_qr(input, "reduced" if some else "complete")


# ---- powers


@composite(variants="function method", out=True)
def matrix_power(input: Any, n: int) -> Any:
    """The matrix multiplied with itself n times; negative powers are those of the inverse.

    >>> import undertow as ut
    >>> ut.matrix_power(ut.tensor([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    input = as_operand("matrix_power", "input", input)
    _check_square("linalg.matrix_power", input)
    if n == 0:
        return copy(input, Tensor(input._xp.eye(input.shape[-1], dtype=input.dtype), input._xp))
    if n < 0:
        input, n = linalg_inv(input), -n
    return clone(input) if n == 1 else _positive_power(input, n)


def _check_square(name: str, A: Any) -> None:
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if A.shape[-1] != A.shape[-2]:
        n, m = A.shape[-2:]
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {n} by {m} matrices")


def _positive_power(matrix: Any, n: int) -> Any:
    """By squaring: one factor for each binary digit of n that is 1."""
    result = None
    while n:
        if n % 2:
            result = matrix if result is None else matmul(result, matrix)
        n //= 2
        if n:
            matrix = matmul(matrix, matrix)
    return result
