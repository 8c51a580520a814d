"""Linear equations between tensors of many dimensions, and Vandermonde matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.linalg.inverse_and_solve import linalg_inv, linalg_solve
from undertow.ops.reduce.cumulative import cumprod
from undertow.ops.shape.flip_roll import flip
from undertow.ops.shape.joining import cat
from undertow.ops.views.dimensions import expand, moveaxis, unsqueeze
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


@composite(out=False)
def linalg_vander(x: Array, *, N: int | None = None) -> Tensor:
    """The powers 0, 1, ..., N - 1 of the elements of x, along one more dimension.

    >>> import undertow as ut
    >>> ut.linalg.vander(ut.tensor([2, 3]), N=3).tolist()
    [[1, 2, 4], [1, 3, 9]]
    """
    x = as_operand("linalg.vander", "x", x)
    x = x if x.ndim else unsqueeze(x, 0)
    N = x.shape[-1] if N is None else N
    if N <= 1:
        raise RuntimeError("N must be greater than 1.")
    repeated = expand(unsqueeze(x, -1), (*x.shape, N - 1))
    powers = cumprod(repeated, -1)
    return cat([recorded.ones_like(unsqueeze(x, -1)), powers], -1)


@composite
def vander(x: Array, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of the elements of a vector as columns, the highest first unless `increasing`.

    >>> import undertow as ut
    >>> ut.vander(ut.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 1., 1.],
            [4., 2., 1.],
            [9., 3., 1.]])
    """
    x = as_operand("vander", "x", x)
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    N = x.shape[0] if N is None else N
    if N < 0:
        raise RuntimeError("N must be non-negative.")
    if N < 2:
        return recorded.ones_like(expand(unsqueeze(x, -1), (x.shape[0], N)))
    powers = linalg_vander(x, N=N)
    return powers if increasing else flip(powers, (1,))
