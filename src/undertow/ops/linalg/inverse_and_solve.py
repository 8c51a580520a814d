"""Inverses and linear systems."""

from __future__ import annotations

from undertow.backend import dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.composite_order import rearranged
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import batch_stacks
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.rule_parts import adjoint, batch_matrices, solve_or_explain

# ---- inverse


def _inverse_of(xp: Namespace, A: Array) -> Array:
    check_matrices("linalg.inv", A)
    if not getattr(xp, "takes_any_matrix", False):
        unit = xp.broadcast_to(xp.eye(A.shape[-1], dtype=A.dtype), A.shape)
        found = kernels.solve_small(xp, xp.ascontiguousarray(A), xp.ascontiguousarray(unit))
        if found is not None:
            return found
    problem = "linalg.inv: The inversion could not be completed because the input matrix is singular."
    return solve_or_explain(xp, problem, xp.linalg.inv, A)


linalg_inv = primitive(
    "linalg_inv",
    forward=_inverse_of,
    vjp={"A": lambda xp, g, out: -xp.matmul(xp.matmul(adjoint(xp, out), g), adjoint(xp, out))},
    jvp={"A": lambda xp, t, out: -xp.matmul(xp.matmul(out, t), out)},
    batch=batch_matrices,
    node="LinalgInvExBackward0",
    autocast="float32",
    order="columns",
)


@composite(variants="function method", out=True)
def inverse(input: Array) -> Array:
    """The inverse of square matrices.

    >>> import undertow as ut
    >>> ut.inverse(ut.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return linalg_inv(input)


# ---- linear systems


def solution(xp: Namespace, A: Array, B: Array) -> Array:
    if not getattr(xp, "takes_any_matrix", False):
        found = kernels.solve_small(xp, xp.ascontiguousarray(A), xp.ascontiguousarray(B))
        if found is not None:
            return found
    problem = "linalg.solve: The solver failed because the input matrix is singular."
    return solve_or_explain(xp, problem, xp.linalg.solve, A, B)


def _solve_matrix_gradient(xp: Namespace, g: Array, A: Array, out: Array) -> Array:
    return -xp.matmul(xp._solve_matrices(adjoint(xp, A), g), adjoint(xp, out))


# A X = B for matrices B
solve_matrices = primitive(
    "_solve_matrices",
    forward=solution,
    vjp={
        "A": _solve_matrix_gradient,
        "B": lambda xp, g, A: xp._solve_matrices(adjoint(xp, A), g),
    },
    jvp={
        "A": lambda xp, t, A, out: -xp._solve_matrices(A, xp.matmul(t, out)),
        "B": lambda xp, t, A: xp._solve_matrices(A, t),
    },
    batch=batch_stacks,
    node="LinalgSolveExBackward0",
    autocast="float32",
    order="columns",
)


@composite
def linalg_solve(A: Array, B: Array, *, left: bool = True) -> Array:
    """The X with A X = B, or with X A = B if not `left`; B holds matrices, or (as A has one dimension more) vectors.

    >>> import undertow as ut
    >>> ut.linalg.solve(ut.tensor([[2.0, 0.0], [0.0, 4.0]]), ut.tensor([2.0, 4.0])).tolist()
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
    if are_vectors(A, B):
        return rearranged(recorded.squeeze(_solve(A, recorded.expand_dims(B, -1), True), -1), "columns", ())
    return _solve(A, B, left)


def are_vectors(A: Array, B: Array) -> bool:
    """Whether B, beside the matrices A, holds vectors and not matrices."""
    return B.ndim == 1 or (B.ndim + 1 == A.ndim and bool(B.shape == A.shape[:-1]))


def _solve(A: Array, B: Array, left: bool) -> Array:
    if B.shape[-2 if left else -1] != A.shape[-1]:
        sizes = " and ".join(f"{x.shape[-2]}x{x.shape[-1]}" for x in (A, B))
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation {equation} ({sizes})")
    if left:
        return solve_matrices(A, B)
    turn = recorded.swapaxes
    return turn(solve_matrices(turn(A, -1, -2), turn(B, -1, -2)), -1, -2)


# ---- powers
