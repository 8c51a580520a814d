"""Agent: the messages of a process to and from the others, over MPI.

One thread of the agent, the listener, asks MPI for messages. When a request has come that may take long, it leaves its
place to another thread and serves the request itself: nothing is handed over on the way of a message, and no number of
requests that wait for each other can leave the agent deaf.

Guarantees: messages from one process to another are heard in the order in which they were posted. Handlers that are
registered as quick run on the listener, in that order, and wait for nothing.
"""

from __future__ import annotations

import collections
import itertools
import re
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from undertow.backend import cpu
from undertow.backend.dtypes import uint8
from undertow.distributed.workers.doorbell import Doorbell
from undertow.distributed.workers.future import Future
from undertow.distributed.workers.values import Written, read, travels, written
from undertow.scopes import held

if TYPE_CHECKING:
    from undertow.tensor import Tensor

#: tags of messages: the tree with small memory behind it; large memory
HEAD, BODY = 1, 2
#: from this many bytes on, the memory of tensors is sent as it lies, behind the message
LARGE = 64 * 1024
#: where memory begins inside of a message
ALIGNED = 16
FACTS = struct.Struct(
    "=BqqqQI"
)  # whether memory follows, the call, the context and its message, bytes of the tree, arrays
SIZE = struct.Struct("=Q")
#: names of processes are shorter
LONGEST_NAME = 128
#: how often MPI is asked for a message before the listener sleeps
ASKS = 3
#: seconds between two looks at calls that have taken too long
LOOKS_EVERY = 0.02


class NameAndNumber(NamedTuple):
    name: str
    id: int


class WorkerInfo(NameAndNumber):
    """A process that can be called: its name, and its number (which is its rank).

    id  its rank

    Example: `rpc.WorkerInfo("worker1", 1)`
    """

    __slots__ = ()

    def __new__(cls, name: str, id: int) -> WorkerInfo:
        if not name or len(name) >= LONGEST_NAME:
            raise RuntimeError(f"Worker name must be non-empty, and shorter than {LONGEST_NAME} characters: {name!r}")
        if re.fullmatch("[A-Za-z0-9_:-]+", name) is None:
            raise RuntimeError(f"Worker name must match ^[A-Za-z0-9-_:]*$, and this one does not: {name!r}")
        return super().__new__(cls, name, id)

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


def worker_info(name: str, number: int) -> WorkerInfo:
    return WorkerInfo(str(name), int(number))


travels(WorkerInfo, tuple, worker_info)


class Handler(NamedTuple):
    """What answers messages of one kind: `function(agent, arrived)`, which may return a Future.

    first  what the listener does with the message before another thread does the rest
    """

    function: Callable[[Agent, Arrived], Any]
    is_quick: bool
    first: Callable[[Arrived], None] | None


#: kind -> its handler
HANDLERS: dict[str, Handler] = {}


def handles(
    kind: str, quick: bool = False, first: Callable[[Arrived], None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function answer messages of a kind."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        HANDLERS[kind] = Handler(function, quick, first)
        return function

    return register


class Call(NamedTuple):
    """A call that has not been answered."""

    future: Future
    until: float
    limit: float
    to: int
    what: str


class Arrived(NamedTuple):
    """A message that has come: who sent it, the number of the call, the autograd context, its kind and its value."""

    source: int
    call: int
    context: int
    kind: str
    value: Any


class History(Protocol):
    """What an autograd context notes of tensors that travel."""

    def sent(self, context: int, tensors: list[Tensor], to: int) -> int:
        """The number of the message, by which the gradients of its tensors will find their way back."""

    def received(self, context: int, message: int, tensors: list[Tensor], source: int) -> None:
        """Give tensors that have come their history."""


def parts_of(raw: bytearray, at: int, sizes: list[int]) -> list[Any]:
    """The memory of tensors behind the tree of a message."""
    found = []
    for size in sizes:
        at += -at % ALIGNED
        found.append(memoryview(raw)[at : at + size])
        at += size
    return found


class RemoteError(RuntimeError):
    """What could not be done in another process, in words; its own type is not known here.

    >>> from undertow.distributed import rpc
    >>> issubclass(rpc.RemoteError, RuntimeError)
    True
    """


class CallTimeoutError(RuntimeError):
    """Another process has not answered within the limit of time."""


class Agent:
    """Sends messages and answers those that come.

    workers   all processes, by rank
    timeout   seconds that a call may take, if it does not say
    threads   how many requests are served at the same time
    history   what is noted of tensors that travel
    """

    def __init__(
        self, mpi: Any, comm: Any, name: str, timeout: float, threads: int, allow_pickle: bool, history: History
    ) -> None:
        self.mpi, self.comm, self.rank, self.history = mpi, comm, int(comm.rank), history
        self.timeout, self.limit_of_threads, self.allow_pickle = timeout, threads, allow_pickle
        self.workers: list[WorkerInfo] = []
        self.me = WorkerInfo(name, self.rank)
        self.bell = Doorbell()
        self.numbers = itertools.count(1)
        self.calls: dict[int, Call] = {}
        self.turn = threading.Lock()  # held by the listener; nobody else asks MPI for messages
        self.posting = threading.RLock()  # guards under_way and posted, and keeps the parts of a message together
        self.under_way: collections.deque[tuple[Any, Any]] = collections.deque()
        self.posted = 0
        self.heard = 0  # changed by the listener alone
        self.counts = threading.Lock()  # guards idle, serving and backlog
        self.idle = self.serving = 0
        self.backlog: collections.deque[Callable[[], None]] = collections.deque()
        self.dropped: collections.deque[Callable[[], None]] = collections.deque()  # from destructors: see drop
        self.stopped = False
        self.threads: list[threading.Thread] = []

    def get_worker_infos(self) -> list[WorkerInfo]:
        """All processes, by rank."""
        return list(self.workers)

    # ---- sending

    def post(self, to: int, kind: str, value: Any, call: int = 0, context: int = 0) -> None:
        """Send a message that is not answered, or answers one.

        context  the autograd context that its tensors belong to; 0: none
        """
        if self.stopped:
            raise RuntimeError("RPC has been shut down in this process: no message can be sent any more")
        message = written((kind, value), self.allow_pickle)
        if kind == "answer" and not any([tensor.requires_grad for tensor in message.tensors]):
            context = 0  # it might come after the end of the context
        number = self.history.sent(context, message.tensors, to) if context else 0
        self.send(to, message, call, context, number)

    def send(self, to: int, message: Written, call: int, context: int, number: int) -> None:
        sizes = [array.nbytes for array in message.arrays]
        follows = sum(sizes) > LARGE
        facts = FACTS.pack(follows, call, context, number, len(message.tree), len(sizes))
        head = bytearray(b"".join([facts, *map(SIZE.pack, sizes), message.tree]))
        if not follows:
            for array in message.arrays:
                head += bytes(-len(head) % ALIGNED) + array.tobytes()
        with held(self.posting):
            self.under_way.append((self.comm.Isend([head, self.mpi.BYTE], to, HEAD), head))
            if follows:
                for array in message.arrays:
                    raw = array.reshape(-1).view(uint8)
                    self.under_way.append((self.comm.Isend([raw, self.mpi.BYTE], to, BODY), array))
            self.posted += 1
            is_out = self.under_way[-1][0].Test()
        self.bell.ring(to)
        if not is_out:
            self.bell.ring(self.rank)  # for the listener to see to it

    def call(
        self, to: int, kind: str, value: Any, timeout: float | None = None, context: int = 0, what: str = ""
    ) -> Future:
        """Send a message that is answered: the future of the answer.

        timeout  seconds; 0: no limit; None: the agent's
        what     says in errors what was asked for
        """
        limit = self.timeout if timeout is None or timeout < 0 else timeout
        number, future = next(self.numbers), Future()
        until = time.monotonic() + limit if limit else float("inf")
        self.calls[number] = Call(future, until, limit, to, what or kind)
        try:
            self.post(to, kind, value, number, context)
        except BaseException:
            self.calls.pop(number, None)
            raise
        return future

    def drop(self, action: Callable[[], None]) -> None:
        """Do something that posts, from a destructor: later, on the listener, because this thread may hold any lock."""
        self.dropped.append(action)

    # ---- listening

    def start(self) -> None:
        self.add_thread()

    def add_thread(self) -> None:
        thread = threading.Thread(target=self.work, name="undertow-rpc", daemon=True)
        self.threads.append(thread)
        thread.start()

    def work(self) -> None:
        """Listen, when it is this thread's turn, until there is something to serve; serve it; again."""
        while not self.stopped:
            with held(self.counts):
                self.idle += 1
            self.turn.acquire()
            with held(self.counts):
                self.idle -= 1
            try:
                job = self.next_job()
            finally:
                self.turn.release()
            while job is not None:
                job()
                del job
                with held(self.counts):
                    job = self.backlog.popleft() if self.backlog else None
                    self.serving -= job is None

    def next_job(self) -> Callable[[], None] | None:
        job = None
        while job is None and not self.stopped:
            job = self.listen()
        return job

    def listen(self) -> Callable[[], None] | None:
        """Hear one message; something to do outside of the listener's place, or None."""
        arrived = self.hear()
        if arrived is None:
            return None
        job = self.settle(arrived) if arrived.kind in ("answer", "error") else self.accept(arrived)
        return None if job is None else self.give_way(job)

    def give_way(self, job: Callable[[], None]) -> Callable[[], None] | None:
        """Let this thread do the job, and another one listen; if too many serve already, the job waits."""
        with held(self.counts):
            if self.serving >= self.limit_of_threads:
                self.backlog.append(job)
                return None
            self.serving += 1
            alone = not self.idle
        if alone:
            self.add_thread()
        return job

    def hear(self) -> Arrived | None:
        """The next message; None when the agent stops."""
        status, quiet, looked = self.mpi.Status(), 0, time.monotonic()
        while not self.stopped:
            message = self.comm.Improbe(self.mpi.ANY_SOURCE, HEAD, status)
            if message is not None:
                return self.received(message, status)
            quiet += 1
            if quiet >= ASKS:
                self.tidy()
                if time.monotonic() - looked > LOOKS_EVERY:
                    looked = time.monotonic()
                    self.give_up_calls(looked)
            if quiet > ASKS and self.bell.wait(soon=bool(self.under_way)):
                quiet = 0
        return None

    def received(self, message: Any, status: Any) -> Arrived:
        """Read a message, with the memory that follows it."""
        source = int(status.Get_source())
        raw = bytearray(status.Get_count(self.mpi.BYTE))
        message.Recv([raw, self.mpi.BYTE])
        follows, call, context, number, length, count = FACTS.unpack_from(raw)
        at = FACTS.size + count * SIZE.size
        sizes = [SIZE.unpack_from(raw, FACTS.size + k * SIZE.size)[0] for k in range(count)]
        tree = bytes(raw[at : at + length])
        arrays = self.memory(source, sizes) if follows else parts_of(raw, at + length, sizes)
        self.heard += 1
        try:
            (kind, value), tensors = read(tree, arrays, self.allow_pickle)
            if context:
                self.history.received(context, number, tensors, source)
        except Exception as error:
            return Arrived(source, call, context, "unreadable", error)
        return Arrived(source, call, context, kind, value)

    def memory(self, source: int, sizes: list[int]) -> list[Any]:
        found = []
        for size in sizes:
            part = cpu.empty(size, dtype=uint8)
            self.comm.Recv([part, self.mpi.BYTE], source, BODY)
            found.append(part)
        return found

    def tidy(self) -> None:
        """Forget messages that have gone out, and send what destructors have left."""
        while self.dropped:
            self.dropped.popleft()()
        with held(self.posting):
            self.forget_sent()

    def forget_sent(self) -> None:
        while self.under_way and self.under_way[0][0].Test():
            self.under_way.popleft()

    def give_up_calls(self, now: float) -> None:
        for number, call in list(self.calls.items()):
            if now > call.until and self.calls.pop(number, None) is not None:
                error = self.too_late(call)
                # on a thread of its own: callbacks may wait for other calls
                threading.Thread(target=call.future.set_exception, args=(error,), daemon=True).start()

    def too_late(self, call: Call) -> RuntimeError:
        return CallTimeoutError(
            f"RPC ran for more than set timeout ({call.limit * 1000:.0f} ms) and will now be marked with an error: "
            f"{self.workers[call.to]} has not answered {call.what}"
        )

    # ---- answers

    def settle(self, arrived: Arrived) -> Callable[[], None] | None:
        call = self.calls.pop(arrived.call, None)
        if call is None:
            return None  # it was given up
        is_late = time.monotonic() > call.until  # also where this process was too busy to give it up

        def finish() -> None:
            if is_late:
                call.future.set_exception(self.too_late(call))
            elif arrived.kind == "answer":
                call.future.set_result(arrived.value)
            else:
                call.future.set_exception(rebuilt(arrived.value))

        if call.future.has_slow_callbacks:
            return finish
        finish()
        return None

    # ---- requests

    def accept(self, arrived: Arrived) -> Callable[[], None] | None:
        if arrived.kind == "unreadable":
            self.answer_error(arrived, arrived.value)
            return None
        handler = HANDLERS[arrived.kind]
        if handler.is_quick:
            self.serve(handler, arrived)
            return None
        if handler.first is not None:
            handler.first(arrived)
        return lambda: self.serve(handler, arrived)

    def serve(self, handler: Handler, arrived: Arrived) -> None:
        try:
            result = handler.function(self, arrived)
            if isinstance(result, Future):
                result.when_done(lambda future: self.answer_with(arrived, future))
            else:
                self.answer(arrived, result)
        except BaseException as error:
            self.answer_error(arrived, error)

    def answer_with(self, arrived: Arrived, future: Future) -> None:
        try:
            self.answer(arrived, future.value())
        except BaseException as error:
            self.answer_error(arrived, error)

    def answer(self, arrived: Arrived, result: Any) -> None:
        if arrived.call:
            self.post(arrived.source, "answer", result, arrived.call, arrived.context)

    def answer_error(self, arrived: Arrived, error: BaseException) -> None:
        if self.stopped:
            return
        if arrived.call:
            self.post(arrived.source, "error", described(self.me, error), arrived.call)
        else:
            print(f"{self.me}: a message of {self.workers[arrived.source]} failed", file=sys.stderr)
            traceback.print_exception(error)

    # ---- the end

    def stop(self) -> None:
        """Hear nothing any more. What was not answered is an error."""
        self.stopped = True
        self.bell.ring(self.rank)
        for thread in self.threads:
            if thread is not threading.current_thread() and not self.serving:
                thread.join(5)
        self.bell.close()
        for number in list(self.calls):
            call = self.calls.pop(number, None)
            if call is not None:
                call.future.set_exception(RuntimeError(f"RPC was shut down before {call.what} was answered"))


# ---- errors that travel


def described(worker: WorkerInfo, error: BaseException) -> tuple[str, str, str]:
    """An error as it travels: where its type is found, and its text: where it happened, and the traceback with notes.

    An error that `says_where` has a text that needs nothing added.
    """
    kind = type(error)
    if getattr(error, "says_where", False):
        return kind.__module__, kind.__qualname__, str(error)
    frames = "".join(traceback.format_exception(error))
    return kind.__module__, kind.__qualname__, f"On {worker}:\n{error!r}\n{frames}"


def rebuilt(facts: tuple[str, str, str]) -> BaseException:
    """An error of another process, of the type it had there where that is known here."""
    module, name, whole = facts
    kind = getattr(sys.modules.get(module), name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(whole)
        except Exception:
            pass
    return RemoteError(f"{module}.{name} cannot be made here. Original exception on remote side was: {whole}")


# ---- the agent of this process

_agent: Agent | None = None


def current_agent() -> Agent:
    if _agent is None:
        raise RuntimeError(
            "RPC has not been initialized. Call undertow.distributed.rpc.init_rpc first. (Current RPC agent is not set!"
            " Did you initialize the RPC framework?)"
        )
    return _agent


def set_agent(agent: Agent | None) -> None:
    global _agent
    _agent = agent


def has_agent() -> bool:
    return _agent is not None
