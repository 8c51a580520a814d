"""Singular values of matrices (and stacks of them), with their vectors.

Vectors are determined only up to a factor of length 1, and the additional ones of a full decomposition up to a
rotation. A loss that depends on this choice has no derivative: the rules raise an error where one does. Vectors of
equal values have no derivative either: it comes out as nan, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.rule_parts import (
    adjoint,
    batch_matrices,
    checked_svd,
    columns,
    diagonal_of,
    differences,
    needs_gradient,
    require_zero,
    rows,
    skew,
)

SVD_PHASE = (
    "svd_backward: The singular vectors in the complex case are specified up to multiplication by e^{i phi}. The "
    "specified loss function depends on this phase term, making it ill-defined."
)


SVD_ROTATION = (
    "svd_backward: with full_matrices=True, the vectors beyond the singular values are specified up to a rotation. "
    "The specified loss function depends on it, making it ill-defined. Use full_matrices=False."
)


def singular_values(xp: Namespace, A: Array, full_matrices: bool = True) -> tuple[Array, ...]:
    check_matrices("linalg.svd", A, square=False)
    return tuple(checked_svd(xp, A, full_matrices))


def _svd_gradient(xp: Namespace, g: Any, U: Array, S: Array, Vh: Array, full_matrices: bool) -> Array:
    k = S.shape[-1]
    g_U, g_S, g_Vh = g
    if g_U is None and g_Vh is None:
        return xp.matmul(columns(xp, U, 0, k) * xp.expand_dims(g_S, -2), rows(xp, Vh, 0, k))
    whole = full_matrices and U.shape[-2] != Vh.shape[-1]
    if not whole:
        return _thin_svd_gradient(xp, g_U, g_S, g_Vh, U, S, Vh)
    thin_U, thin_Vh = columns(xp, U, 0, k), rows(xp, Vh, 0, k)
    thin_g_U = None if g_U is None else columns(xp, g_U, 0, k)
    thin_g_Vh = None if g_Vh is None else rows(xp, g_Vh, 0, k)
    total = _thin_svd_gradient(xp, thin_g_U, g_S, thin_g_Vh, thin_U, S, thin_Vh)
    if g_U is not None and U.shape[-1] > k:
        total = total - _complement_gradient(xp, g_U, U, thin_U / xp.expand_dims(S, -2), thin_Vh)
    if g_Vh is not None and Vh.shape[-2] > k:
        other = _complement_gradient(
            xp, adjoint(xp, g_Vh), adjoint(xp, Vh), adjoint(xp, thin_Vh / xp.expand_dims(S, -1)), adjoint(xp, thin_U)
        )
        total = total - adjoint(xp, other)
    return total


def _complement_gradient(xp: Namespace, g_U: Array, U: Array, scaled: Array, Vh: Array) -> Array:
    """What flows through the columns of U beyond the first k: they turn against those, d = -U S^-1 V^H dA^H rest."""
    k, m = Vh.shape[-2], U.shape[-1]
    rest, g_rest = columns(xp, U, k, m), columns(xp, g_U, k, m)
    require_zero(skew(xp, xp.matmul(adjoint(xp, rest), g_rest)), SVD_ROTATION)
    return xp.matmul(xp.matmul(rest, xp.matmul(adjoint(xp, g_rest), scaled)), Vh)


def _thin_svd_gradient(
    xp: Namespace, g_U: Array | None, g_S: Array | None, g_Vh: Array | None, U: Array, S: Array, Vh: Array
) -> Array:
    m, n = U.shape[-2], Vh.shape[-1]
    inner = _svd_inner_gradient(xp, g_U, g_S, g_Vh, U, S, Vh)
    if m > n and g_U is not None:
        scaled = g_U / xp.expand_dims(S, -2)
        outside = scaled - xp.matmul(U, xp.matmul(adjoint(xp, U), scaled))
        return xp.matmul(xp.matmul(U, inner) + outside, Vh)
    if m < n and g_Vh is not None:
        scaled = g_Vh / xp.expand_dims(S, -1)
        outside = scaled - xp.matmul(xp.matmul(scaled, adjoint(xp, Vh)), Vh)
        return xp.matmul(U, xp.matmul(inner, Vh) + outside)
    return xp.matmul(U, xp.matmul(inner, Vh))


def _svd_inner_gradient(
    xp: Namespace, g_U: Array | None, g_S: Array | None, g_Vh: Array | None, U: Array, S: Array, Vh: Array
) -> Array:
    """U^H gA V, in the space of the singular vectors."""
    # U^H dU and V^H dV are skew-Hermitian. Off the diagonal, U^H dA V and its adjoint are two equations for the two,
    # with S[j]^2 - S[i]^2 as their determinant; on it, the real part is dS, and only the sum of the phases matters.
    left = None if g_U is None else skew(xp, xp.matmul(adjoint(xp, U), g_U))
    right = None if g_Vh is None else skew(xp, xp.matmul(Vh, adjoint(xp, g_Vh)))
    if U.dtype.kind == "c":
        turns = [xp.imag(diagonal_of(xp, x)) for x in (left, right) if x is not None]
        require_zero(turns[0] + turns[1] if len(turns) == 2 else turns[0], SVD_PHASE)
    gaps = differences(xp, S * S)
    parts = [] if left is None else [left * xp.expand_dims(S, -2) / gaps]
    parts += [] if right is None else [xp.expand_dims(S, -1) * right / gaps]
    parts += [] if g_S is None else [xp.diag_embed(g_S)]
    if U.dtype.kind == "c" and left is not None and right is not None:
        parts.append(xp.diag_embed(diagonal_of(xp, left) / (2 * S)))
    return sum_of(parts)


def sum_of(parts: list[Any]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _svd_tangent(
    xp: Namespace, t: Array, U: Array, S: Array, Vh: Array, full_matrices: bool
) -> tuple[Array, Array, Array]:
    k, m, n = S.shape[-1], U.shape[-2], Vh.shape[-1]
    thin_U, thin_Vh = columns(xp, U, 0, k), rows(xp, Vh, 0, k)
    inner = xp.matmul(xp.matmul(adjoint(xp, thin_U), t), adjoint(xp, thin_Vh))
    t_S = xp.real(diagonal_of(xp, inner))
    inner = inner - xp.diag_embed(t_S)
    gaps = differences(xp, S * S)
    left, right = inner * xp.expand_dims(S, -2), inner * xp.expand_dims(S, -1)
    turn_U = (left + adjoint(xp, left)) / gaps
    turn_V = -(right + adjoint(xp, right)) / gaps
    if t.dtype.kind == "c":
        phase = xp.diag_embed(diagonal_of(xp, inner) / (2 * S))
        turn_U, turn_V = turn_U + phase, turn_V + phase
    t_U, t_Vh = xp.matmul(thin_U, turn_U), xp.matmul(turn_V, thin_Vh)
    if m > k:
        t_U = _with_complement(xp, t_U, xp.matmul(t, adjoint(xp, thin_Vh / xp.expand_dims(S, -1))), U, full_matrices)
    if n > k:
        moved = adjoint(xp, xp.matmul(adjoint(xp, thin_U / xp.expand_dims(S, -2)), t))
        t_Vh = adjoint(xp, _with_complement(xp, adjoint(xp, t_Vh), moved, adjoint(xp, Vh), full_matrices))
    return t_U, t_S, t_Vh


def _with_complement(xp: Namespace, t_U: Array, moved: Array, U: Array, full_matrices: bool) -> Array:
    """The tangent of the vectors, with the part that leaves their space; the vectors beyond turn along."""
    k = moved.shape[-1]
    thin = columns(xp, U, 0, k)
    t_U = t_U + moved - xp.matmul(thin, xp.matmul(adjoint(xp, thin), moved))
    if not full_matrices:
        return t_U
    rest = columns(xp, U, k, U.shape[-1])
    return xp.concatenate([t_U, -xp.matmul(thin, xp.matmul(adjoint(xp, moved), rest))], axis=-1)


svd_factors = primitive(
    "_svd",
    forward=singular_values,
    vjp={"A": _svd_gradient},
    jvp={"A": _svd_tangent},
    batch=batch_matrices,
    outputs=("U", "S", "Vh"),
    node="LinalgSvdBackward0",
    autocast="float32",
    order="columns rows columns",
)


def _values_alone(xp: Namespace, A: Array) -> Array:
    check_matrices("linalg.svd", A, square=False)
    return checked_svd(xp, A, compute_uv=False)


def _values_gradient(xp: Namespace, g: Array, A: Array) -> Array:
    U, _, Vh = xp._svd(A, False)
    return xp.matmul(U * xp.expand_dims(g, -2), Vh)


def _values_tangent(xp: Namespace, t: Array, A: Array) -> Array:
    U, _, Vh = xp._svd(A, False)
    return xp.real(diagonal_of(xp, xp.matmul(xp.matmul(adjoint(xp, U), t), adjoint(xp, Vh))))


# without the vectors, which take most of the time: only derivatives need them
values_alone = primitive(
    "_svdvals",
    forward=_values_alone,
    vjp={"A": _values_gradient},
    jvp={"A": _values_tangent},
    batch=batch_matrices,
    node="LinalgSvdBackward0",
    autocast="float32",
)


@composite
def linalg_svd(A: Array, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """Unitary matrices U and Vh, and the singular values S in descending order, with U S Vh = A: (U, S, Vh).

    full_matrices  whether U and V are square
    driver         of a GPU's library, accepted there; None on the CPU

    >>> import undertow as ut
    >>> ut.linalg.svd(ut.tensor([[0.0, 2.0], [1.0, 0.0]])).S.tolist()
    [2.0, 1.0]
    """
    if driver is not None:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs")
    return return_types.linalg_svd(svd_factors(A, bool(full_matrices)))


@composite
def linalg_svdvals(A: Array, *, driver: str | None = None) -> Array:
    """The singular values in descending order.

    driver  of a GPU's library, accepted there; None on the CPU

    >>> import undertow as ut
    >>> ut.linalg.svdvals(ut.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([4., 3.])
    """
    if driver is not None or needs_gradient(A):
        return linalg_svd(A, False, driver=driver).S
    return values_alone(A)


@composite(variants="function method", out=True)
def svd(input: Array, some: bool = True, compute_uv: bool = True) -> Any:
    """The decomposition input = U diag(S) V^H as (U, S, V), with only as many vectors as there are values if `some`.

    compute_uv  False: zeros in the place of U and V

    >>> import undertow as ut
    >>> ut.svd(ut.eye(2))[1]
    tensor([1., 1.])
    """
    U, S, Vh = linalg_svd(input, full_matrices=not some)
    if not compute_uv:
        m, n = input.shape[-2:]
        U, Vh = [recorded._zeros_for(input, (*input.shape[:-2], size, size)) for size in (m, n)]
    return return_types.svd((U, S, adjoint(recorded, Vh)))
