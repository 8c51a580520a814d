"""What gradcheck moves when it perturbs an input: the elements of a tensor, or the values of a sparse one.

Gradients are compared as dense arrays, with an entry for every element. For a sparse input, either the values that it
has are moved (`masked=True`: other elements do not exist), or a copy of it that has them all (`masked=False`).
"""

from __future__ import annotations

from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.backend.sparse.compressed import form_of, to_dense, to_form
from undertow.backend.sparse.coo import AnySparse, SparseArray
from undertow.backend.sparse.kernels import values_at
from undertow.backend.sparse.places import flat_places, with_sparse_dim
from undertow.tensor import LEAF, Tensor


def dense(array: Array) -> Array:
    return to_dense(array) if isinstance(array, AnySparse) else array


def memory_of(tensor: Tensor) -> Array:
    """The array that is moved."""
    return tensor._array.values if isinstance(tensor._array, AnySparse) else tensor._array


def places_in(tensor: Tensor) -> Array | None:
    """Where in the flat tensor the elements of `memory_of` lie; None: in the same order."""
    if not isinstance(tensor._array, AnySparse):
        return None
    return flat_places(with_sparse_dim(tensor._array.coo(), tensor._array.ndim).indices, tensor._array.shape)


def spread(rows: Array, places: Array | None, size: int) -> Array:
    """Rows for all elements of a tensor, from those for the elements that were moved."""
    if places is None or rows is None:
        return rows
    out = cpu.zeros((size, *rows.shape[1:]), rows.dtype)
    out[places] = rows
    return out


def complete(value: Array) -> Any:
    """A sparse tensor that requires grad, with a value for every element; anything else as it is."""
    if not isinstance(value, Tensor) or not isinstance(value._array, AnySparse) or value._edge is None:
        return value
    form, array = form_of(value), value._array.coo()
    sizes = array.shape[: array.sparse_dim]
    indices = cpu.indices(sizes).reshape(len(sizes), -1).astype(array.indices.dtype)
    whole = SparseArray(indices, values_at(array, indices), array.shape, True)
    return Tensor(to_form(whole, form), value._xp, LEAF)
