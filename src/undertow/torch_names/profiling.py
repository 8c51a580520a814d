"""PyTorch's profiler, as far as programs need it to run: it counts the operations that are called, and their time.

>>> import undertow as ut
>>> with ut.profiler.profile() as found:
...     y = ut.ones(3) * 2
>>> found.key_averages()[0].key, found.key_averages()[0].count
('mul', 1)
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Iterable
from typing import Any

from undertow.autograd.interceptors.op_mode import OpMode


class ProfilerActivity(enum.Enum):
    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class DeviceType(enum.Enum):
    CPU = 0
    CUDA = 1


class Event:
    """The calls of one operation."""

    def __init__(self, key: str) -> None:
        self.key = self.name = key
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = self.cuda_time_total = 0.0

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / max(self.count, 1)


class Events(list[Event]):
    def table(self, sort_by: str | None = None, row_limit: int = 100, **kwargs: Any) -> str:
        rows = sorted(self, key=lambda event: -event.cpu_time_total)[: row_limit if row_limit > 0 else None]
        lines = [f"{'Name':<40}{'CPU total':>14}{'# of Calls':>12}"]
        lines += [f"{row.key:<40}{row.cpu_time_total:>12.1f}us{row.count:>12}" for row in rows]
        return "\n".join(lines)

    def total_average(self) -> Event:
        total = Event("total")
        total.count = sum([event.count for event in self])
        total.cpu_time_total = sum([event.cpu_time_total for event in self])
        return total

    @property
    def self_cpu_time_total(self) -> float:
        return sum([event.cpu_time_total for event in self])


class _Count(OpMode):
    def __init__(self, events: dict[str, Event]) -> None:
        super().__init__()
        self.events = events

    def on_operation(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        event = self.events.setdefault(str(op), Event(str(op)))
        begin = time.perf_counter()
        try:
            return op(*args, **kwargs)
        finally:
            event.count += 1
            event.cpu_time_total += (time.perf_counter() - begin) * 1e6


class profile:
    """A context in which operations are counted and timed. Options of PyTorch's that say more are accepted."""

    def __init__(
        self,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self._events: dict[str, Event] = {}
        self._mode = _Count(self._events)

    def start(self) -> None:
        self._mode.__enter__()

    def stop(self) -> None:
        self._mode.__exit__(None, None, None)
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *args: Any) -> None:
        self.stop()

    def step(self) -> None:
        self.step_num += 1

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Events:
        return Events(self._events.values())

    def events(self) -> Events:
        return self.key_averages()

    def export_chrome_trace(self, path: str) -> None:
        with open(path, "w") as file:
            file.write('{"traceEvents": []}')


class record_function(contextlib.ContextDecorator):
    """A context with a name; nothing is kept of it."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *args: Any) -> None: ...


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """When to record: after `wait` and `warmup` steps, for `active` ones, and again."""

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        length = wait + warmup + active
        if step < 0 or (repeat and step >= repeat * length):
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Any:
    return lambda profiler: None


def supported_activities() -> set[ProfilerActivity]:
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    return False
