"""Linear equations between tensors of many dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.linalg.inverse_and_solve import linalg_inv, linalg_solve
from undertow.ops.views.dimensions import moveaxis
from undertow.ops.views.reshape import reshape
from undertow.tensor import Tensor


@composite
def linalg_tensorinv(A: Array, ind: int = 2) -> Tensor:
    """The inverse of A as a linear map from tensors of shape A.shape[ind:] to tensors of shape A.shape[:ind].

    >>> import undertow as ut
    >>> ut.linalg.tensorinv(ut.eye(4).reshape(2, 2, 4), ind=2).shape
    undertow.Size([4, 2, 2])
    """
    A = as_operand("linalg.tensorinv", "A", A)
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    rows, columns = math.prod(A.shape[:ind]), math.prod(A.shape[ind:])
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{columns} != {rows}"
        )
    return reshape(linalg_inv(reshape(A, (rows, columns))), (*A.shape[ind:], *A.shape[:ind]))


@composite
def linalg_tensorsolve(A: Array, B: Array, dims: Sequence[int] | None = None) -> Tensor:
    """The X with tensordot(A, X, X.ndim) = B; `dims` are moved to the end of A first.

    >>> import undertow as ut
    >>> ut.linalg.tensorsolve(2 * ut.eye(2), ut.ones(2))
    tensor([0.5000, 0.5000])
    """
    A, B = as_operand("linalg.tensorsolve", "A", A), as_operand("linalg.tensorsolve", "B", B)
    if dims is not None:
        A = moveaxis(A, tuple(dims), tuple(range(-len(dims), 0)))
    rows, columns = math.prod(A.shape[: B.ndim]), math.prod(A.shape[B.ndim :])
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {columns} != {rows}"
        )
    return reshape(linalg_solve(reshape(A, (rows, columns)), reshape(B, (rows,))), A.shape[B.ndim :])
