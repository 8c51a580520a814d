"""Streams and events of GPUs.

The work of a stream runs in order, that of two streams in any order, unless one waits for the other. A device has a
default stream and up to 31 more; a program that makes more of them gets one that it has had before, as in PyTorch.
A stream is one object, however often it is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from itertools import count
from typing import Any

from undertow.backend.cuda import device as gpus
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.interface import Array, Device
from undertow.backend.sparse.protocol import AnySparse
from undertow.backend.streams import UsedInBlocks, chosen_streams
from undertow.backend.streams import chosen_variable as chosen_variable

#: how many streams a device has beside its default one, by their priority
MOST_STREAMS = {0: 19, -1: 4, -2: 4, -3: 4}

#: the scopes of streams that this thread has entered as `with stream:`, innermost first

DEFAULT, OWN, FOREIGN = 0, 1, 2  # the kinds of streams that the extension makes

#: number of a stream -> the stream; and for each device and priority, those that were made, and whose turn it is next
_streams: dict[int, Stream] = {}
_made: dict[tuple[int, int], list[Stream]] = {}
_turns = count()


def index_of(device: Device | str | int | None) -> int:
    """The number of a GPU that a program names; None and "cuda" are the current one."""
    if isinstance(device, int):
        return device
    asked = None if device is None else Device(device)
    if asked is not None and asked.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {asked}")
    return gpus.current() if asked is None or asked.index is None else asked.index


def _namespace(index: int) -> Any:
    from undertow.backend.cuda import namespace  # a program may ask for a stream before anything else

    return namespace(Device("cuda", index))


class Stream(UsedInBlocks):
    """A queue of work of one GPU: `Stream()`, `Stream("cuda:1")`, `Stream(priority=-1)`, which goes before others.

    **ignored  accepted, without effect

    >>> import undertow as ut
    >>> if ut.cuda.is_available():
    ...     side = ut.cuda.Stream()
    ...     side.wait_stream(ut.cuda.current_stream())
    ...     with ut.cuda.stream(side):
    ...         x = ut.ones(3, device="cuda") * 2
    ...     ut.cuda.current_stream().wait_stream(side)
    """

    number: int
    namespace: Any
    device: Device
    priority: int
    #: whether nodes that ran on it and have nothing else to remember share one extra; graph/node.py keeps it here
    shares_extra = False
    extra_of_nodes: Any = None

    def __new__(cls, device: Device | str | int | None = None, priority: int = 0, **ignored: Any) -> Stream:
        index = index_of(device)
        _namespace(index)  # the device is made ready
        priority = max(min(MOST_STREAMS), min(0, priority))
        made = _made.setdefault((index, priority), [])
        if len(made) < MOST_STREAMS[priority]:
            made.append(stream_of_number(gpus.extension().new_lane(index, OWN, priority), index, priority))
            return made[-1]
        return made[next(_turns) % len(made)]

    def wait_stream(self, stream: Stream) -> None:
        """Let everything given to this stream from now on wait for everything given to the other one so far."""
        gpus.extension().wait_lane(self.number, stream.number)

    def wait_event(self, event: Event) -> None:
        """Let everything given to this stream from now on wait for the event."""
        event.event.hold(self.number)

    def record_event(self, event: Event | None = None) -> Event:
        """Mark this point of the stream in an event (a new one if none is given)."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Wait until everything given to this stream is done."""
        gpus.extension().synchronize_lane(self.number)

    def query(self) -> bool:
        """Whether everything given to this stream is done."""
        return bool(gpus.extension().lane_is_idle(self.number))

    def keep(self, array: Array) -> None:
        """Let memory that this stream works with not be handed out again before it is done with it.

        array  an array of the GPU
        """
        if isinstance(array, AnySparse):
            for _, part in array.parts():
                self.keep(part)
        elif array is not None and isinstance(array, gpus.extension().Array):
            gpus.extension().record_stream(array, self.number)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, for other libraries."""
        return int(gpus.extension().lane_handle(self.number))

    @property
    def stream_id(self) -> int:
        return self.number

    device_index = property(lambda self: self.device.index)
    device_type = 1

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest priority and the highest, which is the smaller number."""
        return 0, -5

    def _scopes(self) -> list[Any]:
        return [gpus.chosen(self.device.index), *super()._scopes()]  # "cuda" stands for the stream's GPU, too

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def __copy__(self) -> Stream:
        return self

    def __deepcopy__(self, memo: Any) -> Stream:
        return self

    def __repr__(self) -> str:
        kind = "default stream" if self is self.namespace.default_stream else f"stream {self.number}"
        return f"{kind} of {self.device}"


class ExternalStream(Stream):
    """A stream that another library has made, by the driver's handle."""

    def __new__(cls, stream_ptr: int, device: Device | str | int | None = None, **ignored: Any) -> Any:
        index = index_of(device)
        _namespace(index)
        return stream_of_number(gpus.extension().new_lane(index, FOREIGN, int(stream_ptr)), index)


def stream_of_number(number: int, index: int, priority: int = 0) -> Stream:
    """The stream of the extension's number, which is an object of its own."""
    return _streams.get(number) or made_stream(number, _namespace(index), priority)


def made_stream(number: int, namespace: Any, priority: int = 0) -> Stream:
    made = object.__new__(Stream)
    made.number, made.priority, made.namespace, made.device = number, priority, namespace, namespace.device
    made.shares_extra = made.device.index == 0  # passes over nodes of that device alone run in C: engine/one_stream.py
    return _streams.setdefault(number, made)


def default_stream_of(namespace: Any) -> Stream:
    """The stream that a device's work goes to unless another is chosen; for a namespace that is being made."""
    return made_stream(gpus.extension().new_lane(namespace.device.index, DEFAULT, 0), namespace)


def numbers_of(chosen: Mapping[Device, Any]) -> list[int]:
    """The numbers of the streams of GPUs among those that a thread has chosen; for csrc/cuda/lanes.c."""
    return [stream.number for stream in chosen.values() if isinstance(stream, Stream)]


def current_stream_of(namespace: Any) -> Stream:
    chosen = chosen_streams()
    found: Stream = chosen.get(namespace.device, namespace.default_stream) if chosen else namespace.default_stream
    return found


class Event:
    """A point in the work of a stream, for other streams or the program to wait for.

    enable_timing       whether `elapsed_time` may be asked for
    blocking, external  accepted, without effect
    interprocess        True is an error

    Example: `ut.cuda.Event(enable_timing=True).record()`
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        if interprocess:
            raise NotImplementedError("events cannot be shared with other processes. Wait in each, by synchronize().")
        self.enable_timing = enable_timing
        self.event: Any = gpus.extension().Event(enable_timing)
        self.device: Device | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark the present end of a stream (default: the current one)."""
        stream = _current() if stream is None else stream
        self.event.record(stream.number)
        self.device = stream.device

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream (default: the current one) wait for this event."""
        (_current() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether everything that it marks the end of is done."""
        return bool(self.event.query())

    def synchronize(self) -> None:
        """Wait until everything that it marks the end of is done."""
        self.event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between this event and a later one, both of which have happened.

        end_event  the later one
        """
        if not self.enable_timing or not end_event.enable_timing:
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not self.event.is_recorded or not end_event.event.is_recorded:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not self.query() or not end_event.query():
            raise RuntimeError(
                "Both events must be completed before calculating elapsed time. Wait for the later one first: "
                "end_event.synchronize()."
            )
        return float(self.event.elapsed(end_event.event))

    @property
    def cuda_event(self) -> int:
        """The driver's handle, for other libraries."""
        return int(self.event.handle)

    def __repr__(self) -> str:
        return f"<event of {self.device}>" if self.device is not None else "<event that is not recorded>"


def _current() -> Stream:
    return current_stream_of(_namespace(gpus.current()))


# ---- standing still, for tests of what waits for what

SPIN = """
struct P { i64 cycles; };
KERNEL(spin, P) { BEGIN i64 start = clock64(); while (clock64() - start < p.cycles) { } }
"""


def sleep(cycles: int) -> None:
    """Let the current stream do nothing for that many cycles of the GPU (about nanoseconds)."""
    space = _namespace(gpus.current())
    if gpus.is_emulated():
        gpus.extension().sleep(current_stream_of(space).number, cycles)
    else:
        space.here()
        spin_kernel()(1, 1, cycles)


@functools.cache
def spin_kernel() -> Any:
    return gpus.extension().Kernel(compile_kernels(SPIN, [Entry("spin", "P")])[0])
