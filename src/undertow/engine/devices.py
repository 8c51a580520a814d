"""Passes over several devices: a thread and a ReadyQueue for each, and the caller's for the CPU.

Guarantees: a node runs on the thread of its gradient's device (the first that is not the CPU), on the stream its
operation ran on, in a copy of the caller's context. The thread that called backward drives the CPU's nodes and returns
when no node of its pass is queued or running, so nothing of a pass, failed or not, goes on behind the caller's back.
An error travels with the task, not the thread; threads outlive it. Threads are daemons, made on first use.

Assumes: nobody pops a device's queue but its thread - or, while that thread waits for a nested pass in the re-entrant
pool, the pool's thread in its place.

Note [Waiting threads drain their queue]: a worker whose node starts a nested pass runs that pass's loop on its own
queue, and so goes on with whatever else comes for its device, deepest pass first. Every thread that waits drains, so
passes can wait for each other's devices in a circle and still end.

Note [Destructors]: a destructor or a signal handler runs wherever Python happens to be, and may start a pass. If its
thread holds one of our locks, a worker may need that lock before it can help; so such a pass runs all its nodes on its
own thread, on a queue of its own. See also Note [One lock] in scopes.py.

Note [Fork]: a child has the forking thread only. Queues and threads are forgotten there, and made again on first use.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.backend.streams import choose_streams, working
from undertow.engine import parallel_branches
from undertow.engine.input_buffer import DeviceInputBuffer, InputBuffer
from undertow.engine.ready_queue import NodeTask, ReadyQueue
from undertow.engine.tasks import DeviceGraphTask, GraphRoot, GraphTask
from undertow.engine.validate import conform_to_receiver, space_of_gradient
from undertow.errors import warn_once
from undertow.graph.accumulate import AccumulateGrad, is_accumulating
from undertow.graph.node import Node, stream_of
from undertow.scopes import call_with, common_lock, held

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.graph.edges import Edge


class _ThisThread(threading.local):
    """What a thread is to the engine: the device it works for and the queue it pops, if any."""

    device: Any = None
    queue: ReadyQueue | None = None
    goes_on = False  # whether it has kept one of the branches below the node it runs


this_thread = _ThisThread()


class _ThisThreadVariable:
    """The device and the queue of this thread, as a variable; see scopes.py."""

    def get(self) -> tuple[Any, ReadyQueue | None]:
        return this_thread.device, this_thread.queue

    def set(self, value: tuple[Any, ReadyQueue | None]) -> None:
        this_thread.device, this_thread.queue = value


this_thread_variable = _ThisThreadVariable()

#: how long interpreter exit waits for a worker that is inside a node
PATIENCE_AT_EXIT = 2.0


class DeviceThreads:
    """The threads of the devices. The Engine is one; it says how a node is called."""

    def __init__(self) -> None:
        self.forget_threads()
        os.register_at_fork(after_in_child=self.forget_threads)
        atexit.register(self._close)

    def forget_threads(self) -> None:
        """Start anew; see Note [Fork]."""
        # Guards the making of queues and threads; once made, both dictionaries are read without it.
        self._start_lock = threading.RLock()
        self.device_ready_queues: dict[Any, ReadyQueue] = {}
        self._threads: dict[Any, threading.Thread] = {}
        #: whether the interpreter is at its exit, where a thread that is started never runs, and passes of destructors
        #: have to be run by their caller
        self._is_closed = False
        this_thread.device = this_thread.queue = None

    def call_function(self, task: GraphTask, node: Node, grad: Array) -> tuple[list[Any], tuple[Any, ...]]:
        """Run one node: its results, and the edges they are for."""
        raise NotImplementedError("the engine says how a node is called")

    # ---- queues and threads

    def ready_queue(self, task: DeviceGraphTask, space: Namespace, node: Node) -> ReadyQueue:
        """Where a node of `task` waits whose gradient lies on the device of `space`."""
        if not task.multithreading or self._is_closed:
            return task.cpu_ready_queue
        device = space.device
        if device.type == "meta":
            return task.cpu_ready_queue
        if space is cpu:
            helper = self._helper_for(node) if task.branches else None
            if helper is None:
                return task.cpu_ready_queue
            device = helper
        queue = self.device_ready_queues.get(device)
        return queue if queue is not None else self.start_device_thread(task, device)

    def _helper_for(self, node: Node) -> Any:
        """The helping thread that takes a CPU node of a pass whose branches run in parallel; None for the caller's."""
        if not parallel_branches.is_large(node):
            return None
        if not this_thread.goes_on:
            this_thread.goes_on = True  # the first branch stays with the thread that has just run the node above
            return this_thread.device
        return next(parallel_branches.setting.turns, None)

    def start_device_thread(self, task: DeviceGraphTask, device: Device | str | int) -> ReadyQueue:
        with held(self._start_lock):
            queue = self.device_ready_queues.get(device)
            if queue is not None:
                return queue
            queue = ReadyQueue()
            thread = threading.Thread(
                target=self.thread_init, args=(device, queue), name=f"undertow-{device}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # too late: the interpreter is shutting down
                return task.cpu_ready_queue
            self._threads[device] = thread
            self.device_ready_queues[device] = queue
            return queue

    def thread_init(self, device: Device | str | int, queue: ReadyQueue) -> None:
        """What the thread of a device does."""
        this_thread.device, this_thread.queue = device, queue
        try:
            self.thread_main(None, queue)
        except BaseException as error:
            if not self._retire(device, queue, error):
                raise  # nobody waits for this device, so let the interpreter tell
        else:
            self._retire(device, queue, None)

    def _retire(self, device: Device | str | int, queue: ReadyQueue, cause: BaseException | None) -> list[NodeTask]:
        """The thread of a device ends. What waits for it, now or later, fails - or, if this is a shutdown, moves."""
        waiting: list[NodeTask] = []

        def see_to(queue: ReadyQueue) -> None:
            for task in queue.drain():
                if task.fn is not None:
                    waiting.append(task)
                    if cause is None:
                        task.base.cpu_ready_queue.push(task)
                    else:
                        self._fail(task, device, cause)

        with held(self._start_lock):
            if self.device_ready_queues.get(device) is queue:
                del self.device_ready_queues[device], self._threads[device]
        queue.close(see_to)
        return waiting

    def _fail(self, task: NodeTask, device: Device | str | int, cause: BaseException) -> None:
        assert task.fn is not None
        error = RuntimeError(f"the worker thread of {device} has ended, and {task.fn.name()} cannot run: {cause!r}")
        error.__cause__ = cause
        task.base.set_exception(error)
        if task.base.task_done():
            self._wake_owner(task.base)

    def _close(self) -> None:
        self._is_closed = True
        self.shut_down()

    def shut_down(self) -> None:
        """End the threads of all devices; the next pass that needs one makes it again."""
        with held(self._start_lock):
            queues, threads = list(self.device_ready_queues.values()), list(self._threads.values())
        for queue in queues:
            queue.push_shutdown_task()
        for thread in threads:
            thread.join(PATIENCE_AT_EXIT)

    # ---- running

    def execute_with_graph_task(self, task: DeviceGraphTask, root: Node) -> None:
        """Run a pass to its end, on this thread and those of the devices. Raises what a node of it raised."""
        device, outer = this_thread_variable.get()
        if outer is not None and task.multithreading:
            task.cpu_ready_queue = outer  # See Note [Waiting threads drain their queue]
        task.thread_locals = contextvars.copy_context()
        task.outstanding_tasks = 1
        try:
            call_with(this_thread_variable, (device, task.cpu_ready_queue), self._drive, task, root)
        finally:
            if outer is not None:
                outer.nudge()
            task.thread_locals = None  # it holds the task: current_task() is part of a context
        task.future_result.raise_error()
        self._join_leaf_streams(task)

    def _queue_root(self, task: DeviceGraphTask, root: Node) -> None:
        """A GraphRoot starts on the calling thread, an only root on that of the gradient's device."""
        if task.seed is None:
            task.cpu_ready_queue.push(NodeTask(task, root, InputBuffer(0)))
            return
        edge, grad = task.seed
        grad = conform_to_receiver(GraphRoot((edge,), (grad,)), 0, grad, edge, task.recorded)
        buffer = DeviceInputBuffer(root._output_count, task.recorded, task.deterministic)
        producer = None if grad is None else space_of_gradient(grad).current_stream()
        buffer.take(edge[1], grad, producer, stream_of(root), (0, 0))
        buffer.settle()
        self.ready_queue(task, buffer.space(cpu), root).push(NodeTask(task, root, buffer))

    def _drive(self, task: DeviceGraphTask, root: Node) -> None:
        """Start a pass and run the CPU's nodes of it, until all its nodes have run or none will."""
        try:
            self._queue_root(task, root)
            self.thread_main(task, task.cpu_ready_queue)
        except BaseException as error:  # a root that cannot be, or an interrupt between two nodes
            task.set_exception(error)
            self._wait_for_workers(task)

    def _join_leaf_streams(self, task: DeviceGraphTask) -> None:
        """Let the caller's streams wait for the gradients that the pass has left behind."""
        for stream in task.leaf_streams:
            stream.namespace.current_stream().wait_stream(stream)

    def thread_main(self, graph_task: DeviceGraphTask | None, queue: ReadyQueue) -> None:
        """Run what comes through a queue: until a pass is over, or (a device's thread) until shutdown."""
        shutdown = False
        while graph_task is None or not graph_task.future_result.completed:
            task = queue.pop()
            if not task.is_shutdown:
                self._run_node_task(task)
            elif graph_task is None:
                break
            else:
                shutdown = True  # meant for the loop below this one, which cannot end before the nested pass has
            del task  # while it waits for the next, a thread must hold nothing of the last
        if shutdown:
            queue.push_shutdown_task()

    def _run_node_task(self, node_task: NodeTask) -> None:
        task, node = node_task.base, node_task.fn
        if node is None:
            return  # it came to wake this thread
        task.running.add(threading.get_ident())
        try:
            if not task.has_error:
                task.thread_locals.copy().run(self.evaluate_function, task, node, node_task.inputs)
        except BaseException as error:
            task.set_exception(error)
            if not isinstance(error, Exception) and this_thread.queue is task.cpu_ready_queue:
                raise  # an interrupt may have come between counting a task and queueing it: nothing to wait for
        finally:
            task.running.discard(threading.get_ident())
            working.node = None
            self._finish(task)

    def _finish(self, task: DeviceGraphTask) -> None:
        """A node of the task has run. If it was the last, wake the thread that drives the task, unless it is this."""
        if task.task_done() and this_thread.device != task.owner:
            self._wake_owner(task)

    def _wake_owner(self, task: DeviceGraphTask) -> None:
        # without the task: the thread may have looked and left, and the queue, which is the task's, would keep it alive
        task.cpu_ready_queue.push(NodeTask(None, None, None))

    def _wait_for_workers(self, task: DeviceGraphTask) -> None:
        """After an error, nodes that are queued will not run; wait for those that are running."""
        while task.running - {threading.get_ident()}:
            time.sleep(1e-4)

    # ---- one node

    def evaluate_function(self, task: DeviceGraphTask, node: Node, inputs: InputBuffer) -> None:
        """Run a node and hand its results on."""
        stream = stream_of(node)
        this_thread.goes_on = False
        working.node = (node.name(), getattr(node, "code", None), getattr(node, "lasti", 0))
        if node is task.root and task.seed is None:
            producers = {space: space.current_stream() for space in map(space_of_gradient, task.root.grads)}
        else:
            choose_streams({} if stream is None else {stream.device: stream})
            producers = None
        task.xp = task.recorded or inputs.space(cpu)
        grads = inputs.received()
        results, edges = self.call_function(task, node, grads if node.multiple_outputs or grads is None else grads[0])
        if stream is not None and _leaves_gradients(task, node):
            with held(task.mutex):
                task.leaf_streams.add(stream)
        for index, edge in enumerate(edges):
            if edge is not None:
                grad = conform_to_receiver(node, index, results[index], edge, task.recorded)
                producer = stream if producers is None or grad is None else producers[space_of_gradient(grad)]
                self._deliver(task, node, index, edge, grad, producer)

    def _deliver(self, task: DeviceGraphTask, node: Node, index: int, edge: Edge, grad: Array, producer: Any) -> None:
        """Add a gradient to its receiver's InputBuffer; queue the receiver if it was the last."""
        below, nr = edge[0], edge[1]
        with held(task.mutex):
            buffer = task.not_ready.get(below)
            if buffer is None:
                buffer = DeviceInputBuffer(below._output_count, task.recorded, task.deterministic)
                task.not_ready[below] = buffer
            consumer = stream_of(below)
            if type(below) is AccumulateGrad and grad is not None and is_mismatch(producer, consumer):
                warn_of_mismatch()
            buffer.take(nr, grad, producer, consumer, (-node.sequence_nr, index))
            task.dependencies[below] -= 1
            if task.dependencies[below]:
                return
            del task.not_ready[below]
            task.outstanding_tasks += 1
        buffer.settle()
        space = buffer.space(cpu)
        if space is cpu and consumer is not None and buffer.received() is None:
            space = consumer.namespace  # nothing flowed: the node's own device
        self.ready_queue(task, space, below).push(NodeTask(task, below, buffer))

    # ---- may a pass use threads

    def holds_a_lock(self, outer: GraphTask | None) -> bool:
        """Whether this thread is inside one of the engine's critical sections. See Note [Destructors]."""
        while outer is not None:
            if isinstance(outer, DeviceGraphTask) and _is_mine(outer.mutex):
                return True
            outer = outer.outer
        return _is_mine(self._start_lock) or _is_mine(common_lock) or is_accumulating()


def _leaves_gradients(task: GraphTask, node: Node) -> bool:
    """Whether a gradient stays where the node has run: it accumulates one, or one is captured on its way in."""
    return not node.next_edges or (task.exec_info is not None and bool(task.exec_info[node].captures))


def _is_mine(lock: Any) -> bool:
    return bool(lock._is_owned())


_warn_on_mismatch = [True]


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Whether to warn when a gradient comes to a leaf from another stream than its AccumulateGrad node was made on.

    >>> import undertow as ut
    >>> ut.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
    """
    _warn_on_mismatch[0] = bool(enabled)


def is_mismatch(producer: Any, consumer: Any) -> bool:
    return None not in (producer, consumer) and producer is not consumer and producer.device == consumer.device


def warn_of_mismatch() -> None:
    if _warn_on_mismatch[0]:
        warn_once(
            "accumulate-grad-stream-mismatch",
            "The AccumulateGrad node's stream does not match the stream of the node that produced the incoming "
            "gradient: one has to wait for the other. The node was made in an earlier iteration, on another stream, "
            "and is kept alive by a graph that still refers to the leaf. Drop that graph (a kept loss, for "
            "example), or, if this is as you want it, call "
            "undertow.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False).",
        )


def touches_devices(task: GraphTask, grads: Any) -> bool:
    """Whether a node of the pass, or a gradient that it starts with, is on a device other than the CPU."""
    return any(stream_of(node) is not None for node in task.dependencies) or any(
        space_of_gradient(g) is not cpu for g in grads
    )
