"""How a tensor's elements are kept: all of them at regular distances, or only those that are not zero."""

from __future__ import annotations

from typing import Any

from undertow.backend.sparse import SparseArray
from undertow.tensor.tensor import Tensor


class layout:
    """`undertow.strided` or `undertow.sparse_coo`: the `layout` of a tensor."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"undertow.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided, sparse_coo = layout("strided"), layout("sparse_coo")


def is_sparse(self: Tensor) -> bool:
    """Whether the tensor keeps only the elements that are not zero."""
    return type(self._array) is SparseArray


def layout_of(self: Tensor) -> layout:
    return sparse_coo if type(self._array) is SparseArray else strided


#: attribute -> property; `methods.py` puts them on Tensor
METHODS: dict[str, Any] = {"is_sparse": property(is_sparse), "layout": property(layout_of)}
