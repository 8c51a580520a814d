"""GraphTask: one backward pass. NodeTask: one node of it that is ready to run.

Guarantees: a GraphTask belongs to the thread that made it; while only that thread works on it (CPU graphs), no field
needs a lock. Fields marked (constant) are never changed after construction.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from typing import Any, NamedTuple

from undertow.engine.ready_queue import ReadyQueue
from undertow.graph.node import Node
from undertow.graph.saved import Freed
from undertow.graph.sites import caller_site, is_site_recording_enabled

_next_task_id = count().__next__


class Capture(NamedTuple):
    """A gradient that the caller asked for: the one arriving at this input of a node goes to that place."""

    input_nr: int
    index: int


class ExecInfo:
    """What a pass with chosen inputs wants of one node: to run it, to capture a gradient on its way in, or both."""

    __slots__ = ("captures", "needed")

    def __init__(self) -> None:
        self.needed = False
        self.captures: list[Capture] = []


class GraphTask:
    """One call of `Engine.execute`.

    id              the number of the pass (constant)
    keep_graph      whether saved values survive (constant)
    keep            True, or the Freed that takes the place of saved values (constant)
    create_graph    whether the pass is itself recorded; also the grad mode nodes run in (constant)
    xp              the namespace rules compute with (constant)
    dependencies    node -> how many gradients it still waits for
    not_ready       node -> the gradient gathering for it; an InputBuffer if it has several outputs
    exec_info       None (everything runs), or node -> ExecInfo for a pass with chosen inputs
    captured        the captured gradients
    ready_queue     the nodes that can run now
    final_callbacks what runs when the last node has
    node            the node being run by the general path, None between nodes
    root            the GraphRoot above the roots of this pass
    outer           the task in whose node this one was started, or None (constant)
    depth           how many tasks it is nested in (constant)
    """

    def __init__(self, keep_graph: bool, create_graph: bool, xp: Any, outer: GraphTask | None) -> None:
        self.id = _next_task_id()
        self.keep_graph = keep_graph
        self.keep: Any = True
        if not keep_graph:
            self.keep = Freed()
            self.keep.site = caller_site() if is_site_recording_enabled() else None
        self.create_graph = create_graph
        self.xp = xp
        self.dependencies: dict[Node, int] = {}
        self.not_ready: dict[Node, Any] = {}
        self.exec_info: dict[Node, ExecInfo] | None = None
        self.captured: list[Any] = []
        self.ready_queue = ReadyQueue()
        self.final_callbacks: list[Callable[[], None]] = []
        self.node: Node | None = None
        self.outer = outer
        self.root: Node | None = None
        self.depth = 0 if outer is None else outer.depth + 1


_current: ContextVar[GraphTask | None] = ContextVar("undertow.graph_task", default=None)
current_task = _current.get
set_current_task = _current.set
