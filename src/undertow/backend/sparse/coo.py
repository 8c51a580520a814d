"""SparseArray: an array given by the places and values of its elements; all others are zero.

What is computed with it is in kernels.py and shapes.py, which need the class; `__init__.py` makes methods of it. The
other layouts are in compressed.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.interface import Array
from undertow.backend.sparse.protocol import (
    AnySparse,
    SparseConversionError,
    SparseUnsupported,
    keep_sparse_arrays,
    unsupported,
)

__all__ = [
    "AnySparse", "SparseArray", "SparseConversionError", "SparseUnsupported", "is_sparse", "unsupported",
]  # fmt: skip


class SparseArray(AnySparse):
    """A sparse array in coordinate (COO) form.

    indices    (sparse_dim, nnz) int64: the place of each value along the leading dimensions; never changed in place,
               so that several sparse arrays may share it
    values     (nnz, *shape[sparse_dim:]): a number, or (in a hybrid array) a dense block, for each place
    coalesced  whether the places are sorted and distinct; values at equal places are added up
    """

    __slots__ = ("coalesced", "indices")
    layout = "sparse_coo"

    # given in sparse/__init__.py
    __array_ufunc__: Callable[..., Any]
    __array_function__: Callable[..., Any]
    __getitem__: Callable[..., SparseArray]
    transpose: Callable[..., SparseArray]
    swapaxes: Callable[..., SparseArray]
    ravel: Callable[..., SparseArray]
    all: Callable[..., bool]
    item: Callable[..., Any]

    def __init__(self, indices: Array, values: Array, shape: tuple[int, ...], coalesced: bool = False) -> None:
        self.indices = indices
        self.values = values
        self.shape = shape
        self.coalesced = coalesced or values.shape[0] < 2
        self.writeable = True
        keep_sparse_arrays()

    sparse_dim = property(lambda self: self.indices.shape[0])
    dense_dim = property(lambda self: self.values.ndim - 1)
    nnz = property(lambda self: self.values.shape[0])

    def parts(self) -> list[tuple[str, Any]]:
        return [("indices", self.indices), ("values", self.values)]

    def coo(self) -> SparseArray:
        return self

    def with_values(self, values: Array) -> SparseArray:
        return SparseArray(self.indices, values, self.shape, self.coalesced)

    def on(self, move: Callable[[Array], Array]) -> SparseArray:
        return SparseArray(move(self.indices), move(self.values), self.shape, self.coalesced)

    def __reduce__(self) -> Any:
        return SparseArray, (self.indices, self.values, self.shape, self.coalesced)

    def become(self, other: SparseArray) -> None:
        """Take over what another sparse array of the same shape holds: the in-place change of a sparse array."""
        if not self.writeable:
            raise ValueError("output array is read-only")
        self.indices, self.values, self.coalesced = other.indices, other.values, other.coalesced


def is_sparse(value: Array) -> bool:
    """Whether a value, or a Tensor's array, is sparse in coordinate form."""
    return type(getattr(value, "_array", value)) is SparseArray
