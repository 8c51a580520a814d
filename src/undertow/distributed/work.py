"""Exchanges that are under way: every one is started without blocking, and waited for with a limit.

The steps of an exchange are a generator of MPI's requests: each is to be finished before the next is asked for. The
first is made at once, on the thread that starts the exchange, so that all processes start theirs in the order of the
program.
"""

from __future__ import annotations

import functools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array
from undertow.distributed.errors import DistError, DistMismatchError

if TYPE_CHECKING:
    from undertow.distributed.process_group import ProcessGroup

#: how often a waiting process asks before it lets others have the core, and seconds until it sleeps between asking,
#: also where other threads serve calls
PATIENT_ASKS, SLEEPS_AFTER, GIVES_WAY_AFTER, SLEEP = 40, 0.5, 1e-3, 2e-4
#: seconds between two looks at what the others do
LOOKS_EVERY = 0.02
#: seconds in which a launcher hears that a process has ended, says how, and stops the others; else they say it
TOLD_WITHIN = 2.0
#: what was given up before it was finished: MPI may still write into its memory, which must not be freed
abandoned: list[Any] = []


class Work:
    """An exchange that is under way; what a call with `async_op=True` returns.

    steps   what is left to do, as a generator
    result  what `wait` and the future give
    given   what this process gives, for profiles

    Example: `dist.all_reduce(ut.ones(2), async_op=True).wait()`
    """

    #: whether other threads serve calls. One that wants Python's lock, which a busy wait takes again and again, gets it
    #: after 5 ms; so waiting means sleeping then
    gives_way = False

    def __init__(
        self, group: ProcessGroup, what: str, steps: Iterator[Any], result: Any, given: Sequence[Array] = ()
    ) -> None:
        self.group, self.what, self.steps, self._result = group, what, steps, result
        self.profiled = profiled(f"{group.name()}:{what.partition('(')[0]}", given)
        self.number, self.fingerprint = group.enter(what)
        self.done = False
        self.error: BaseException | None = None
        self.driven: threading.Event | None = None
        self.requests: Any = None
        self.advance()

    def advance(self) -> None:
        """Go to the next step, which has to be waited for in its turn."""
        try:
            self.requests = next(self.steps)
        except StopIteration:
            self.requests = None
            self.end()
        except (DistError, OSError) as error:  # what the others brought does not fit, or cannot be read
            raise self.failure(error) from error

    # ---- waiting

    def is_completed(self) -> bool:
        """Whether it is done; goes as far as it can without waiting."""
        if self.driven is not None:
            return self.driven.is_set() and self.finish_driven()
        while not self.done and self.ask():
            self.advance()
        return self.done

    def ask(self) -> bool:
        """Whether the requests of this step are finished."""
        try:
            return all([request.Test() for request in self.requests])
        except self.group.mpi.Exception as error:
            raise self.failure(error) from error

    def wait(self, timeout: Any = None) -> bool:
        """Wait until it is done: True, or DistTimeoutError that says who has not come.

        timeout  seconds, or a timedelta; the group's if it is not given
        """
        limit = self.group.timeout if timeout is None else seconds_of(timeout)
        try:
            self.wait_until_completed(limit)
        except BaseException:  # an interrupt, too: MPI goes on with the memory
            abandoned.append(self)
            raise
        return True

    def wait_until_completed(self, limit: float) -> None:
        started, asked, looks = time.monotonic(), 0, 0.0
        while not self.is_completed():
            asked += 1
            if self.driven is not None:
                self.driven.wait(LOOKS_EVERY)
            elif asked > PATIENT_ASKS:
                os.sched_yield()
            waited = time.monotonic() - started
            if waited > looks:
                self.group.look(self, waited, limit)
                looks = waited + LOOKS_EVERY
            if waited > (GIVES_WAY_AFTER if self.gives_way else SLEEPS_AFTER) and self.driven is None:
                time.sleep(SLEEP)

    def result(self) -> Any:
        """The tensors that the exchange wrote into."""
        self.wait()
        return self._result

    def is_success(self) -> bool:
        return self.done and self.error is None

    def exception(self) -> BaseException | None:
        return self.error

    def get_future(self) -> Future:
        return Future(self, self._result)

    # ---- on a thread of its own

    def drive(self) -> None:
        """All steps, blocked inside MPI, which lets Python's other threads compute meanwhile."""
        try:
            while self.requests is not None:
                self.group.mpi.Request.Waitall(self.requests)
                self.requests = next(self.steps, None)
        except BaseException as error:
            self.error = error
        self.driven.set()  # type: ignore[union-attr]

    def finish_driven(self) -> bool:
        if self.error is not None:
            raise self.failure(self.error) from self.error
        if not self.done:
            self.end()
        return True

    def end(self) -> None:
        self.done = True
        self.group.leave(self)
        if self.profiled is not None:
            self.profiled()

    def failure(self, error: BaseException) -> BaseException:
        self.group.look(self, 0, 1)
        known = ""
        if isinstance(error, ProcessLookupError):
            time.sleep(TOLD_WITHIN)
            known = self.group.roll_call(self.number)
        kind = DistMismatchError if isinstance(error, DistMismatchError) else DistError
        return kind(f"rank {self.group.rank()}: exchange #{self.number} {self.what} failed: {error}{known}")


def profiled(name: str, given: Sequence[Array]) -> Callable[[], None] | None:
    """What writes the exchange, from now to when it is called, into the profile of this thread; None if there is none.

    Shapes of complex tensors are those of their two real parts, as in PyTorch's profiles.
    """
    profiler = sys.modules.get("undertow.instrument.profiler.recorder")  # who has not loaded it has no profile
    recorder = None if profiler is None else profiler.recorder_of_thread()
    if recorder is None:
        return None
    shapes = [[*array.shape, 2] if array.dtype.kind == "c" else list(array.shape) for array in given]
    return functools.partial(recorder.exchange_ended, name, time.perf_counter_ns(), shapes)


def seconds_of(limit: Any) -> float:
    """A limit of time, given in seconds or as a timedelta."""
    return float(limit.total_seconds() if hasattr(limit, "total_seconds") else limit)


class Future:
    """The result of an exchange that is under way, or what is to be made of it.

    work      what is waited for: the exchange, or the future whose result `make` is given; None: nothing
    value     the result, if nothing is to be made of it

    Example: `dist.all_reduce(ut.ones(2), async_op=True).get_future().wait()`
    """

    def __init__(self, work: Work | Future | None, value: Any, make: Callable[[Any], Any] | None = None) -> None:
        self._work, self._value, self._make = work, value, make
        self._callbacks: list[Callable[[Future], Any]] = []

    def done(self) -> bool:
        """Whether the result is there, or would be at once."""
        if isinstance(self._work, Future):
            return self._work.done()
        return self._work is None or self._work.is_completed()

    def wait(self) -> Any:
        """The result, after everything that `then` was told."""
        if self._work is not None:
            self._work.wait()
        if self._make is not None:
            self._value = self._make(self._work)
        self._work = self._make = None
        while self._callbacks:
            self._callbacks.pop(0)(self)
        return self._value

    def value(self) -> Any:
        return self._value

    def then(self, callback: Callable[[Any], Any]) -> Future:
        """A future of what `callback(future)` makes of the result. It is called when that is waited for."""
        return Future(self, None, callback)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Let `callback(future)` be called when the result is waited for."""
        self._callbacks.append(callback)

    def set_result(self, result: Any) -> None:
        self._value = result


# ---- the thread

_waiting: queue.SimpleQueue[Work] | None = None
_driven: list[Work] = []
_lock = threading.Lock()


def finish_in_background(work: Work) -> None:
    """Let one thread of this process go through the steps of exchanges, in the order in which they were started."""
    global _waiting
    with _lock:
        if _waiting is None:
            _waiting = queue.SimpleQueue()
            threading.Thread(target=_drive_all, args=(_waiting,), name="exchanges", daemon=True).start()
    work.driven = threading.Event()
    _driven.append(work)
    _waiting.put(work)


def _drive_all(waiting: queue.SimpleQueue[Work]) -> None:
    while True:
        waiting.get().drive()
        del _driven[0]


def is_driving() -> bool:
    """Whether the thread has an exchange to finish: it is inside MPI, which must not end then."""
    return bool(_driven)
