"""What happened before what: the order that streams, events and synchronisation give to simulated work.

Every stream counts its operations. A clock says, for every stream, how many of its operations are known to be done
before a point; waiting takes the larger of two clocks, entry by entry (a vector clock). A buffer remembers the
operation that wrote it last and those that have read it since. An operation may read a buffer only if its stream's
clock covers the write, and may write it only if that covers the reads too: otherwise nothing on a real device would
order them, and StreamOrderError says so: at once, when the operation is launched, whenever it may run.

The host has one clock for all threads: a thread that synchronises a stream has really waited, whoever else looks.
"""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Namespace
from undertow.backend.simulated.operations import Operation
from undertow.scopes import common_lock

Clock = dict[int, int]


class StreamOrderError(RuntimeError):
    """An operation touched memory that work on another stream has not been waited for.

    operation, stream   what was about to run, and where
    other, other_stream what it had to wait for, and where that ran
    hazard              "read of unfinished write", "write over unfinished read" or "write over unfinished write"

    other_stream  where that ran

    >>> import undertow as ut
    >>> issubclass(ut.sim.StreamOrderError, RuntimeError)
    True
    """

    def __init__(self, hazard: str, operation: str, stream: Any, other: str, other_stream: Any) -> None:
        self.hazard, self.operation, self.stream = hazard, operation, stream
        self.other, self.other_stream = other, other_stream
        done = "wrote" if hazard.endswith("write") else "read"
        does = "reads" if hazard.startswith("read") else "writes"
        super().__init__(
            f"{operation} on {stream} {does} memory that {other} {done} on {other_stream}, and nothing says which "
            f"comes first ({hazard}). Let the one wait for the other: stream.wait_stream(other_stream), an Event, or "
            "synchronize()."
        )


#: Guards every clock, every buffer's history, what a stream was given and what it waits for, its time and count, the
#: order in which operations come to their device's thread, and the faults that wait for an operation. No other lock is
#: taken while it is held, and a device's thread never takes it: so one may wait for a device under it, as a fork does.
LOCK = common_lock


def merge(clock: Clock, other: Clock) -> None:
    """Let `clock` know all that `other` knows."""
    for stream, count in other.items():
        if clock.get(stream, 0) < count:
            clock[stream] = count


class Host:
    """What the program itself knows to be done, and its time in seconds."""

    def __init__(self) -> None:
        self.clock: Clock = {}
        self.time = 0.0


HOST = Host()


class Buffer:
    """A stretch of a device's memory, shared by an array and its views.

    written  the operation that wrote it last
    read     stream id -> the last operation on that stream that has read it since
    """

    __slots__ = ("__weakref__", "nbytes", "read", "space", "written")

    def __init__(self, space: Namespace, nbytes: int) -> None:
        self.nbytes = 0
        self.space = space
        space.memory.take(nbytes)
        self.nbytes = nbytes
        self.written: Operation | None = None
        self.read: dict[int, Operation] = {}

    def __del__(self) -> None:
        if getattr(self, "nbytes", 0):  # an interrupt may have come before it was set
            self.space.memory.give_back(self.nbytes)


def order(operation: Operation, reads: list[Buffer], writes: list[Buffer], check: bool) -> None:
    """Put an operation at the end of its stream. StreamOrderError if something it needs may be unfinished.

    The caller holds LOCK. A signal handler or a destructor may come in between two lines, and wait for everything that
    the stream was given: so an operation is given to its device before the stream, or a buffer, names it.
    """
    stream = operation.stream
    merge(stream.clock, HOST.clock)
    if check:
        for buffer in reads:
            refuse_if_unknown("read of unfinished write", operation, buffer.written)
        for buffer in writes:
            refuse_if_unknown("write over unfinished write", operation, buffer.written)
            for access in buffer.read.values():
                refuse_if_unknown("write over unfinished read", operation, access)
    waits = stream.advance(operation)
    operation.sources = [buffer.written for buffer in reads if buffer.written is not None]
    stream.namespace.thread.give(operation)
    stream.follow(operation, waits)
    for buffer in reads:
        buffer.read[stream.id] = operation
    for buffer in writes:
        buffer.written = operation
        buffer.read = {}


def refuse_if_unknown(hazard: str, operation: Operation, other: Operation | None) -> None:
    if other is not None and not other.is_known_to(operation.stream.clock):
        raise StreamOrderError(hazard, operation.name, operation.stream, other.name, other.stream)
