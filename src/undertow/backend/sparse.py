"""SparseArray: an array given by the places and values of its elements; all others are zero.

It answers to NumPy's protocols, so `xp.add(dense, sparse)` and `dense * sparse` find their way here, and code that
works on arrays alone pays nothing for it. What has no meaning, or no implementation, for sparse arrays raises
SparseUnsupported and names the way out. What is computed is in sparse_kernels.py and sparse_shapes.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from undertow.backend.cpu import cpu


class SparseUnsupported(NotImplementedError, AttributeError):
    """Something that sparse arrays cannot do. An AttributeError, too, so that `hasattr` says no."""


class SparseConversionError(TypeError):
    """A sparse array where a dense one is needed."""


def unsupported(name: str) -> SparseUnsupported:
    return SparseUnsupported(
        f"Could not run '{name}' with arguments from the 'SparseCPU' backend: it is not implemented for sparse "
        "tensors. Call to_dense() first."
    )


class Flags:
    """What code that was written for NumPy's arrays asks of a sparse one's memory."""

    c_contiguous = f_contiguous = contiguous = forc = owndata = False

    def __init__(self, writeable: bool) -> None:
        self.writeable = writeable


WRITEABLE, READ_ONLY = Flags(True), Flags(False)


class SparseArray(NDArrayOperatorsMixin):
    """A sparse array in coordinate (COO) form.

    indices    (sparse_dim, nnz) int64: the place of each value along the leading dimensions; never changed in place,
               so that several sparse arrays may share it
    values     (nnz, *shape[sparse_dim:]): a number, or (in a hybrid array) a dense block, for each place
    coalesced  whether the places are sorted and distinct; values at equal places are added up
    flags      read-only if it shows another one's values in another order, which in-place changes would not reach
    """

    __slots__ = ("__weakref__", "coalesced", "flags", "indices", "shape", "values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, indices: Any, values: Any, shape: tuple[int, ...], coalesced: bool = False) -> None:
        self.indices = indices
        self.values = values
        self.shape = shape
        self.coalesced = coalesced or values.shape[0] < 2
        self.flags = WRITEABLE
        if cpu.asarray is np.asarray:
            cpu.asarray = as_array  # type: ignore[attr-defined]

    dtype = property(lambda self: self.values.dtype)
    itemsize = property(lambda self: self.values.itemsize)
    ndim = property(lambda self: len(self.shape))
    sparse_dim = property(lambda self: self.indices.shape[0])
    dense_dim = property(lambda self: self.values.ndim - 1)
    nnz = property(lambda self: self.values.shape[0])
    nbytes = property(lambda self: self.indices.nbytes + self.values.nbytes)
    strides = property(lambda self: (0,) * len(self.shape))
    base = property(lambda self: self.values)  # its memory is never the object's own
    T = property(lambda self: self.transpose())

    @property
    def size(self) -> int:
        n = 1
        for length in self.shape:
            n *= length
        return n

    @property
    def ctypes(self) -> Any:
        raise RuntimeError(
            "Cannot access data pointer of Tensor that doesn't have storage: a sparse tensor has two, those of "
            "_indices() and _values()"
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<sparse array of {self.dtype} {list(self.shape)}, nnz={self.nnz}>"

    def __reduce__(self) -> Any:
        return SparseArray, (self.indices, self.values, self.shape, self.coalesced)

    # ---- NumPy's protocols

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise SparseConversionError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
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

    def __getattr__(self, name: str) -> Any:
        raise unsupported(name)

    def __getitem__(self, index: Any) -> Any:
        return self if index is Ellipsis else shapes.sliced(self, index)

    # ---- the methods of arrays that make sense here

    def copy(self, order: str = "K") -> SparseArray:
        return SparseArray(self.indices, self.values.copy(), self.shape, self.coalesced)

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> SparseArray:
        return SparseArray(self.indices, self.values.astype(dtype), self.shape, self.coalesced)

    def fill(self, value: Any) -> None:
        if value != 0:
            raise unsupported("fill_")
        self.become(kernels.zeros_like(self))

    def transpose(self, *axes: Any) -> SparseArray:
        if len(axes) == 1 and not isinstance(axes[0], int):
            axes = tuple(axes[0] or ())
        return shapes.permuted(self, axes or tuple(range(self.ndim))[::-1])

    def swapaxes(self, axis1: int, axis2: int) -> SparseArray:
        return shapes.swapaxes(self, axis1, axis2)

    def ravel(self) -> SparseArray:
        return shapes.flattened(self)

    def view(self, *args: Any) -> Any:
        return self.__array__()

    def sum(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        return kernels.sum_over(self, axis, dtype, keepdims=keepdims)

    def any(self) -> bool:
        return bool(self.values.any())

    def all(self) -> bool:
        return bool(kernels.to_dense(self).all())

    def item(self) -> Any:
        return kernels.to_dense(self).item()

    def tolist(self) -> Any:
        return self.ctypes

    def dot(self, other: Any) -> Any:
        return kernels.product(self, other)

    def become(self, other: SparseArray) -> None:
        """Take over what another sparse array of the same shape holds: the in-place change of a sparse array."""
        if not self.flags.writeable:
            raise ValueError("output array is read-only")
        self.indices, self.values, self.coalesced = other.indices, other.values, other.coalesced


def is_sparse(value: Any) -> bool:
    """Whether a value, or a Tensor's array, is sparse."""
    return type(getattr(value, "_array", value)) is SparseArray


def as_array(value: Any, dtype: Any = None, **options: Any) -> Any:
    """np.asarray, but sparse arrays stay what they are.

    It takes that one's place as `cpu.asarray` when the first sparse array is made: programs without any do not pay for
    the difference, which is a third of the time that a NumPy scalar takes to become an array.
    """
    return value if type(value) is SparseArray else np.asarray(value, dtype, **options)


from undertow.backend import sparse_kernels as kernels  # noqa: E402  (which need the class)
from undertow.backend import sparse_shapes as shapes  # noqa: E402
