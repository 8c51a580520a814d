"""Cholesky's factorisation, and what is computed with its factor."""

from __future__ import annotations

import math

from undertow.backend import cpu, kernels
from undertow.backend.interface import Array, Namespace
from undertow.errors import LinAlgError
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.rule_parts import adjoint, batch_matrices, solve_or_explain
from undertow.ops.linalg.triangular import solve_triangular
from undertow.tensor import Tensor


def _lower_factor(xp: Namespace, input: Array) -> Array:
    check_matrices("linalg.cholesky", input)
    if getattr(xp, "takes_any_matrix", False):
        found = None
    elif input.shape[-1] <= kernels.SMALL_MATRIX:
        found = kernels.cholesky_small(xp, xp.ascontiguousarray(input))
    else:
        found = _factor_by_lapack(xp, input)
    if found is not None:
        return found
    problem = "linalg.cholesky: The factorization could not be completed because the input is not positive-definite."
    return solve_or_explain(xp, problem, xp.linalg.cholesky, input)


def _factor_by_lapack(xp: Namespace, A: Array) -> Array | None:
    """None where there is no such library, or no such factor."""
    if xp is not cpu:
        return None
    from undertow.backend import lapack  # loaded when first used

    found = lapack.cholesky(A.reshape(math.prod(A.shape[:-2]), *A.shape[-2:]))
    return None if found is None or found[1].any() else found[0].reshape(A.shape)


def _half_lower(xp: Namespace, x: Array) -> Array:
    """The lower triangle, with the diagonal halved."""
    return (xp.tril(x) + xp.tril(x, -1)) * 0.5


def _cholesky_gradient(xp: Namespace, g: Array, out: Array) -> Array:
    """A = L L^H gives L^-1 dL = half_lower(L^-1 dA L^-H): what is left of a Hermitian matrix in a lower triangle.

    So gA = L^-H half_lower(L^H gL) L^-1, of which the Hermitian part is taken, since dA has no other.
    """
    inner = _half_lower(xp, xp.matmul(adjoint(xp, out), g))
    left = xp._solve_triangular(adjoint(xp, out), inner, True, False)
    whole = adjoint(xp, xp._solve_triangular(adjoint(xp, out), adjoint(xp, left), True, False))
    return (whole + adjoint(xp, whole)) * 0.5


def _cholesky_tangent(xp: Namespace, t: Array, out: Array) -> Array:
    t = (t + adjoint(xp, t)) * 0.5
    inner = xp._solve_triangular(out, adjoint(xp, xp._solve_triangular(out, t, False, False)), False, False)
    return xp.matmul(out, _half_lower(xp, adjoint(xp, inner)))


# reads the lower triangle, but its derivative is that of a function of Hermitian matrices
cholesky_lower = primitive(
    "_cholesky_lower",
    forward=_lower_factor,
    vjp={"input": _cholesky_gradient},
    jvp={"input": _cholesky_tangent},
    batch=batch_matrices,
    node="LinalgCholeskyExBackward0",
    autocast="float32",
    order="columns",
)


@composite(order="columns")
def linalg_cholesky(input: Array, *, upper: bool = False) -> Array:
    """The lower triangular L with L L^H = input (or the upper L^H), for Hermitian positive-definite matrices.

    upper  the upper triangle R, with A = R^H R, instead of the lower L, with A = L L^H

    >>> import undertow as ut
    >>> ut.linalg.cholesky(ut.tensor([[4.0, 2.0], [2.0, 3.0]]))
    tensor([[2.0000, 0.0000],
            [1.0000, 1.4142]])
    """
    factor = cholesky_lower(input)
    return adjoint(recorded, factor) if upper else factor


@composite(variants="function method", out=True)
def cholesky(input: Array, upper: bool = False) -> Array:
    """Another name of `linalg.cholesky`.

    upper  the upper triangle R, with A = R^H R, instead of the lower L, with A = L L^H

    >>> import undertow as ut
    >>> ut.cholesky(ut.tensor([[4.0, 2.0], [2.0, 3.0]]))
    tensor([[2.0000, 0.0000],
            [1.0000, 1.4142]])
    """
    return linalg_cholesky(input, upper=upper)


# ---- with Cholesky's factor


@composite(variants="function method", out=True)
def cholesky_solve(B: Array, L: Array, upper: bool = False) -> Tensor:
    """The X with L L^H X = B, for a lower triangular L (or with L^H L, for an upper one).

    >>> import undertow as ut
    >>> ut.cholesky_solve(ut.tensor([[8.0]]), ut.tensor([[2.0]])).tolist()
    [[2.0]]
    """
    B, L = as_operand("cholesky_solve", "B", B), as_operand("cholesky_solve", "L", L)
    for name, x in (("b", B), ("u", L)):
        if x.ndim < 2:
            raise RuntimeError(f"{name} should have at least 2 dimensions, but has {x.ndim} dimensions instead")
    check_matrices("cholesky_solve", L)
    if B.shape[-2] != L.shape[-2]:
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {L.shape[-2]} by {L.shape[-1]} but each "
            f"b matrix is {B.shape[-2]} by {B.shape[-1]}"
        )
    other = adjoint(recorded, L)
    first, second = (other, L) if upper else (L, other)
    return solve_triangular(second, solve_triangular(first, B, False, False), True, False)


def _check_diagonal(xp: Namespace, L: Array) -> None:
    zeros = xp.argwhere(xp.diagonal(L, 0, -2, -1) == 0)
    if len(zeros):
        *batch, k = zeros[0].tolist()
        where = f"(Batch element {', '.join(map(str, batch))}): " if batch else ""
        raise LinAlgError(
            f"cholesky_inverse: {where}The diagonal element {k + 1} is zero, the inversion could not be completed "
            "because the input matrix is singular."
        )


@composite(variants="function method", out=True)
@example_by_example
def cholesky_inverse(L: Array, upper: bool = False) -> Tensor:
    """The inverse of L L^H, for a lower triangular L (or of L^H L, for an upper one).

    >>> import undertow as ut
    >>> ut.cholesky_inverse(ut.eye(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    L = as_operand("cholesky_inverse", "L", L)
    check_matrices("cholesky_inverse", L)
    _check_diagonal(L._xp, L._array)
    return cholesky_solve(Tensor(L._xp.eye(L.shape[-1], dtype=L.dtype), L._xp), L, upper)
