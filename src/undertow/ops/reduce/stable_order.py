"""The order that sorting brings elements into: equal ones as they came, NaN as the largest.

NumPy's stable sort of indices is a merge sort; its sort of integers uses the processor's vectors and takes a fifth of
the time. So an element of 32 bits becomes the upper half of an integer of 64 bits, of the same order, and its place the
lower half: no two are equal, and any sort, or a partition for the first few, is a stable one. Wider elements are sorted
without regard to ties, and again if there were any.
"""

from __future__ import annotations

from typing import Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, Namespace

#: arrays with fewer elements are sorted as they are
MANY = 512
#: longer slices have places of more than 32 bits
LONGEST = 2**31


def order(xp: Namespace, input: Array, axis: int, descending: bool, count: int | None = None) -> Array:
    """The indices that sort, or the first `count` of them."""
    found = None if xp is cpu else kernels.sorted_order(xp, input, axis, descending)
    if found is not None:
        return _first(xp, found, axis, count)
    if xp is not cpu or input.size < MANY or input.shape[axis] > LONGEST:
        return _first(xp, _merged(xp, input, axis, descending), axis, count)
    if input.dtype == dtypes.float32 or (input.dtype.kind in "iu" and input.itemsize == 4):
        return _placed(xp, _keys(xp, xp.moveaxis(input, axis, -1), descending), axis, count)
    if input.itemsize == 8:
        if input.dtype.kind == "i" and int(xp.max(input)) - (least := int(xp.min(input))) < LONGEST:
            return _placed(xp, _keys(xp, xp.moveaxis(input - least, axis, -1), descending), axis, count)
        return _first(xp, _unless_tied(xp, input, axis, descending), axis, count)
    return _first(xp, _merged(xp, input, axis, descending), axis, count)


def place_of_rank(xp: Namespace, input: Array, rank: int) -> Array:
    """Along the last dimension, kept: where the element is that comes at this place of the order."""
    if xp is cpu and input.size >= MANY and input.dtype == dtypes.float32 and input.shape[-1] <= LONGEST:
        keys = _keys(xp, input, descending=False)
        keys.partition(rank, -1)
        return keys[..., rank : rank + 1] & 0xFFFFFFFF
    return xp.take(order(xp, input, input.ndim - 1, False), xp.asarray([rank]), -1)


def take_in_order(xp: Namespace, input: Array, indices: Array, axis: int) -> Array:
    """The elements at these indices."""
    found = kernels.gather(xp, input, axis, indices)
    return xp.take_along_axis(input, indices, axis) if found is None else found


def _first(xp: Namespace, indices: Array, axis: int, count: int | None) -> Array:
    return indices if count is None else xp.take(indices, xp.arange(count), axis)


def _merged(xp: Namespace, input: Array, axis: int, descending: bool) -> Any:
    if not descending:
        return xp.argsort(input, axis, kind="stable")
    backwards = xp.argsort(xp.flip(input, axis), axis, kind="stable")
    return input.shape[axis] - 1 - xp.flip(backwards, axis)


def _keys(xp: Namespace, rows: Array, descending: bool) -> Any:
    """Integers of 64 bits in the order of the elements of each row, with their places in the lower half."""
    if rows.dtype.kind == "f":
        upper = (rows + 0).view(dtypes.int32)  # -0 becomes 0: they are equal
        upper ^= (upper >> 31) & 0x7FFFFFFF  # negative numbers count backwards
        unordered = xp.isnan(rows)
        if unordered.any():
            upper[unordered] = 0x7FFFFFFF
    else:
        upper = rows
    keys = upper.astype(dtypes.int64, order="C")
    if rows.dtype.kind == "u":
        keys -= LONGEST  # with a sign, as the others have it
    if descending:
        xp.invert(keys, out=keys)
    keys <<= 32
    keys |= xp.arange(rows.shape[-1])
    return keys


def _placed(xp: Namespace, keys: Array, axis: int, count: int | None) -> Any:
    """The indices that keys (rows along the last dimension, which are reordered) have in their lower half."""
    if count is not None and 0 < 4 * count < keys.shape[-1]:
        keys.partition(count - 1, -1)
        keys = xp.ascontiguousarray(keys[..., :count])
    keys.sort(-1)
    indices = keys[..., :count] & 0xFFFFFFFF
    return indices if axis == keys.ndim - 1 else xp.moveaxis(indices, -1, axis).copy()


def _unless_tied(xp: Namespace, input: Array, axis: int, descending: bool) -> Any:
    """A sort that knows nothing of ties, and the stable one if there are any."""
    indices = xp.argsort(input, axis)
    rows = xp.moveaxis(xp.take_along_axis(input, indices, axis), axis, -1)
    if (rows[..., 1:] == rows[..., :-1]).any() or (rows.dtype.kind == "f" and xp.isnan(rows[..., -1:]).any()):
        return _merged(xp, input, axis, descending)
    return xp.flip(indices, axis).copy() if descending else indices
