"""Threads that run backward passes for others.

Guarantees: `ReentrantPool.run(context, f, *args)` runs `f` on a thread whose stack is empty, in that context (modes,
running task), and returns what it returns or raises what it raises, with its traceback. An idle thread is used again; a
new one is made only when all are busy, so nesting can never wait for itself. Threads are daemons and hold nothing while
idle. A caller that is interrupted while it waits has what it waits for interrupted, too, and leaves when that has
ended: nothing goes on behind its back.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any

from undertow.scopes import held


class Interrupted(BaseException):
    """Ends what runs for a caller that was interrupted. The caller raises the interrupt itself."""


class _Job:
    """A function to run, and what became of it.

    thread       the ident of the thread that runs it, while it does
    deeper       the job that it waits for, if it does
    interrupted  whether that thread was told to raise Interrupted
    """

    __slots__ = ("args", "context", "deeper", "done", "error", "function", "interrupted", "lock", "result", "thread")

    def __init__(self, context: Context, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.context, self.function, self.args = context, function, args
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        # Guards `thread` and `interrupted`, so that no thread is interrupted for a job that it has done.
        self.lock = threading.RLock()
        self.thread: int | None = None
        self.interrupted = False
        self.deeper: _Job | None = None

    def run(self) -> None:
        try:
            self.thread, this_thread.job = threading.get_ident(), self
            self.result = self.context.run(self.function, *self.args)
        except BaseException as error:
            self.error = error
        finally:
            while not self.done.is_set():
                with suppress(Interrupted):  # too late
                    self.end()

    def end(self) -> None:
        with held(self.lock):
            self.thread = this_thread.job = None
            if self.interrupted:
                meet_errors()  # one that is still on its way would meet the next job
        self.done.set()

    def interrupt(self) -> None:
        """Have it raise Interrupted: at the innermost, for which the others wait."""
        job = self
        while job.deeper is not None:
            job = job.deeper
        with held(job.lock):
            if job.thread is not None:
                job.interrupted = True
                throw_into(job.thread, Interrupted)

    def wait(self) -> None:
        """Wait for its end. An interrupt that comes meanwhile is raised then."""
        interrupt: BaseException | None = None
        while not self.done.is_set():
            try:
                self.done.wait()
            except BaseException as error:
                interrupt = interrupt or error
                self.interrupt()
        if interrupt is not None:
            try:
                raise interrupt
            finally:
                del interrupt


class _ThisThread(threading.local):
    """The job that a thread of the pool runs."""

    job: _Job | None = None


this_thread = _ThisThread()


def throw_into(thread: int, error: type[BaseException]) -> None:
    """Have a thread raise an error when it next runs Python."""
    import ctypes  # rarely needed, and slow to load

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def meet_errors() -> None:
    """Raise now what was thrown into this thread.

    To take it back, as CPython offers, would leave a flag set for ever that says that there is something to raise: all
    threads become slower, and in Python 3.11 one that is traced or profiled loops without end.
    """
    for _ in range(2):  # the interpreter looks where it jumps back
        pass


class ReentrantPool:
    """The threads that re-entrant passes hop to. See Note [Reentrant backward]."""

    def __init__(self) -> None:
        # Taken from and added to by single operations of a list, without a lock: a destructor may start a pass here.
        self._idle: list[queue.SimpleQueue[_Job]] = []

    def run(self, context: Context, function: Callable[..., Any], *args: Any) -> Any:
        job, outer = _Job(context, function, args), this_thread.job
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="undertow-reentrant", daemon=True).start()
        try:
            if outer is not None:
                outer.deeper = job
            inbox.put(job)
            job.wait()
        finally:
            if outer is not None:
                outer.deeper = None
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
