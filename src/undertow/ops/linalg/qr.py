"""The QR factorisation."""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.errors import NotDifferentiableError
from undertow.ops.arguments.half_precision import wide
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.rule_parts import adjoint, batch_matrices, needs_gradient
from undertow.tensor import Tensor


def _orthogonal_and_upper(xp: Namespace, A: Array, mode: str) -> tuple[Array, ...]:
    check_matrices("linalg.qr", A, square=False)
    return tuple(xp.linalg.qr(A, mode))


def mirrored(xp: Namespace, x: Array) -> Array:
    """The upper triangle of x, mirrored below; the diagonal is made real."""
    upper = xp.triu(x) + xp.triu(x, 1)
    return (upper + adjoint(xp, upper)) * 0.5


def columns(xp: Namespace, x: Array, start: int, stop: int) -> Array:
    return xp.slice(x, -1, start, stop)


def _qr_gradient(xp: Namespace, g: Any, Q: Array, R: Array, mode: str) -> Array:
    n, m = R.shape[-2:]
    g_Q = xp.zeros_like(Q) if g[0] is None else g[0]
    g_R = xp.zeros_like(R) if g[1] is None else g[1]
    if n == m:
        return _square_qr_gradient(xp, g_Q, g_R, Q, R)
    # wide: the columns beyond the square part only follow, R = [U, Q^H Y]
    g_U, g_V = columns(xp, g_R, 0, n), columns(xp, g_R, n, m)
    g_Q = g_Q + xp.matmul(Q, xp.matmul(columns(xp, R, n, m), adjoint(xp, g_V)))
    left = _square_qr_gradient(xp, g_Q, g_U, Q, columns(xp, R, 0, n))
    return xp.concatenate([left, xp.matmul(Q, g_V)], axis=-1)


def _square_qr_gradient(xp: Namespace, g_Q: Array, g_R: Array, Q: Array, R: Array) -> Array:
    """gA = (gQ + Q mirrored(gR R^H - Q^H gQ)) R^-H.

    Q^H dA R^-1 splits into Q^H dQ, which is skew-Hermitian, and dR R^-1, which is upper triangular: what lies below
    the diagonal belongs to Q alone, and its mirror image has to be taken off from R.
    """
    inner = mirrored(xp, xp.matmul(g_R, adjoint(xp, R)) - xp.matmul(adjoint(xp, Q), g_Q))
    return adjoint(xp, xp._solve_matrices(R, adjoint(xp, g_Q + xp.matmul(Q, inner))))


def _qr_tangent(xp: Namespace, t: Array, Q: Array, R: Array) -> tuple[Array, Array]:
    n, m = R.shape[-2:]
    if n == m:
        return _square_qr_tangent(xp, t, Q, R)
    t_Q, t_U = _square_qr_tangent(xp, columns(xp, t, 0, n), Q, columns(xp, R, 0, n))
    moved = columns(xp, t, n, m) - xp.matmul(t_Q, columns(xp, R, n, m))
    return t_Q, xp.concatenate([t_U, xp.matmul(adjoint(xp, Q), moved)], axis=-1)


def _square_qr_tangent(xp: Namespace, t: Array, Q: Array, R: Array) -> tuple[Array, Array]:
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
    forward=_orthogonal_and_upper,
    vjp={"A": _qr_gradient},
    jvp={"A": _qr_tangent},
    batch=batch_matrices,
    outputs=("Q", "R"),
    node="LinalgQrBackward0",
    autocast="float32",
    order="columns",
)


@composite
def linalg_qr(A: Array, mode: str = "reduced") -> Any:
    """Matrices Q with orthonormal columns and upper triangular R with Q R = A: (Q, R).

    mode  "reduced": Q is n x k and R is k x m, for k = min(n, m); "complete": Q is square, which has a derivative only
          where that makes no difference; "r": R alone, without derivative

    >>> import undertow as ut
    >>> q, r = ut.linalg.qr(ut.tensor([[2.0, 1.0], [0.0, 1.0]]))
    >>> ut.allclose(q @ r, ut.tensor([[2.0, 1.0], [0.0, 1.0]]))
    True
    """
    A = as_operand("linalg.qr", "A", A)
    check_matrices("linalg.qr", A, square=False)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    if mode == "reduced" or (mode == "complete" and A.shape[-2] <= A.shape[-1]):
        return return_types.linalg_qr(qr_reduced(A, mode))
    if needs_gradient(A):
        raise NotDifferentiableError("linalg_qr", _why_not(mode))
    found = A._xp.linalg.qr(wide(A._array), mode)
    arrays = (A._xp.empty((0,), A.dtype), found) if mode == "r" else found
    return return_types.linalg_qr(tuple([Tensor(a.astype(A.dtype, copy=False), A._xp) for a in arrays]))


def _why_not(mode: str) -> str:
    if mode == "r":
        return (
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
            "linalg.qr(A, mode='reduced') if you are going to require gradients."
        )
    return "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."


@composite(variants="function method", out=True)
def qr(input: Array, some: bool = True) -> Any:
    """The QR decomposition, reduced if `some`, else complete.

    >>> import undertow as ut
    >>> ut.qr(ut.eye(2))[0].shape
    undertow.Size([2, 2])
    """
    return return_types.qr(linalg_qr(input, "reduced" if some else "complete"))
