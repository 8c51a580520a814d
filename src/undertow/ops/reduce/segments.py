"""Reductions over neighbouring rows: segments given by their lengths, or by where they begin."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.cpu import read_once
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.create.creation import full
from undertow.ops.declare import composite
from undertow.ops.index.scatter_reduce import scatter_reduce
from undertow.ops.pointwise.where_clamp import where
from undertow.ops.views.clone import to_dtype
from undertow.ops.views.dimensions import expand
from undertow.ops.views.reshape import reshape
from undertow.ops.views.slices import narrow
from undertow.tensor import Tensor

#: what PyTorch calls them -> what scatter_reduce does, and what a segment without elements gives
REDUCTIONS = {
    "sum": ("sum", 0.0), "prod": ("prod", 1.0), "mean": ("sum", 0.0), "max": ("amax", float("-inf")),
    "min": ("amin", float("inf")), "amax": ("amax", float("-inf")), "amin": ("amin", float("inf")),
}  # fmt: skip


@composite
@example_by_example
def segment_reduce(
    data: Array,
    reduce: str,
    *,
    lengths: Array | None = None,
    indices: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Segments of `data` along `axis`, each reduced to one slice.

    reduce   "sum", "prod", "mean", "max" or "min"
    lengths  (*data.shape[:axis], segments): how many slices each segment has
    offsets  (*data.shape[:axis], segments + 1), instead: where each begins, and the last ends
    unsafe   leave out the check that the segments are all there is
    initial  what every segment starts from: by default what changes nothing, so that a segment without elements is 0,
             1, -inf, inf, or nan for "mean"
    indices  without effect: `lengths` or `offsets` is needed

    >>> import undertow as ut
    >>> ut.segment_reduce(ut.tensor([1.0, 2.0, 3.0]), "sum", lengths=ut.tensor([2, 1]))
    tensor([3., 3.])
    """
    data = as_operand("segment_reduce", "data", data)
    if reduce not in REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    axis = wrap_dim(axis, data.ndim)
    counts = _segment_lengths(data, axis, lengths, offsets, unsafe)
    places = Tensor(_segment_of_each(data._xp, counts), data._xp)
    return reduced(data, reduce, axis, Tensor(counts, data._xp), places, initial)


def _segment_lengths(data: Tensor, axis: int, lengths: Array | None, offsets: Array | None, unsafe: bool) -> Array:
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    given = as_operand("segment_reduce", "lengths", lengths if offsets is None else offsets)._array
    if given.dtype.kind not in "iu":
        raise RuntimeError(f"segment_reduce(): lengths and offsets must be integers, got {given.dtype}")
    if given.ndim != axis + 1 or given.shape[:-1] != tuple(data.shape[:axis]):
        raise RuntimeError(
            "segment_reduce(): Expected axis to be the last dimension of lengths, and the dimensions before it those "
            f"of data; got lengths of shape {list(given.shape)} for axis {axis} of data of shape {list(data.shape)}"
        )
    counts = given if offsets is None else given[..., 1:] - given[..., :-1]
    _check_lengths(counts, data.shape[axis], offsets is not None, unsafe)
    return counts.astype(dtypes.int64)


def _check_lengths(counts: Array, size: int, by_offsets: bool, unsafe: bool) -> None:
    if counts.size and counts.min() < 0:
        raise RuntimeError("segment_reduce(): lengths contains negative value!")
    totals = counts.sum(axis=-1)
    if totals.size and (totals.max() > size if unsafe else (totals != size).any()):
        what = "offsets" if by_offsets else "lengths"
        raise RuntimeError(
            f"segment_reduce(): Expected all rows of {what} along axis to sum to data.size(lengths.dim()-1) when "
            f"!unsafe. They sum to {totals.tolist()}, and the size is {size}."
        )


def _segment_of_each(xp: Namespace, counts: Array) -> Array:
    """The number of its segment, for every slice that belongs to one."""
    *lead, segments = counts.shape
    rows = [xp.repeat(xp.arange(segments), row) for row in read_once(counts).reshape(-1, segments)]
    if len({len(row) for row in rows}) > 1:
        raise RuntimeError("segment_reduce(): the rows of lengths must all have the same sum")
    length = len(rows[0]) if rows else 0
    return (xp.stack(rows) if rows else xp.zeros((0, 0), dtypes.int64)).reshape(*lead, length)


def reduced(data: Tensor, reduce: str, axis: int, counts: Tensor, places: Tensor, initial: Any) -> Tensor:
    kind, neutral = REDUCTIONS[reduce]
    inner = tuple(data.shape[axis + 1 :])
    ones = (1,) * len(inner)
    index = expand(reshape(places, (*places.shape, *ones)), (*places.shape, *inner))
    start = full((*counts.shape, *inner), neutral if initial is None else initial, dtype=data.dtype, device=data.device)
    out: Tensor = scatter_reduce(start, axis, index, narrow(data, axis, 0, places.shape[-1]), kind)
    if reduce != "mean":
        return out
    of_none = float("nan") if initial is None else 1.0
    divisors = to_dtype(where(counts == 0, of_none, counts), data.dtype)
    return out / reshape(divisors, (*counts.shape, *ones))
