"""Factorisations that report instead of raising: `linalg.inv_ex`, `solve_ex`, `cholesky_ex`; lu.py has `lu_factor_ex`.

Their last result, `info`, is 0 for every matrix that could be dealt with. For another it is the number of the pivot
that is zero, or of the leading minor that is not positive-definite, and what stands in the matrix's place is nan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, kernels
from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite, return_types
from undertow.ops.linalg.cholesky import linalg_cholesky
from undertow.ops.linalg.inverse_and_solve import are_vectors, linalg_inv, linalg_solve
from undertow.ops.linalg.lu import first_zero_pivot, reports
from undertow.ops.pointwise.where_clamp import where
from undertow.tensor import Tensor


def _first_bad_minor(A: Array) -> int:
    """The order of the first leading minor that is not positive-definite; 0 if there is none."""
    for k in range(1, len(A) + 1):
        try:
            cpu.linalg.cholesky(A[:k, :k])
        except cpu.linalg.LinAlgError:
            return k
    return 0


def _with_report(
    A: Array,
    kernel: Callable[..., Any],
    find: Callable[[Any], int],
    check_errors: bool,
    compute: Callable[[Any], Any],
    of_vectors: bool = False,
) -> tuple[Array, Array]:
    """`compute(A)`, and the report; matrices that cannot be dealt with are replaced before, and by nan behind."""
    info = reports(A, kernel, find)
    if check_errors or not info._array.any():
        return compute(A), info
    bad = info._array != 0
    eye = Tensor(A._xp.eye(A.shape[-1], dtype=A.dtype), A._xp)
    found = compute(where(Tensor(bad[..., None, None], A._xp), eye, A))
    return where(Tensor(bad[..., None] if of_vectors else bad[..., None, None], A._xp), float("nan"), found), info


@composite
@example_by_example
def linalg_inv_ex(A: Array, *, check_errors: bool = False) -> Any:
    """The inverse of matrices, and for each a number that is not 0 if it has none.

    >>> import undertow as ut
    >>> ut.linalg.inv_ex(ut.stack([ut.eye(2), ut.zeros(2, 2)])).info.tolist()
    [0, 1]
    """
    A = as_operand("linalg.inv_ex", "A", A)
    return return_types.linalg_inv_ex(
        _with_report(A, kernels.first_zero_pivots, first_zero_pivot, check_errors, linalg_inv)
    )


@composite
@example_by_example
def linalg_solve_ex(A: Array, B: Array, *, left: bool = True, check_errors: bool = False) -> Any:
    """The X with A X = B, and a number for each matrix that is not 0 if there is none.

    left  False: X A = B

    >>> import undertow as ut
    >>> ut.linalg.solve_ex(ut.tensor([[4.0, 2.0], [2.0, 3.0]]), ut.tensor([8.0, 8.0])).result
    tensor([1., 2.])
    """
    A, B = as_operand("linalg.solve_ex", "A", A), as_operand("linalg.solve_ex", "B", B)
    solve = lambda A: linalg_solve(A, B, left=left)
    report = _with_report(A, kernels.first_zero_pivots, first_zero_pivot, check_errors, solve, are_vectors(A, B))
    return return_types.linalg_solve_ex(report)


@composite
@example_by_example
def linalg_cholesky_ex(input: Array, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The Cholesky factor, and for each matrix a number that is not 0 if it is not positive-definite.

    upper  the upper triangle R, with A = R^H R, instead of the lower L, with A = L L^H

    >>> import undertow as ut
    >>> ut.linalg.cholesky_ex(ut.tensor([[4.0, 2.0], [2.0, 3.0]])).info
    tensor(0, dtype=undertow.int32)
    """
    input = as_operand("linalg.cholesky_ex", "input", input)
    factor = lambda A: linalg_cholesky(A, upper=upper)
    return return_types.linalg_cholesky_ex(
        _with_report(input, kernels.first_bad_minors, _first_bad_minor, check_errors, factor)
    )
