"""Products and sums of sparse tensors whose gradients have the places of the tensor they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.sparse.compressed import form_of, is_compressed
from undertow.backend.sparse.coo import SparseArray, is_sparse
from undertow.backend.sparse.kernels import product, product_of_values, sum_over, values_at
from undertow.ops.arguments.dims import wrap_dims
from undertow.ops.create.convert import convert
from undertow.ops.create.creation import zeros
from undertow.ops.create.like import full_like
from undertow.ops.declare import alias, composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.index.gather_scatter import gather
from undertow.ops.index.index_select import index_select
from undertow.ops.index.scatter_reduce import scatter_reduce
from undertow.ops.linalg.checks import check_inner, check_same_dtype
from undertow.ops.linalg.matmul import mm
from undertow.ops.pointwise.arithmetic import add, mul
from undertow.ops.reduce.sums_and_products import sum as sum_of
from undertow.ops.shape.joining import cat
from undertow.ops.sparse.coo import coalesce, expect_sparse, indices, refuse_batch, values
from undertow.ops.sparse.layouts import at_places_of, to_sparse, to_sparse_csr
from undertow.ops.views.copies import detach
from undertow.ops.views.dimensions import expand, transpose, unsqueeze
from undertow.tensor import Tensor
from undertow.tensor.layouts import layout_of, sparse_csr

if TYPE_CHECKING:
    from undertow.ops.arguments.dims import Dims

# ---- matrices


def _sampled_array(xp: Namespace, input: Array, other: Array, mask: SparseArray) -> SparseArray:
    return SparseArray(mask.indices, product_of_values(input, other, mask.indices), mask.shape, mask.coalesced)


def dense(xp: Namespace, g: Array) -> Array:
    return xp._to_dense(g) if is_sparse(g) else g


# input @ other.T, computed only at the places of `mask`
_sampled_mm = primitive(
    "_sampled_mm",
    forward=_sampled_array,
    vjp={
        "input": lambda xp, g, other, mask: xp.mm(at_places_of(xp, g, mask), xp.conj(other)),
        "other": lambda xp, g, input, mask: xp.mm(xp.t(at_places_of(xp, g, mask)), xp.conj(input)),
        "mask": None,
    },
    jvp={
        "input": lambda xp, t, other, mask: xp._sampled_mm(t, other, mask),
        "other": lambda xp, t, input, mask: xp._sampled_mm(input, t, mask),
    },
    batch=refuse_batch,
)


def _addmm_array(xp: Namespace, input: Array, mat1: Array, mat2: Array, beta: Any = 1, alpha: Any = 1) -> Array:
    check_same_dtype(mat1, mat2)
    check_inner(mat1.shape, mat2.shape)
    out = product(mat1, mat2)
    out = out if alpha == 1 else out * alpha
    return out if beta == 0 else out + (input if beta == 1 else beta * input)


def scaled(xp: Namespace, g: Array, factor: Array) -> Array:
    return g if factor == 1 else g * xp.conj(factor)


_sparse_addmm = primitive(
    "_sparse_addmm",
    forward=_addmm_array,
    vjp={
        "input": lambda xp, g, beta: scaled(xp, g, beta),
        "mat1": lambda xp, g, mat1, mat2, alpha: scaled(
            xp, xp._sampled_mm(dense(xp, g), xp.conj(mat2), xp._coalesce(mat1)), alpha
        ),
        "mat2": lambda xp, g, mat1, alpha: scaled(xp, xp.mm(xp.t(xp.conj(mat1)), g), alpha),
    },
    jvp={
        "input": lambda xp, t, beta: t * beta,
        "mat1": lambda xp, t, mat2, alpha: xp.mm(t, mat2) * alpha,
        "mat2": lambda xp, t, mat1, alpha: xp.mm(mat1, t) * alpha,
    },
    batch=refuse_batch,
)

_sparse_sparse_matmul = primitive(
    "_sparse_sparse_matmul",
    forward=lambda xp, input, other: product(input, other),
    vjp={
        "input": lambda xp, g, input, other: at_places_of(xp, xp.mm(g, xp.t(xp.conj(other))), xp._coalesce(input)),
        "other": lambda xp, g, input, other: at_places_of(xp, xp.mm(xp.t(xp.conj(input)), g), xp._coalesce(other)),
    },
    jvp={
        "input": lambda xp, t, other: xp.mm(t, other),
        "other": lambda xp, t, input: xp.mm(input, t),
    },
    batch=refuse_batch,
)


@composite
def sparse_mm(input: Array, mat2: Array, reduce: str = "sum") -> Tensor:
    """The product of a sparse matrix and a matrix; the gradient of a sparse factor is sparse, with its places.

    input   (n, k), sparse
    mat2    (k, m), dense or sparse
    reduce  what becomes of the products in a row's places, of a matrix in CSR: "sum", or "mean", "amax" or "amin"; it
            is 0 in a row without places

    >>> import undertow as ut
    >>> ut.sparse.mm(ut.eye(2).to_sparse(), ut.ones(2, 3)).shape
    undertow.Size([2, 3])
    """
    if reduce != "sum":
        return _reduced_products(input, mat2, reduce)
    if is_compressed(input) or is_compressed(mat2):
        found = sparse_mm(_in_coordinates(input), _in_coordinates(mat2))
        return to_sparse_csr(found) if is_sparse(found) else found
    if not is_sparse(input) and not is_sparse(mat2):
        raise RuntimeError("sparse.mm: expected a sparse matrix, but both are dense: use mm, or call to_sparse()")
    _check_matrices(input, mat2)
    if is_sparse(input) and is_sparse(mat2):
        check_same_dtype(input._array, mat2._array)
        check_inner(input._array.shape, mat2._array.shape)
        return _sparse_sparse_matmul(input, mat2)
    if not is_sparse(input):
        return transpose(sparse_mm(transpose(mat2, 0, 1), transpose(input, 0, 1)), 0, 1)
    empty = zeros(input._array.shape[0], mat2._array.shape[1], dtype=mat2._array.dtype, device=mat2._xp.device)
    return _sparse_addmm(empty, input, mat2, 0, 1)


def _reduced_products(input: Tensor, mat2: Tensor, reduce: str) -> Tensor:
    if reduce not in ("mean", "amax", "amin"):
        raise RuntimeError(f"sparse_mm_reduce: reduce type of {reduce} has not been enabled.")
    if layout_of(input) is not sparse_csr or is_compressed(mat2) or is_sparse(mat2):
        raise RuntimeError(
            "sparse.mm: reduce is for a sparse matrix in CSR and a dense one: call to_sparse_csr() first"
        )
    _check_matrices(input, mat2)
    check_same_dtype(input._array, mat2._array)
    check_inner(input._array.shape, mat2._array.shape)
    matrix = coalesce(_in_coordinates(input))
    rows, columns = indices(matrix)._array
    shape, xp = (input._array.shape[0], mat2._array.shape[1]), mat2._xp
    products = mul(unsqueeze(values(matrix), 1), index_select(mat2, 0, Tensor(columns, xp)))
    where_to = expand(unsqueeze(Tensor(rows, xp), 1), products.shape)
    start = zeros(*shape, dtype=products.dtype, device=xp.device)
    found: Tensor = scatter_reduce(start, 0, where_to, products, reduce, include_self=False)
    return found if reduce == "mean" else _of_the_first(products, where_to, found)


def _of_the_first(products: Tensor, where_to: Tensor, found: Tensor) -> Tensor:
    """The largest or smallest product of each row: where several are, the first one has the gradient, as in PyTorch."""
    xp, ours = products._xp, products._array
    chosen = (ours == found._array[where_to._array[:, 0]]) | (ours != ours)
    numbers = xp.where(chosen, xp.arange(len(ours))[:, None], len(ours))
    first = scatter_reduce(full_like(found, len(ours), dtype=dtypes.int64), 0, where_to, Tensor(numbers, xp), "amin")
    padded = cat([products, zeros(1, *products.shape[1:], dtype=products.dtype, device=xp.device)])
    return gather(padded, 0, first)


@composite
def sparse_addmm(input: Array, mat1: Array, mat2: Array, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), with a sparse mat1 whose gradient is sparse, with its places.

    >>> import undertow as ut
    >>> ut.sparse.addmm(ut.ones(2, 2), ut.eye(2).to_sparse(), ut.ones(2, 2))
    tensor([[2., 2.],
            [2., 2.]])
    """
    mat1 = _in_coordinates(mat1)
    expect_sparse("sparse.addmm", mat1)
    _check_matrices(mat1, mat2)
    return _sparse_addmm(input, mat1, mat2, beta, alpha)


@composite(variants="")
def sampled_addmm(input: Array, mat1: Array, mat2: Array, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) at the places of the sparse matrix `input`, and nowhere else.

    >>> import undertow as ut
    >>> ut.sparse.sampled_addmm(ut.eye(2).to_sparse_csr(), ut.ones(2, 3), ut.ones(3, 2)).values()
    tensor([4., 4.])
    """
    if not is_compressed(input) and not is_sparse(input):
        raise RuntimeError("sampled_addmm: Expected self to be a sparse matrix: call to_sparse_csr() first")
    _check_matrices(mat1, mat2)
    check_same_dtype(mat1._array, mat2._array)
    check_inner(mat1._array.shape, mat2._array.shape)
    if input._array.shape != (mat1._array.shape[0], mat2._array.shape[1]):
        raise RuntimeError(
            f"sampled_addmm: self.shape {list(input._array.shape)} must match the shape of the product of "
            f"{list(mat1._array.shape)} and {list(mat2._array.shape)}"
        )
    places = _in_coordinates(input)
    if is_sparse(input):
        places = coalesce(places)
    found = _sampled_mm(mat1, transpose(mat2, 0, 1), detach(places)) * alpha
    found = found if beta == 0 else add(found, places * beta)
    return to_sparse(found, layout=layout_of(input), blocksize=form_of(input).blocksize)


def _in_coordinates(input: Array) -> Array:
    """A compressed tensor in coordinate form, any other as it is. Gradients come back in the layout of the input."""
    return to_sparse(input) if is_compressed(input) else input


def _check_matrices(mat1: Array, mat2: Array) -> None:
    for mat in (mat1, mat2):
        if mat._array.ndim != 2:
            raise IndexError(f"sparse.mm: matrices expected, got {mat._array.ndim}D tensor. Dimension out of range")


# ---- sums


def _spread_array(
    xp: Namespace, grad: Array, input: SparseArray, dims: tuple[int, ...], from_sparse: bool
) -> SparseArray:
    """A gradient of the sum, at every place that went into it."""
    count = input.sparse_dim
    left = [d for d in range(count) if d not in dims]
    values = values_at(grad, input.indices[left])
    for d in sorted(dims):
        if d >= count:
            values = xp.expand_dims(values, d - count + 1)
    values = xp.broadcast_to(values, input.values.shape).copy()
    return SparseArray(input.indices, values, input.shape, input.coalesced)


def _spread_gradient(xp: Namespace, g: Array, input: Array, dims: tuple[int, ...], from_sparse: bool) -> Array:
    total = xp._sparse_sum(at_places_of(xp, g, input), dims)
    return xp._to_dense(total) if is_sparse(total) and not from_sparse else total


_sparse_sum = primitive(
    "_sparse_sum",
    forward=lambda xp, input, dims: sum_over(input, dims),
    vjp={"input": lambda xp, g, input, dims: xp._sparse_sum_backward(g, xp._coalesce(input), dims, is_sparse(g))},
    jvp=LINEAR,
    batch=refuse_batch,
)

_sparse_sum_backward = primitive(
    "_sparse_sum_backward",
    forward=_spread_array,
    vjp={"grad": _spread_gradient, "input": None},
    jvp={"grad": lambda xp, t, input, dims, from_sparse: xp._sparse_sum_backward(t, input, dims, from_sparse)},
    batch=refuse_batch,
)


@composite
def sparse_sum(input: Array, dim: Dims = None, dtype: DType | None = None) -> Tensor:
    """The sum of a sparse tensor over all or some dimensions: dense once no sparse dimension is left.

    >>> import undertow as ut
    >>> ut.sparse.sum(ut.eye(2).to_sparse(), 0).to_dense()
    tensor([1., 1.])
    """
    input = _in_coordinates(input)
    expect_sparse("sparse.sum", input)
    if dtype is not None:
        input = convert(input, dtypes.as_dtype(dtype, "sparse.sum"), input._xp)
    if dim is None:
        return sum_of(input)
    return _sparse_sum(input, wrap_dims(dim, input._array.ndim))


@composite
def spmm(input: Array, mat2: Array) -> Tensor:
    """`mm`, which takes sparse matrices, too.

    input  (n, k), sparse
    mat2   (k, m)
    input  (n, k), dense
    mat2   (k, m), sparse

    >>> import undertow as ut
    >>> ut.dsmm(ut.eye(2).to_sparse(), ut.ones(2, 2))
    tensor([[1., 1.],
            [1., 1.]])
    """
    return mm(input, mat2)


alias("dsmm", spmm)
