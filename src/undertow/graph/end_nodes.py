"""Nodes where a gradient ends without a leaf: Error, which says why it must not come here, Cut and Identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.graph.edges import Edge
from undertow.graph.node import LAST, Node
from undertow.tensor import Tensor


class Error(Node):
    """Stands where a derivative does not exist: raises a copy of `exception` when a gradient reaches it."""

    __slots__ = ("_dtypes", "_shapes", "exception")

    multiple_outputs = True
    is_internal = True

    def __init__(
        self, exception: Exception, next_edges: Sequence[Edge | None], shapes: list[Any], dtypes: list[Any]
    ) -> None:
        super().__init__(next_edges)
        self.exception = exception
        self._shapes = shapes
        self._dtypes = dtypes

    def pull(self, xp: Namespace, grad: list[Any], edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        # not the exception itself: its traceback would keep the pass alive as long as the graph
        raise copy_of(self.exception)


def copy_of(exception: Exception) -> Exception:
    kind = type(exception)
    fresh = kind.__new__(kind, *exception.args)
    vars(fresh).update(vars(exception))
    return fresh


class Cut(Node):
    """Where the gradient of a view ends that was made when its base required no grad, or while nothing was recorded.

    As in PyTorch, what is computed from such a view requires grad (the base does), but no gradient flows into the base.
    """

    __slots__ = ()

    is_internal = True

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(shape=tensor._array.shape, dtype=tensor._array.dtype, spaces=[tensor._xp])

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        return []


class Identity(Node):
    """What a leaf that no operation has used has for an edge when its gradient is asked for: nothing leads here."""

    __slots__ = ()

    is_internal = True

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(shape=tensor._array.shape, dtype=tensor._array.dtype, spaces=[tensor._xp], sequence_nr=LAST)

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        return [grad]
