"""InputBuffer: the gradients arriving at a node, one slot per output of the operation it stands for.

The first gradient of a slot is kept as it is, so it may belong to somebody else and is never changed; the second makes
a sum of the buffer's own, into which the rest are added in place (out of place when the pass is recorded).

A gradient may be sparse. Two sparse ones make a sparse sum, which is never added to in place: the next one may be
dense, and then so is the sum. A sparse one is added to a dense sum in place.

Note [Device order]: a gradient may come from another stream, or another device, than its receiver works on. It is kept
and added on the stream that `accumulation_stream` names, after that has waited for the streams named with it:

(1) It is on a device without streams. Nothing to do.
(2) Producer, receiver and gradient are on one device: the receiver's stream, after the producer's.
(3) It shares a device with the receiver, not with the producer: the receiver's stream, after the default stream of
    that device. (A copy between devices arrives on the receiving device's current stream, which in a worker thread is
    the default one for every device but that of the node it runs.)
(4) It shares a device with the producer, not with the receiver: that device's default stream, after the producer's.
(5) It shares a device with neither: the default stream of its own device.

In (3) and (5) the producer's stream is waited for too, so that a Function which works on streams of its own need only
see to it that the stream it was called on has waited for them. No wait comes before it must: a first gradient is just
kept, and the wait follows when a second is added to it, or when the receiver is about to run. Meanwhile another
producer may use the receiver's stream.
"""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.backend.sparse.coo import AnySparse
from undertow.backend.streams import stream
from undertow.engine.validate import space_of_gradient


class InputBuffer:
    __slots__ = ("owned", "slots")

    def __init__(self, size: int) -> None:
        self.slots: list[Any] = [None] * size
        self.owned = [False] * size

    def add(self, nr: int, grad: Array | None, xp: Namespace, in_place: bool) -> None:
        """Add a gradient (None: nothing flowed, nothing changes) to slot `nr`."""
        if grad is None:
            return
        old = self.slots[nr]
        if old is None:
            self.slots[nr] = grad
        elif in_place and self.owned[nr]:
            xp.add(old, grad, out=old)
        else:
            self.slots[nr] = total = xp.add(old, grad)
            if in_place:
                self.slots[nr] = xp.asarray(total)
                self.owned[nr] = not isinstance(total, AnySparse)

    def received(self) -> list[Any] | None:
        """The gradients, or None when nothing flowed into any slot."""
        return self.slots if any(g is not None for g in self.slots) else None

    def space(self, default: Namespace) -> Namespace:
        """The namespace of the first gradient that is not on the CPU: its device's thread runs the node."""
        for grad in self.slots:
            if grad is not None and space_of_gradient(grad) is not default:
                return space_of_gradient(grad)
        return default


class DeviceInputBuffer(InputBuffer):
    """An InputBuffer whose gradients may come from several devices and threads, in any order.

    xp       the namespace of a recorded pass, whose gradients are Tensors; None otherwise
    pending  None, or (in a deterministic pass) what has come: it is summed when the last is there, in one order
    """

    __slots__ = ("awaited", "pending", "xp")

    def __init__(self, size: int, xp: Namespace | None, deterministic: bool) -> None:
        super().__init__(size)
        self.xp = xp
        self.pending: list[Any] | None = [] if deterministic else None
        self.awaited: list[tuple[Any, Any]] = []  # (stream, the event it has to wait for)

    def take(self, nr: int, grad: Array, producer: Any, consumer: Any, order: tuple[int, int]) -> None:
        """Add a gradient made on the stream `producer`, for a node that runs on the stream `consumer`.

        order   tells the gradients of a slot apart, whoever comes first
        """
        if grad is None:
            return
        where, before = accumulation_stream(space_of_gradient(grad), producer, consumer)
        self.awaited += [(where, other.record_event()) for other in before]
        if where is not None and where is not producer:
            where.keep(grad if self.xp is None else grad._array)  # whose memory belongs to another stream
        if self.pending is None:
            self._add_on(where, nr, grad)
        else:
            self.pending.append((order, where, nr, grad))

    def _add_on(self, where: Any, nr: int, grad: Array) -> None:
        if self.slots[nr] is not None:
            self._wait()
        with stream(where):
            self.add(nr, grad, self.xp or space_of_gradient(grad), in_place=self.xp is None)

    def _wait(self) -> None:
        awaited, self.awaited = self.awaited, []
        for where, event in awaited:
            where.wait_event(event)

    def settle(self) -> None:
        """Everything is there: sum up what was held back, latest recorded producer first, and wait for the rest."""
        pending, self.pending = self.pending or (), None
        for _, where, nr, grad in sorted(pending, key=lambda entry: entry[0]):
            self._add_on(where, nr, grad)
        self._wait()


def accumulation_stream(space: Namespace, producer: Any, consumer: Any) -> tuple[Any, list[Any]]:
    """The stream that deals with a gradient of the device of `space`, and those it must have waited for first.

    See Note [Device order].
    """
    if space.current_stream() is None:
        return None, []  # (1)
    on_producer = producer is not None and producer.namespace is space
    on_consumer = consumer is not None and consumer.namespace is space
    where = consumer if on_consumer else space.default_stream  # (2), (3) or (4), (5)
    before = [] if producer is None else [producer]
    if on_consumer and not on_producer:
        before.append(space.default_stream)  # (3)
    return where, [other for other in before if other is not where]
