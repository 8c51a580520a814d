"""Sparse arrays in other shapes: permuted, joined, cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.backend.interface import Array
from undertow.backend.sparse.coo import SparseArray, unsupported
from undertow.backend.sparse.places import flat_places, with_sparse_dim
from undertow.backend.sparse.protocol import space_of


def flattened(array: SparseArray) -> SparseArray:
    """All dimensions as one."""
    array = with_sparse_dim(array, array.ndim)
    return SparseArray(flat_places(array.indices, array.shape)[None], array.values, (array.size,), array.coalesced)


def permuted(array: SparseArray, axes: Sequence[int]) -> SparseArray:
    axes = [axis % max(array.ndim, 1) for axis in axes]
    if axes == list(range(array.ndim)):
        return array
    if any(axis >= array.sparse_dim for axis in axes[: array.sparse_dim]):  # sparse dimensions come first
        array = with_sparse_dim(array, array.ndim)
    count = array.sparse_dim
    dense = [0] + [axis - count + 1 for axis in axes[count:]]
    shape = tuple([array.shape[axis] for axis in axes])
    same_order = axes[:count] == list(range(count))
    indices = array.indices[axes[:count]]
    shown = SparseArray(indices, array.values.transpose(dense), shape, array.coalesced and same_order)
    shown.writeable = False
    return shown


def swapaxes(array: SparseArray, axis1: int, axis2: int) -> SparseArray:
    axes = list(range(array.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return permuted(array, axes)


def expand_dims(array: SparseArray, axis: int) -> SparseArray:
    """A dimension of size one in front of `axis`; sparse, if it comes before or right behind a sparse one."""
    axis %= array.ndim + 1
    shape = (*array.shape[:axis], 1, *array.shape[axis:])
    if axis > array.sparse_dim:
        values = np.expand_dims(array.values, axis - array.sparse_dim + 1)
        return SparseArray(array.indices, values, shape, array.coalesced)
    row = space_of(array.indices).zeros((1, array.nnz), np.int64)
    indices = np.concatenate([array.indices[:axis], row, array.indices[axis:]])
    return SparseArray(indices, array.values, shape, array.coalesced)


def concatenate(arrays: Sequence[Array], axis: int = 0) -> SparseArray:
    if any(type(array) is not SparseArray for array in arrays):
        raise unsupported("cat of dense and sparse tensors")
    axis %= arrays[0].ndim
    shapes = {(*a.shape[:axis], *a.shape[axis + 1 :]) for a in arrays}
    if len(shapes) > 1:
        raise RuntimeError(f"Sizes of tensors must match except in dimension {axis}: got {[a.shape for a in arrays]}")
    count = max(axis + 1, *[a.sparse_dim for a in arrays])
    arrays = [with_sparse_dim(a, count) for a in arrays]
    ends = np.cumsum([a.shape[axis] for a in arrays])
    indices = np.concatenate([a.indices for a in arrays], axis=1)
    before = np.repeat(ends - [a.shape[axis] for a in arrays], [a.nnz for a in arrays])
    indices[axis] += space_of(indices).asarray(before)
    shape = (*arrays[0].shape[:axis], int(ends[-1]), *arrays[0].shape[axis + 1 :])
    joined = SparseArray(indices, np.concatenate([a.values for a in arrays]), shape)
    joined.coalesced = joined.coalesced or (axis == 0 and all(a.coalesced for a in arrays))
    return joined


def stack(arrays: Sequence[Array], axis: int = 0) -> SparseArray:
    if any(type(array) is not SparseArray for array in arrays):
        raise unsupported("stack of dense and sparse tensors")
    axis %= arrays[0].ndim + 1
    count = max(axis, *[a.sparse_dim for a in arrays])
    return concatenate([expand_dims(with_sparse_dim(a, count), axis) for a in arrays], axis)


def sliced(array: SparseArray, key: Array) -> SparseArray:
    """`array[key]`, for integers, slices of step one, None and an Ellipsis."""
    whole = complete_key(array, key if isinstance(key, tuple) else (key,))
    axis = 0
    for item in whole:
        if item is None:
            array = expand_dims(array, axis)
        elif isinstance(item, slice):
            array = narrowed(array, axis, *item.indices(array.shape[axis])[:2])
        else:
            array = selected(array, axis, item)
            continue
        axis += 1
    shown = SparseArray(array.indices, array.values, array.shape, array.coalesced)
    shown.writeable = False
    return shown


def complete_key(array: SparseArray, key: tuple[Any, ...]) -> list[Any]:
    """The key with an entry for every dimension."""
    for item in key:
        known = item is None or item is Ellipsis or isinstance(item, (int, np.integer))
        if isinstance(item, bool) or not (known or (isinstance(item, slice) and item.step in (None, 1))):
            raise unsupported("index")
    named = len([item for item in key if item is not None and item is not Ellipsis])
    if named > array.ndim:
        raise IndexError(f"too many indices for tensor of dimension {array.ndim}")
    rest = [slice(None)] * (array.ndim - named)
    at = next((k for k, item in enumerate(key) if item is Ellipsis), len(key))
    return [*key[:at], *rest, *key[at + 1 :]]


def narrowed(array: SparseArray, axis: int, start: int, stop: int) -> SparseArray:
    length = max(stop - start, 0)
    shape = (*array.shape[:axis], length, *array.shape[axis + 1 :])
    if length == array.shape[axis]:
        return array
    if axis >= array.sparse_dim:
        where = (slice(None),) * (axis - array.sparse_dim + 1) + (slice(start, start + length),)
        return SparseArray(array.indices, array.values[where], shape, array.coalesced)
    inside = (array.indices[axis] >= start) & (array.indices[axis] < start + length)
    indices = array.indices[:, inside]
    indices[axis] -= start
    return SparseArray(indices, array.values[inside], shape, array.coalesced)


def selected(array: SparseArray, axis: int, index: Array) -> Array:
    """One slice, without its dimension; at least one sparse dimension must be left."""
    n = array.shape[axis]
    if not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for dimension {axis} with size {n}")
    if axis < array.sparse_dim == 1:
        raise unsupported("select of the only sparse dimension")
    array = narrowed(array, axis, index % n, index % n + 1)
    shape = (*array.shape[:axis], *array.shape[axis + 1 :])
    if axis >= array.sparse_dim:
        values = array.values.squeeze(axis - array.sparse_dim + 1)
        return SparseArray(array.indices, values, shape, array.coalesced)
    indices = array.indices[[d for d in range(array.sparse_dim) if d != axis]]
    return SparseArray(indices, array.values, shape, array.coalesced)
