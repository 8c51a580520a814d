"""CompressedArray: a sparse matrix whose places are kept by rows or columns, of elements or of blocks.

    layout       compressed             plain      values
    sparse_csr   rows                   columns    numbers
    sparse_csc   columns                rows       numbers
    sparse_bsr   rows of blocks         columns    blocks
    sparse_bsc   columns of blocks      rows       blocks

The values of compressed row (or column) i are those from compressed_indices[i] to compressed_indices[i + 1]. Batches of
matrices with equally many values come as leading dimensions of all parts, dense dimensions as trailing ones of values.
What needs more than other values at the same places is computed in coordinate form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from undertow.backend.interface import Array, DType
from undertow.backend.sparse.coo import SparseArray, unsupported
from undertow.backend.sparse.kernels import LINEAR, ZERO_TO_ZERO, from_dense, is_number, store, values_at
from undertow.backend.sparse.kernels import to_dense as coo_to_dense
from undertow.backend.sparse.places import coalesced, flat_places, places_at, with_sparse_dim
from undertow.backend.sparse.protocol import (
    AnySparse,
    SparseConversionError,
    keep_sparse_arrays,
    layout_title,
    space_of,
)

#: layouts that compress rows
BY_ROWS = ("sparse_csr", "sparse_bsr")
#: layouts whose values are blocks
OF_BLOCKS = ("sparse_bsr", "sparse_bsc")
TRANSPOSED = {
    "sparse_csr": "sparse_csc", "sparse_csc": "sparse_csr", "sparse_bsr": "sparse_bsc", "sparse_bsc": "sparse_bsr",
}  # fmt: skip


class CompressedArray(AnySparse):
    """A sparse matrix, or a batch of them, in one of the four compressed layouts.

    compressed_indices  (*batch, rows + 1); never changed in place
    plain_indices       (*batch, nnz); never changed in place
    values              (*batch, nnz, *blocksize, *dense)
    """

    __slots__ = ("compressed_indices", "layout", "plain_indices")

    def __init__(self, layout: str, compressed_indices: Array, plain_indices: Array, values: Array, shape: Any) -> None:
        self.layout = layout
        self.compressed_indices = compressed_indices
        self.plain_indices = plain_indices
        self.values = values
        self.shape = tuple(shape)
        self.writeable = True
        keep_sparse_arrays()

    batch_dim = property(lambda self: self.plain_indices.ndim - 1)
    coalesced = True  # every place has one value
    sparse_dim = property(lambda self: 2)
    dense_dim = property(lambda self: self.ndim - self.batch_dim - 2)
    nnz = property(lambda self: self.plain_indices.shape[-1])

    @property
    def blocksize(self) -> tuple[int, int] | None:
        if self.layout not in OF_BLOCKS:
            return None
        rows, cols = self.values.shape[self.batch_dim + 1 : self.batch_dim + 3]
        return rows, cols

    def index_names(self) -> tuple[str, str]:
        return ("crow_indices", "col_indices") if self.layout in BY_ROWS else ("ccol_indices", "row_indices")

    def parts(self) -> list[tuple[str, Any]]:
        compressed, plain = self.index_names()
        return [(compressed, self.compressed_indices), (plain, self.plain_indices), ("values", self.values)]

    def with_values(self, values: Array) -> CompressedArray:
        return CompressedArray(self.layout, self.compressed_indices, self.plain_indices, values, self.shape)

    def on(self, move: Callable[[Array], Array]) -> CompressedArray:
        compressed, plain = move(self.compressed_indices), move(self.plain_indices)
        return CompressedArray(self.layout, compressed, plain, move(self.values), self.shape)

    def coo(self) -> SparseArray:
        values = self.values.reshape(-1, *self.shape[self.batch_dim + 2 :])
        return SparseArray(places_of(self), values, self.shape, self.layout == "sparse_csr")

    def same_places(self, other: Array) -> bool:
        return (
            type(other) is CompressedArray
            and (other.layout, other.shape, other.values.shape) == (self.layout, self.shape, self.values.shape)
            and np.array_equal(self.compressed_indices, other.compressed_indices)
            and np.array_equal(self.plain_indices, other.plain_indices)
        )

    def __reduce__(self) -> Any:
        return CompressedArray, (
            self.layout,
            self.compressed_indices,
            self.plain_indices,
            self.values,
            self.shape,
        )

    # ---- NumPy's protocols

    def __array_ufunc__(self, ufunc: Array, method: str, *inputs: Any, out: Array = (), **kwargs: Any) -> Array | None:
        if method == "reduce" and ufunc is np.add:
            return sum_over(*inputs, **kwargs)
        if method != "__call__" or kwargs:
            raise unsupported(f"{ufunc.__name__}.{method}" if method != "__call__" else ufunc.__name__)
        return apply(ufunc, inputs, out[0] if out else None)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        kernel = FUNCTIONS.get(function.__name__)
        if kernel is None:
            raise unsupported(function.__name__)
        return kernel(*args, **kwargs)

    def __getitem__(self, index: Array) -> Any:
        return self if index is Ellipsis else self.coo()[index]

    # ---- the methods of arrays that depend on how places are kept

    def transpose(self, *axes: Any) -> Array:
        if len(axes) == 1 and not isinstance(axes[0], int):
            axes = tuple(axes[0] or ())
        axes = tuple([axis % self.ndim for axis in axes or range(self.ndim)[::-1]])
        if axes == tuple(range(self.ndim)):
            return self
        n = self.batch_dim
        if axes != (*range(n), n + 1, n, *range(n + 2, self.ndim)):
            raise unsupported("permute of other dimensions than the two sparse ones")
        return flipped(self)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        axes = list(range(self.ndim))
        axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
        return self.transpose(axes)

    def ravel(self) -> SparseArray:
        return self.coo().ravel()

    def all(self) -> bool:
        return bool(to_dense(self).all())

    def item(self) -> Any:
        return to_dense(self).item()

    def become(self, other: CompressedArray) -> None:
        """Take over what another array of the same layout and shape holds."""
        if not self.writeable:
            raise ValueError("output array is read-only")
        self.compressed_indices, self.plain_indices = other.compressed_indices, other.plain_indices
        self.values = other.values


def is_compressed(value: Array) -> bool:
    """Whether a value, or a Tensor's array, is in one of the compressed layouts."""
    return type(getattr(value, "_array", value)) is CompressedArray


# ---- places


def expand_compressed(compressed_indices: Array) -> Array:
    """The row (or column) of every value, batches one after the other and all rows numbered through."""
    steps = compressed_indices[..., 1:] - compressed_indices[..., :-1]
    return np.repeat(space_of(steps).arange(steps.size), steps.ravel())


def places_of(array: CompressedArray) -> Array:
    """The indices, in coordinate form, of all elements of `values`, in their order."""
    n, block = array.batch_dim, array.blocksize or (1, 1)
    batch, major = np.divmod(expand_compressed(array.compressed_indices), array.compressed_indices.shape[-1] - 1 or 1)
    minor = array.plain_indices.ravel().astype(np.int64)
    rows, cols = (major, minor) if array.layout in BY_ROWS else (minor, major)
    inner_rows, inner_cols = np.divmod(array.namespace.arange(block[0] * block[1]), block[1])
    per_block = len(inner_rows)
    indices = array.namespace.empty((n + 2, len(rows) * per_block), np.int64)
    if n:
        indices[:n] = places_at(np.repeat(batch, per_block), array.shape[:n])
    indices[n] = (rows[:, None] * block[0] + inner_rows).ravel()
    indices[n + 1] = (cols[:, None] * block[1] + inner_cols).ravel()
    return indices


def compress(array: SparseArray, layout: str, blocksize: tuple[int, int] | None = None) -> CompressedArray:
    """An array in coordinate form, of which the last two sparse dimensions are those of matrices, in another layout."""
    array = coalesced(array)
    n, block = array.sparse_dim - 2, blocksize or (1, 1)
    sizes = array.shape[n] // block[0], array.shape[n + 1] // block[1]
    (rows, inner_rows), (cols, inner_cols) = (
        np.divmod(array.indices[n], block[0]),
        np.divmod(array.indices[n + 1], block[1]),
    )
    places, sizes = ((rows, cols), sizes) if layout in BY_ROWS else ((cols, rows), sizes[::-1])
    numbers = flat_places(np.stack([*array.indices[:n], *places]), (*array.shape[:n], *sizes))
    if layout == "sparse_csr":
        blocks, values = numbers, array.values
    else:
        blocks, at = np.unique(numbers, return_inverse=True)
        values = array.namespace.zeros((len(blocks), *block, *array.shape[n + 2 :]), array.dtype)
        values[at, inner_rows, inner_cols] = array.values
    major, minor = np.divmod(blocks, sizes[1] or 1)
    return batched(
        layout, major, minor, values if blocksize else values.reshape(-1, *array.shape[n + 2 :]), array, n, sizes[0]
    )


def batched(layout: str, major: Array, minor: Array, values: Array, array: Array, n: int, rows: int) -> CompressedArray:
    """The parts, from sorted numbers of rows that run through all batches."""
    batch = array.shape[:n]
    counts = np.bincount(major, minlength=int(np.prod(batch)) * rows).reshape(*batch, rows)
    totals = counts.sum(axis=-1)
    if totals.size and totals.min() != totals.max():
        raise RuntimeError(
            "Expect the same number of specified elements per batch. A compressed layout keeps one nnz for all "
            "matrices of a batch; convert them one by one."
        )
    compressed = space_of(counts).zeros((*batch, rows + 1), np.int64)
    compressed[..., 1:] = np.cumsum(counts, axis=-1)
    nnz = int(totals.max()) if totals.size else 0
    shape = *batch, nnz
    return CompressedArray(
        layout, compressed, minor.reshape(shape), values.reshape(*shape, *values.shape[1:]), array.shape
    )


def flipped(array: CompressedArray) -> CompressedArray:
    """The transposed matrices: the same parts, as the layout that compresses the other dimension."""
    n = array.batch_dim
    values = array.values.swapaxes(n + 1, n + 2) if array.layout in OF_BLOCKS else array.values
    shape = (*array.shape[:n], array.shape[n + 1], array.shape[n], *array.shape[n + 2 :])
    shown = CompressedArray(TRANSPOSED[array.layout], array.compressed_indices, array.plain_indices, values, shape)
    shown.writeable = False
    return shown


# ---- between layouts


def to_dense(array: AnySparse) -> Array:
    return coo_to_dense(array.coo())


def in_coo(array: Array) -> Array:
    """A sparse array in coordinate form, anything else as it is."""
    return array.coo() if isinstance(array, AnySparse) else array


class Form(NamedTuple):
    """How an array is kept. sparse_dim: how many leading dimensions its places have, batches included."""

    layout: str
    sparse_dim: int = 0
    blocksize: tuple[int, int] | None = None


STRIDED = Form("strided")


def form_of(value: Array) -> Form:
    """The form of an array, or of a Tensor's."""
    array = getattr(value, "_array", value)
    if type(array) is SparseArray:
        return Form("sparse_coo", array.sparse_dim)
    if type(array) is CompressedArray:
        return Form(array.layout, array.batch_dim + 2, array.blocksize)
    return STRIDED


def to_form(array: Array, form: Form) -> Array:
    """An array, dense or sparse, in another form; itself if it has that."""
    if form_of(array) == form:
        return array
    if form.layout == "strided":
        return to_dense(array)
    array = (
        with_sparse_dim(array.coo(), form.sparse_dim)
        if isinstance(array, AnySparse)
        else from_dense(array, form.sparse_dim)
    )
    return array if form.layout == "sparse_coo" else compress(array, form.layout, form.blocksize)


def like(result: Array, array: CompressedArray, layout: str | None = None) -> Array:
    """A result that was computed in coordinate form, in the layout of an operand; a dense one stays dense."""
    if type(result) is not SparseArray:
        return result
    return compress(result, layout, None) if layout else compress(result, array.layout, array.blocksize)


def masked(array: Array, mask: AnySparse) -> Array:
    """The elements of an array, dense or sparse, at the places of a sparse one, in the layout of that."""
    found = values_at(in_coo(array), mask.coo().indices)
    return mask.with_values(found.reshape(mask.values.shape))


# ---- through NumPy's names


def apply(ufunc: Array, inputs: Any, out: Array) -> Array:
    """A ufunc, of which one of the operands is in a compressed layout; `out` is one of them, or None."""
    result = computed(ufunc, inputs)
    if out is None:
        return result
    if type(out) is not CompressedArray:
        return store(out, in_coo(result))
    if type(result) is not CompressedArray or result.layout != out.layout:
        raise SparseConversionError(
            f"the result does not fit into a {layout_title(out.layout)} tensor: leave the underscore away"
        )
    out.become(result if result.dtype == out.dtype else result.astype(out.dtype))
    return out


def computed(ufunc: Array, inputs: Any) -> Array:
    name = ufunc.__name__
    first = next(x for x in inputs if type(x) is CompressedArray)
    if name in LINEAR or name in ZERO_TO_ZERO:
        return first.with_values(ufunc(first.values))
    if name in ("multiply", "divide") and any(map(is_scalar, inputs)):
        return first.with_values(first.namespace.asarray(scaled(ufunc, inputs)))
    if name in ("add", "subtract", "multiply") and inputs[0] is first and first.same_places(inputs[1]):
        return first.with_values(ufunc(first.values, inputs[1].values))
    layout = "sparse_csr" if name == "matmul" else None
    return like(ufunc(*map(in_coo, inputs)), first, layout)


def is_scalar(value: Array) -> bool:
    return not isinstance(value, AnySparse) and is_number(value)


def scaled(ufunc: Array, inputs: Any) -> Any:
    a, b = inputs
    if type(b) is CompressedArray and ufunc.__name__ == "divide":
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor, not a sparse one")
    return ufunc(*[x.values if type(x) is CompressedArray else x for x in (a, b)])


def sum_over(
    array: CompressedArray, axis: Any = 0, dtype: DType | None = None, out: None = None, keepdims: bool = False
) -> Array:
    """np.add.reduce: of everything; or of some dimensions, which are kept, of CSR and CSC."""
    axes = range(array.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if {a % array.ndim for a in axes} == set(range(array.ndim)):
        total = array.values.sum(dtype=dtype)
        return total.reshape((1,) * array.ndim) if keepdims else total
    if not keepdims or array.layout in OF_BLOCKS:
        raise RuntimeError(
            f"reduction operations on {array.layout[-3:].upper()} tensors with keepdim=False is unsupported, and so "
            "are those of blocks: call to_sparse(), for the coordinate layout, or to_dense() first"
        )
    return like(np.add.reduce(array.coo(), axis=axis, dtype=dtype, keepdims=True), array)


def zeros_like(array: CompressedArray, dtype: DType | None = None, order: str = "K") -> CompressedArray:
    """An array of the layout without any values."""
    n = array.batch_dim
    values = array.namespace.zeros((*array.shape[:n], 0, *array.values.shape[n + 1 :]), dtype or array.dtype)
    compressed, plain = np.zeros_like(array.compressed_indices), array.plain_indices[..., :0]
    return CompressedArray(array.layout, compressed, plain, values, array.shape)


def empty_like(array: CompressedArray, dtype: DType | None = None, order: str = "K") -> CompressedArray:
    """An array with values at the same places."""
    return array.with_values(array.namespace.zeros(array.values.shape, dtype or array.dtype))


def copyto(target: Array, source: Array, casting: str = "same_kind", where: Any = True) -> None:
    if where is not True:
        raise RuntimeError("a sparse tensor cannot be written at some places only: call to_dense() first")
    if type(target) is not type(source) or target.layout != source.layout:
        raise RuntimeError(
            "copy_() between dense and sparse Tensors, or other layouts, is not implemented! Convert the source first."
        )
    target.become(source.astype(target.dtype))


def broadcast_to(array: CompressedArray, shape: Any) -> CompressedArray:
    if tuple(shape) != array.shape:
        raise RuntimeError(f"expand is unsupported for {layout_title(array.layout)} tensors: call to_dense() first")
    return array


FUNCTIONS: dict[str, Any] = {
    "astype": lambda array, dtype, **ignored: array.astype(dtype),
    "broadcast_to": broadcast_to, "copyto": copyto, "zeros_like": zeros_like, "empty_like": empty_like,
    "may_share_memory": lambda a, b: a is b, "shares_memory": lambda a, b: a is b,
    "real": lambda array: array.with_values(array.values.real.copy()),
    "sum": lambda array, axis=None, dtype=None, **options: array.sum(axis, dtype, **options),
    "swapaxes": lambda array, axis1, axis2: array.swapaxes(axis1, axis2),
    "transpose": lambda array, axes=None: array.transpose(*(() if axes is None else (axes,))),
}  # fmt: skip
