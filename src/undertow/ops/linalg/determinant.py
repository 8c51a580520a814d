"""Determinants, and their logarithms."""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.rule_parts import adjoint, as_matrices, batch_matrices, checked_svd, trace_of
from undertow.ops.pointwise.arithmetic import add
from undertow.ops.pointwise.comparison_logic_bits import eq
from undertow.ops.pointwise.where_clamp import where


def _determinant(xp: Namespace, A: Array) -> Array:
    check_matrices("linalg.det", A)
    return xp.linalg.det(A)


def _cofactors(xp: Namespace, A: Array) -> Array:
    """The derivative of the determinant, conjugated: conj(det) * inv^H, and its limit where A is singular."""
    try:
        return as_matrices(xp, xp.conj(xp.linalg.det(A))) * adjoint(xp, xp.linalg.inv(A))
    except xp.linalg.LinAlgError:
        return _cofactors_by_svd(xp, A)


def _cofactors_by_svd(xp: Namespace, A: Array) -> Array:
    U, S, Vh = checked_svd(xp, A)
    n = S.shape[-1]
    others = xp.prod(xp.where(xp.eye(n, dtype=bool), 1, S[..., None, :]), axis=-1)
    phase = xp.conj(xp.linalg.det(U) * xp.linalg.det(Vh))
    return as_matrices(xp, phase) * xp.matmul(U * others[..., None, :], Vh)


def _cofactors_gradient(xp: Namespace, g: Array, A: Array, out: Array) -> Array:
    inverse = adjoint(xp, xp.linalg_inv(A))
    scale = as_matrices(xp, xp.sum(xp.conj(g) * out, axis=(-2, -1)))
    return scale * inverse - xp.matmul(xp.matmul(out, adjoint(xp, g)), inverse)


def _cofactors_tangent(xp: Namespace, t: Array, A: Array, out: Array) -> Array:
    inverse = xp.linalg_inv(A)
    change = as_matrices(xp, xp.conj(trace_of(xp, xp.matmul(inverse, t))))
    return change * out - xp.matmul(xp.matmul(adjoint(xp, inverse), adjoint(xp, t)), out)


det_backward = primitive(
    "det_backward",
    forward=_cofactors,
    vjp={"A": _cofactors_gradient},
    jvp={"A": _cofactors_tangent},
    batch=batch_matrices,
    variants="",
)


linalg_det = primitive(
    "linalg_det",
    forward=_determinant,
    vjp={"A": lambda xp, g, A: as_matrices(xp, g) * xp.det_backward(A)},
    jvp={"A": lambda xp, t, A: xp.sum(t * xp.conj(xp.det_backward(A)), axis=(-2, -1))},
    batch=batch_matrices,
)


@composite(variants="function method")
def det(input: Array) -> Array:
    """The determinant of square matrices.

    >>> import undertow as ut
    >>> ut.det(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(-2.)
    """
    return linalg_det(input)


def _sign_and_log(xp: Namespace, A: Array) -> tuple[Array, ...]:
    check_matrices("linalg.slogdet", A)
    return tuple(xp.linalg.slogdet(A))


def _slogdet_gradient(xp: Namespace, g: Any, A: Array, sign: Array) -> Array:
    g_sign, weight = g
    if g_sign is not None and A.dtype.kind == "c":  # the sign of a real determinant does not move
        turn = xp.imag(g_sign * xp.conj(sign)) * 1j
        weight = turn if weight is None else weight + turn
    return None if weight is None else as_matrices(xp, weight) * adjoint(xp, xp.linalg_inv(A))


def _slogdet_tangent(xp: Namespace, t: Array, A: Array, sign: Array) -> tuple[Array, Array]:
    relative = trace_of(xp, xp.matmul(xp.linalg_inv(A), t))
    moved = sign * xp.imag(relative) * 1j if A.dtype.kind == "c" else xp.zeros_like(sign)
    return moved, xp.real(relative)


slogdet_parts = primitive(
    "_slogdet",
    forward=_sign_and_log,
    vjp={"A": _slogdet_gradient},
    jvp={"A": _slogdet_tangent},
    batch=batch_matrices,
    outputs=("sign", "logabsdet"),
    node="LinalgSlogdetBackward0",
)


@composite
def linalg_slogdet(A: Array) -> Any:
    """The sign of the determinant and the logarithm of its absolute value: (sign, logabsdet).

    >>> import undertow as ut
    >>> ut.linalg.slogdet(ut.tensor([[1.0, 2.0], [3.0, 4.0]])).logabsdet
    tensor(0.6931)
    """
    return return_types.linalg_slogdet(slogdet_parts(A))


@composite(variants="function method", out=True)
def slogdet(input: Array) -> Any:
    """The sign of the determinant and the logarithm of its absolute value: (sign, logabsdet).

    >>> import undertow as ut
    >>> ut.slogdet(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    undertow.return_types.slogdet(
    sign=tensor(-1.),
    logabsdet=tensor(0.6931))
    """
    return return_types.slogdet(slogdet_parts(input))


@composite(variants="function method")
def logdet(input: Array) -> Array:
    """The logarithm of the determinant: nan where a real one is negative, complex where the determinant is.

    >>> import undertow as ut
    >>> ut.logdet(ut.eye(2))
    tensor(0.)
    """
    sign, logarithm = linalg_slogdet(input)
    if sign.dtype.kind == "c":
        return add(recorded.log(sign), logarithm)
    return where(eq(sign, -1), float("nan"), logarithm)
