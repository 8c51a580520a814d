"""Eigenvalues of matrices (and stacks of them), with their vectors.

Vectors are determined only up to a factor of length 1. A loss that depends on this choice has no derivative: the rules
raise an error where one does. Vectors of equal values have no derivative either: it comes out as nan, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.rule_parts import (
    adjoint,
    batch_matrices,
    diagonal_of,
    differences,
    needs_gradient,
    require_zero,
    skew,
    solve_or_explain,
)

# ---- Hermitian matrices

EIGENVECTOR_PHASE = (
    "_backward: The eigenvectors in the complex case are specified up to multiplication by e^{i phi}. The specified "
    "loss function depends on this quantity, so it is ill-defined."
)


def _check_hermitian(A: Array, UPLO: str) -> None:
    check_matrices("linalg.eigh", A)
    if str(UPLO).upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")


def _hermitian_eigenvalues(xp: Namespace, A: Array, UPLO: str = "L") -> tuple[Array, ...]:
    _check_hermitian(A, UPLO)
    problem = "linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned."
    return tuple(solve_or_explain(xp, problem, xp.linalg.eigh, A, UPLO.upper()))


def _eigh_gradient(xp: Namespace, g: Any, eigenvalues: Array, eigenvectors: Array) -> Array:
    """From V^H dA V: its diagonal is dL, and the rest, over the differences L[j] - L[i], is V^H dV.

    V^H dV is skew-Hermitian, as V stays unitary, so only that part of V^H gV counts.
    """
    g_L, g_V = g
    V, Vh = eigenvectors, adjoint(xp, eigenvectors)
    if g_V is None:
        return xp.matmul(V * xp.expand_dims(g_L, -2), Vh)
    inner = xp.matmul(Vh, g_V)
    if V.dtype.kind == "c":
        require_zero(xp.imag(diagonal_of(xp, inner)), "linalg_eigh" + EIGENVECTOR_PHASE)
    inner = skew(xp, inner) * 0.5
    if V.dtype.kind == "c":
        inner = inner - xp.diag_embed(diagonal_of(xp, inner))
    inner = inner / differences(xp, eigenvalues)
    if g_L is not None:
        inner = inner + xp.diag_embed(g_L)
    return xp.matmul(V, xp.matmul(inner, Vh))


def _eigh_tangent(xp: Namespace, t: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
    inner = xp.matmul(xp.matmul(adjoint(xp, eigenvectors), t), eigenvectors)
    diagonal = diagonal_of(xp, inner)
    turn = (inner - xp.diag_embed(diagonal)) / differences(xp, eigenvalues)
    return xp.real(diagonal), xp.matmul(eigenvectors, turn)


# reads one triangle, but its derivative is that of a function of Hermitian matrices
eigh_factors = primitive(
    "_eigh",
    forward=_hermitian_eigenvalues,
    vjp={"A": _eigh_gradient},
    jvp={"A": _eigh_tangent},
    batch=batch_matrices,
    outputs=("eigenvalues", "eigenvectors"),
    node="LinalgEighBackward0",
    autocast="float32",
    order="rows columns",
)


def _eigenvalues_alone(xp: Namespace, A: Array, UPLO: str = "L") -> Array:
    _check_hermitian(A, UPLO)
    problem = "linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned."
    return solve_or_explain(xp, problem, xp.linalg.eigvalsh, A, UPLO.upper())


def _eigenvalues_gradient(xp: Namespace, g: Array, A: Array, UPLO: str) -> Array:
    _, V = xp._eigh(A, UPLO)
    return xp.matmul(V * xp.expand_dims(g, -2), adjoint(xp, V))


def _eigenvalues_tangent(xp: Namespace, t: Array, A: Array, UPLO: str) -> Array:
    _, V = xp._eigh(A, UPLO)
    return xp.real(diagonal_of(xp, xp.matmul(xp.matmul(adjoint(xp, V), t), V)))


# without the vectors, which take most of the time: only derivatives need them
eigenvalues_alone = primitive(
    "_eigvalsh",
    forward=_eigenvalues_alone,
    vjp={"A": _eigenvalues_gradient},
    jvp={"A": _eigenvalues_tangent},
    batch=batch_matrices,
    node="LinalgEighBackward0",
    autocast="float32",
)


@composite
def linalg_eigh(A: Array, UPLO: str = "L") -> Any:
    """The eigenvalues, in ascending order, and eigenvectors (as columns) of Hermitian matrices.

    UPLO   the triangle that is read: "L" or "U"

    >>> import undertow as ut
    >>> ut.linalg.eigh(ut.tensor([[0.0, 2.0], [2.0, 0.0]])).eigenvalues.tolist()
    [-2.0, 2.0]
    """
    return return_types.linalg_eigh(eigh_factors(A, UPLO))


@composite
def linalg_eigvalsh(A: Array, UPLO: str = "L") -> Array:
    """The eigenvalues of Hermitian matrices, in ascending order.

    UPLO  which triangle is read, "L" or "U"

    >>> import undertow as ut
    >>> ut.linalg.eigvalsh(ut.tensor([[4.0, 2.0], [2.0, 3.0]]))
    tensor([1.4384, 5.5616])
    """
    return linalg_eigh(A, UPLO).eigenvalues if needs_gradient(A) else eigenvalues_alone(A, UPLO)


# ---- any square matrices


def _any_eigenvalues(xp: Namespace, A: Array) -> tuple[Array, ...]:
    check_matrices("linalg.eig", A)
    if not xp.isfinite(A).all():
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    problem = "linalg.eig: The algorithm failed to converge."
    found = solve_or_explain(xp, problem, xp.linalg.eig, A)
    dtype = dtypes.complex_of(A.dtype) if A.dtype.kind == "f" else A.dtype
    return tuple([xp.asarray(x, dtype) for x in found])


def _eig_gradient(xp: Namespace, g: Any, eigenvalues: Array, eigenvectors: Array) -> Array:
    """The same from V^-1 dA V, for V is not unitary here; hence the systems to solve with V^H."""
    g_L, g_V = g
    V, Vh = eigenvectors, adjoint(xp, eigenvectors)
    if g_V is None:
        return xp._solve_matrices(Vh, xp.expand_dims(g_L, -1) * Vh)
    inner = xp.matmul(Vh, g_V)
    diagonal = diagonal_of(xp, inner)
    require_zero(xp.imag(diagonal), "linalg_eig" + EIGENVECTOR_PHASE)
    # the vectors stay of length 1
    inner = inner - xp.matmul(Vh, V * xp.expand_dims(xp.real(diagonal), -2))
    inner = inner / differences(xp, xp.conj(eigenvalues))
    inner = inner - xp.diag_embed(diagonal_of(xp, inner))
    if g_L is not None:
        inner = inner + xp.diag_embed(g_L)
    return xp._solve_matrices(Vh, xp.matmul(inner, Vh))


def _eig_tangent(xp: Namespace, t: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
    V = eigenvectors
    inner = xp._solve_matrices(V, xp.matmul(xp.astype(t, V.dtype), V))
    diagonal = diagonal_of(xp, inner)
    moved = xp.matmul(V, (inner - xp.diag_embed(diagonal)) / differences(xp, eigenvalues))
    along = xp.real(diagonal_of(xp, xp.matmul(adjoint(xp, V), moved)))
    return diagonal, moved - V * xp.expand_dims(along, -2)


eig_factors = primitive(
    "_eig",
    forward=_any_eigenvalues,
    vjp={"A": _eig_gradient},
    jvp={"A": _eig_tangent},
    batch=batch_matrices,
    outputs=("eigenvalues", "eigenvectors"),
    node="LinalgEigBackward0",
    autocast="float32",
    order="rows columns",
)


@composite
def linalg_eig(A: Array) -> Any:
    """The complex eigenvalues and eigenvectors (columns of length 1) of square matrices, in no particular order.

    >>> import undertow as ut
    >>> ut.linalg.eig(ut.tensor([[0.0, -1.0], [1.0, 0.0]])).eigenvalues
    tensor([0.+1.j, 0.-1.j])
    """
    return return_types.linalg_eig(eig_factors(as_operand("linalg.eig", "A", A)))


@composite
def linalg_eigvals(A: Array) -> Array:
    """The complex eigenvalues of square matrices, in no particular order.

    >>> import undertow as ut
    >>> ut.linalg.eigvals(ut.tensor([[0.0, 1.0], [-1.0, 0.0]])).abs().tolist()
    [1.0, 1.0]
    """
    return linalg_eig(A).eigenvalues
