"""How a tensor's elements are kept: all of them at regular distances, or only those that are not zero."""

from __future__ import annotations

from typing import Any

from undertow.backend.public_dtypes import PREFIX
from undertow.backend.sparse.coo import AnySparse, SparseArray
from undertow.tensor.tensor import Tensor


class layout:
    """`undertow.strided`, `undertow.sparse_coo`, `undertow.sparse_csr`, ...: the `layout` of a tensor.

    name  its full name

    >>> import undertow as ut
    >>> ut.ones(1).layout
    undertow.strided
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{PREFIX[0]}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided, sparse_coo = layout("strided"), layout("sparse_coo")
sparse_csr, sparse_csc = layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
jagged = layout("jagged")  # of nested tensors: no tensor has it
LAYOUTS = {kind.name: kind for kind in (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)}


def is_sparse(self: Tensor) -> bool:
    """Whether the tensor keeps only the elements that are not zero, in the layout `sparse_coo`."""
    return type(self._array) is SparseArray


def is_sparse_csr(self: Tensor) -> bool:
    """Whether only the elements that are not zero are kept, row by row."""
    return layout_of(self) is sparse_csr


def layout_of(self: Tensor) -> layout:
    """How elements are kept: `strided`, or one of the sparse layouts."""
    return LAYOUTS[self._array.layout] if isinstance(self._array, AnySparse) else strided


#: attribute -> property; `methods.py` puts them on Tensor
METHODS: dict[str, Any] = {
    "is_sparse": property(is_sparse),
    "is_sparse_csr": property(is_sparse_csr),
    "layout": property(layout_of),
}
