"""SparseArray: an array given by the places and values of its elements; all others are zero.

What is computed with it is in sparse/kernels.py and sparse/shapes.py; the other layouts are in sparse_compressed.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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

    def __init__(self, indices: Any, values: Any, shape: tuple[int, ...], coalesced: bool = False) -> None:
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

    def with_values(self, values: Any) -> SparseArray:
        return SparseArray(self.indices, values, self.shape, self.coalesced)

    def __reduce__(self) -> Any:
        return SparseArray, (self.indices, self.values, self.shape, self.coalesced)

    # ---- NumPy's protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
        if any(isinstance(x, AnySparse) and type(x) is not SparseArray for x in (*inputs, *out)):
            return NotImplemented  # the other layout knows what to do
        if method == "reduce" and ufunc is np.add:
            return kernels.sum_over(*inputs, **kwargs)
        if method != "__call__" or kwargs:
            raise unsupported(f"{ufunc.__name__}.{method}" if method != "__call__" else ufunc.__name__)
        return kernels.apply(ufunc, inputs, out[0] if out else None)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        kernel = kernels.FUNCTIONS.get(function.__name__)
        if kernel is None:
            raise unsupported(function.__name__)
        return kernel(*args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return self if index is Ellipsis else shapes.sliced(self, index)

    # ---- the methods of arrays that depend on how places are kept

    def transpose(self, *axes: Any) -> SparseArray:
        if len(axes) == 1 and not isinstance(axes[0], int):
            axes = tuple(axes[0] or ())
        return shapes.permuted(self, axes or tuple(range(self.ndim))[::-1])

    def swapaxes(self, axis1: int, axis2: int) -> SparseArray:
        return shapes.swapaxes(self, axis1, axis2)

    def ravel(self) -> SparseArray:
        return shapes.flattened(self)

    def all(self) -> bool:
        return bool(kernels.to_dense(self).all())

    def item(self) -> Any:
        return kernels.to_dense(self).item()

    def become(self, other: SparseArray) -> None:
        """Take over what another sparse array of the same shape holds: the in-place change of a sparse array."""
        if not self.writeable:
            raise ValueError("output array is read-only")
        self.indices, self.values, self.coalesced = other.indices, other.values, other.coalesced


def is_sparse(value: Any) -> bool:
    """Whether a value, or a Tensor's array, is sparse in coordinate form."""
    return type(getattr(value, "_array", value)) is SparseArray


from undertow.backend.sparse import kernels as kernels  # noqa: E402  (which need the class)
from undertow.backend.sparse import shapes as shapes  # noqa: E402
