"""The order that sorting brings elements into: equal ones as they came, NaN as the largest.

The compiled core finds it (csrc/kernels/sorting.c), or NumPy's stable sort of indices, which takes several times as
long.
"""

from __future__ import annotations

from typing import Any

from undertow.backend import cpu, kernels
from undertow.backend.interface import Array, Namespace


def order(xp: Namespace, input: Array, axis: int, descending: bool, count: int | None = None) -> Array:
    """The indices that sort, or the first `count` of them."""
    wanted = input.shape[axis] if count is None else count
    found = _of_rows(xp, xp.moveaxis(input, axis, -1), bool(descending), wanted, -1)
    if found is not None:
        return found if axis == input.ndim - 1 else xp.moveaxis(found, -1, axis).copy()
    indices = None if xp is cpu else kernels.sorted_order(xp, input, axis, descending)
    if indices is None:
        indices = _merged(xp, input, axis, descending)
    return indices if count is None else xp.take(indices, xp.arange(count), axis)


def place_of_rank(xp: Namespace, input: Array, rank: int) -> Array:
    """Along the last dimension, kept: where the element is that comes at this place of the order."""
    found = _of_rows(xp, input, False, 1, rank)
    return xp.take(_merged(xp, input, input.ndim - 1, False), xp.asarray([rank]), -1) if found is None else found


def _of_rows(xp: Namespace, rows: Array, *arguments: Any) -> Array | None:
    return kernels.order_rows(xp, xp.ascontiguousarray(rows), *arguments) if xp is cpu else None


def in_order(xp: Namespace, input: Array, axis: int, descending: bool, count: int | None = None) -> tuple[Array, Array]:
    """The elements in their order, or the first `count` of them, and their indices."""
    wanted = input.shape[axis] if count is None else count
    found = None if xp is cpu else kernels.first_in_order(xp, input, axis, bool(descending), wanted)
    if found is not None:
        return tuple(found)
    indices = order(xp, input, axis, descending, count)
    return take_in_order(xp, input, indices, axis), indices


def take_in_order(xp: Namespace, input: Array, indices: Array, axis: int) -> Array:
    """The elements at these indices."""
    found = kernels.gather(xp, input, axis, indices)
    return xp.take_along_axis(input, indices, axis) if found is None else found


def _merged(xp: Namespace, input: Array, axis: int, descending: bool) -> Array:
    if not descending:
        return xp.argsort(input, axis, kind="stable")
    backwards = xp.argsort(xp.flip(input, axis), axis, kind="stable")
    return input.shape[axis] - 1 - xp.flip(backwards, axis)
