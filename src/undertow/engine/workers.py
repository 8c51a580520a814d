"""Threads that run backward passes for others.

Guarantees: `ReentrantPool.run(f)` runs `f` on a thread whose stack is empty, in the caller's context (modes, running
task), and returns what it returns or raises what it raises, with its traceback. An idle thread is used again; a new one
is made only when all are busy, so nesting can never wait for itself. Threads are daemons and hold nothing while idle.
"""

from __future__ import annotations

import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any


class _Job:
    """A function to run, and what became of it."""

    __slots__ = ("context", "done", "error", "function", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.context = contextvars.copy_context()
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.context.run(self.function)
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()


class ReentrantPool:
    """The threads that re-entrant passes hop to. See Note [Reentrant backward]."""

    def __init__(self) -> None:
        # Taken from and added to by single operations of a list, without a lock: a destructor may start a pass here.
        self._idle: list[queue.SimpleQueue[_Job]] = []

    def run(self, function: Callable[[], Any]) -> Any:
        job = _Job(function)
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="undertow-reentrant", daemon=True).start()
        inbox.put(job)
        job.done.wait()
        error, job.error = job.error, None
        if error is None:
            return job.result
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, which must not hold it

    def _work(self, inbox: queue.SimpleQueue[_Job]) -> None:
        while True:
            job = inbox.get()
            job.run()
            del job  # an idle thread must not keep the task, nor what its exception holds, alive
            self._idle.append(inbox)

    def forget_threads(self) -> None:
        """After a fork only the forking thread exists."""
        self._idle = []


reentrant_pool = ReentrantPool()
os.register_at_fork(after_in_child=reentrant_pool.forget_threads)
