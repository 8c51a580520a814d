"""Sparse matrices by compressed rows (CSR, BSR) or columns (CSC, BSC): making them and taking them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.sparse.compressed import BY_ROWS, OF_BLOCKS, CompressedArray, expand_compressed, form_of
from undertow.backend.sparse.protocol import layout_title
from undertow.modes import current
from undertow.ops.arguments.operands import type_name
from undertow.ops.create.convert import convert
from undertow.ops.create.creation import as_tensor, check_shape
from undertow.ops.declare import composite, nondifferentiable, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.sparse.coo import read_only, refuse_batch, refuse_simulated, requiring_grad
from undertow.ops.sparse.layouts import at_places_of
from undertow.tensor import Tensor, share_memory
from undertow.tensor.layouts import layout as Layout
from undertow.tensor.layouts import sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from undertow.tensor.tensor import current_edge

if TYPE_CHECKING:
    from undertow.backend.interface import Device


def _compressed_array(
    xp: Namespace,
    values: Array,
    compressed_indices: Array,
    plain_indices: Array,
    size: int | Sequence[int],
    layout: str,
    copy: bool = False,
) -> CompressedArray:
    return CompressedArray(layout, compressed_indices, plain_indices, values.copy() if copy else values, size)


_sparse_compressed = primitive(
    "_sparse_compressed",
    forward=_compressed_array,
    vjp={
        "values": lambda xp, g, out: xp._sparse_values(at_places_of(xp, g, out)),
        "compressed_indices": None,
        "plain_indices": None,
    },
    jvp=LINEAR,
    batch=refuse_batch,
    node="SparseCompressedTensorBackward0",
)


@composite(variants="function")
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Array,
    size: Any = None,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix, or batch of matrices, from the parts of a compressed layout.

    compressed_indices  (*batch, rows + 1): where the values of each row (CSC, BSC: column) begin, and the last ones end
    plain_indices       (*batch, nnz): the column (row) of each value; sorted and distinct within a row (column)
    values              (*batch, nnz): a number for each place; with two more dimensions, blocks (BSR, BSC); further
                        dimensions are dense
    size                the shape; by default the smallest that has all the places
    layout              sparse_csr, sparse_csc, sparse_bsr or sparse_bsc
    check_invariants    False leaves out the check that the indices are what they should be

    Gradients flow back to the values, of which the tensor then has a copy; values without history it shares.

    >>> import undertow as ut
    >>> ut.sparse_compressed_tensor([0, 1, 2], [2, 0], [3.0, 4.0], (2, 3), layout=ut.sparse_csr).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    name = "sparse_compressed_tensor"
    if not isinstance(layout, Layout) or layout.name not in (*BY_ROWS, "sparse_csc", "sparse_bsc"):
        got = layout_title(layout.name) if isinstance(layout, Layout) else "none"
        raise RuntimeError(f"{name} expected sparse compressed tensor layout but got {got}")
    values = as_tensor(values, device=device)
    refuse_simulated(values)
    if dtype is not None:
        values = convert(values, dtypes.as_dtype(dtype, name), values._xp)
    places = _index_array(compressed_indices, values._xp), _index_array(plain_indices, values._xp)
    _check_parts(layout.name, *places, values._array)
    shape = _inferred_size(layout.name, *places, values._array) if size is None else check_shape(name, size)
    _check_sizes(layout.name, *places, values._array, shape)
    if check_invariants is not False:
        _check_places(layout.name, *places, values._array, shape)
    return _assembled(values, places, shape, layout.name, requires_grad)


def _assembled(values: Tensor, places: Any, shape: Sequence[int], layout: str, requires_grad: bool) -> Tensor:
    state = current()
    followed = state.intercept is not None or (state.grad_enabled and current_edge(values) is not None)
    indices = [Tensor(array, values._xp) for array in places]
    made: Tensor = _sparse_compressed(values, *indices, shape, layout, followed)
    if not followed and (values._extra is None or not values._extra.inference):
        share_memory(values, made)
    return requiring_grad(made) if requires_grad else made


def _index_array(indices: Array, xp: Namespace) -> Array:
    array = as_tensor(indices, device=xp.device)._array
    return array.astype(dtypes.int64) if not array.size else array.copy()


# ---- what the parts must be


def _names_of(layout: str) -> tuple[str, str, str, str]:
    """How messages call the two kinds of indices, and what they count."""
    if layout in BY_ROWS:
        return "crow_indices", "col_indices", "rows", "ncols"
    return "ccol_indices", "row_indices", "columns", "nrows"


def _check_parts(layout: str, compressed: Array, plain: Array, values: Array) -> None:
    first, second, _, _ = _names_of(layout)
    if compressed.dtype != plain.dtype or compressed.dtype not in (dtypes.int32, dtypes.int64):
        kinds = type_name(compressed), type_name(plain)
        raise RuntimeError(
            f"{first} and {second} must have the same dtype, bot got {kinds[0]} and {kinds[1]}, respectively: both "
            "must be Int or both Long"
        )
    if compressed.ndim != plain.ndim or not plain.ndim or not compressed.shape[-1]:
        raise RuntimeError(
            f"{first} and {second} dimensionalities must be equal but got {compressed.ndim} and {plain.ndim}, "
            "respectively, and at least 1"
        )
    nnz_at, blocks = plain.ndim - 1, 2 if layout in OF_BLOCKS else 0
    if values.ndim < plain.ndim + blocks:
        raise RuntimeError(f"values must have dimensionality > {nnz_at + blocks} but got {values.ndim}")
    if plain.shape[-1] != values.shape[nnz_at]:
        raise RuntimeError(
            f"{second}.shape[-1] must be equal to nnz (={values.shape[nnz_at]}) as defined by values.shape[{nnz_at}], "
            f"but got {plain.shape[-1]}"
        )
    if not compressed.shape[:-1] == plain.shape[:-1] == values.shape[:nnz_at]:
        raise RuntimeError(
            f"all batch dimensions of {first} (={list(compressed.shape[:-1])}), {second} (={list(plain.shape[:-1])}), "
            f"and values (={list(values.shape[:nnz_at])}) must be equal"
        )


def _block_of(layout: str, plain: Array, values: Array) -> tuple[int, ...]:
    return values.shape[plain.ndim : plain.ndim + 2] if layout in OF_BLOCKS else (1, 1)


def _dense_sizes(layout: str, plain: Array, values: Array) -> tuple[int, ...]:
    dense: tuple[int, ...] = values.shape[plain.ndim + (2 if layout in OF_BLOCKS else 0) :]
    return dense


def _inferred_size(layout: str, compressed: Any, plain: Any, values: Array) -> tuple[int, ...]:
    """The smallest size that has room for all the places."""
    counts = compressed.shape[-1] - 1, int(plain.max()) + 1 if plain.size else 0
    rows, cols = counts if layout in BY_ROWS else counts[::-1]
    block = _block_of(layout, plain, values)
    return (*plain.shape[:-1], rows * block[0], cols * block[1], *_dense_sizes(layout, plain, values))


def _check_sizes(layout: str, compressed: Array, plain: Array, values: Array, size: tuple[int, ...]) -> None:
    batch, dense, block = plain.ndim - 1, _dense_sizes(layout, plain, values), _block_of(layout, plain, values)
    if len(size) != batch + 2 + len(dense):
        raise RuntimeError(
            "tensor dimensionality must be sum of batch, base, and dense dimensionalities "
            f"(={batch} + 2 + {len(dense)}) but got {len(size)}"
        )
    if size[:batch] != plain.shape[:-1] or size[batch + 2 :] != dense:
        raise RuntimeError(
            f"tensor batch and dense sizes must be those of the indices and values, {list(plain.shape[:-1])} and "
            f"{list(dense)}, but the size is {list(size)}"
        )
    for k, (n, length) in enumerate(zip(size[batch : batch + 2], block, strict=True)):
        if not length or n % length:
            raise RuntimeError(
                f"tensor shape[{batch + k}] (={n}) must be divisible with blocksize[{k}] (={length}) as defined by "
                "values shape"
            )
    first, _, counted, _ = _names_of(layout)
    at = 0 if layout in BY_ROWS else 1
    expected = size[batch + at] // block[at] + 1
    if compressed.shape[-1] != expected:
        raise RuntimeError(
            f"{first}.shape[-1] must be equal to the number of {counted} + 1 (={expected}), but got "
            f"{compressed.shape[-1]}"
        )


def _check_places(layout: str, compressed: Array, plain: Array, values: Array, size: tuple[int, ...]) -> None:
    first, second, _, limit = _names_of(layout)
    count = "nrows" if layout in BY_ROWS else "ncols"
    at = 1 if layout in BY_ROWS else 0
    length = size[plain.ndim - 1 + at] // _block_of(layout, plain, values)[at]
    steps = compressed[..., 1:] - compressed[..., :-1]
    require((compressed[..., 0] == 0).all(), f"`{first}[..., 0] == 0`")
    require((compressed[..., -1] == plain.shape[-1]).all(), f"`{first}[..., -1] == nnz`")
    require((steps >= 0).all(), f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {limit}`")
    require(not plain.size or (plain.min() >= 0 and plain.max() < length), f"`0 <= {second} < {limit}`")
    rows, flat = expand_compressed(compressed), plain.ravel()
    together = rows[1:] == rows[:-1]
    require(
        (flat[1:] > flat[:-1])[together].all(),
        f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {count} are sorted and distinct "
        "along the last dimension values`",
    )


def require(holds: Array, what: str) -> None:
    if not holds:
        raise RuntimeError(f"{what} is not satisfied.")


# ---- one function for each layout


def _constructor(layout: Layout, compressed: str, plain: str, text: str) -> Any:
    name = f"{layout.name}_tensor"

    def function(*args: Any, size: int | Sequence[int] | None = None, **options: Any) -> Tensor:
        parts = dict(zip((compressed, plain, "values", "size"), args, strict=False))
        parts.update({key: options.pop(key) for key in (compressed, plain, "values") if key in options})
        if len(args) > 4 or not {compressed, plain, "values"} <= set(parts):
            raise TypeError(f"{name}() takes {compressed}, {plain}, values and, optionally, size")
        size = parts.get("size", size)
        return sparse_compressed_tensor(
            parts[compressed], parts[plain], parts["values"], size, layout=layout, **options
        )

    function.__name__ = function.__qualname__ = name
    values = "ut.ones(1, 2, 2)" if "blocks" in text else "[1.0]"
    pointers = "[0, 1]" if "blocks" in text else "[0, 1, 1]"
    function.__doc__ = (
        f"{text}: see `sparse_compressed_tensor`.\n\n"
        f"*args      {compressed}, {plain}, values and size; all of them also by name\n"
        "**options  `dtype`, `device`, `requires_grad` and what else `sparse_compressed_tensor` takes\n\n"
        f"Example: `ut.{name}({pointers}, [0], {values}, (2, 2)).to_dense()`"
    )
    return composite(function, variants="function")


sparse_csr_tensor = _constructor(sparse_csr, "crow_indices", "col_indices", "A sparse matrix by compressed rows")
sparse_csc_tensor = _constructor(sparse_csc, "ccol_indices", "row_indices", "A sparse matrix by compressed columns")
sparse_bsr_tensor = _constructor(sparse_bsr, "crow_indices", "col_indices", "A sparse matrix by rows of blocks")
sparse_bsc_tensor = _constructor(sparse_bsc, "ccol_indices", "row_indices", "A sparse matrix by columns of blocks")


# ---- the parts


def part(name: str, direction: str, layouts: tuple[str, ...], slot: str) -> Any:
    def getter(self: Tensor) -> Tensor:
        layout = form_of(self).layout
        if layout not in layouts:
            raise RuntimeError(
                f"{name} expected sparse {direction} compressed tensor layout but got {layout_title(layout)}"
            )
        return Tensor(read_only(getattr(self._array, slot)), self._xp)

    getter.__name__ = getter.__qualname__ = name
    getter.__doc__ = (
        f"The `{name}` of a sparse tensor with compressed {direction}s. Read-only.\n\n"
        f"Example: `ut.eye(2).to_sparse_cs{direction[0]}().{name}()`"
    )
    return getter


BY_COLUMNS = ("sparse_csc", "sparse_bsc")

_convert_indices_from_csr_to_coo = nondifferentiable(
    "_convert_indices_from_csr_to_coo",
    forward=lambda xp, crow_indices, col_indices, *, out_int32=False, transpose=False: _coordinates(
        xp, crow_indices, col_indices, out_int32, transpose
    ),
    inputs=("crow_indices", "col_indices"),
    batch=refuse_batch,
    variants="function",
)


def _coordinates(xp: Namespace, crow_indices: Array, col_indices: Array, out_int32: bool, transpose: bool) -> Array:
    """Batch, row and column (with `transpose`: column and row) of every value."""
    batch = crow_indices.shape[:-1]
    number, rows = xp.divmod(expand_compressed(crow_indices), max(crow_indices.shape[-1] - 1, 1))
    places = (col_indices.ravel(), rows) if transpose else (rows, col_indices.ravel())
    batches = xp.unravel_index(number, batch) if batch else ()
    return xp.stack([*batches, *places]).astype(dtypes.int32 if out_int32 else dtypes.int64)


_convert_indices_from_coo_to_csr = nondifferentiable(
    "_convert_indices_from_coo_to_csr",
    forward=lambda xp, input, size, *, out_int32=False: xp.searchsorted(input, xp.arange(size + 1)).astype(
        dtypes.int32 if out_int32 else dtypes.int64
    ),
    inputs=("input",),
    batch=refuse_batch,
    variants="function",
)

#: attribute -> function; `methods.py` puts them on Tensor
METHODS: dict[str, Any] = {
    "ccol_indices": part("ccol_indices", "column", BY_COLUMNS, "compressed_indices"),
    "col_indices": part("col_indices", "row", BY_ROWS, "plain_indices"),
    "crow_indices": part("crow_indices", "row", BY_ROWS, "compressed_indices"),
    "row_indices": part("row_indices", "column", BY_COLUMNS, "plain_indices"),
}
