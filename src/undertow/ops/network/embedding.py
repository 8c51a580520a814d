"""Rows of a table by number: embedding, and the table of one_hot."""

from __future__ import annotations

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import nondifferentiable, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import loop
from undertow.ops.index.index_arrays import INTEGERS, check_range, taken


def _embedding_array(
    xp: Namespace,
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    if indices.dtype not in INTEGERS:
        got = dtypes.TENSOR_TYPE_NAMES[indices.dtype]
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"{got} instead (while checking arguments for embedding)"
        )
    check_range(indices, weight.shape[0], 0, IndexError, "index out of range in self: ")
    return taken(xp, weight, indices, 0)


def _embedding_gradient(
    xp: Namespace,
    g: Array,
    indices: Array,
    weight_shape: tuple[int, ...],
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Array:
    if sparse:
        return _embedding_sparse_gradient(xp, g, indices, weight_shape, padding_idx, scale_grad_by_freq)
    if padding_idx >= 0:
        g = xp._masked_fill_number(g, xp._index_is(indices, padding_idx), 0)
    if scale_grad_by_freq:
        g = g / xp._index_frequency(indices, weight_shape[0], g.dtype)
    rows = xp.reshape(g, (-1, weight_shape[1])) if g.ndim != 2 else g
    return xp.index_select_backward(rows, weight_shape, 0, xp._flat_index(indices))


def _embedding_sparse_gradient(
    xp: Namespace, g: Array, indices: Array, weight_shape: tuple[int, ...], padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    """The rows of g, each at the place that its index names; those of the padding are left out."""
    if scale_grad_by_freq:
        raise RuntimeError(
            "embedding_backward: scale_grad_by_freq not supported with sparse gradients. Pass sparse=False, or leave "
            "scale_grad_by_freq out."
        )
    rows = xp.reshape(g, (-1, weight_shape[1])) if g.ndim != 2 else g
    index = xp._flat_index(indices)
    if padding_idx >= 0:
        kept = xp._kept_places(index, padding_idx)
        rows, index = xp.index_select(rows, 0, kept), xp.index_select(index, 0, kept)
    return xp._sparse_coo(rows, xp._slice_places(index, weight_shape, 0), weight_shape)


embedding = primitive(
    "embedding",
    forward=_embedding_array,
    vjp={"weight": _embedding_gradient, "indices": None},
    jvp=LINEAR,
    batch=loop,
)


_index_is = nondifferentiable(
    "_index_is", forward=lambda xp, index, value: (index == value)[..., None], inputs=("index",)
)


_index_frequency = nondifferentiable(
    "_index_frequency",
    forward=lambda xp, index, size, dtype: xp.bincount(index.reshape(-1), minlength=size)[index][..., None].astype(
        dtype
    ),
    inputs=("index",),
)


_flat_index = nondifferentiable("_flat_index", forward=lambda xp, index: index.reshape(-1), inputs=("index",))


def _one_hot_array(xp: Namespace, input: Array, num_classes: int = -1) -> Array:
    if input.dtype != dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if input.size == 0 and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if input.size and input.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    classes = int(input.max()) + 1 if num_classes == -1 else num_classes
    if input.size and input.max() >= classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return (input[..., None] == xp.arange(classes)).astype(dtypes.int64)


one_hot = nondifferentiable("one_hot", forward=_one_hot_array, inputs=("input",))
