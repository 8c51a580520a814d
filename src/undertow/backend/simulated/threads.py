"""The thread of a simulated device, which runs the operations of all its streams.

Guarantees: the operations of a stream run in the order they were given, each after what its stream had been told to
wait for. Among streams, the operation that ends first in simulated time runs first, so that latencies, and thereby the
seed, decide. Threads are daemons, made on first use; an idle one holds nothing.

Assumes: operations are given under LOCK, in which their places are drawn too.

Note [No circular waiting]: an operation's place is above the places of all it needs, and these were given before it. So
of all the operations that have not finished, on all devices, the one with the lowest place can run. A thread whose
first operation cannot run yet looks at its other streams, and listens: what it is given may have to come before.

Note [Collections]: the garbage collector runs in any thread, and with it destructors of the user's, which may wait for
a device, or for a lock whose holder does. A device's thread must not: what they wait for may come after the kernel that
it is just running. So it postpones: for the moment that a collection takes in one, `gc.freeze` hides all objects from
it. They are looked at when another thread collects. (What the user has frozen is not frozen any more then, which costs
time, nothing else.) The collector calls `_postpone` before it has looked at any list of objects, and after it has put
them all back, and no second collection starts meanwhile: so the lists may be moved there.

At interpreter exit the threads finish what they were given and end; after that, the thread that launches an operation
runs it. A fork waits until all devices are idle, so that the child finds memory in order, and starts new threads.
"""

from __future__ import annotations

import atexit
import gc
import threading
import time
from heapq import heapify, heappop, heappush
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from undertow.backend.simulated.clocks import LOCK
from undertow.backend.simulated.operations import Operation
from undertow.backend.simulated.streams import next_number
from undertow.scopes import at_fork, held

#: how long interpreter exit waits for a device
PATIENCE_AT_EXIT = 2.0

_END = object()


class DeviceThread:
    """What runs the operations of one device.

    space   the namespace of the device, whose `late_failure` is set to what goes wrong
    """

    #: those of all devices there are
    every: ClassVar[list[DeviceThread]] = []
    #: the idents of the threads
    idents: ClassVar[set[int]] = set()
    #: (place, operation, device) of what no thread will run; LOCK guards it
    left: ClassVar[list[tuple[Any, Operation, DeviceThread]]] = []
    #: whether the interpreter is about to exit
    closing: ClassVar[bool] = False

    def __init__(self, space: Any) -> None:
        self.space = space
        self.every.append(self)
        self.forget_thread()

    def forget_thread(self) -> None:
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._heap: list[tuple[tuple[float, int], Operation]] = []  # only for the thread that runs them
        self._given = False  # whether it was ever given an operation
        self._turn = threading.Lock()  # taken by the thread that runs them, for good
        self._thread: threading.Thread | None = None
        self._errors: Any = None
        self._ending = False

    def give(self, operation: Operation) -> None:
        """Have an operation run. The caller holds LOCK."""
        self._given = True
        self._inbox.put(operation)
        if self._thread is None:
            self._start()

    def wait_for_all(self) -> None:
        """Wait for everything that was given so far."""
        with held(LOCK):
            if not self._given:
                return
            last = Operation(None, "synchronize")
            last.place = (self.space.busy_until, next_number())
            self.give(last)
        last.wait()

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._main, args=(self._turn,), name=f"kernels of {self.space.device}", daemon=True
        )
        try:
            if self.closing:
                raise RuntimeError("the interpreter is shutting down")
            if _postpone not in gc.callbacks:
                gc.callbacks.append(_postpone)
            thread.start()
        except RuntimeError:
            self.run_left()
        else:
            self._thread = self._thread or thread

    @classmethod
    def run_left(cls) -> None:
        """Run in this thread what nobody else will run, the lowest place first: Note [No circular waiting].

        The caller holds LOCK. What waits for a thread that still lives is looked at again, with what that leaves.
        """
        with np.errstate():
            cls._run_while_found()  # Note [Loops in blocks]

    @classmethod
    def _run_while_found(cls) -> None:
        while cls._find_left():
            first = cls.left[0]
            _, operation, device = first
            if all([other.wait_a_moment() for other in operation.needs]) and cls.left[:1] == [first]:
                heappop(cls.left)
                device._errors = None
                device._run(operation)

    @classmethod
    def _find_left(cls) -> bool:
        """Take what is left out of the inboxes of all devices that no thread serves; whether there is anything."""
        for device in cls.every:
            while device._inbox.qsize() and not device._is_served():
                operation = device._inbox.get()
                if isinstance(operation, Operation):
                    heappush(cls.left, (operation.place, operation, device))
        return bool(cls.left)

    def _is_served(self) -> bool:
        return self._turn.locked() if self._thread is None else self._thread.is_alive()

    # ---- in the thread

    def _main(self, turn: Any) -> None:
        if not turn.acquire(blocking=False):
            return  # an interrupt in `_start` let somebody start a second thread
        self._thread = threading.current_thread()
        self.idents.add(threading.get_ident())
        going = True
        while going:
            try:
                going = self._run_next()
            except BaseException as error:  # thrown in from outside, between two operations
                self._fail(error)
        self.idents.discard(threading.get_ident())

    def _run_next(self) -> bool:
        """Run the operation whose turn it is, or wait for a change; whether to go on."""
        while self._inbox.qsize():
            self._take_in(self._inbox.get())
        operation = self._pop()
        if operation is not None:
            self._run(operation)
        elif self._heap or not self._ending:
            self._take_in(self._inbox.get())
        else:
            return False
        return True

    def _pop(self) -> Operation | None:
        """Take out the first operation that may run; None if there is none."""
        heap = self._heap
        if not heap or heap[0][1].may_run(self._inbox):
            return heappop(heap)[1] if heap else None
        blocked = {heap[0][1].stream}
        for entry in sorted(heap)[1:]:
            operation = entry[1]
            if operation.stream is None:
                break  # it waits for all before it
            if operation.stream not in blocked and operation.may_run(self._inbox):
                heap.remove(entry)
                heapify(heap)
                return operation
            blocked.add(operation.stream)
        return None

    def _take_in(self, item: Any) -> None:
        if isinstance(item, Operation):
            heappush(self._heap, (item.place, item))
        elif item is _END:
            self._ending = True

    def _run(self, operation: Operation) -> None:
        try:
            if operation.errors is not None and operation.errors != self._errors:
                np.seterr(**operation.errors)
                self._errors = operation.errors
            if operation.deadline:
                time.sleep(max(0.0, operation.deadline - time.monotonic()))
            failure = operation.run()
            if failure is not None:
                self._fail(failure)
        finally:
            operation.finish()

    def _fail(self, error: BaseException) -> None:
        if self.space.late_failure is None:
            self.space.late_failure = error


def _postpone(phase: str, info: dict[str, Any]) -> None:
    """See Note [Collections]."""
    if threading.get_ident() in DeviceThread.idents:
        (gc.freeze if phase == "start" else gc.unfreeze)()


# ---- exit and fork


def end_threads() -> None:
    """Let all devices finish what they were given; launching threads run the rest themselves."""
    with held(LOCK):
        DeviceThread.closing = True
        threads = [(device, device._thread) for device in DeviceThread.every if device._thread is not None]
        for device, _ in threads:
            device._inbox.put(_END)
    for device, thread in threads:
        thread.join(PATIENCE_AT_EXIT)
        if not thread.is_alive():
            with held(LOCK):
                DeviceThread.run_left()  # what came too late
                device.forget_thread()
    if _postpone in gc.callbacks:
        gc.callbacks.remove(_postpone)


def before_fork() -> None:
    LOCK.acquire()
    for device in DeviceThread.every:
        device.wait_for_all()


def after_fork_in_child() -> None:
    DeviceThread.idents.clear()
    DeviceThread.left.clear()
    for device in DeviceThread.every:
        device.forget_thread()
    LOCK.release()


atexit.register(end_threads)
at_fork(before=before_fork, after_in_parent=LOCK.release, after_in_child=after_fork_in_child)
