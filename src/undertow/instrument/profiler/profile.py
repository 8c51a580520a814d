"""`profile`, under both names that PyTorch has for it, and `record_function`.

Note [Profiles and threads]: a profile sees the thread that entered it, and the threads that run its backward passes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from undertow.instrument.memory_timeline import MemoryTimeline
from undertow.instrument.profiler.build import build_events
from undertow.instrument.profiler.chrome_trace import Trace
from undertow.instrument.profiler.events import EventList, FunctionEventAvg
from undertow.instrument.profiler.record_function import record_function
from undertow.instrument.profiler.recorder import Recorder, recorder_of_thread
from undertow.instrument.profiler.schedules import ProfilerAction, ProfilerActivity, always
from undertow.scopes import Switched

RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def check_none_records() -> None:
    if recorder_of_thread() is not None:
        raise RuntimeError(
            "Profiler is already enabled on this thread: profiles do not nest. Leave the first one before the second "
            "is entered, or name spans inside it by record_function."
        )


class _Results:
    """What can be asked of a profile that has ended."""

    with_flops = False
    metadata: dict[str, Any]
    recorder: Recorder | None
    _events: EventList | None

    def _finished(self) -> Recorder:
        recorder = self.recorder
        if recorder is None or not recorder.end:
            raise AssertionError("Profiler didn't finish running: ask for results when its `with` block has ended")
        return recorder

    @property
    def function_events(self) -> EventList:
        """Everything that happened, in order."""
        recorder = self._finished()
        if self._events is None:
            self._events = self._build(recorder)
        return self._events

    def _build(self, recorder: Recorder) -> EventList:
        return build_events(recorder, self.with_flops)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Events of one name together; `print(profile.key_averages().table(sort_by="self_cpu_time_total"))`."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        return self.function_events.self_cpu_time_total

    def export_chrome_trace(self, path: str) -> None:
        """Write a trace that Perfetto and chrome://tracing open; compressed if the name ends in .gz."""
        recorder = self._finished()
        numbers = {k + 1: recorder.threads[ident] for k, ident in enumerate(recorder.threads)}
        Trace(
            self.function_events, numbers, recorder.allocations, recorder.begin, recorder.wall / 1000, self.metadata
        ).write(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks and their times for a flame graph; the profile needs `with_stack=True`."""
        if not self._finished().with_stack:
            raise RuntimeError("export_stacks needs stacks: profile(..., with_stack=True)")
        self.function_events.export_stacks(path, metric)

    def memory_timeline(self) -> MemoryTimeline:
        """Which memory was alive when, by operation, line and module; the profile needs `profile_memory=True`."""
        recorder = self._finished()
        if recorder.allocations is None:
            raise RuntimeError("memory_timeline needs memory: profile(..., profile_memory=True)")
        return MemoryTimeline(recorder.allocations, recorder.begin)

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the trace."""
        self.metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        self.metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json


class autograd_profile(_Results, Switched):
    """`undertow.autograd.profiler.profile`: everything in its block. `undertow.profiler.profile` also knows of steps.

    enabled                   False: nothing is recorded
    record_shapes, profile_memory, with_stack, with_flops, with_modules  as `undertow.profiler.profile` takes them
    custom_trace_id_callback  gives the trace its id

    `use_cuda`, `use_device`, `use_kineto`, `use_cpu`, `experimental_config`, `acc_events`, `post_processing_timeout_s`
    and `activity_filters` have no effect.

    >>> import undertow as ut
    >>> x = ut.ones(3, requires_grad=True)
    >>> with ut.autograd.profiler.profile() as prof:
    ...     (x * 2).sum().backward()
    >>> [event.name for event in prof.function_events]
    ['aten::mul', 'aten::sum', 'SumBackward0', 'MulBackward0', 'undertow::autograd::AccumulateGrad']
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: Any = None,
    ) -> None:
        self.enabled, self.with_flops = enabled, with_flops
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_modules = with_stack, with_modules
        self.metadata, self.recorder, self._events = trace_id(custom_trace_id_callback), None, None

    @property
    def given(self) -> autograd_profile | None:
        return self if self.enabled else None

    def check(self) -> None:
        if self.recorder is not None:
            raise RuntimeError("Profiler context manager is not reentrant")
        if self.enabled:
            check_none_records()

    def begin(self) -> None:
        if self.enabled:
            shapes = self.record_shapes or self.with_flops
            self.recorder = Recorder(shapes, self.profile_memory, self.with_stack, self.with_modules)
            self.recorder.start()

    def cease(self) -> None:
        if self.recorder is not None:
            self.recorder.stop()

    def table(self, sort_by: str | None = None, **options: Any) -> str:
        """The averages as a table; options are those of `EventList.table`.

        sort_by  by which column: the largest first
        """
        return self.function_events.key_averages().table(sort_by, **options)

    def __str__(self) -> str:
        return "<unfinished profiler_util.profile>" if self.recorder is None else self.table()

    __repr__ = __str__


class profile(_Results, Switched):
    """Everything that undertow does in a `with` block: operations, nodes, modules, memory, the lines they come from.

    activities                accepted as in PyTorch; there is the CPU, whose threads also run simulated devices
    schedule                  a function of the step (`undertow.profiler.schedule`), for loops that call `step()`
    on_trace_ready            called with the profile when a round of the schedule, or the block, has ended
    record_shapes             of the arguments of operations
    profile_memory            which memory operations and nodes take, and when it is given back
    with_stack                all lines of the program's stack (without it: the line that recorded the node, where there
                              is one)
    with_flops                how many floating-point operations products take
    with_modules              the calls of modules, and which operations ran in which
    acc_events                whether `events()` and averages are those of all rounds of the schedule, not of the last
                              only
    most_events               beyond this many, nothing is recorded any more
    custom_trace_id_callback  gives the trace its id

    `experimental_config`, `execution_trace_observer`, `use_cuda` and `post_processing_timeout_s` have no effect.

    >>> import undertow as ut
    >>> from undertow.profiler import profile, record_function
    >>> model, x = ut.nn.Linear(4, 2), ut.ones(3, 4)
    >>> with profile(record_shapes=True, with_modules=True) as prof:
    ...     with record_function("step"):
    ...         model(x).sum().backward()
    >>> [(event.name, event.module) for event in prof.events()][:3]
    [('step', ''), ('nn.Module: Linear', 'Linear'), ('aten::linear', 'Linear')]
    >>> print(prof.key_averages().table(sort_by="cpu_time_total").splitlines()[1].split()[:3])
    ['Name', 'Self', 'CPU']
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        most_events: int = sys.maxsize,
    ) -> None:
        self.most_events = most_events
        self.activities = set(activities) if activities else {ProfilerActivity.CPU}
        self.schedule = schedule or always
        self.has_schedule = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.with_modules = with_stack, with_flops, with_modules
        self.acc_events = acc_events
        self.metadata, self.recorder, self._events = trace_id(custom_trace_id_callback), None, None
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self._step: record_function | None = None
        self._earlier: list[Any] = []  # events of earlier rounds, and whether one has ended that is not among them
        self._has_round = False

    def start(self) -> None:
        self.__enter__()

    def stop(self) -> None:
        self.__exit__(None, None, None)

    def check(self) -> None:
        check_none_records()

    def begin(self) -> None:
        self._enter_step(self.schedule(0))

    def cease(self) -> None:
        self._leave_step()
        self._end_recording()

    def ended(self) -> None:
        was, self.current_action = self.current_action, ProfilerAction.NONE
        if was in RECORDING and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """One step of the program's loop has ended; the schedule says what becomes of the next."""
        self._leave_step()
        was = self.current_action
        self.step_num += 1
        following = self.schedule(self.step_num)
        if was is ProfilerAction.RECORD_AND_SAVE or (was in RECORDING and following not in RECORDING):
            self._end_recording()
            self._has_round = True
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        elif was is ProfilerAction.WARMUP:
            self._end_recording()  # what the warm-up recorded is of no interest
            self._has_round = False
        self._enter_step(following)

    def _enter_step(self, action: ProfilerAction) -> None:
        self.current_action = action
        if action is not ProfilerAction.NONE and (self.recorder is None or self.recorder.end):
            if self.acc_events and self._has_round:
                self._earlier = list(self.function_events)
            shapes = self.record_shapes or self.with_flops
            options = self.profile_memory, self.with_stack, self.with_modules, self.most_events
            self.recorder, self._events = Recorder(shapes, *options), None
            self.recorder.start()
        if self.has_schedule and action is not ProfilerAction.NONE:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _leave_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def _end_recording(self) -> None:
        if self.recorder is not None and not self.recorder.end:
            self.recorder.stop()

    def _build(self, recorder: Recorder) -> EventList:
        events = super()._build(recorder)
        events[:0] = self._earlier
        return events

    def events(self) -> EventList:
        """Everything that happened, in order."""
        return self.function_events

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Leave out what happens from here on, or record again, in the middle of the block.

        enable      True: record; False: leave out
        activities  of which; only the CPU counts

        >>> import undertow as ut
        >>> with ut.profiler.profile() as prof:
        ...     prof.toggle_collection_dynamic(False, [ut.profiler.ProfilerActivity.CPU])
        ...     x = ut.ones(2) * 2
        ...     prof.toggle_collection_dynamic(True, [ut.profiler.ProfilerActivity.CPU])
        ...     y = x.exp()
        >>> [event.name for event in prof.events()]
        ['aten::exp']
        """
        recorder = self.recorder
        if recorder is None or recorder.end:
            raise RuntimeError("toggle_collection_dynamic: no profile is under way; call it in the `with` block")
        if ProfilerActivity.CPU in activities and enable != recorder.is_recording:
            recorder.resume() if enable else recorder.pause()

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write the memory timeline: as a page if the name ends in .html, otherwise as JSON.

        path    the file to write
        device  accepted, without effect
        """
        self.memory_timeline().write(path)

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        self.metadata.update(trace_id(callback))

    def get_trace_id(self) -> str | None:
        return self.metadata.get("trace_id")

    def __str__(self) -> str:
        done = self.recorder is not None and self.recorder.end
        return self.key_averages().table() if done else "<unfinished profiler_util.profile>"


def trace_id(callback: Callable[[], str] | None) -> dict[str, Any]:
    return {} if callback is None else {"trace_id": callback()}


def is_enabled() -> bool:
    """Whether a profile is under way in this thread.

    >>> import undertow as ut
    >>> with ut.profiler.profile():
    ...     print(ut.profiler.is_enabled())
    True
    """
    return recorder_of_thread() is not None
