"""embedding_bag: sums, means and maxima of rows of a table, bag by bag."""

from __future__ import annotations

import warnings
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.modes import no_grad
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.index.gather_scatter import gather
from undertow.ops.index.index_select import index_add, index_select
from undertow.ops.network.embedding import embedding
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.pointwise.where_clamp import where
from undertow.ops.reduce.vector_norms import linalg_vector_norm
from undertow.ops.views.dimensions import unsqueeze
from undertow.ops.views.reshape import reshape
from undertow.tensor import Tensor

MODES = ("sum", "mean", "max")


@composite
@example_by_example
def embedding_bag(
    input: Array,
    weight: Array,
    offsets: Array | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows of `weight` that each bag of indices names.

    input                2-d: a bag in each row; 1-d: bags one after the other, which begin at `offsets`
    max_norm             rows that are used and longer than this (by the norm `norm_type`) are shortened to it, in place
    per_sample_weights   factors of the rows (mode "sum")
    include_last_offset  the last of the offsets is the end of the last bag
    padding_idx          an index that does not count
    scale_grad_by_freq   divide the gradient of a row by how often it was used
    sparse               the gradient of `weight` is sparse

    >>> import undertow as ut
    >>> ut.embedding_bag(ut.tensor([[0, 2]]), ut.eye(3), mode="sum").tolist()
    [[1.0, 0.0, 1.0]]
    """
    input, weight = as_operand("embedding_bag", "input", input), as_operand("embedding_bag", "weight", weight)
    offsets, per_sample_weights = [
        None if t is None else as_operand("embedding_bag", "offsets", t) for t in (offsets, per_sample_weights)
    ]
    if weight.dtype == dtypes.int64 and dtypes.is_floating(input.dtype):
        warnings.warn(
            "Argument order of embedding_bag was changed: `embedding_bag(weight, input, ...)` is deprecated. Use "
            "`embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        input, weight = weight, input
    _check_arguments(input, weight, offsets, mode, per_sample_weights)
    _check_max(mode, scale_grad_by_freq, sparse)
    starts = _bag_starts(input, offsets, include_last_offset)
    if offsets is not None and include_last_offset:
        end = offsets._array[-1]
        input, per_sample_weights = (None if x is None else x[:end] for x in (input, per_sample_weights))
    bags, indices = _bag_of_each(input, starts), reshape(input, (-1,))
    _check_indices(indices._array, weight.shape[0])
    if max_norm is not None:
        shorten_rows(weight, indices._array, max_norm, norm_type)
    if padding_idx is not None:
        padding_idx = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
    counts = indices._array != (-1 if padding_idx is None else padding_idx)
    if mode == "max":
        return _largest_rows(weight, indices._array, bags, counts, len(starts))
    rows = embedding(weight, indices, -1, scale_grad_by_freq, sparse)
    if padding_idx is not None:
        rows = mul(rows, Tensor(counts.astype(weight.dtype)[:, None], weight._xp))
    if per_sample_weights is not None:
        rows = mul(rows, unsqueeze(reshape(per_sample_weights, (-1,)), -1))
    empty = recorded._zeros_for(weight, (len(starts), weight.shape[1]))
    summed = index_add(empty, 0, Tensor(bags, weight._xp), rows)
    return summed if mode == "sum" else mul(summed, _one_over_sizes(counts, bags, len(starts), weight))


def _check_arguments(input: Array, weight: Array, offsets: Array | None, mode: str, factors: Array | None) -> None:
    if input.ndim not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if input.ndim == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
            f"sequences. However, found offsets of type {type(offsets)}"
        )
    if input.ndim == 1 and (offsets is None or offsets.ndim != 1):
        raise ValueError("offsets has to be a 1D Tensor but got " + ("None" if offsets is None else f"{offsets.ndim}D"))
    if mode not in MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if factors is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
            f"mode='{mode}')."
        )
    if factors is not None and factors.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({factors.shape}) is not None, then it must have the same shape as "
            f"the input ({input.shape})"
        )


def _check_max(mode: str, scale_grad_by_freq: bool, sparse: bool) -> None:
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")


def shorten_rows(weight: Array, indices: Array, max_norm: float, norm_type: float) -> None:
    """Scale down, in place and unrecorded, the rows of a table that are too long and are looked up."""
    with no_grad():
        used = Tensor(weight._xp.unique(indices).astype(dtypes.int64), weight._xp)
        rows = index_select(weight, 0, used)
        norms = linalg_vector_norm(rows, norm_type, -1, True)
        factors = where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        weight.index_copy_(0, used, mul(rows, factors))


def _check_indices(indices: Array, rows: int) -> None:
    if indices.dtype.kind not in "iu":
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"{dtypes.SCALAR_NAMES[indices.dtype]} instead (while checking arguments for embedding_bag)"
        )
    wrong = (indices < 0) | (indices >= rows)
    if wrong.any():
        k = int(wrong.argmax())
        raise RuntimeError(f"Index {k} of input takes value {indices[k]} which is not in the valid range [0, {rows})")


def _bag_starts(input: Array, offsets: Any, include_last_offset: bool) -> Array:
    """Where each bag begins in the flat input."""
    xp = input._xp
    if input.ndim == 2:
        return xp.arange(input.shape[0]) * input.shape[1]
    starts = offsets._array
    if starts.size and starts[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, "
            f"got {starts[0]}"
        )
    if starts.size and starts[-1] > input.shape[0]:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length({input.shape[0]}) but got offsets[-1] of {starts[-1]}"
        )
    return starts[:-1] if include_last_offset else starts


def _bag_of_each(input: Array, starts: Array) -> Array:
    """The number of the bag that each element of the flat input is in."""
    xp = input._xp
    if input.ndim == 2:
        return xp.repeat(xp.arange(input.shape[0]), input.shape[1])
    return xp.searchsorted(starts, xp.arange(input.shape[0]), side="right") - 1


def _one_over_sizes(counts: Array, bags: Array, size: int, weight: Array) -> Tensor:
    """1 over the number of rows of each bag, of which padding does not count."""
    xp = weight._xp
    sizes = xp.bincount(bags, weights=counts, minlength=size)
    return Tensor((1 / xp.maximum(sizes, 1)).astype(weight.dtype)[:, None], xp)


def _largest_rows(weight: Array, indices: Array, bags: Array, counts: Array, size: int) -> Tensor:
    """The largest element of each column in each bag, the first of equals; 0 for a bag without rows."""
    xp, table = weight._xp, weight._array
    chosen = xp.zeros((size, table.shape[1]), dtypes.int64)
    filled = xp.zeros((size, 1), bool)
    indices, bags = indices[counts], bags[counts]
    if indices.size:
        is_first = xp.concatenate([xp.ones(1, bool), bags[1:] != bags[:-1]])
        begins = xp.flatnonzero(is_first)
        chosen[bags[begins]] = indices[_first_largest(xp, table[indices], begins, xp.cumsum(is_first) - 1)]
        filled[bags[begins]] = True
    found = gather(weight, 0, Tensor(chosen, xp))
    return mul(found, Tensor(filled.astype(weight.dtype), xp)) if not filled.all() else found


def _first_largest(xp: Namespace, rows: Array, begins: Array, segments: Array) -> Array:
    """Where each column has its largest element in each segment of rows. A nan is passed over, unless it is first."""
    first = rows[begins]
    largest = xp.where(xp.isnan(first), first, xp.fmax.reduceat(rows, begins, axis=0))
    is_it = (rows == largest[segments]) | xp.isnan(largest)[segments]
    places = xp.where(is_it, xp.arange(len(rows))[:, None], len(rows))
    return xp.minimum.reduceat(places, begins, axis=0)
