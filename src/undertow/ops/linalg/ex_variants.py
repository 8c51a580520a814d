"""Factorisations that report instead of raising: `linalg.inv_ex`, `solve_ex`, `cholesky_ex`, `lu_factor_ex`.

Their last result, `info`, is 0 for every matrix that could be dealt with. For another it is the number of the pivot
that is zero, or of the leading minor that is not positive-definite, and what stands in the matrix's place is nan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import REGISTRY, composite, return_types
from undertow.ops.linalg.lu import packed_factors
from undertow.tensor import Tensor


def operation(name: str) -> Any:
    return REGISTRY[name].function


def first_zero_pivot(A: Any) -> int:
    """The number, from 1, of the first zero on the diagonal of U in A = P L U; 0 if there is none."""
    U = operation("linalg_lu")(Tensor(A, cpu)).U._array
    zero = cpu.flatnonzero(cpu.diagonal(U) == 0)
    return int(zero[0]) + 1 if zero.size else 0


def first_bad_minor(A: Any) -> int:
    """The order of the first leading minor that is not positive-definite; 0 if there is none."""
    for k in range(1, len(A) + 1):
        try:
            cpu.linalg.cholesky(A[:k, :k])
        except cpu.linalg.LinAlgError:
            return k
    return 0


def reports(A: Tensor, find: Callable[[Any], int]) -> Tensor:
    matrices = cpu.take_over(A._array).reshape(-1, *A.shape[-2:])
    found = cpu.array([find(m) for m in matrices], dtypes.int32)
    return Tensor(A._xp.asarray(found.reshape(A.shape[:-2])), A._xp)


def with_report(A: Any, find: Callable[[Any], int], check_errors: bool, compute: Callable[[Any], Any]) -> Any:
    """`compute(A)`, and the report; matrices that cannot be dealt with are replaced before, and by nan behind."""
    info = reports(A, find)
    if check_errors or not info._array.any():
        return compute(A), info
    bad = Tensor((info._array != 0)[..., None, None], A._xp)
    eye = Tensor(A._xp.eye(A.shape[-1], dtype=A.dtype), A._xp)
    return operation("where")(bad, float("nan"), compute(operation("where")(bad, eye, A))), info


@composite
@example_by_example
def linalg_inv_ex(A: Any, *, check_errors: bool = False) -> Any:
    """The inverse of matrices, and for each a number that is not 0 if it has none.

    >>> import undertow as ut
    >>> ut.linalg.inv_ex(ut.stack([ut.eye(2), ut.zeros(2, 2)])).info.tolist()
    [0, 1]
    """
    A = as_operand("linalg.inv_ex", "A", A)
    return return_types.linalg_inv_ex(with_report(A, first_zero_pivot, check_errors, operation("linalg_inv")))


@composite
@example_by_example
def linalg_solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The X with A X = B, and a number for each matrix that is not 0 if there is none."""
    A = as_operand("linalg.solve_ex", "A", A)
    solve = lambda A: operation("linalg_solve")(A, B, left=left)
    return return_types.linalg_solve_ex(with_report(A, first_zero_pivot, check_errors, solve))


@composite
@example_by_example
def linalg_cholesky_ex(input: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The Cholesky factor, and for each matrix a number that is not 0 if it is not positive-definite."""
    input = as_operand("linalg.cholesky_ex", "input", input)
    factor = lambda A: operation("linalg_cholesky")(A, upper=upper)
    return return_types.linalg_cholesky_ex(with_report(input, first_bad_minor, check_errors, factor))


@composite
@example_by_example
def linalg_lu_factor_ex(A: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """`lu_factor`, and for each matrix the number of its first zero pivot, or 0."""
    A = as_operand("linalg.lu_factor_ex", "A", A)
    info = reports(A, first_zero_pivot)
    if check_errors and info._array.any():
        raise RuntimeError(
            f"linalg.lu_factor: U[{info._array.max()},{info._array.max()}] is zero and using it on lu_solve would "
            "result in a division by zero."
        )
    return return_types.linalg_lu_factor_ex((*packed_factors("linalg.lu_factor_ex", A, pivot), info))
