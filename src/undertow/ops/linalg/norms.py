"""Norms of matrices, norms of vectors or matrices as the order says, and condition numbers."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.dims import Dims, numpy_spelling, wrap_dim
from undertow.ops.arguments.half_precision import wide
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.inverse_and_solve import linalg_inv
from undertow.ops.linalg.svd import linalg_svdvals
from undertow.ops.pointwise.abs_sign import abs as absolute
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.pointwise.division import true_divide
from undertow.ops.pointwise.powers import reciprocal
from undertow.ops.pointwise.where_clamp import where
from undertow.ops.reduce.extrema import amax, amin
from undertow.ops.reduce.sums_and_products import cast
from undertow.ops.reduce.sums_and_products import sum as sum_of
from undertow.ops.reduce.vector_norms import linalg_vector_norm, vector_norm
from undertow.ops.views.clone import to_dtype
from undertow.ops.views.dimensions import moveaxis, unsqueeze
from undertow.ops.views.slices import select
from undertow.tensor import Tensor

#: of columns or of rows: order -> (the dimension summed, the one whose extreme is taken)
SUMS = {1: (0, 1), math.inf: (1, 0)}


@composite
@numpy_spelling
def linalg_matrix_norm(
    A: Array, ord: Any = "fro", dim: Dims = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The norm of matrices that lie in the two dimensions `dim`.

    ord   "fro": of all elements; "nuc": the sum of the singular values; 2, -2: the largest, smallest of them;
          1, -1: the largest, smallest sum of a column; inf, -inf: of a row

    >>> import undertow as ut
    >>> ut.linalg.matrix_norm(ut.tensor([[1.0, -2.0], [3.0, 4.0]]), 1).item()
    6.0
    """
    A = as_operand("linalg.matrix_norm", "A", A)
    check_matrices("linalg.matrix_norm", A, square=False)
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported. Use 'fro', 'nuc', 1, 2, inf, -1, -2, -inf.")
    first, second = _matrix_dims(A, dim)
    A = _in_dtype(A, dtype)
    if ord == "fro":
        return linalg_vector_norm(A, 2, (first, second), keepdim)
    if ord in ("nuc", 2, -2):
        return _of_singular_values(A, ord, first, second, keepdim)
    summed, kept = [(first, second)[k] for k in SUMS[math.fabs(ord)]]
    kept = kept if keepdim or kept < summed else kept - 1
    return _extreme(sum_of(absolute(A), summed, keepdim=keepdim), ord, kept, keepdim)


def _matrix_dims(A: Array, dim: Any) -> tuple[int, int]:
    if isinstance(dim, Integral):
        raise TypeError(f"linalg_matrix_norm(): argument 'dim' must be tuple of ints, not int ({dim})")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    first, second = [wrap_dim(d, A.ndim) for d in dim]
    if first == second:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    return first, second


def _in_dtype(A: Array, dtype: DType) -> Array:
    if dtype is None:
        return A
    dtype = dtypes.as_dtype(dtype, "linalg.matrix_norm")
    name = dtypes.SCALAR_NAMES[dtype]
    if not dtypes.is_differentiable(dtype):
        raise RuntimeError(f"linalg.matrix_norm: dtype should be floating point or complex, but got {name}")
    if (dtype.kind == "c") != (A.dtype.kind == "c"):
        kind = "complex for complex" if A.dtype.kind == "c" else "real for real"
        raise RuntimeError(f"linalg.matrix_norm: dtype should be {kind} inputs, but got {name}")
    return to_dtype(A, dtype)


def _of_singular_values(A: Array, ord: Any, first: int, second: int, keepdim: bool) -> Tensor:
    values = linalg_svdvals(moveaxis(A, (first, second), (-2, -1)))
    norm = sum_of(values, -1) if ord == "nuc" else _extreme(values, ord, -1, False)
    for dim in sorted((first, second)) if keepdim else ():
        norm = unsqueeze(norm, dim)
    return norm


def _extreme(x: Array, ord: float, dim: int, keepdim: bool) -> Tensor:
    """The largest element for a positive order (0 if there is none), the smallest for a negative one."""
    if ord < 0:
        return amin(x, dim, keepdim)
    return amax(x, dim, keepdim) if x.shape[dim] else sum_of(x, dim, keepdim=keepdim)


@composite
@numpy_spelling
def linalg_norm(
    A: Array, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The vector norm of order `ord` of all elements or along one dimension, or the norm of matrices in two.

    Without `dim`, an order means the norm of a vector (1-d) or of a matrix (2-d).

    >>> import undertow as ut
    >>> ut.linalg.norm(ut.tensor([3.0, 4.0]))
    tensor(5.)
    """
    A = as_operand("linalg.norm", "A", A)
    dims = None if dim is None else (dim,) if isinstance(dim, Integral) else tuple(dim)
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if dims is None and ord is not None and A.ndim not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
        )
    of_matrices = isinstance(ord, str) or (ord is not None and (A.ndim if dims is None else len(dims)) == 2)
    if of_matrices:
        return linalg_matrix_norm(A, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype)
    return linalg_vector_norm(A, 2 if ord is None else ord, dims, keepdim, dtype=dtype)


@composite
@example_by_example
def linalg_cond(A: Array, p: Any = None) -> Tensor:
    """The condition number of matrices: how much solving with them can enlarge an error.

    p   the order of the norm: None (the same as 2), or any order that `matrix_norm` takes

    >>> import undertow as ut
    >>> ut.linalg.cond(ut.tensor([[1.0, 0.0], [0.0, 4.0]])).item()
    4.0
    """
    A = as_operand("linalg.cond", "A", A)
    if A.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if p in (None, 2, -2):
        return _singular_value_ratio(A, p)
    check_matrices(f"linalg.cond(ord={p})", A)
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if p == "nuc":
        values = linalg_svdvals(A)
        return mul(sum_of(values, -1), sum_of(reciprocal(values), -1))
    if not A.shape[-1]:
        return sum_of(absolute(A), (-2, -1))
    singular = _singular_ones(A)
    if not singular.any():
        return mul(linalg_matrix_norm(A, p), linalg_matrix_norm(linalg_inv(A), p))
    regular = where(Tensor(singular[..., None, None], A._xp), _identity_like(A), A)
    product = mul(linalg_matrix_norm(A, p), linalg_matrix_norm(linalg_inv(regular), p))
    return where(Tensor(singular, A._xp), Tensor(A._xp.asarray(math.inf, product.dtype), A._xp), product)


def _singular_value_ratio(A: Array, p: Any) -> Tensor:
    values = linalg_svdvals(A)
    if not values.shape[-1]:
        return sum_of(values, -1)
    largest, smallest = select(values, -1, 0), select(values, -1, -1)
    return true_divide(smallest, largest) if p == -2 else true_divide(largest, smallest)


def _identity_like(A: Array) -> Tensor:
    return Tensor(A._xp.eye(A.shape[-1], dtype=A.dtype), A._xp)


def _singular_ones(A: Array) -> Array:
    """Which of the matrices have no inverse."""
    xp, matrices = A._xp, wide(A._array).reshape(-1, *A.shape[-2:])
    try:
        xp.linalg.inv(matrices)
        found = xp.zeros(len(matrices), bool)
    except xp.linalg.LinAlgError:
        found = xp.asarray([_has_no_inverse(xp, m) for m in matrices])
    return found.reshape(A.shape[:-2])


def _has_no_inverse(xp: Namespace, matrix: Array) -> bool:
    try:
        xp.linalg.inv(matrix)
    except xp.linalg.LinAlgError:
        return True
    return False


# ---- the older names


@composite(variants="function method", out=True)
@numpy_spelling
def norm(
    input: Array, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """The vector norm of order `p` over `dim`, or of all elements; p="nuc": the nuclear norm of matrices.

    >>> import undertow as ut
    >>> ut.norm(ut.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if p is None or p == "fro":
        p = 2
    if not isinstance(p, str):
        return vector_norm(cast(input, dtype), p, dim, keepdim)
    if p != "nuc":
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported. Use a number, 'fro' or 'nuc'.")
    return nuclear_norm(cast(input, dtype), (-2, -1) if dim is None else dim, keepdim)


@composite(out=True)
def frobenius_norm(input: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """The square root of the sum of squares.

    >>> import undertow as ut
    >>> ut.frobenius_norm(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.4772)
    """
    return linalg_vector_norm(input, 2, dim, keepdim)


@composite(out=True)
def nuclear_norm(input: Array, dim: Dims = (-2, -1), keepdim: bool = False) -> Array:
    """The sum of the singular values.

    >>> import undertow as ut
    >>> ut.nuclear_norm(ut.eye(2))
    tensor(2.)
    """
    return linalg_matrix_norm(input, "nuc", dim, keepdim)
