"""Engine: how gradients flow back.

`execute` counts what every node waits for (dependencies.py), seeds the roots, and runs whatever is ready, latest
recorded first, until nothing is left (loop.py; evaluate.py has what may hang on a node). In an ordinary pass gradients
are bare arrays and `xp` a backend's namespace; in a recorded pass (create_graph), and inside forward mode and vmap,
they are Tensors and `xp` the recorded operations. The loop does not know the difference, apart from one flag: arrays
may be added in place.

Note [Reentrant backward]: a backward pass may be started from inside another: from a Function's backward, a hook, an
unpack hook. It runs nested, on the same thread, with a GraphTask of its own. Python limits how deep a thread may call,
so a nested pass that finds half of the calls used up moves to a thread of the re-entrant pool, while its parent waits.

Note [The context of a pass]: a pass runs in a copy of its caller's context, which is where modes, the current task,
chosen streams and NumPy's treatment of floating-point errors are. The copy goes with the pass, however that ends: there
is nothing to put back, and nothing that an interrupt could keep from being put back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any

from undertow.backend import devices_in_use, send_to_devices
from undertow.backend.interface import Namespace
from undertow.backend.silence import be_quiet
from undertow.compiled import watch_nodes
from undertow.engine import parallel_branches
from undertow.engine.dependencies import NO_HOOKS, compute_dependencies, init_to_execute, min_topological_nr
from undertow.engine.deterministic_sums import are_deterministic_algorithms_enabled
from undertow.engine.devices import DeviceThreads, this_thread_variable, touches_devices
from undertow.engine.evaluate import evaluate
from undertow.engine.loop import run_on_this_thread
from undertow.engine.one_stream import only_space
from undertow.engine.tasks import DeviceGraphTask, GraphRoot, GraphTask, current_task, set_current_task
from undertow.engine.workers import reentrant_pool
from undertow.graph.node import Node
from undertow.modes import current, set_state
from undertow.scopes import call_with, calls_left


def own(seed: Any) -> Any:
    """A copy of a seed that all passes share, for one in which somebody might write to it, or keep it."""
    return seed if getattr(seed, "is_writeable", True) else seed.copy("C")


class Engine(DeviceThreads):
    """Runs backward passes: on the calling thread and, where a graph touches other devices, on theirs."""

    def execute(
        self,
        edges: Sequence[Any],
        grads: Sequence[Any],
        *,
        keep_graph: bool,
        create_graph: bool,
        xp: Namespace,
        captures: Sequence[Any] = (),
        capture_hooks: Mapping[int, Sequence[Callable[[Any], Any]]] = NO_HOOKS,
        targets: Sequence[Node] = (),
        exit_on_error: bool = False,
    ) -> list[Any]:
        """Send `grads` into `edges`. Returns the gradients that arrive at the edges in `captures` (None: none did).

        With captures or targets, only nodes on a path to one of them run; targets themselves run too. `capture_hooks`
        gives, for some of the captures by number, functions that the captured gradient goes through. `exit_on_error`
        lets the first error be raised at once, even if nodes of the pass are still running on other threads.
        """
        if create_graph:
            watch_nodes()
        task = GraphTask(keep_graph, create_graph, xp, current_task(), this_thread_variable.get()[0])
        root = self._root(task, edges, grads)
        pruned = bool(captures or targets)
        lowest, numbers = min_topological_nr(root, captures, targets) if pruned else (0, None)
        compute_dependencies(task, root, lowest, numbers)
        if pruned:
            init_to_execute(task, root, captures, targets, capture_hooks, entered_all=not lowest)
        runner: Callable[[Any, Any], None] = run_on_this_thread
        parallel = bool(parallel_branches.setting.helpers) and parallel_branches.has_branches(task)
        away = devices_in_use()
        space = only_space(task, grads) if away and not parallel else None
        if space is not None:
            task.xp = space
        elif away and task.seed is not None:
            task.seed = task.seed[0], own(task.seed[1])
        if space is None and (parallel or (away and touches_devices(task, grads))):
            ordered = are_deterministic_algorithms_enabled()
            task = DeviceGraphTask(task, self._may_use_threads(task), ordered, parallel, exit_on_error)
            runner = self.execute_with_graph_task
        # in a context of its own; see Note [The context of a pass]
        if task.reentrant_depth and calls_left() < sys.getrecursionlimit() // 2:
            add_thread_pool_task(task, copy_context(), _run_to_the_end, runner, task, root)
        else:
            copy_context().run(_run_to_the_end, runner, task, root)
        if away:
            send_to_devices(behind_pass=True)
        return task.captured_vars

    def _root(self, task: GraphTask, edges: Sequence[Any], grads: Sequence[Any]) -> Node:
        """The node that the pass starts with: the GraphRoot above its roots or, if there is only one, that one."""
        root: Node
        if len(edges) == 1:
            root, task.seed = edges[0][0], (edges[0], grads[0])
            task.dependencies[root] = 0
        else:
            root = GraphRoot(edges, grads)
        task.root = root
        return root

    def _may_use_threads(self, task: GraphTask) -> bool:
        return current().multithreading and not self.holds_a_lock(task.outer)

    def call_function(self, task: GraphTask, node: Node, grad: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return evaluate(task, node, grad)

    def queue_callback(self, callback: Callable[[], None], outermost: bool = False) -> None:
        """Run `callback` once, when the backward pass that is running now has finished.

        outermost  when the pass has finished in which, at some depth, this one was started: Note [Reentrant backward]
        """
        task = current_task()
        if task is None:
            raise RuntimeError(
                "Final callbacks can only be installed during backward pass: call queue_callback from a hook or "
                "from a Function's backward."
            )
        while outermost and task.outer is not None:
            task = task.outer
        task.final_callbacks.append(callback)


engine = Engine()


def add_thread_pool_task(task: GraphTask, context: Context, function: Callable[..., None], *args: Any) -> None:
    """Run a nested pass on a thread of the re-entrant pool, which takes the place of its owner at its queue."""
    _, queue = this_thread_variable.get()
    reentrant_pool.run(context, call_with, this_thread_variable, (task.owner, queue), function, *args)


def _run_to_the_end(runner: Callable[[Any, Any], None], task: GraphTask, root: Node) -> None:
    enter_pass(task)
    runner(task, root)
    run_callbacks(task)


def enter_pass(task: GraphTask) -> None:
    """Make the context that this runs in, and that nothing else does, the one of a pass."""
    set_current_task(task)
    set_state(current().with_grad(task.create_graph))
    be_quiet()


def run_callbacks(task: GraphTask) -> None:
    # a callback may queue another, so no plain for loop
    done = 0
    while done < len(task.final_callbacks):
        task.final_callbacks[done]()
        done += 1
