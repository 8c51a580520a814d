"""CopySlices: the history of a tensor after part of it was changed in place through a view.

It wraps the node of the in-place operation and applies it to the slice alone: the gradient outside the slice passes
unchanged, the gradient inside goes through the wrapped node.
"""

from __future__ import annotations

from typing import Any

from undertow.graph.node import Node, next_sequence_nr
from undertow.modes import current, set_state
from undertow.tensor import Tensor


class CopySlices(Node):
    """next_edges: the base's former edge, then those of the wrapped node behind its first."""

    __slots__ = ("node", "replay")

    def __init__(self, base: Tensor, base_edge: Any, replay: Any, node: Node) -> None:
        self.node = node
        self.replay = replay
        self.next_edges = (base_edge, *node.next_edges[1:])
        self.sequence_nr = next_sequence_nr()
        self.saved = self.params = ()
        self.shape = base._array.shape
        self.dtype = base._array.dtype
        self.extra = None

    def release(self) -> None:
        self.node.release()

    def pull(self, xp: Any, grad: Any, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        if not isinstance(grad, Tensor):
            return self.apply_to_array(xp, grad, edges, keep)
        whole = clone_tensor(grad)
        part = self.replay(whole)
        inner = self.node.pull(xp, clone_tensor(part), self.inner_edges(edges), keep)
        if edges[0] is not None:
            if inner[0] is None:
                zero_in_place(part)
            else:
                copy_in_place(part, inner[0])
        return [None if edges[0] is None else whole, *inner[1:]]

    def inner_edges(self, edges: tuple[Any, ...]) -> tuple[Any, ...]:
        # the wrapped node's own first edge leads to the view's former history, which `whole` now carries
        return (edges[0] if self.node.next_edges[0] is not None else None, *edges[1:])

    def apply_to_array(self, xp: Any, grad: Any, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        whole = grad.copy()
        part = self.part_of(whole, xp)
        inner = self.node.pull(xp, part.copy(), self.inner_edges(edges), keep)
        if edges[0] is not None:
            part[...] = 0 if inner[0] is None else xp.sum_to(xp.asarray(inner[0]), part.shape)
        return [None if edges[0] is None else whole, *inner[1:]]

    def part_of(self, array: Any, xp: Any) -> Any:
        """The slice of an array shaped as the base, sharing its memory."""
        outer = current()
        set_state(outer.with_grad(False))
        try:
            return self.replay(Tensor(array, xp))._array
        finally:
            set_state(outer)


def clone_tensor(tensor: Tensor) -> Tensor:
    """Set by ops: a recorded copy."""
    raise NotImplementedError("the operations are not loaded")


def copy_in_place(tensor: Tensor, source: Tensor) -> Tensor:
    """Set by ops: `tensor.copy_(source)`, recorded."""
    raise NotImplementedError("the operations are not loaded")


def zero_in_place(tensor: Tensor) -> Tensor:
    """Set by ops: `tensor.zero_()`, recorded."""
    raise NotImplementedError("the operations are not loaded")


def install_in_place(clone: Any, copy: Any, zero: Any) -> None:
    global clone_tensor, copy_in_place, zero_in_place
    clone_tensor, copy_in_place, zero_in_place = clone, copy, zero
