"""What gradcheck moves when it perturbs an input: the elements of a tensor, or the values of a sparse one.

Gradients are compared as dense arrays, with an entry for every element. For a sparse input, either the values that it
has are moved (`masked=True`: other elements do not exist), or a copy of it that has them all (`masked=False`).
"""

from __future__ import annotations

from typing import Any

from undertow.backend import cpu
from undertow.backend.sparse import SparseArray
from undertow.backend.sparse_kernels import to_dense, values_at
from undertow.backend.sparse_places import flat_places, with_sparse_dim
from undertow.tensor import LEAF, Tensor


def dense(array: Any) -> Any:
    return to_dense(array) if type(array) is SparseArray else array


def memory_of(tensor: Tensor) -> Any:
    """The array that is moved."""
    return tensor._array.values if type(tensor._array) is SparseArray else tensor._array


def places_in(tensor: Tensor) -> Any:
    """Where in the flat tensor the elements of `memory_of` lie; None: in the same order."""
    if type(tensor._array) is not SparseArray:
        return None
    return flat_places(with_sparse_dim(tensor._array, tensor._array.ndim).indices, tensor._array.shape)


def spread(rows: Any, places: Any, size: int) -> Any:
    """Rows for all elements of a tensor, from those for the elements that were moved."""
    if places is None or rows is None:
        return rows
    out = cpu.zeros((size, *rows.shape[1:]), rows.dtype)
    out[places] = rows
    return out


def complete(value: Any) -> Any:
    """A sparse tensor that requires grad, with a value for every element; anything else as it is."""
    if not isinstance(value, Tensor) or type(value._array) is not SparseArray or value._edge is None:
        return value
    array = value._array
    sizes = array.shape[: array.sparse_dim]
    indices = cpu.indices(sizes).reshape(len(sizes), -1).astype(array.indices.dtype)
    return Tensor(SparseArray(indices, values_at(array, indices), array.shape, True), value._xp, LEAF)
