"""Engine: how gradients flow back.

`execute` counts what every node waits for, seeds the roots, and runs whatever is ready, latest recorded first, until
nothing is left. In an ordinary pass gradients are bare arrays and `xp` a backend's namespace; in a recorded pass
(create_graph), and inside forward mode and vmap, they are Tensors and `xp` the recorded operations. The loop does not
know the difference, apart from one flag: arrays may be added in place.

Note [Reentrant backward]: a backward pass may be started from inside another: from a Function's backward, a hook, an
unpack hook. It runs nested, on the same thread, with a GraphTask of its own. Python limits how deep a thread may call,
so a nested pass that finds half of the calls used up moves to a thread of the re-entrant pool, while its parent waits.

Note [The context of a pass]: a pass runs in a copy of its caller's context, which is where modes, the current task,
chosen streams and NumPy's treatment of floating-point errors are. The copy goes with the pass, however that ends: there
is nothing to put back, and nothing that an interrupt could keep from being put back.

Note [Hook order]: for a node: tensor hooks of its outputs, retain_grad, captures for grad()/inputs=, node pre-hooks,
apply, node post-hooks. For a leaf: tensor hooks, pre-hooks, accumulation, post-accumulate hooks, post-hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from heapq import heappop, heappush, heappushpop
from itertools import count
from operator import attrgetter
from sys import getrefcount
from types import MappingProxyType
from typing import Any

from undertow.backend import devices_in_use, send_to_devices
from undertow.backend.interface import Array, Namespace
from undertow.backend.silence import be_quiet
from undertow.compiled import core
from undertow.engine import parallel_branches
from undertow.engine.deterministic_sums import are_deterministic_algorithms_enabled
from undertow.engine.devices import DeviceThreads, this_thread_variable, touches_devices
from undertow.engine.failures import describe_failure
from undertow.engine.graph_root import GraphRoot
from undertow.engine.input_buffer import InputBuffer
from undertow.engine.one_stream import only_space
from undertow.engine.tasks import Capture, DeviceGraphTask, ExecInfo, GraphTask, current_task, set_current_task
from undertow.engine.validate import conform, conform_to_receiver, expected
from undertow.engine.workers import reentrant_pool
from undertow.graph.accumulate import AccumulateGrad, refuse_result, resolve_leaves
from undertow.graph.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from undertow.graph.node import LAST, Node, OutputEdge, StreamExtra, sequence_order, topological_numbers
from undertow.modes import current, set_state
from undertow.refcounts import IN_LIST_AND_VARIABLE, IN_VARIABLE
from undertow.scopes import call_with, calls_left

NO_HOOKS: Mapping[int, Any] = MappingProxyType({})

#: what a pass with chosen inputs wants of most nodes
RUNS = ExecInfo()
RUNS.needed = True


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
        task = GraphTask(keep_graph, create_graph, xp, current_task(), this_thread_variable.get()[0])
        root = self._root(task, edges, grads)
        pruned = bool(captures or targets)
        lowest, numbers = min_topological_nr(root, captures, targets) if pruned else (0, None)
        compute_dependencies(task, root, lowest, numbers)
        if pruned:
            init_to_execute(task, root, captures, targets, capture_hooks, entered_all=not lowest)
        runner: Callable[[Any, Any], None] = _run_on_this_thread
        parallel = bool(parallel_branches.setting.helpers) and parallel_branches.has_branches(task)
        away = devices_in_use()
        space = only_space(task, grads) if away and not parallel else None
        if space is not None:
            task.xp = space
        elif parallel or (away and touches_devices(task, grads)):
            ordered = are_deterministic_algorithms_enabled()
            task = DeviceGraphTask(task, self._may_use_threads(task), ordered, parallel, exit_on_error)
            runner = self.execute_with_graph_task
        # in a context of its own; see Note [The context of a pass]
        if task.reentrant_depth and calls_left() < sys.getrecursionlimit() // 2:
            add_thread_pool_task(task, copy_context(), _run_to_the_end, runner, task, root)
        else:
            copy_context().run(_run_to_the_end, runner, task, root)
        if away:
            send_to_devices()
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


# ---- what will run


def min_topological_nr(
    root: Node, captures: Sequence[Any], targets: Sequence[Node]
) -> tuple[int, dict[Node, int] | None]:
    """No node with a number below the first of these leads to a capture or target; and the numbers of the nodes.

    Sequence numbers grow along every path from a leaf, so they are topological numbers (the second is then None): they
    are drawn from one counter for all threads. Where a program has set one, longest paths are measured instead.
    """
    wanted = [edge[0] for edge in captures] + list(targets)
    if sequence_order.trusted:
        lowest = min([node.sequence_nr for node in wanted])
        return 0 if lowest == LAST or any([node.sequence_nr == LAST for node in wanted]) else lowest, None
    numbers = topological_numbers(root)
    return min([numbers.get(node, 0) for node in wanted]), numbers


def compute_dependencies(task: GraphTask, root: Node, lowest: int, numbers: dict[Node, int] | None = None) -> None:
    """Count, for every node below root, the edges that lead to it.

    Nodes with a number below `lowest` are not entered; their numbers are `numbers` or, if that is None, sequence
    numbers.
    """
    dependencies = task.dependencies
    if core is not None and numbers is None:
        core.compute_dependencies(dependencies, root, lowest)
        return
    stack = [root]
    while stack:
        node = stack.pop()
        edges = node.recorded_edges
        if type(edges) is list:
            resolve_leaves(node, edges)  # See Note [Edges to leaves]
        for edge in edges:
            if edge is not None:
                below = edge[0] if type(edge) is OutputEdge else edge
                if below in dependencies:
                    dependencies[below] += 1
                else:
                    dependencies[below] = 1
                    if not lowest or (below.sequence_nr if numbers is None else numbers[below]) >= lowest:
                        stack.append(below)


def init_to_execute(
    task: GraphTask,
    root: Node,
    captures: Sequence[Any],
    targets: Sequence[Node],
    hooks: Mapping[int, Any] = NO_HOOKS,
    entered_all: bool = True,
) -> None:
    """Fill `exec_info`: mark captures and targets, and every node from which one of them can be reached.

    `wanted_edges` gets, for each of these, its edges to others of these, unless these are all edges.
    """
    info: dict[Node, ExecInfo] = {}
    for index, edge in enumerate(captures):
        info.setdefault(edge[0], ExecInfo()).captures.append(Capture(edge[1], index, hooks.get(index, ())))
    for node in targets:
        info.setdefault(node, ExecInfo()).needed = True
    if entered_all and _are_all_ends(task.dependencies, info):
        _choose_all(task, info)
    else:
        _choose_some(task, root, info)
    task.exec_info = info
    task.captured_vars = [None] * len(captures)


def _are_all_ends(nodes: dict[Node, int], chosen: dict[Node, ExecInfo]) -> bool:
    """Whether every one of the nodes that leads nowhere is among the chosen."""
    if core is not None:
        return bool(core.are_all_ends(nodes, chosen))
    return all([node in chosen for node in nodes if not any(node.recorded_edges)])


def _choose_all(task: GraphTask, info: dict[Node, ExecInfo]) -> None:
    """For a graph in which all paths end in nodes that were asked for, as they do where all leaves were."""
    asked = list(info.items())
    info |= dict.fromkeys(task.dependencies, RUNS)
    for node, its_own in asked:
        its_own.needed |= node in task.dependencies and any(node.recorded_edges)
        info[node] = its_own


def _choose_some(task: GraphTask, root: Node, info: dict[Node, ExecInfo]) -> None:
    wanted = task.wanted_edges = {}
    for node in _inputs_first(task, root):
        edges = node.next_edges
        chosen = [e if e is not None and (e[0] if type(e) is OutputEdge else e) in info else None for e in edges]
        if chosen.count(None) < len(chosen):
            wanted[node] = tuple(chosen)
            if node in info:
                info[node].needed = True
            else:
                info[node] = RUNS
    if task.seed is not None:  # the tensor hooks of an only root fire even if no input can be reached
        info.setdefault(root, ExecInfo())


def _inputs_first(task: GraphTask, root: Node) -> list[Node]:
    """Every node of the task, each after the nodes its edges lead to."""
    if not sequence_order.trusted:
        return _topological_order(task, root)[::-1]
    order = sorted([n for n in task.dependencies if n.sequence_nr != LAST], key=attrgetter("sequence_nr"))
    return [*order, root] if task.seed is None else order


def _topological_order(task: GraphTask, root: Node) -> list[Node]:
    """Every node of the task, each before the nodes its edges lead to."""
    waiting = dict(task.dependencies)
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        order.append(node)
        for edge in node.next_edges:
            if edge is not None and edge[0] in waiting:
                waiting[edge[0]] -= 1
                if not waiting[edge[0]]:
                    stack.append(edge[0])
    return order


def execution_order(task: GraphTask) -> list[Node]:
    """The nodes of a task in the order in which it runs them."""
    again = GraphTask(task.keep_graph, task.create_graph, task.xp, None)
    assert task.root is not None
    compute_dependencies(again, task.root, 0)
    order: list[Node] = []
    arrival = count().__next__
    heap = [(-task.root.sequence_nr, arrival(), task.root)]
    while heap:
        node = heappop(heap)[2]
        order.append(node)
        for edge in node.next_edges:
            if edge is not None and (task.exec_info is None or edge[0] in task.exec_info):
                again.dependencies[edge[0]] -= 1
                if not again.dependencies[edge[0]]:
                    heappush(heap, (-edge[0].sequence_nr, arrival(), edge[0]))
    return order[1:] if task.seed is None else order


# ---- running

#: in place of a gradient, for a GraphRoot, which has the gradients for all roots
ITS_OWN = True


def _run_on_this_thread(task: GraphTask, root: Node) -> None:
    run_from(task, root, ITS_OWN if task.seed is None else _first_gradient(task, *task.seed))


def run_from(task: GraphTask, node: Node, grad: Any) -> None:
    """Run a node, and then whatever is ready, until nothing is."""
    if type(node) is AccumulateGrad:
        evaluate(task, node, grad)
    elif core is None or (task.watches and task.rows is None):
        _run_loop(task, node, grad)
    else:
        _run_compiled(task, node, grad)


def _first_gradient(task: GraphTask, edge: Any, grad: Any) -> Any:
    """What an only root is called with, for the gradient that the caller gave."""
    node, nr = edge[0], edge[1]
    if grad is not None:
        grad = task.xp.asarray(grad)
        shape, dtype = expected(node, nr)
        if grad.shape != shape or grad.dtype is not dtype:
            grad = task.xp.asarray(conform(GraphRoot((edge,), (grad,)), 0, grad, shape, dtype, task.xp))
    if not node.multiple_outputs or grad is None:
        return grad
    received = [None] * len(node._shapes)
    received[nr] = grad
    return received


def _run_loop(task: GraphTask, node: Node, grad: Any) -> None:
    """Run the task, starting with its root and the gradient for that.

    The loop an ordinary pass spends its time in. What keeps it short: one ready node stays out of the heap
    (`following`), AccumulateGrad nodes run on the spot, and a node with one output needs no InputBuffer: the first
    gradient stands for it, then the sum of `owned` nodes, which is the engine's own and added to in place.
    """
    xp, keep = task.xp, task.keep
    general, info, wanted = bool(task.watches), task.exec_info, task.wanted_edges
    dependencies, not_ready = task.dependencies, task.not_ready
    heap: list[tuple[int, int, Node, Any]] = []
    arrival = count().__next__
    in_place = task.in_place
    add, ndarray = xp.add, xp.ndarray
    owned: set[Node] = set()
    try:
        while True:
            # run the node; engine.c: run_node
            edges: Any = node.recorded_edges if wanted is None else wanted.get(node, ())
            extra = node.extra
            if (
                general
                or grad is None
                or (extra is not None and type(extra) is not StreamExtra)
                or (info is not None and info.get(node) is not RUNS)
            ):
                results, edges = evaluate(task, node, grad)
            else:
                results = node.pull(xp, grad, edges, keep)
            following = grad = None
            index = -1
            for edge in edges:
                index += 1
                if edge is None:
                    continue
                received = results[index]
                results[index] = None

                # what the node below receives, and whether that is all of it; engine.c: deliver, gather_gradient
                if type(edge) is OutputEdge:
                    below = edge[0]
                    received = _buffered(task, node, index, edge, received)
                    if dependencies[below]:
                        continue
                    waiting = 1
                else:
                    below = edge
                    if received is not None:
                        if type(received) is not ndarray:
                            received = xp.asarray(received)  # looked up, as the first sparse array changes it
                        if received.dtype is not below.dtype or received.shape != below.shape:
                            received = xp.asarray(conform(node, index, received, below.shape, below.dtype, xp))
                    waiting = dependencies[below]
                    dependencies[below] = waiting - 1
                    if waiting == 1 and (not not_ready or below not in not_ready):
                        pass  # the only one
                    elif received is not None:
                        old = not_ready.get(below)
                        if old is None:
                            not_ready[below] = received
                        elif below in owned:
                            add(old, received, old)
                        else:
                            old = add(old, received)
                            if type(old) is not ndarray:  # a number; or sparse, which a dense one would not fit into
                                old = xp.asarray(old)
                            elif in_place:
                                owned.add(below)
                            not_ready[below] = old
                        old = None
                    if waiting != 1:
                        continue
                    if not_ready and below in not_ready:
                        received = not_ready.pop(below)

                # a node that is ready: run it if it is a leaf's, otherwise keep one at hand and the others in the heap
                if type(below) is AccumulateGrad:
                    if general:  # the heap keeps leaves in the order they came, which `following` would not
                        heappush(heap, (-LAST, arrival(), below, received))
                    else:
                        unshared = in_place and received is not None and getrefcount(received) <= IN_VARIABLE
                        _finish_leaf(task, below, received, unshared)
                elif following is None:
                    following, grad = below, received
                else:
                    heappush(heap, (-below.sequence_nr, arrival(), below, received))
                received = None

            # the next node: of those that are ready, the one recorded last
            if following is None:
                if not heap:
                    return
                _, _, node, grad = heappop(heap)
            elif heap:
                _, _, node, grad = heappushpop(heap, (-following.sequence_nr, arrival(), following, grad))
            else:
                node = following
    except BaseException as error:
        describe_failure(task, node, error)
        raise


def _run_compiled(task: GraphTask, root: Node, grad: Any) -> None:
    """What `_run_loop` does, by the compiled core, for a pass that nobody watches but a profile."""
    running = [root]
    try:
        core.run_pass(task, root, grad, running)
    except BaseException as error:
        describe_failure(task, running[0], error)
        raise


def _buffered(task: GraphTask, producer: Node, index: int, edge: OutputEdge, grad: Array | None) -> list[Any] | None:
    """Add a gradient to the InputBuffer of a node with several outputs; its content once nothing is waited for."""
    node, nr = edge
    xp = task.xp
    if grad is not None:
        grad = xp.asarray(grad)
        if grad.shape != node._shapes[nr] or grad.dtype is not node._dtypes[nr]:
            grad = xp.asarray(conform(producer, index, grad, node._shapes[nr], node._dtypes[nr], xp))
    buffer = task.not_ready.get(node)
    if buffer is None:
        if task.dependencies[node] == 1:  # the only one that will come
            task.dependencies[node] = 0
            slots = [None] * len(node._shapes)
            slots[nr] = grad
            return None if grad is None else slots
        buffer = task.not_ready[node] = InputBuffer(len(node._shapes))
    buffer.add(nr, grad, xp, in_place=task.in_place)
    task.dependencies[node] -= 1
    if task.dependencies[node]:
        return None
    del task.not_ready[node]
    return buffer.received()


def _finish_leaf(task: GraphTask, node: AccumulateGrad, grad: Array | None, unshared: bool) -> None:
    """Run an AccumulateGrad node: hooks of the leaf, accumulation, hooks again. See Note [Hook order]."""
    extra = node.variable._extra
    own = node.extra
    rare = None if extra is None else extra.rare
    if own is not None and type(own) is not StreamExtra:
        evaluate(task, node, grad, unshared)
    elif rare is not None and not rare.is_quiet:
        if rare.only_calls_back and grad is not None and task.exec_info is None and not task.watches:
            _accumulate_and_call_back(task, node, grad, unshared)
        else:
            evaluate(task, node, grad, unshared)
    elif task.exec_info is not None and not _capture(task, node, [grad]):
        return
    elif grad is not None:
        node.accumulate(grad, unshared and task.exec_info is None)


def _accumulate_and_call_back(task: GraphTask, node: AccumulateGrad, grad: Array, unshared: bool) -> None:
    """What `evaluate` does where nothing hangs on a leaf but functions to call when it has its gradient."""
    task.node = node
    try:
        node.accumulate(grad, unshared)
        node.run_post_accumulate_hooks()
    except BaseException as error:
        describe_failure(task, node, error)
        raise
    finally:
        task.node = None


def evaluate(task: GraphTask, node: Node, grad: Any, unshared: bool = False) -> tuple[list[Any], tuple[Any, ...]]:
    """Run one node with everything that may hang on it: hooks, captures, undefined gradients, chosen inputs.

    unshared: nobody outside the engine holds `grad`.
    Returns its results and the edges they are for (None where nobody wants one).
    """
    edges = _wanted_edges(task, node)
    if type(node) is GraphRoot:  # which nobody watches, and which has no hooks
        return list(node.grads), edges
    xp = task.xp
    task.node = node
    try:
        if grad is not None and not task.watches and task.exec_info is None and _has_no_hooks(node):
            return _evaluate_unhooked(task, node, grad, edges), edges
        grads = list(grad) if node.multiple_outputs and grad is not None else [grad]
        if node.multiple_outputs and grad is None:
            grads = [None] * node._output_count
        grads = run_tensor_hooks(node, grads, xp)
        if task.exec_info is not None and not _capture(task, node, grads):
            return [], ()
        grads = run_pre_hooks(node, grads, xp)
        for nr, g in enumerate(grads):
            if g is not None:
                shape, dtype = expected(node, nr)
                grads[nr] = conform(node, nr, g, shape, dtype, xp)
        for watch in task.watches:
            watch.before(node, grads)
        post_hooks = _post_hooks(node)
        if type(node) is AccumulateGrad:
            _accumulate(task, node, grads, unshared if grads[0] is grad else task.in_place)
            results = []
        else:
            keep = True if node.extra is not None or task.watches else task.keep
            results = _pull(task, node, grads, edges, keep)
        if _post_hooks(node):
            # hooks that were registered while the node ran do not see the gradients it was given
            results = _fitted(task, node, results, edges)
            results = run_post_hooks(node, results, grads if post_hooks else [None] * len(grads), xp)
        for watch in task.watches:
            watch.after(node, grads, results)
        if (node.extra is not None or task.watches) and not task.keep_graph:
            node.release(task.keep)
        return results, edges
    except BaseException as error:
        describe_failure(task, node, error)
        raise
    finally:
        task.node = None


def _has_no_hooks(node: Node) -> bool:
    """Whether a node of an operation with one output is here for what it saved alone."""
    kind = type(node)
    return not (kind.multiple_outputs or kind.is_of_leaf or node.extra is None) and node.extra.hooks is None


def _evaluate_unhooked(task: GraphTask, node: Node, grad: Any, edges: tuple[Any, ...]) -> list[Any]:
    """Run a node whose saved tensors were packed, or asked for: they are released as its class does it."""
    if grad.shape != node.shape or grad.dtype is not node.dtype:
        grad = conform(node, 0, grad, node.shape, node.dtype, task.xp)
    results = node.pull(task.xp, grad, edges, True)
    if _post_hooks(node):  # registered while the node ran
        results = run_post_hooks(node, _fitted(task, node, results, edges), [None], task.xp)
    if not task.keep_graph:
        node.release(task.keep)
    return results


def _fitted(task: GraphTask, node: Node, results: list[Any], edges: tuple[Any, ...]) -> list[Any]:
    """The results as they will arrive at the other ends of their edges, which is what post-hooks are to see."""
    recorded = None if task.in_place else task.xp
    return [None if e is None else conform_to_receiver(node, k, results[k], e, recorded) for k, e in enumerate(edges)]


def _post_hooks(node: Node) -> Any:
    return node.extra is not None and node.extra.hooks is not None and node.extra.hooks.post


def _accumulate(task: GraphTask, node: AccumulateGrad, grads: list[Any], unshared: bool) -> None:
    """`unshared` is what is known of the array; a hook that returned it may have kept it."""
    if grads[0] is not None:
        node.accumulate(grads[0], unshared and getrefcount(grads[0]) <= IN_LIST_AND_VARIABLE)
        node.run_post_accumulate_hooks()


def _pull(task: GraphTask, node: Node, grads: list[Any], edges: tuple[Any, ...], keep: Any) -> list[Any]:
    if not node.wants_undefined and all(g is None for g in grads):
        if not keep:
            node.release(keep)
        return [None] * len(edges)
    return node.pull(task.xp, grads if node.multiple_outputs else grads[0], edges, keep)


def _wanted_edges(task: GraphTask, node: Node) -> tuple[Any, ...]:
    if task.wanted_edges is None:
        return node.next_edges
    return task.wanted_edges.get(node) or (None,) * len(node.next_edges)


def _capture(task: GraphTask, node: Node, grads: list[Any]) -> bool:
    """Store the gradients that were asked for on their way into the node; whether the node is to run."""
    assert task.exec_info is not None
    info = task.exec_info[node]
    for capture in info.captures:
        grad = grads[capture.input_idx]
        for hook in capture.hooks:
            grad = hook(grad)
        task.captured_vars[capture.output_idx] = grad
    return info.needed


if core is not None:
    core.bind(
        RUNS=RUNS, ExecInfo=ExecInfo, Capture=Capture, evaluate=evaluate, buffered=_buffered, conform=conform,
        finish_leaf=_finish_leaf, describe_failure=describe_failure, refuse_result=refuse_result, pause=lambda: None,
    )  # fmt: skip
