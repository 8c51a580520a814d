"""ReadyQueue: the nodes that can run, on a device or on the thread that drives a pass, the one to run next on top.

Guarantees: any thread may push, at any time, even from a destructor that interrupts a push or pop of the same queue.
One thread at a time pops. Neither takes a lock: new tasks come in through a `SimpleQueue`, whose `put` may interrupt
itself, and only the thread that pops touches the heap.

The order is: shutdown, then empty tasks (which only wake the thread up), then passes nested deeper, then nodes recorded
later. AccumulateGrad's sequence number is above all others, so it runs as soon as it is ready. Equals run in the order
they came.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from undertow.graph.node import Node

_SHUTDOWN, _EMPTY, _WORK = range(3)


class NodeTask:
    """A node that is ready to run, with the gradients it was waiting for.

    base    the GraphTask it belongs to
    fn      the node; None in a task that only wakes the thread that pops it
    inputs  the InputBuffer
    is_shutdown  whether the thread that pops it is to end
    """

    __slots__ = ("base", "fn", "inputs", "is_shutdown")

    def __init__(self, base: Any, fn: Node | None, inputs: Any, is_shutdown: bool = False) -> None:
        self.base, self.fn, self.inputs, self.is_shutdown = base, fn, inputs, is_shutdown

    def place(self) -> tuple[int, int, int]:
        """Where in the queue it belongs: the smallest comes first."""
        if self.is_shutdown:
            return _SHUTDOWN, 0, 0
        if self.fn is None:
            return _EMPTY, 0, 0
        return _WORK, -self.base.reentrant_depth, -self.fn.sequence_nr


class ReadyQueue:
    __slots__ = ("_arrival", "_closed", "_heap", "_inbox")

    def __init__(self) -> None:
        self._inbox: SimpleQueue[NodeTask] = SimpleQueue()
        self._heap: list[tuple[tuple[int, int, int], int, NodeTask]] = []
        self._arrival = count().__next__
        self._closed: Callable[[ReadyQueue], None] | None = None

    def push(self, task: NodeTask) -> None:
        self._inbox.put(task)
        if self._closed is not None:
            self._closed(self)  # the thread that would have popped it is gone

    def push_shutdown_task(self) -> None:
        self.push(NodeTask(None, None, None, is_shutdown=True))

    def pop(self) -> NodeTask:
        """The first task; waits for one if there is none."""
        self._sort_in()
        while not self._heap:
            self._place(self._inbox.get())
            self._sort_in()
        return heappop(self._heap)[2]

    def close(self, handler: Callable[[ReadyQueue], None]) -> None:
        """Nobody will pop any more: have `handler` called now, and after every push, to deal with what is there."""
        self._closed = handler
        handler(self)

    def drain(self) -> list[NodeTask]:
        """Take everything out, for a handler of `close`."""
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._heap.pop()[2])
        with suppress(Empty):
            while True:
                found.append(self._inbox.get_nowait())
        return found

    def nudge(self) -> None:
        """Have `pop` return, so that its caller looks again whether it still has something to wait for.

        A destructor may interrupt a loop on its way from looking to waiting, and run a loop of its own on this queue:
        that takes what comes in, also the empty task that was to wake the loop below, and leaves what is not its own.
        """
        self._inbox.put(NodeTask(None, None, None))

    def _sort_in(self) -> None:
        with suppress(Empty):
            while True:
                self._place(self._inbox.get_nowait())

    def _place(self, task: NodeTask) -> None:
        heappush(self._heap, (task.place(), self._arrival(), task))

    def __len__(self) -> int:
        return len(self._heap) + self._inbox.qsize()
