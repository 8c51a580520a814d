"""What every sparse array answers when code that was written for NumPy's arrays asks it something.

Sparse arrays answer to NumPy's protocols, so `xp.add(dense, sparse)` and `dense * sparse` find their way to them, and
code that works on arrays alone pays nothing for it. What has no meaning, or no implementation, for sparse arrays raises
SparseUnsupported and names the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from undertow.backend.cpu import cpu
from undertow.backend.interface import Array, ArrayNamespace, DeviceArray, DType


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


class AnySparse(NDArrayOperatorsMixin):
    """A sparse array in any layout. Subclasses say how places are kept:

    shape, values    the size, and the values that are kept, in the layout's own order
    layout           the name of the layout: "sparse_coo", "sparse_csr", ...
    parts()          the names and arrays that it consists of, as they are printed
    coo()            the same elements in coordinate form; itself, if it is in that form
    writeable        False if it shows another one's values in another order, which in-place changes would not reach
    with_values(v)   an array with other values at the same places
    become(other)    take over the parts of another one
    on(move)         the same array with every part replaced by `move(part)`, on another device
    """

    __slots__ = ("__weakref__", "shape", "values", "writeable")
    __hash__ = None  # type: ignore[assignment]
    values: Any
    shape: tuple[int, ...]
    layout: str
    writeable: bool

    dtype = property(lambda self: self.values.dtype)
    itemsize = property(lambda self: self.values.itemsize)
    ndim = property(lambda self: len(self.shape))
    nbytes = property(lambda self: sum([part.nbytes for _, part in self.parts()]))
    strides = property(lambda self: (0,) * len(self.shape))
    flags = property(lambda self: Flags(self.writeable))  # a new one, of which changes have no effect
    base = property(lambda self: self.values)  # its memory is never the object's own
    T = property(lambda self: self.transpose())
    namespace = property(lambda self: space_of(self.values))

    def parts(self) -> list[tuple[str, Any]]:
        raise NotImplementedError

    def coo(self) -> Any:
        raise NotImplementedError

    def with_values(self, values: Array) -> Any:
        raise NotImplementedError

    def on(self, move: Callable[[Array], Array]) -> Any:
        raise NotImplementedError

    def to_host(self) -> Any:
        return self.on(lambda part: part.to_host() if isinstance(part, DeviceArray) else part.copy())

    @property
    def size(self) -> int:
        n = 1
        for length in self.shape:
            n *= length
        return n

    @property
    def ctypes(self) -> Any:
        raise RuntimeError(
            "Cannot access data pointer of Tensor that doesn't have storage: a sparse tensor has several, those of its "
            "indices and of its values"
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self.layout} array of {self.dtype} {list(self.shape)}, nnz={self.nnz}>"

    def __array__(self, dtype: DType | None = None, copy: Any = None) -> Any:
        name = layout_title(self.layout)
        raise SparseConversionError(f"can't convert {name} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __getattr__(self, name: str) -> Any:
        raise unsupported(name)

    # ---- the methods of arrays that make sense here

    def copy(self, order: str = "K") -> Array:
        return self.with_values(self.values.copy())

    def astype(self, dtype: DType, order: str = "K", copy: bool = True) -> Array:
        return self.with_values(self.values.astype(dtype))

    def fill(self, value: Array) -> None:
        if value != 0:
            raise unsupported("fill_")
        self.become(np.zeros_like(self))

    def sum(self, axis: Any = None, dtype: DType | None = None, out: None = None, keepdims: bool = False) -> Any:
        total: Any = np.add.reduce  # whose types do not know of arrays that are not NumPy's
        return total(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def view(self, *args: Any) -> Any:
        return self.__array__()

    def any(self) -> bool:
        return bool(self.values.any())

    def tolist(self) -> Any:
        return self.ctypes

    def dot(self, other: Array) -> Array:
        return np.matmul(self, other)


def space_of(array: Array) -> ArrayNamespace:
    """The array functions of the device that a part of a sparse array lies on."""
    return getattr(array, "namespace", cpu)


def layout_title(layout: str) -> str:
    """How messages write the name of a layout: SparseCsr for sparse_csr, and Sparse for sparse_coo."""
    return "".join(word.capitalize() for word in layout.removesuffix("_coo").split("_"))


def as_array(value: Any, dtype: DType | None = None, **options: Any) -> Array:
    """np.asarray, but sparse arrays stay what they are."""
    return value if isinstance(value, AnySparse) else np.asarray(value, dtype, **options)


def keep_sparse_arrays() -> None:
    """Let `cpu.asarray` know sparse arrays, now that there is one.

    Programs without any do not pay for the difference, which is a third of the time that a NumPy scalar takes to become
    an array.
    """
    if cpu.asarray is np.asarray:
        cpu.asarray = as_array  # type: ignore[attr-defined]
