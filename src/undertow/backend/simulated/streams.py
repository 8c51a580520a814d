"""Streams and events of simulated devices."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from undertow.backend.interface import Array, Device, Namespace
from undertow.backend.simulated.clocks import HOST, LOCK, Clock, merge
from undertow.backend.simulated.faults import raise_late_failure
from undertow.backend.simulated.operations import Operation
from undertow.backend.streams import UsedInBlocks, chosen_streams
from undertow.scopes import held

_next_id = count().__next__
#: every operation has a number of its own, higher than those given before it
next_number = count().__next__

#: how much time passes on the host each time it asks whether something is done, so that asking in a loop ends
GLANCE = 1e-6


class Stream(UsedInBlocks):
    """A queue of work of one simulated device: its operations run one after the other, those of others beside them.

    device  "sim:0", ...; more streams of a device are made at will
    time    when the last operation it was given will be done, in simulated seconds

    >>> import undertow as ut
    >>> with ut.sim.Stream("sim:0"):
    ...     x = 2 * ut.ones(2, device="sim:0")
    >>> ut.sim.synchronize("sim:0")
    >>> x
    tensor([2., 2.], device='sim:0')
    """

    def __init__(self, device: Any = None) -> None:
        self._join(namespace_for("sim" if device is None else device))

    @classmethod
    def _of(cls, namespace: Any) -> Stream:
        """The default stream of a device that is being made."""
        stream = cls.__new__(cls)
        stream._join(namespace)
        return stream

    def _join(self, namespace: Any) -> None:
        self.namespace = namespace
        self.device: Device = namespace.device
        self.id = _next_id()
        self.number: int = namespace.count_stream()
        self.count = 0
        self.clock: Clock = {}
        self.time = 0.0
        self.last: Operation | None = None  # the one it was given last
        self.needs: list[Operation] = []  # what it was told to wait for since
        self._deadline = 0.0  # when the last one ends in real time
        from random import Random  # most programs have no such device

        self._random = Random(f"{namespace.options.seed} {self.device} {self.number}")

    def advance(self, operation: Operation) -> int:
        """Count one operation more, and the time it takes; how many it waits for. The caller holds the lock."""
        space, options = self.namespace, self.namespace.options
        latency = self._random.uniform(*options.latency)
        self.count += 1
        self.clock[self.id] = space.work[self.id] = operation.count = self.count
        self.time = max(self.time, HOST.time) + latency
        space.busy_until = max(space.busy_until, self.time)
        operation.place = (self.time, next_number())
        if options.real_time:
            operation.deadline = self._deadline = max(self._deadline, time.monotonic()) + latency
        operation.needs = list(self.needs)
        return len(operation.needs)

    def follow(self, operation: Operation, waits: int) -> None:
        """The operation was given to the device: what comes next follows it. The caller holds the lock.

        waits  what it had to wait for
        """
        self.last = operation
        self.needs = self.needs[waits:]  # those that came meanwhile are for the next

    def unfinished(self) -> list[Operation]:
        """The operations that end all that it was given or told to wait for. The caller holds the lock."""
        return [op for op in (self.last, *self.needs) if op is not None and not op.finished]

    def wait_stream(self, stream: Any) -> None:
        """Let everything given to this stream from now on wait for everything given to the other one so far."""
        self.wait_event(stream.record_event())

    def wait_event(self, event: Event) -> None:
        """Let everything given to this stream from now on wait for the event."""
        with held(LOCK):
            merge(self.clock, event.clock)
            self.time = max(self.time, event.time)
            self.needs += [op for op in event.operations if not op.finished and op.stream is not self]

    def record_event(self, event: Event | None = None) -> Event:
        """Mark this point of the stream in an event (a new one if none is given)."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def keep(self, array: Array) -> None:
        """Nothing: memory of a simulated device lives as long as operations that use it.

        array  an array of the device
        """

    def synchronize(self) -> None:
        """Let the program wait until everything given to this stream is done."""
        self.record_event().synchronize()

    def query(self) -> bool:
        """Whether everything given to this stream is done."""
        return self.record_event().query()

    def __repr__(self) -> str:
        return f"stream {self.number} of {self.device}" if self.number else f"default stream of {self.device}"


class Event:
    """A point in the work of a stream, for other streams or the program to wait for.

    enable_timing  whether `elapsed_time` may be asked for

    >>> import undertow as ut
    >>> event = ut.sim.Event()
    >>> event.record(ut.sim.default_stream("sim:0"))
    >>> event.synchronize()
    >>> event.query()
    True
    """

    def __init__(self, enable_timing: bool = False) -> None:
        self.clock: Clock = {}
        self.time = 0.0
        self.stream: Any = None  # the one it was last recorded on
        self.operations: list[Operation] = []  # what has to finish before it

    def record(self, stream: Any = None) -> None:
        """Mark the present end of a stream (default: the current one of sim:0)."""
        stream = current_stream() if stream is None else stream
        with held(LOCK):
            self.clock, self.time, self.stream = dict(stream.clock), max(stream.time, HOST.time), stream
            self.operations = stream.unfinished()

    def wait(self, stream: Any = None) -> None:
        """Let a stream wait for this event."""
        (current_stream() if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        """Let the program wait for this event."""
        self._wait()
        if self.stream is not None:
            raise_late_failure(self.stream.namespace)

    def _wait(self) -> None:
        operations, clock, time = self.operations, self.clock, self.time  # it may be recorded again meanwhile
        for operation in operations:
            operation.wait()
        with held(LOCK):
            merge(HOST.clock, clock)
            HOST.time = max(HOST.time, time)

    def query(self) -> bool:
        """Whether the event has happened. To ask takes a moment, so a loop that asks comes to an end."""
        with held(LOCK):
            HOST.time += GLANCE
            done = HOST.time >= self.time
        if done:
            self._wait()  # simulated time has come to it, real time may not have
        return done

    def elapsed_time(self, end: Event) -> float:
        """Simulated milliseconds between this event and a later one.

        end  the later one
        """
        if self.stream is None or end.stream is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end.time - self.time) * 1000


def current_stream(device: Device | str | int | None = None) -> Stream:
    """The stream that this thread's work on a device goes to.

    >>> import undertow as ut
    >>> ut.sim.current_stream("sim:0") == ut.sim.default_stream("sim:0")
    True
    """
    found: Stream = namespace_for("sim" if device is None else device).current_stream()
    return found


def chosen_or_default(namespace: Namespace) -> Stream:
    found: Stream = chosen_streams().get(namespace.device, namespace.default_stream)
    return found


def namespace_for(device: Device | str | int) -> Any:
    """Set by simulated/__init__.py: the namespace of a device."""
    raise NotImplementedError("the simulated devices are not loaded")


def install_namespaces(function: Callable[[Any], Any]) -> None:
    global namespace_for
    namespace_for = function  # type: ignore[assignment]
