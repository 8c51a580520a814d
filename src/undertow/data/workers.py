"""Worker threads that prepare batches ahead of the loop that uses them.

Guarantees: batches come in the order of their tasks. Task k goes to worker k modulo the number of workers, so that what
a worker draws from its own generator does not depend on which thread happens to be faster. At most `ahead` batches per
worker are under way. When `close` returns, the threads have ended, or are inside a single call of the dataset that has
not come back within GRACE seconds; they are daemons, so even that keeps no program alive.
"""

from __future__ import annotations

import contextvars
import copy
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple

from undertow.ops.random.generator import Generator, stand_in

GRACE = 5.0

#: the number of a result that belongs to whatever pass goes on
ANY = -1


class WorkerInfo:
    """What a dataset may ask for inside a worker thread: see `get_worker_info`.

    id, num_workers  the worker's number, and how many there are. A dataset that asks is taken to share its examples
                     among them: see `in_turn`
    seed, generator  of the worker's random numbers: in its thread, this generator is the default one
    dataset          the worker's dataset: of an IterableDataset, a copy of its own

    >>> import undertow as ut
    >>> ut.data.WorkerInfo(0, 2, 7, [1, 2]).num_workers
    2
    """

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self._id, self._num_workers = id, num_workers
        self.seed, self.dataset = seed, dataset
        self.generator = Generator().manual_seed(seed % 2**63)
        self._was_asked = False

    @property
    def id(self) -> int:
        self._was_asked = True
        return self._id

    @property
    def num_workers(self) -> int:
        self._was_asked = True
        return self._num_workers

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self._id}, num_workers={self._num_workers}, seed={self.seed}, dataset={self.dataset!r})"


_info: contextvars.ContextVar[WorkerInfo | None] = contextvars.ContextVar("undertow.data.worker", default=None)


def get_worker_info() -> WorkerInfo | None:
    """Inside a worker thread: its number, how many there are, its seed and a generator with that seed. Else None.

    >>> import undertow as ut
    >>> print(ut.data.get_worker_info())  # None outside of workers
    None
    """
    return _info.get()


class _Failure(NamedTuple):
    error: BaseException


class _End:
    """What a worker's source answers when there is nothing more."""


class Worker:
    """One thread with a queue of tasks and one of results. No reference leads from the thread back to this object.

    Tasks and results carry the number of the pass they belong to: what an abandoned pass has left over is neither done
    nor taken for a result of the next one.

    turn  its only element is the number of the pass that goes on
    """

    def __init__(self, info: WorkerInfo, turn: list[int], begin: Callable[[int], Any] | None) -> None:
        self.info = info
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.results: SimpleQueue[Any] = SimpleQueue()
        arguments = (_serve, self.tasks, self.results, turn, begin)
        context = context_of(info)
        name = f"undertow data worker {info._id}"
        self.thread = threading.Thread(target=context.run, args=arguments, name=name, daemon=True)
        self.thread.start()

    def __del__(self) -> None:
        """Let the thread end, also where an interrupt left nobody who would call `close`."""
        if hasattr(self, "tasks"):
            self.tasks.put(_End)


def context_of(info: WorkerInfo) -> contextvars.Context:
    """The caller's context, whose grad mode and other modes hold in the worker, too."""
    context = contextvars.copy_context()
    context.run(_info.set, info)
    context.run(stand_in.set, info.generator)
    return context


def _serve(
    tasks: SimpleQueue[Any], results: SimpleQueue[Any], turn: list[int], begin: Callable[[int], Any] | None
) -> None:
    """The life of a worker thread. Errors travel to the caller of the loop, in the place of a batch."""
    try:
        if begin is not None:
            begin(_info.get()._id)  # type: ignore[union-attr]
    except BaseException as error:
        results.put((ANY, _failure(error, "before its first task")))
        return
    while True:
        sent = tasks.get()
        if sent is _End:
            return
        number, context, work, task = sent
        if number == turn[0]:
            try:
                results.put((number, context.run(work, task)))
            except BaseException as error:
                results.put((number, _failure(error, f"on the task {task!r}")))
        del sent, context, work, task


def _failure(error: BaseException, when: str) -> _Failure:
    error.add_note(f"This happened in the thread {threading.current_thread().name!r}, {when}.")
    return _Failure(error)


class Workers:
    """The threads of a loader, for one pass or for many.

    ahead    how many batches are under way for each worker
    copied   give each worker a copy of the dataset: an iterable one may be told by worker_init_fn what to read
    begin    is called by each worker with its number when it starts
    timeout  how long to wait for a batch, in seconds; 0: for ever
    """

    def __init__(
        self,
        count: int,
        ahead: int,
        seed: int,
        dataset: Any,
        copied: bool = False,
        begin: Callable[[int], Any] | None = None,
        timeout: float = 0,
    ) -> None:
        self.limit, self.timeout = count * ahead, timeout
        self.turn = [0]
        infos = [WorkerInfo(i, count, seed + i, copy.copy(dataset) if copied else dataset) for i in range(count)]
        self.workers = [Worker(info, self.turn, begin) for info in infos]

    def begin_pass(self) -> Pass:
        """A pass; one that still goes on is ended, and what is under way for it forgotten."""
        self.turn[0] += 1
        return Pass(self)

    def close(self) -> None:
        self.turn[0] += 1
        for worker in self.workers:
            worker.tasks.put(_End)
        for worker in self.workers:
            worker.thread.join(GRACE)


class Pass:
    """What the workers do in one pass."""

    def __init__(self, workers: Workers) -> None:
        self.turn, self.timeout, self.limit = workers.turn, workers.timeout, workers.limit
        self.workers = workers.workers
        self.number = self.turn[0]
        self.contexts = [context_of(worker.info) for worker in self.workers]

    def send(self, worker: int, work: Callable[[Any], Any], task: Any = None) -> None:
        self.workers[worker].tasks.put((self.number, self.contexts[worker], work, task))

    def receive(self, worker: int) -> Any:
        """The next result of a worker; an error in its place is raised."""
        number = None
        while number not in (self.number, ANY):
            if self.turn[0] != self.number:
                raise RuntimeError(
                    "this pass of the DataLoader was ended by a newer one: persistent workers serve one at a time. Use "
                    "another DataLoader for a loop inside a loop."
                )
            try:
                number, result = self.workers[worker].results.get(timeout=self.timeout or None)
            except queue.Empty:
                raise RuntimeError(
                    f"DataLoader timed out after {self.timeout} seconds: worker {worker} has not finished a batch. "
                    "Give it more time (timeout=), or find out what the dataset waits for."
                ) from None
        if isinstance(result, _Failure):
            try:
                raise result.error
            finally:
                del result  # the error's traceback holds this frame, and must not be held by it
        return result

    def in_order(self, work: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[Any]:
        """`map(work, tasks)`, ahead of time."""
        sent, received, more = 0, 0, True
        while True:
            while more and sent - received < self.limit:
                task = next(tasks, _End)
                more = task is not _End
                if more:
                    self.send(sent % len(self.workers), work, task)
                    sent += 1
            if received == sent:
                return
            received += 1
            yield self.receive((received - 1) % len(self.workers))

    def in_turn(self, source: Callable[[Any], Callable[[Any], Any]], end: Any) -> Iterator[Any]:
        """The results of one source for each worker, each up to `end`; the workers take turns.

        Whether a dataset shares its examples among workers, it alone knows. If it asks for its worker's number (when it
        starts, or in worker_init_fn), all of them read; if it does not, only one does, so that no example comes twice.
        """
        sources = [source(worker.info.dataset) for worker in self.workers]
        self.send(0, sources[0])
        first = self.receive(0)
        live = self.readers()
        if first is end:
            live.remove(0)
        else:
            yield first
        del first
        waiting: deque[int] = deque()
        place = 1
        while True:
            while live and len(waiting) < self.limit:
                waiting.append(live[place % len(live)])
                self.send(waiting[-1], sources[waiting[-1]])
                place += 1
            if not waiting:
                return
            worker = waiting.popleft()
            found = self.receive(worker)
            if found is not end:
                yield found
            elif worker in live:
                live.remove(worker)
            del found

    def readers(self) -> list[int]:
        """The workers that read, after the first has begun."""
        infos = [worker.info for worker in self.workers]
        if any([info._was_asked for info in infos]):
            return list(range(len(infos)))
        infos[0]._num_workers = 1  # in case the dataset asks later
        return [0]
