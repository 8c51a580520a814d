"""Arrays read and written at index arrays: checking these, and adding or finding the last write where they repeat.

A `key` is a tuple of whole slices and index arrays (integers or masks), as NumPy indexes with. Flat positions
count elements in row-major order.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from undertow.backend import cpu, dtypes, kernels, namespace_of_array
from undertow.backend.cpu import read_once
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import wrap_dim

ALL = slice(None)

UNSIGNED = {dtypes.int64: dtypes.uint64, dtypes.int32: dtypes.uint32}

#: rows at least this long are added whole instead of element by element
LONG_ROW = 64

#: dtypes of indices
INTEGERS = (dtypes.int32, dtypes.int64)


def _row_strides(shape: tuple[int, ...]) -> list[int]:
    """How many elements apart neighbours along each dimension are, in row-major order."""
    strides, step = [1] * len(shape), 1
    for d in range(len(shape) - 1, -1, -1):
        strides[d] = step
        step *= shape[d]
    return strides


# ---- checking


def check_range(index: Array, size: int, dim: int, error: type[Exception] = RuntimeError, op: str = "") -> None:
    """Refuse an index outside [0, size); int32 and int64 only."""
    if type(index) is not cpu.ndarray and kernels.note_outside(namespace_of_array(index), index, 0, size):
        return  # the device finds it, and nobody waits for a look
    # seen as unsigned, a negative index is too large: one pass finds both
    if index.size and index.view(UNSIGNED[index.dtype]).max() >= size:
        bad = index[(index < 0) | (index >= size)].reshape(-1)[0]
        raise error(f"{op}index {int(bad)} is out of bounds for dimension {dim} with size {size}")


def check_wrapping_range(index: Array, size: int, dim: int) -> None:
    """Refuse an index outside [-size, size)."""
    if type(index) is not cpu.ndarray and size and kernels.note_outside(namespace_of_array(index), index, -size, size):
        return
    if index.size and not (index.min() >= -size and index.max() < size):
        if not size:
            raise IndexError(f"index is out of bounds for dimension with size 0 (dimension {dim})")
        bad = index[(index < -size) | (index >= size)].reshape(-1)[0]
        raise IndexError(f"index {int(bad)} is out of bounds for dimension {dim} with size {size}")


def check_key(shape: tuple[int, ...], key: tuple[Any, ...]) -> None:
    """Raise the IndexError that tells what is wrong with a key, if anything is."""
    dim = 0
    shapes: list[tuple[int, ...]] = []
    for item in key:
        if item is ALL:
            dim += 1
        elif item.dtype.kind == "b":
            _check_mask(shape, item.shape, dim)
            shapes.append((int(item.sum()),))
            dim += item.ndim
        else:
            if dim >= len(shape):
                raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {len(key)})")
            check_wrapping_range(item, shape[dim], dim)
            shapes.append(item.shape)
            dim += 1
    if dim > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {dim})")
    _check_broadcast(shapes)


def _check_mask(shape: tuple[int, ...], mask_shape: tuple[int, ...], dim: int) -> None:
    if dim + len(mask_shape) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {dim + len(mask_shape)})")
    for j, n in enumerate(mask_shape):
        if n != shape[dim + j]:
            raise IndexError(
                f"The shape of the mask {list(mask_shape)} at index {j} does not match the shape of the indexed tensor "
                f"{list(shape)} at index {dim + j}"
            )


def _check_broadcast(shapes: list[tuple[int, ...]]) -> None:
    if broadcast_shape(shapes) is None:
        shown = ", ".join(str(list(s)) for s in shapes)
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shown}")


def broadcast_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that all broadcast to; None if there is none."""
    rank = max((len(s) for s in shapes), default=0)
    out = []
    for column in zip(*[(1,) * (rank - len(s)) + tuple(s) for s in shapes], strict=True):
        sizes = set(column) - {1}
        if len(sizes) > 1:
            return None
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


# ---- reading


def taken(xp: Namespace, array: Array, index: Array, dim: int) -> Array | None:
    """The slices that an index of any shape names along a dimension: array.take, which reads an index once."""
    found = kernels.take(xp, array, index, dim)
    return array.take(index, dim) if found is None else found


def take_at(xp: Namespace, array: Array, key: tuple[Any, ...]) -> Array:
    """`array[key]`, packed in row-major order."""
    if xp is not cpu and not xp.checks_indices:
        check_key(array.shape, key)  # other libraries wrap an index that is out of bounds
    try:
        if key[-1].dtype.kind == "i" and (len(key) == 1 or all([item is ALL for item in key[:-1]])):
            return taken(xp, array, key[-1], len(key) - 1)
        out = array[own_key(key)]
    except IndexError:
        check_key(array.shape, key)
        raise
    # NumPy leaves the result transposed, and 0-d indices give a view
    return out if out.base is None else out.copy()


def own_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key in memory that no other thread changes."""
    return tuple([item if item is ALL else read_once(item) for item in key])


def is_mask(key: tuple[Any, ...]) -> bool:
    """Whether the only index is a mask, which names no position twice."""
    indices = [item for item in key if item is not ALL]
    return len(indices) == 1 and indices[0].dtype.kind == "b"


# ---- positions


def _integer_key(xp: Namespace, shape: tuple[int, ...], key: tuple[Any, ...]) -> list[Array]:
    """The key with one item for every dimension, masks turned into the indices of their true elements."""
    items: list[Any] = []
    for item in key:
        items += [item] if item is ALL or item.dtype.kind != "b" else list(xp.nonzero(item))
    return items + [ALL] * (len(shape) - len(items))


def neighbours(places: list[int]) -> bool:
    return places[-1] - places[0] == len(places) - 1


def _result_layout(items: list[Any]) -> tuple[int, tuple[int, ...]]:
    """Where the index dimensions stand in the result (in front if the indices are apart), and their shape."""
    places = [d for d, item in enumerate(items) if item is not ALL]
    shape = broadcast_shape([items[d].shape for d in places])
    assert shape is not None
    return places[0] if neighbours(places) else 0, shape


def indexed_shape(xp: Namespace, shape: tuple[int, ...], key: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of `array[key]`."""
    items = _integer_key(xp, shape, key)
    at, index_shape = _result_layout(items)
    whole = [shape[d] for d, item in enumerate(items) if item is ALL]
    return (*whole[:at], *index_shape, *whole[at:])


def flat_positions(xp: Namespace, shape: tuple[int, ...], key: tuple[Any, ...]) -> Array:
    """The flat position, in an array of `shape`, of every element of `array[key]`; the key must be valid."""
    items, strides = _integer_key(xp, shape, key), _row_strides(shape)
    at, index_shape = _result_layout(items)
    whole = [d for d, item in enumerate(items) if item is ALL]
    rank = len(whole) + len(index_shape)
    total: Any = 0
    for d, item in enumerate(items):
        if item is not ALL:
            total = total + from_front(xp, item, shape[d]) * strides[d]
    total = total.reshape((1,) * at + total.shape + (1,) * (rank - at - total.ndim))
    for k, d in enumerate(whole):
        axis = k if k < at else k + len(index_shape)
        total = total + along(xp, xp.arange(shape[d]) * strides[d], axis, rank)
    return total


def from_front(xp: Namespace, index: Array, size: int) -> Array:
    """Negative indices counted from the front, as int64."""
    index = index.astype(dtypes.int64, copy=False)
    return xp.where(index < 0, index + size, index)


def along(xp: Namespace, vector: Array, axis: int, rank: int) -> Array:
    """A vector laid along one of `rank` dimensions."""
    return vector.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1))


def _positions_along(xp: Namespace, shape: tuple[int, ...], dim: int, index: Array) -> Array:
    """The flat positions that `index` names along `dim`, every other dimension counting on by itself."""
    stride = math.prod(shape[dim + 1 :])
    if index.ndim <= 1:
        return index * stride
    few = index.size <= 4096
    return index * stride + (kept_offsets if few else _offsets_along)(xp, shape, dim, index.shape)


def _offsets_along(xp: Namespace, shape: tuple[int, ...], dim: int, index_shape: tuple[int, ...]) -> Array:
    """The flat positions of every element of an index along `dim`, were they all zero."""
    strides = _row_strides(shape)
    offset: Any = 0
    for d, n in enumerate(index_shape):
        if d != dim:
            offset = offset + along(xp, xp.arange(n) * strides[d], d, len(index_shape))
    return offset


kept_offsets = lru_cache(maxsize=64)(_offsets_along)


# ---- writing where positions may repeat


def add_at(xp: Namespace, out: Array, key: tuple[Any, ...], values: Array) -> Array:
    """Add `values` to `out[key]`, as often as a position is named, and return `out` (which is row-major)."""
    if is_mask(key):
        out[own_key(key)] += values
        return out
    if key[0] is not ALL and len(key) == 1 and out.size:
        index, row = key[0].reshape(-1), out.shape[1:]
        values = xp.broadcast_to(values, key[0].shape + row).reshape((index.size, *row))
        return add_rows(xp, out, from_front(xp, index, out.shape[0]), values)
    *before, index = key
    if index is not ALL and index.dtype.kind != "b" and all([item is ALL for item in before]) and out.size:
        return _add_along(xp, out, len(before), index, values)
    return add_flat(xp, out, flat_positions(xp, out.shape, key), values)


def _add_along(xp: Namespace, out: Array, dim: int, index: Array, values: Array) -> Array:
    """The same for an index behind dimensions that are whole: each of their elements has rows of its own."""
    outer, size, inner = out.shape[:dim], out.shape[dim], out.shape[dim + 1 :]
    count, width = math.prod(outer), math.prod(inner)
    rows = along(xp, xp.arange(count) * size, 0, 2) + from_front(xp, index.reshape(-1), size)
    values = xp.broadcast_to(values, (*outer, *index.shape, *inner)).reshape(rows.size, width)
    if width == 1:
        return add_flat(xp, out, rows, values.reshape(rows.shape))
    add_rows(xp, out.reshape(count * size, width), rows.reshape(-1), values)
    return out


def set_at(xp: Namespace, out: Array, key: tuple[Any, ...], values: Array) -> Array:
    """Write `values` to `out[key]` and return `out`; of several writes to a position the last remains."""
    # row-major, so that NumPy visits the index in that order and the last write is the one last_at finds
    key = own_key(tuple([item if item is ALL else xp.asarray(item, order="C") for item in key]))
    if xp is not cpu and not xp.checks_indices:
        check_key(out.shape, key)
    try:
        out[key] = xp.asarray(values, order="C")
    except IndexError:
        check_key(out.shape, key)
        raise
    return out


def add_flat(xp: Namespace, out: Array, positions: Array, values: Array) -> Array:
    """Add values at flat positions, as often as a position is named."""
    values = xp.broadcast_to(values, positions.shape).astype(out.dtype, copy=False)
    xp.add.at(out.reshape(-1), positions.reshape(-1), values.reshape(-1))
    return out


def add_rows(xp: Namespace, out: Array, index: Array, rows: Array) -> Array:
    """Add whole rows. Without the kernel each round takes one row for every target that is still waiting, which no two
    share: three times as fast as adding the elements one by one, where rows are long and few have the same target."""
    if kernels.add_rows(xp, out, index, xp.ascontiguousarray(rows, dtype=out.dtype)):
        return out
    if math.prod(out.shape[1:]) < LONG_ROW:
        return add_flat(xp, out, flat_positions(xp, out.shape, (index,)), rows)
    waiting = xp.arange(index.size)
    while waiting.size:
        targets = index[waiting]
        last = last_at(xp, out.shape[0], targets)
        chosen = waiting[last]
        if chosen.size * 8 < waiting.size:
            positions = flat_positions(xp, out.shape, (targets,))
            return add_flat(xp, out, positions, rows[waiting])
        out[index[chosen]] += rows[chosen]
        waiting = waiting[~last]
    return out


def last_at(xp: Namespace, size: int, positions: Array) -> Array:
    """Which of the positions (in [0, size)) are not named again later: the writes that remain."""
    flat = positions.reshape(-1)
    order = xp.arange(flat.size)
    writer = xp.empty(size, dtypes.int64)
    writer[flat] = order
    return (writer[flat] == order).reshape(positions.shape)


def positions_of(xp: Namespace, op: str, input: Array, dim: int, index: Array, other: str = "self") -> Array:
    """The flat positions in `input` that an index along `dim` names, once it is known to be right."""
    dim = wrap_dim(dim, input.ndim)
    if not index.size:
        return xp.empty(index.shape, dtypes.int64)
    if index.dtype not in INTEGERS:
        raise RuntimeError(f"{op}(): Expected dtype int32/int64 for index, got {index.dtype}")
    if max(index.ndim, 1) != max(input.ndim, 1):
        raise RuntimeError(f"Index tensor must have the same number of dimensions as {other} tensor")
    sizes = input.shape or (1,)
    for d, n in enumerate(index.shape):
        if d != dim and n > sizes[d]:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger than self "
                f"{list(input.shape)} apart from dimension {dim}"
            )
    check_range(index, sizes[dim], dim)
    return _positions_along(xp, sizes, dim, index.astype(dtypes.int64, copy=False))
