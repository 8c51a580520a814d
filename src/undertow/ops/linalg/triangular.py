"""Linear systems with triangular matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import batch_stacks
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.rule_parts import adjoint
from undertow.ops.views.clone import clone
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


def _triangle(xp: Namespace, A: Array, upper: bool, unitriangular: bool) -> Array:
    """The part of A that is read; the diagonal of a unitriangular matrix is not."""
    if upper:
        return xp.triu(A, 1 if unitriangular else 0)
    return xp.tril(A, -1 if unitriangular else 0)


def _triangular_solution(xp: Namespace, A: Array, B: Array, upper: bool, unitriangular: bool) -> Array:
    if kernels.take_matrix(xp, A.shape[-1]) and A.shape[:-1] == B.shape[:-1]:
        found = kernels.solve_triangles(xp, xp.ascontiguousarray(A), xp.ascontiguousarray(B), upper, unitriangular)
    else:
        from undertow.ops.linalg import triangular_by_blocks  # loaded when first used

        found = triangular_by_blocks.solve_triangles(xp, A, B, upper, unitriangular)
    return _general_solution(xp, A, B, upper, unitriangular) if found is None else found


def _general_solution(xp: Namespace, A: Array, B: Array, upper: bool, unitriangular: bool) -> Array:
    A = _triangle(xp, A, upper, unitriangular)
    if unitriangular:
        A = A + xp.eye(A.shape[-1], dtype=A.dtype)
    if not upper:  # turned around, so that no pivot is looked for
        return _general_solution(xp, A[..., ::-1, ::-1], B[..., ::-1, :], True, False)[..., ::-1, :]
    try:
        return xp.linalg.solve(A, B)
    except xp.linalg.LinAlgError:
        return _back_substitution(xp, A, B)


def _back_substitution(xp: Namespace, A: Array, B: Array) -> Array:
    """Row by row from below: a zero on the diagonal gives infinities instead of an error."""
    shape = xp.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    X = xp.array(xp.broadcast_to(B, (*shape, *B.shape[-2:])))
    with xp.errstate(all="ignore"):
        for k in reversed(range(A.shape[-1])):
            known = xp.matmul(A[..., k : k + 1, k + 1 :], X[..., k + 1 :, :])
            X[..., k : k + 1, :] = (X[..., k : k + 1, :] - known) / A[..., k : k + 1, k : k + 1]
    return X


def _batch_triangular(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    return batch_stacks(lambda A, B: op(A, B, *args[2:]), args[:2], in_dims[:2])


def _right_gradient(xp: Namespace, g: Array, A: Array, upper: bool, unitriangular: bool) -> Array:
    return xp._solve_triangular(adjoint(xp, A), g, not upper, unitriangular)


def _matrix_gradient(xp: Namespace, g: Array, A: Array, out: Array, upper: bool, unitriangular: bool) -> Array:
    whole = -xp.matmul(_right_gradient(xp, g, A, upper, unitriangular), adjoint(xp, out))
    return _triangle(xp, whole, upper, unitriangular)


def _matrix_tangent(xp: Namespace, t: Array, A: Array, out: Array, upper: bool, unitriangular: bool) -> Array:
    moved = xp.matmul(_triangle(xp, t, upper, unitriangular), out)
    return -xp._solve_triangular(A, moved, upper, unitriangular)


# A X = B for matrices B
solve_triangular = primitive(
    "_solve_triangular",
    forward=_triangular_solution,
    vjp={"A": _matrix_gradient, "B": _right_gradient},
    jvp={
        "A": _matrix_tangent,
        "B": lambda xp, t, A, upper, unitriangular: xp._solve_triangular(A, t, upper, unitriangular),
    },
    batch=_batch_triangular,
    promote="same",
    node="LinalgSolveTriangularBackward0",
    autocast="float32",
    order="columns",
)


@composite(order="columns")
def linalg_solve_triangular(
    A: Array, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The X with A X = B (or X A = B, if not `left`), of which only one triangle of A is read.

    unitriangular  the diagonal is taken to be 1, and not read
    upper          which triangle of A counts

    >>> import undertow as ut
    >>> ut.linalg.solve_triangular(ut.tensor([[1.0, 2.0], [0.0, 1.0]]), ut.tensor([[5.0], [1.0]]), upper=True).tolist()
    [[3.0], [1.0]]
    """
    A, B = as_operand("linalg.solve_triangular", "A", A), as_operand("linalg.solve_triangular", "B", B)
    check_matrices("linalg.solve_triangular", A)
    if B.ndim < 2:
        raise RuntimeError("linalg.solve_triangular: The input tensor B must have at least 2 dimensions.")
    if B.shape[-2 if left else -1] != A.shape[-1]:
        sizes = " and ".join(f"{x.shape[-2]}x{x.shape[-1]}" for x in (A, B))
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"linalg.solve_triangular: Incompatible shapes of A and B for the equation {equation} ({sizes})"
        )
    if left:
        return solve_triangular(A, B, upper, unitriangular)
    turn = recorded.swapaxes
    return turn(solve_triangular(turn(A, -1, -2), turn(B, -1, -2), not upper, unitriangular), -1, -2)


@composite(variants="function method", out=True, order="columns")
def triangular_solve(
    b: Array, A: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """The X with A X = b (or with the transpose of A), and a copy of A: (solution, cloned_coefficient).

    upper          which triangle of A counts
    unitriangular  take A's diagonal for ones

    >>> import undertow as ut
    >>> ut.triangular_solve(ut.ones(2, 1), 2 * ut.eye(2)).solution
    tensor([[0.5000],
            [0.5000]])
    """
    b, A = as_operand("triangular_solve", "b", b), as_operand("triangular_solve", "A", A)
    if b.ndim < 2:
        raise RuntimeError(
            f"torch.triangular_solve: Expected b to have at least 2 dimensions, but it has {b.ndim} dimensions instead"
        )
    check_matrices("triangular_solve", A)
    matrix = recorded.swapaxes(A, -1, -2) if transpose else A
    solution = linalg_solve_triangular(matrix, b, upper=upper != transpose, unitriangular=unitriangular)
    return return_types.triangular_solve((solution, clone(A)))
