"""Worker threads that prepare batches ahead of the loop that uses them.

Guarantees: batches come in the order of their tasks. Task k goes to worker k modulo the number of workers, so that what
a worker draws from its own generator does not depend on which thread happens to be faster. At most `ahead` batches per
worker are under way. When `close` returns, the threads have ended, or are inside a single call of the dataset that has
not come back within GRACE seconds; they are daemons, so even that keeps no program alive.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple

from undertow.ops.generator import Generator

GRACE = 5.0


class WorkerInfo(NamedTuple):
    """What a dataset may ask for inside a worker thread: see `get_worker_info`."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    generator: Generator


_info: contextvars.ContextVar[WorkerInfo | None] = contextvars.ContextVar("undertow.data.worker", default=None)


def get_worker_info() -> WorkerInfo | None:
    """Inside a worker thread: its number, how many there are, its seed and a generator with that seed. Else None."""
    return _info.get()


class _Failure(NamedTuple):
    error: BaseException


class _End:
    """What a worker's source answers when there is nothing more."""


class Worker:
    """One thread with a queue of tasks and one of results. No reference leads from the thread back to this object."""

    def __init__(self, work: Callable[[Any], Any], info: WorkerInfo, begin: Callable[[int], Any] | None) -> None:
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.results: SimpleQueue[Any] = SimpleQueue()
        self.stopping = threading.Event()
        context = contextvars.copy_context()  # grad mode and the other modes of the caller hold in the worker, too
        context.run(_info.set, info)
        arguments = (_serve, work, self.tasks, self.results, self.stopping, begin)
        name = f"undertow data worker {info.id}"
        self.thread = threading.Thread(target=context.run, args=arguments, name=name, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.tasks.put(_End)


def _serve(
    work: Callable[[Any], Any],
    tasks: SimpleQueue[Any],
    results: SimpleQueue[Any],
    stopping: threading.Event,
    begin: Callable[[int], Any] | None,
) -> None:
    """The life of a worker thread. Errors travel to the caller of the loop, in the place of a batch."""
    try:
        if begin is not None:
            begin(_info.get().id)  # type: ignore[union-attr]
    except BaseException as error:
        results.put(_failure(error, "before its first task"))
        return
    while True:
        task = tasks.get()
        if task is _End or stopping.is_set():
            return
        try:
            results.put(work(task))
        except BaseException as error:
            results.put(_failure(error, f"on the task {task!r}"))
        del task


def _failure(error: BaseException, when: str) -> _Failure:
    error.add_note(f"This happened in the thread {threading.current_thread().name!r}, {when}.")
    return _Failure(error)


def prepared(
    work: Callable[[Any], Any],
    tasks: Iterator[Any],
    num_workers: int,
    ahead: int,
    seed: int,
    dataset: Any,
    begin: Callable[[int], Any] | None = None,
) -> Iterator[Any]:
    """`map(work, tasks)` by threads, ahead of time; each first calls `begin` with its number."""
    infos = [
        WorkerInfo(i, num_workers, seed + i, dataset, Generator().manual_seed((seed + i) % 2**63))
        for i in range(num_workers)
    ]
    workers = [Worker(work, info, begin) for info in infos]
    try:
        yield from _in_order(workers, tasks, ahead * num_workers)
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.thread.join(GRACE)


def _in_order(workers: list[Worker], tasks: Iterator[Any], limit: int) -> Iterator[Any]:
    sent = received = 0
    more = True
    while True:
        while more and sent - received < limit:
            task = next(tasks, _End)
            more = task is not _End
            if more:
                workers[sent % len(workers)].tasks.put(task)
                sent += 1
        if received == sent:
            return
        result = workers[received % len(workers)].results.get()
        received += 1
        if isinstance(result, _Failure):
            try:
                raise result.error
            finally:
                del result  # the error's traceback holds this frame, and must not be held by it
        yield result
        del result
