"""Sparse tensors in coordinate form: making them and taking them apart.

A sparse tensor is a Tensor whose array is a SparseArray, so sums, products with numbers, `mm`, `t`, ... are the same
operations as ever, with the same rules. Here is what only sparse tensors have; other layouts are in
sparse/compressed.py, the ways between them in sparse/layouts.py. A gradient may be sparse for a dense tensor and
dense for a sparse one; rules take either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.sparse.compressed import form_of, in_coo, is_compressed
from undertow.backend.sparse.coo import SparseArray, is_sparse
from undertow.backend.sparse.kernels import values_at
from undertow.backend.sparse.places import coalesced, flat_places
from undertow.backend.sparse.protocol import layout_title
from undertow.modes import current
from undertow.ops.create.convert import convert
from undertow.ops.create.creation import as_tensor, check_shape, leaf
from undertow.ops.declare import composite, nondifferentiable, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.tensor import LEAF, Tensor, share_memory
from undertow.tensor.tensor import current_edge

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.ops.declare.rules.batch_in_front import InDims


def refuse_batch(call: Any, args: Any, in_dims: InDims) -> Any:
    """The batching rule of operations on sparse tensors."""
    raise NotImplementedError(
        "vmap over sparse tensors is not supported. Call to_dense() first; for a gradient, leave out sparse=True or "
        "sparse_grad=True."
    )


def expect_sparse(function: str, input: Array) -> None:
    if not is_sparse(input):
        found = layout_title(form_of(input).layout)
        raise RuntimeError(
            f"{function} expected sparse coordinate tensor layout but got {found}: {function} expected sparse tensor "
            f"layout but got {found}. Call to_sparse() first."
        )


def _expect_coalesced(function: str, input: Array) -> None:
    expect_sparse(function, input)
    if not input._array.coalesced:
        raise RuntimeError(f"Cannot get {function} on an uncoalesced tensor, please call .coalesce() first")


# ---- from indices and values


def _sparse_array(
    xp: Namespace, values: Array, indices: Array, size: Any, is_coalesced: bool = False, copy: bool = False
) -> Array:
    return SparseArray(indices, values.copy() if copy else values, tuple(size), is_coalesced)


_sparse_coo = primitive(
    "_sparse_coo",
    forward=_sparse_array,
    vjp={"values": lambda xp, g, indices: xp._values_at(g, indices, is_sparse(g)), "indices": None},
    jvp=LINEAR,
    batch=refuse_batch,
    node="SparseCooTensorWithDimsAndTensorsBackward0",
)


def _scattered(xp: Namespace, g: Array, indices: Array, grad_shape: tuple[int, ...], from_sparse: bool) -> Array:
    found = xp._sparse_coo(g, indices, grad_shape)
    return found if from_sparse else xp._to_dense(found)


_values_at = primitive(
    "_values_at",
    forward=lambda xp, grad, indices, from_sparse: values_at(in_coo(grad), indices),
    vjp={"grad": _scattered, "indices": None},
    jvp=LINEAR,
    batch=refuse_batch,
)


@composite(variants="function")
def sparse_coo_tensor(
    indices: Array | None = None,
    values: Array | None = None,
    size: Any = None,
    *,
    dtype: DType = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A sparse tensor with the given values at the given places, and zeros elsewhere.

    indices  (sparse_dim, nnz) integers: a column for each value; a place may occur several times, and then the values
             there are added up
    values   (nnz, ...): a number for each place, or a block with the dimensions that are not sparse
    size     the shape; by default the smallest that has all the places
    check_invariants  False leaves out the check that the indices lie inside of the tensor
    is_coalesced      the indices are sorted and distinct, which saves the sorting

    Gradients flow back to the values, of which the tensor then has a copy; values without history it shares.

    >>> import undertow as ut
    >>> ut.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if values is None:
        if indices is None and size is None:
            raise TypeError("sparse_coo_tensor() takes indices and values, or a size alone")
        return _empty_sparse(indices if size is None else size, dtype, device, requires_grad)
    values = as_tensor(values, device=device)
    refuse_simulated(values)
    if dtype is not None:
        values = convert(values, dtypes.as_dtype(dtype, "sparse_coo_tensor"), values._xp)
    places = _index_array(indices, values._xp)
    _check_counts(places, values._array)
    shape = _inferred_size(places, values._array) if size is None else check_shape("sparse_coo_tensor", size)
    _check_sizes(places, values._array, shape)
    if check_invariants is not False:
        _check_places(places, shape, bool(is_coalesced))
    state = current()
    followed = state.intercept is not None or (state.grad_enabled and current_edge(values) is not None)
    made: Tensor = _sparse_coo(values, Tensor(places, values._xp), shape, bool(is_coalesced), followed)
    if not followed and (values._extra is None or not values._extra.inference):
        share_memory(values, made)
    return requiring_grad(made) if requires_grad else made


def requiring_grad(made: Tensor) -> Tensor:
    """A new tensor, as a leaf that wants a gradient, if it has no history."""
    if not dtypes.is_differentiable(made._array.dtype):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients. Pass such a dtype.")
    if made._edge is None:
        made._edge = LEAF
    return made


def refuse_simulated(tensor: Tensor) -> None:
    if tensor._xp.device.type not in ("cpu", "cuda"):
        raise NotImplementedError(
            f"sparse tensors live on the CPU and on GPUs, and these values are on {tensor._xp.device}: call .cpu() "
            "first"
        )


def _empty_sparse(size: Any, dtype: DType, device: Device | str | int, requires_grad: bool) -> Tensor:
    shape = check_shape("sparse_coo_tensor", size)
    dtype = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype, "sparse_coo_tensor")
    values: Tensor = as_tensor([], dtype=dtype, device=device)
    refuse_simulated(values)
    indices = values._xp.zeros((len(shape), 0), dtypes.int64)
    return leaf(SparseArray(indices, values._array, shape, True), values._xp, requires_grad)


def _index_array(indices: Array, xp: Namespace) -> Array:
    """A copy of the indices, as integers."""
    array = as_tensor(indices, device=xp.device)._array
    if array.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(array.shape)}")
    return array.astype(dtypes.int64)


def _check_counts(indices: Array, values: Array) -> None:
    if values.ndim == 0 or indices.shape[1] != values.shape[0]:
        nnz = values.shape[0] if values.ndim else "none"
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {indices.shape[1]}, nnz from values: "
            f"{nnz}"
        )


def _inferred_size(indices: Array, values: Array) -> tuple[int, ...]:
    """The smallest size that has room for all the places."""
    for dim, row in enumerate(indices):
        if row.size and row.min() < 0:
            raise RuntimeError(f"found negative index {row.min()} for dim {dim}")
    return tuple([int(row.max()) + 1 if row.size else 0 for row in indices]) + tuple(values.shape[1:])


def _check_sizes(indices: Array, values: Array, size: tuple[int, ...]) -> None:
    sparse_dim, dense_dim = indices.shape[0], values.ndim - 1
    if len(size) != sparse_dim + dense_dim:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = "
            f"{sparse_dim}, dense_dim = {dense_dim}"
        )
    expected = [indices.shape[1], *size[sparse_dim:]]
    if list(values.shape) != expected:
        raise RuntimeError(f"values has incorrect size, expected {expected}, got {list(values.shape)}")


def _check_places(indices: Array, size: tuple[int, ...], claims_coalesced: bool) -> None:
    """Every index inside of the tensor; sorted and distinct, if that is claimed."""
    for dim, (row, n) in enumerate(zip(indices, size, strict=False)):
        if row.size and row.min() < 0:
            raise RuntimeError(f"found negative index {row.min()} for dim {dim}")
        if row.size and row.max() >= n:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {n} but found index {row.max()}"
            )
    if claims_coalesced:
        flat = flat_places(indices, size[: indices.shape[0]])
        if not (flat[1:] > flat[:-1]).all():
            raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


# ---- the parts

_coalesce = primitive(
    "_coalesce",
    forward=lambda xp, input: coalesced(input),
    vjp={"input": lambda xp, g: g},
    jvp=LINEAR,
    batch=refuse_batch,
    node="CoalesceBackward0",
)


@composite(variants="")
def coalesce(input: Array) -> Tensor:
    """The sparse tensor with sorted, distinct places; values at equal places are added up.

    >>> import undertow as ut
    >>> ut.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)).coalesce().values()
    tensor([3.])
    """
    expect_sparse("coalesce", input)
    result: Tensor = input if input._array.coalesced else _coalesce(input)
    return result


def read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


_sparse_values = primitive(
    "_sparse_values",
    # read-only: an in-place change would reach the sparse tensor's memory, but not its history
    forward=lambda xp, input: read_only(input.values),
    vjp={"input": lambda xp, g, input: xp._with_values(g, input)},
    jvp=LINEAR,
    batch=refuse_batch,
    node="ValuesBackward0",
)

_with_values = primitive(
    "_with_values",
    forward=lambda xp, values, places: places.with_values(values),
    vjp={"values": lambda xp, g, places: xp._sparse_values(xp._sparse_mask(g, places, form_of(g))), "places": None},
    jvp=LINEAR,
    batch=refuse_batch,
)


@composite(variants="")
def values(input: Array) -> Tensor:
    """The values of a coalesced sparse tensor, in any layout; gradients flow through.

    >>> import undertow as ut
    >>> ut.eye(2).to_sparse().coalesce().values()
    tensor([1., 1.])
    """
    if not is_compressed(input):
        _expect_coalesced("values", input)
    found: Tensor = _sparse_values(input)
    share_memory(input, found)
    return found


@composite(variants="")
def indices(input: Array) -> Tensor:
    """The places of the values of a coalesced sparse tensor, a column for each.

    >>> import undertow as ut
    >>> ut.eye(2).to_sparse().coalesce().indices()
    tensor([[0, 1],
            [0, 1]])
    """
    _expect_coalesced("indices", input)
    return _raw_indices(input)


def _raw_indices(self: Tensor) -> Tensor:
    """The indices, sorted and distinct or not. Read-only."""
    expect_sparse("_indices", self)
    return Tensor(read_only(self._array.indices), self._xp)


def _raw_values(self: Tensor) -> Tensor:
    """The values, which belong to `_indices()`: they share the tensor's memory, and no gradient flows through."""
    expect_sparse("_values", self)
    found = Tensor(self._array.values, self._xp)
    share_memory(self, found)
    return found


def nnz(self: Tensor) -> int:
    """How many values are kept, those at equal places counted each; blocks, in layouts of blocks."""
    if not is_compressed(self):
        expect_sparse("_nnz", self)
    return int(self._array.nnz)


def sparse_dim(self: Tensor) -> int:
    """How many of the dimensions are sparse: 0 for a dense tensor.

    >>> import undertow as ut
    >>> ut.eye(2).to_sparse().sparse_dim()
    2
    """
    return int(self._array.sparse_dim) if is_sparse(self) or is_compressed(self) else 0


def dense_dim(self: Tensor) -> int:
    """How many of the dimensions are dense.

    >>> import undertow as ut
    >>> ut.eye(2).to_sparse().dense_dim()
    0
    """
    return int(self._array.dense_dim if is_compressed(self) else self._array.ndim - sparse_dim(self))


def is_coalesced(self: Tensor) -> bool:
    """Whether the places are known to be sorted and distinct.

    >>> import undertow as ut
    >>> ut.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)).is_coalesced()
    False
    """
    expect_sparse("is_coalesced", self)
    return bool(self._array.coalesced)


def _set_coalesced(self: Tensor, coalesced: bool) -> Tensor:
    """Declare the places sorted and distinct, or not."""
    expect_sparse("_coalesced_", self)
    self._array.coalesced = bool(coalesced)
    return self


# ---- gradients that are sparse


def gather_places(xp: Namespace, index: Array, sizes: tuple[int, ...], dim: int) -> Array:
    """Where the elements that `gather` takes lie."""
    if not sizes:
        return xp.zeros((0, index.size), dtypes.int64)
    places = xp.indices(index.shape or (1,)).reshape(len(sizes), -1)
    places[dim] = index.reshape(-1)
    return places


def slice_places(xp: Namespace, index: Array, sizes: tuple[int, ...], dim: int) -> Array:
    """Where the slices that `index_select` takes lie, along the dimensions up to `dim`."""
    if not sizes:
        return xp.zeros((0, index.size), dtypes.int64)
    places = xp.indices((*sizes[:dim], index.size)).reshape(dim + 1, -1)
    places[dim] = index.reshape(-1)[places[dim]]
    return places


_gather_places = nondifferentiable("_gather_places", forward=gather_places, inputs=("index",))
_slice_places = nondifferentiable("_slice_places", forward=slice_places, inputs=("index",))
_kept_places = nondifferentiable(
    "_kept_places",
    forward=lambda xp, index, left_out: xp.flatnonzero(index != left_out).astype(dtypes.int64),
    inputs=("index",),
)

#: attribute -> function; `methods.py` puts them on Tensor
METHODS: dict[str, Any] = {
    "_coalesced_": _set_coalesced, "_indices": _raw_indices, "_nnz": nnz, "_values": _raw_values, "coalesce": coalesce,
    "dense_dim": dense_dim, "indices": indices, "is_coalesced": is_coalesced, "sparse_dim": sparse_dim,
    "values": values,
}  # fmt: skip
