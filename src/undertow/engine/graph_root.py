"""GraphRoot: where a pass with several roots starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.graph.node import LAST, Node


class GraphRoot(Node):
    """The node above several roots: running it hands the given gradients to them. An only root needs none."""

    __slots__ = ("grads",)

    is_internal = True

    def __init__(self, edges: Sequence[Any], grads: Sequence[Any]) -> None:
        super().__init__(edges, sequence_nr=LAST)
        self.grads = tuple(grads)

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        return list(self.grads)
