"""The places of a sparse array's values: numbered, sorted, and in more or fewer dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undertow.backend import kernels
from undertow.backend.cpu import cpu
from undertow.backend.interface import Array
from undertow.backend.sparse.coo import SparseArray
from undertow.backend.sparse.protocol import space_of


def flat_places(indices: Array, sizes: Sequence[int]) -> Array:
    """One number for each column of indices, in the order of the elements in memory."""
    flat = space_of(indices).zeros(indices.shape[1], np.int64)
    for row, n in zip(indices, sizes, strict=True):
        flat *= n
        flat += row
    return flat


def places_at(flat: Array, sizes: Sequence[int]) -> Array:
    """The inverse of flat_places."""
    rows = []
    for n in reversed(sizes):
        flat, row = np.divmod(flat, n) if n else (flat, flat)
        rows.append(row)
    return np.stack(rows[::-1]) if rows else space_of(flat).zeros((0, len(flat)), np.int64)


def coalesced(array: SparseArray) -> SparseArray:
    """Places sorted and distinct; values at equal places added up."""
    if array.coalesced:
        return array
    sizes = array.shape[: array.sparse_dim]
    flat = flat_places(array.indices, sizes)
    order = np.argsort(flat, kind="stable")
    flat = flat[order]
    starts = starts_of_runs(flat)
    values = kernels.sum_ordered_runs(space_of(flat), array.values, order, starts)
    if values is None:
        values = sum_runs(array.values.take(order, axis=0), starts)
    return SparseArray(places_at(flat[starts], sizes), values, array.shape, True)


def starts_of_runs(numbers: Array) -> Array:
    """Where, in a sorted vector, another number begins."""
    return np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1]))) if len(numbers) else numbers


def sum_runs(values: Array, starts: Array) -> Array:
    """The sums of the values from each start to the next."""
    if len(starts) == len(values):
        return values
    space = space_of(values)
    if space is not cpu:  # where running lengths would be waited for
        begins = space.zeros(len(values), np.int64)
        begins[starts] = 1
        return add_at(space.zeros((len(starts), *values.shape[1:]), values.dtype), np.cumsum(begins) - 1, values)
    lengths = np.diff(starts, append=len(values))
    longest = int(lengths.max())
    if 32 * longest > len(starts):
        return np.add.reduceat(values, starts, axis=0, dtype=values.dtype)
    # many short runs: a tenth of the time of reduceat
    out = values.take(starts, axis=0)
    for k in range(1, longest):
        at = np.flatnonzero(lengths > k)
        out[at] += values.take(starts[at] + k, axis=0)
    return out


def add_at(out: Array, index: Array, values: Array) -> Array:
    """`out` with values[k] added to out[index[k]], in place."""
    if not kernels.add_rows(space_of(out), out, index, space_of(values).ascontiguousarray(values)):
        np.add.at(out, index, values)
    return out


def matches(there: Array, wanted: Array) -> tuple[Array, Array]:
    """For each number, where it is among sorted ones, of which there are some, and whether it is there at all."""
    found = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
    return found, there[found] == wanted


def with_sparse_dim(array: SparseArray, count: int) -> SparseArray:
    """The same array with the first `count` dimensions in its indices."""
    if count > array.sparse_dim:
        return more_sparse(array, count)
    return array if count == array.sparse_dim else less_sparse(array, count)


def more_sparse(array: SparseArray, count: int) -> SparseArray:
    inner = array.shape[array.sparse_dim : count]
    grid = space_of(array.indices).indices(inner).reshape(len(inner), -1)
    outer = np.repeat(array.indices, grid.shape[1], axis=1)
    indices = np.concatenate([outer, np.tile(grid, (1, array.nnz))])
    values = array.values.reshape(outer.shape[1], *array.shape[count:])
    return SparseArray(indices, values, array.shape, array.coalesced)


def less_sparse(array: SparseArray, count: int) -> SparseArray:
    array = coalesced(array)
    sizes = array.shape[:count]
    distinct, row = np.unique(flat_places(array.indices[:count], sizes), return_inverse=True)
    values = array.namespace.zeros((len(distinct), *array.shape[count:]), array.dtype)
    values[(row, *array.indices[count:])] = array.values
    return SparseArray(places_at(distinct, sizes), values, array.shape, True)
