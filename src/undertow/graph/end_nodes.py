"""Error: a node that stands where a derivative does not exist, and says so when it is reached."""

from __future__ import annotations

from typing import Any

from undertow.graph.node import Node, next_sequence_nr


class Error(Node):
    """Raises a copy of `exception` when a gradient reaches it."""

    __slots__ = ("_dtypes", "_shapes", "exception")

    multiple_outputs = True

    def __init__(self, exception: Exception, next_edges: tuple[Any, ...], shapes: list[Any], dtypes: list[Any]) -> None:
        self.exception = exception
        self.next_edges = next_edges
        self.sequence_nr = next_sequence_nr()
        self.saved = self.params = ()
        self._shapes = shapes
        self._dtypes = dtypes
        self.extra = None

    def pull(self, xp: Any, grad: Any, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        # not the exception itself: its traceback would keep the pass alive as long as the graph
        raise copy_of(self.exception)


def copy_of(exception: Exception) -> Exception:
    kind = type(exception)
    fresh = kind.__new__(kind, *exception.args)
    vars(fresh).update(vars(exception))
    return fresh
