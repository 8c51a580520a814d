"""GraphTask: one backward pass, and GraphRoot, where one with several roots starts.

Guarantees: a GraphTask belongs to the thread that made it; while only that thread works on it (CPU graphs), no field
needs a lock. On a DeviceGraphTask several threads work, and its `mutex` guards what they share. Fields marked
(constant) are never changed once nodes run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar
from functools import partial
from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.engine.ready_queue import ReadyQueue
from undertow.engine.watch import watches_of_pass
from undertow.graph.node import LAST, Node
from undertow.graph.saved import Freed
from undertow.graph.user_lines import caller_site, is_site_recording_enabled
from undertow.scopes import held, set_value
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.graph.edges import Edge

_next_task_id = count().__next__


class GraphRoot(Node):
    """The node above several roots: running it hands the given gradients to them. An only root needs none."""

    __slots__ = ("grads",)

    is_internal = True

    def __init__(self, edges: Sequence[Any], grads: Sequence[Any]) -> None:
        super().__init__(edges, sequence_nr=LAST)
        self.grads = tuple(grads)

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        return list(self.grads)


class Capture:
    """A gradient that the caller asked for: the one arriving at an input of a node goes to a place in the result.

    hooks  called one after the other with the gradient (an array or, in a recorded pass, a Tensor; None if there is
           none); what each returns takes the gradient's place
    """

    __slots__ = ("hooks", "input_idx", "output_idx")

    def __init__(self, input_idx: int, output_idx: int, hooks: Sequence[Callable[[Any], Any]] = ()) -> None:
        self.input_idx, self.output_idx, self.hooks = input_idx, output_idx, hooks


class ExecInfo:
    """What a pass with chosen inputs wants of one node: to run it, to capture a gradient on its way in, or both."""

    __slots__ = ("captures", "needed")

    def __init__(self) -> None:
        self.needed = False
        self.captures: list[Capture] = []


#: what a pass with chosen inputs wants of most nodes
RUNS = ExecInfo()
RUNS.needed = True


class Dependencies(dict[Node, int]):
    """How many gradients each node of a pass waits for."""

    __slots__ = ()

    def __missing__(self, node: Node) -> int:
        raise RuntimeError(
            f"dependency not found for {node.name()}: a gradient arrived at a node that the pass did not count when it "
            "started. The graph was changed while the pass ran; change it before, or after."
        )


class GraphTask:
    """One call of `Engine.execute`.

    id              the number of the pass (constant)
    keep_graph      whether saved values survive (constant)
    keep            True, or the Freed that takes the place of saved values (constant)
    create_graph    whether the pass is itself recorded; also the grad mode nodes run in (constant)
    in_place        whether gradients are arrays, which may be added to in place (constant)
    xp              the namespace rules compute with (constant)
    dependencies    every node of the pass -> how many gradients it still waits for
    not_ready       node -> the gradient gathering for it; an InputBuffer if it has several outputs
    exec_info       None (everything runs), or node -> ExecInfo for a pass with chosen inputs
    wanted_edges    None (all edges), or node -> its edges, None in the place of those that lead to nothing chosen
    captured_vars   the captured gradients
    final_callbacks what runs when the last node has
    node            the node being run by the general path, None between nodes
    watches         who looks on (constant)
    rows            None, or what the only watch has for the compiled loop (constant)
    failed          whether an exception has ended it
    root            the node the pass starts with: its only root, or the GraphRoot above its roots
    seed            the edge to an only root and the gradient for it; None if there is a GraphRoot, which has them
    owner           the device whose worker thread started it; None if it was no worker (constant)
    outer           the task in whose node this one was started, or None (constant)
    reentrant_depth how many tasks it is nested in (constant)
    """

    def __init__(
        self, keep_graph: bool, create_graph: bool, xp: Namespace, outer: GraphTask | None, owner: Any = None
    ) -> None:
        self.id = _next_task_id()
        self.keep_graph = keep_graph
        self.keep: Any = True
        if not keep_graph:
            self.keep = Freed()
            self.keep.site = caller_site() if is_site_recording_enabled() else None
        self.create_graph = create_graph
        self.in_place = xp.ndarray is not Tensor
        self.xp = xp
        self.dependencies = Dependencies()
        self.not_ready: dict[Node, Any] = {}
        self.exec_info: dict[Node, ExecInfo] | None = None
        self.wanted_edges: dict[Node, tuple[Any, ...]] | None = None
        self.captured_vars: list[Any] = []
        self.final_callbacks: list[Callable[[], None]] = []
        self.node: Node | None = None
        self.watches = watches_of_pass()
        self.rows = self.watches[0].rows if len(self.watches) == 1 else None
        self.failed = False
        self.outer = outer
        self.owner = owner
        self.root: Node | None = None
        self.seed: tuple[Any, Any] | None = None
        self.reentrant_depth: int = 0 if outer is None else outer.reentrant_depth + 1


class FutureResult:
    """How a pass ended: not yet, well, or with an error."""

    __slots__ = ("completed", "error")

    def __init__(self) -> None:
        self.completed = False
        self.error: BaseException | None = None

    def raise_error(self) -> None:
        """Raise the error, if there was one, and forget it: its traceback holds the frames that hold the task."""
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error


class DeviceGraphTask(GraphTask):
    """A pass with nodes on devices that have threads of their own.

    outstanding_tasks  how many NodeTasks are queued or running; the pass is over when none is
    has_error          whether one of them has raised: the others are then skipped
    exit_on_error      whether the pass is over at its first error, while nodes may still be running (constant)
    future_result      how it ended
    cpu_ready_queue    the nodes that run on the thread that drives the pass (constant)
    multithreading     whether devices' nodes run on their threads, or all on the caller's (constant)
    deterministic      whether gradients are summed in one order, whatever order they come in (constant)
    branches           whether large nodes on the CPU may run on helping threads (constant); see parallel_branches.py
    thread_locals      the caller's context (modes, current task, floating-point errors), copied for every node
    leaf_streams       the streams on which gradients were accumulated or captured; the caller's wait for them
    running            the threads that are inside one of its nodes; each adds and discards itself
    node, xp           as in GraphTask, but for each thread its own

    final_callbacks is appended to by any thread, and needs no lock for that.
    """

    def __init__(
        self,
        task: GraphTask,
        multithreading: bool,
        deterministic: bool,
        branches: bool = False,
        exit_on_error: bool = False,
    ) -> None:
        self._nodes: dict[int, Node | None] = {}
        self._spaces: dict[int, Any] = {}
        self.__dict__.update({k: v for k, v in task.__dict__.items() if k not in ("node", "xp")})
        self.recorded = None if task.in_place else task.xp
        # Guards dependencies, not_ready and the InputBuffers in it, outstanding_tasks, has_error, future_result and
        # leaf_streams. Re-entrant, because a destructor may start a pass wherever Python runs: see Note [Destructors].
        self.mutex = threading.RLock()
        self.outstanding_tasks = 0
        self.has_error = False
        self.exit_on_error = exit_on_error
        self.future_result = FutureResult()
        self.cpu_ready_queue = ReadyQueue()
        self.multithreading = multithreading
        self.deterministic = deterministic
        self.branches = branches
        self.thread_locals: Context | None = None
        self.leaf_streams: set[Any] = set()
        self.running: set[int] = set()

    def set_exception(self, error: BaseException) -> None:
        """End the pass with `error`; the first one counts."""
        with held(self.mutex):
            if not self.has_error:
                self.has_error = True
                self.future_result.error = error

    def task_done(self) -> bool:
        """One NodeTask less; whether that ended the pass."""
        with held(self.mutex):
            self.outstanding_tasks -= 1
            over = not self.outstanding_tasks or (self.exit_on_error and self.has_error)
            just_now = over and not self.future_result.completed
            self.future_result.completed = over or self.future_result.completed
            return just_now

    @property
    def node(self) -> Node | None:
        return self._nodes.get(get_ident())

    @node.setter
    def node(self, node: Node | None) -> None:
        self._nodes[get_ident()] = node

    @property
    def xp(self) -> Any:
        return self._spaces.get(get_ident(), cpu)

    @xp.setter
    def xp(self, xp: Namespace) -> None:
        self._spaces[get_ident()] = xp


_current: ContextVar[GraphTask | None] = ContextVar("undertow.graph_task", default=None)
current_task = _current.get
set_current_task: Callable[[GraphTask | None], None] = partial(set_value, _current)


def is_checkpoint_valid() -> bool:
    """Whether no pass that is running has chosen inputs: neither the current one nor any that it is nested in."""
    task = current_task()
    while task is not None and task.exec_info is None:
        task = task.outer
    return task is None
