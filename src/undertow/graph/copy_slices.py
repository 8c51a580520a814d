"""CopySlices: the history of a tensor after part of it was changed in place through a view.

It wraps the node of the in-place operation and applies it to the slice alone: the gradient outside the slice passes
unchanged, the gradient inside goes through the wrapped node. As in PyTorch it runs once, whatever it wraps, unless the
pass keeps the graph.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.graph.edges import Edge
from undertow.graph.node import Node, freed_error
from undertow.modes import State, in_state
from undertow.refcounts import IN_VARIABLE_OF_CALLER
from undertow.tensor import Tensor
from undertow.tensor.lent_operations import lent
from undertow.tensor.memory import unlocked

if TYPE_CHECKING:
    from undertow.graph.saved import Freed


class CopySlices(Node):
    """The next edges are the wrapped node's, but the one to the view's former history leads to the base's.

    node      the in-place operation's
    position  which of its edges that is: 0, but for a custom Function with the view elsewhere among its arguments
    replay    how to find the slice in something shaped as the base
    layout    how the base lies in memory, as far as the replay asks for that; None: row by row
    """

    __slots__ = ("layout", "node", "position", "replay")

    keeps_outputs = False
    is_internal = True

    def __init__(self, base: Tensor, base_edge: Edge | None, replay: Any, node: Node, position: int = 0) -> None:
        edges, array = node.next_edges, base._array
        edges = (*edges[:position], base_edge, *edges[position + 1 :])
        Node.__init__(self, edges, shape=array.shape, dtype=array.dtype, spaces=() if base._xp is cpu else (base._xp,))
        self.code = getattr(node, "code", None)
        self.lasti = getattr(node, "lasti", 0)
        self.node = node
        self.position = position
        self.replay = replay
        self.layout = lent().layout_for(replay, base)

    def edge_of_slice(self) -> Edge | None:
        """The edge of the changed slice: the replay of the view on a base that has this history."""
        shaped = cpu.zeros(self.shape, self.dtype)  # nobody touches its memory
        if self.layout is not None:
            shaped = lent().lay_out(cpu, shaped, self.layout)  # its strides are those that views need
        return in_state(State(), self.replay, Tensor(shaped, cpu, self))._edge  # type: ignore[no-any-return]

    def release(self, freed: Freed) -> None:
        self.let_go(freed)
        self.node.release(freed)

    def let_go(self, freed: Freed) -> None:
        """Forget the history that the slice had before it was changed, which only the wrapped node still leads to."""
        self.saved = freed
        edges, position = self.node.next_edges, self.position
        self.node.next_edges = (*edges[:position], None, *edges[position + 1 :])

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        if type(self.saved) is not tuple:
            raise freed_error(self, self.saved)
        if isinstance(grad, Tensor):
            return self.pull_recorded(xp, grad, edges, keep)
        if (
            getrefcount(grad) <= IN_VARIABLE_OF_CALLER
            and grad.base is None
            and self.layout is None
            and grad.flags.writeable
            and grad.flags.c_contiguous
        ):
            whole = grad  # the engine's own, and seen by nobody after this
        else:
            whole = grad.copy(order="C") if self.layout is None else lent().lay_out(xp, grad, self.layout)
        part = self.replay.of_array(xp, whole)
        if not part.flags.writeable and xp.may_share_memory(part, whole):
            part = unlocked(xp, part, whole)
        results, inside = self.run_wrapped(xp, part.copy(), edges, keep)
        if edges[self.position] is not None:
            part[...] = 0 if inside is None else fitted(xp, xp.asarray(inside), part)
            results[self.position] = whole
        return results

    def pull_recorded(self, xp: Namespace, grad: Tensor, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        operations = lent()
        whole = operations.clone_as(grad, self.layout)
        part = self.replay(whole)
        results, inside = self.run_wrapped(xp, operations.clone_as(part, None), edges, keep)
        if edges[self.position] is not None:
            if inside is None:
                operations.zero_in_place(part)
            else:
                operations.copy_in_place(part, fitted(xp, inside, part))
            results[self.position] = whole
        return results

    def run_wrapped(
        self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any
    ) -> tuple[list[Any], Any]:
        """The wrapped node's gradients, and apart from them that for the slice."""
        node, position = self.node, self.position
        own = node.next_edges[position] if edges[position] is not None else None
        edges = (*edges[:position], own, *edges[position + 1 :])
        results = list(node.pull(xp, [grad] if node.multiple_outputs else grad, edges, keep))
        if not keep:
            self.let_go(keep)
        inside, results[position] = results[position], None
        return results, inside


def fitted(xp: Namespace, grad: Array, part: Array) -> Array:
    """A gradient in the shape of the slice: broadcasting is undone, as the engine does it between nodes."""
    shape = tuple(part.shape)
    return xp.sum_to(grad, shape) if tuple(grad.shape) != shape else grad
