"""Softmax over the values that a sparse tensor has, and sparse matrices from their diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.sparse.places import flat_places
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.create.convert import convert
from undertow.ops.create.creation import as_tensor, full, zeros
from undertow.ops.declare import composite
from undertow.ops.index.index_select import index_add, index_select
from undertow.ops.index.masks import masked_select
from undertow.ops.index.scatter_reduce import index_reduce
from undertow.ops.network.softmax import log_softmax, softmax
from undertow.ops.pointwise.exp_log import exp, log
from undertow.ops.sparse.coo import _with_values, coalesce, expect_sparse, sparse_coo_tensor, values
from undertow.ops.sparse.layouts import to_sparse
from undertow.ops.views.copies import detach
from undertow.ops.views.dimensions import unsqueeze
from undertow.tensor import Tensor

#: the same along a dimension of the values, of which every place has its own
DENSE = {"softmax": softmax, "log_softmax": log_softmax}


@composite
def sparse_softmax(input: Array, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Softmax along `dim` over the values that the sparse tensor has; the others count as minus infinity.

    >>> import undertow as ut
    >>> ut.sparse.softmax(ut.tensor([[0.0, 2.0, 2.0], [5.0, 0.0, 0.0]]).to_sparse(), 1).to_dense()
    tensor([[0.0000, 0.5000, 0.5000],
            [1.0000, 0.0000, 0.0000]])
    """
    return _softmax_of_values("softmax", input, dim, dtype)


@composite
def sparse_log_softmax(input: Array, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The logarithm of `sparse.softmax`, at the places that the sparse tensor has.

    >>> import undertow as ut
    >>> ut.sparse.log_softmax(ut.eye(2).to_sparse(), 1).to_dense()
    tensor([[0., 0.],
            [0., 0.]])
    """
    return _softmax_of_values("log_softmax", input, dim, dtype)


def _softmax_of_values(name: str, input: Array, dim: int, dtype: DType) -> Tensor:
    expect_sparse(f"sparse.{name}", input)
    if dtype is not None:
        input = convert(input, dtypes.as_dtype(dtype, name), input._xp)
    if not dtypes.is_floating(input._array.dtype):
        raise RuntimeError(f"sparse.{name}: expected real floating point values, got {input._array.dtype}")
    dim, places = wrap_dim(dim, input._array.ndim), coalesce(input)
    count, found = places._array.sparse_dim, values(places)
    if dim >= count:
        result = DENSE[name](found, dim - count + 1)
    else:
        result = _within_groups(name, found, *_groups_along(places._array, dim, found._xp))
    made: Tensor = _with_values(result, detach(places))
    return made


def _groups_along(array: Array, dim: int, xp: Namespace) -> tuple[Tensor, int]:
    """A number for each value, the same for those that differ along `dim` only; and how many there are."""
    others = [d for d in range(array.sparse_dim) if d != dim]
    flat = flat_places(array.indices[others], [array.shape[d] for d in others])
    distinct, group = xp.unique(flat, return_inverse=True)
    return Tensor(group, xp), len(distinct)


def _within_groups(name: str, found: Tensor, group: Tensor, count: int) -> Tensor:
    pick, sizes = index_select, (count, *found.shape[1:])
    start = full(sizes, float("-inf"), dtype=found.dtype)
    largest = index_reduce(start, 0, group, detach(found), "amax")
    shifted = found - pick(largest, 0, group)
    powers = exp(shifted)
    total = index_add(zeros(sizes, dtype=found.dtype), 0, group, powers)
    if name == "softmax":
        return powers / pick(total, 0, group)
    return shifted - pick(log(total), 0, group)


@composite
def sparse_spdiags(diagonals: Array, offsets: Array, shape: Sequence[int], layout: Any = None) -> Tensor:
    """A sparse matrix with the rows of `diagonals` on the diagonals that `offsets` names, below 0 the lower ones.

    The element in column j of a row goes to column j of the matrix; what falls outside is left out.

    shape  of the matrix

    >>> import undertow as ut
    >>> ut.sparse.spdiags(ut.tensor([[1.0, 2.0, 3.0]]), ut.tensor([1]), (3, 3)).to_dense()
    tensor([[0., 2., 0.],
            [0., 0., 3.],
            [0., 0., 0.]])
    """
    diagonals, numbers = as_tensor(diagonals), as_tensor(offsets)._array.reshape(-1)
    diagonals = diagonals if diagonals.ndim == 2 else unsqueeze(diagonals, 0)
    xp, (rows, cols) = diagonals._xp, tuple(shape)
    if len(numbers) != diagonals.shape[0] or len(set(numbers.tolist())) != len(numbers):
        raise RuntimeError(
            f"Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets ({len(numbers)}), or "
            "offset tensor contains duplicate values"
        )
    if numbers.dtype.kind not in "iu":
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {numbers.dtype}")
    column = xp.broadcast_to(xp.arange(diagonals.shape[1]), tuple(diagonals.shape))
    row = column - numbers[:, None]
    inside = (row >= 0) & (row < rows) & (column < cols)
    kept = masked_select(diagonals, Tensor(inside, xp))
    made = sparse_coo_tensor(xp.stack([row[inside], column[inside]]), kept, (rows, cols))
    return made if layout is None else to_sparse(coalesce(made), layout=layout)
