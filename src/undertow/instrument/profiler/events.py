"""FunctionEvent, FunctionEventAvg and EventList: what happened, as PyTorch's profiler shows it; in microseconds."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from undertow.instrument.profiler.table import format_time, make_table

DEVICE_CPU = "cpu"


class Interval(NamedTuple):
    """From `start` to `end`, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        return self.end - self.start


class _Times:
    """What an event and an average of events share: averages, and times as text."""

    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total: float
    self_device_time_total: float

    @property
    def cpu_time(self) -> float:
        """The average of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        return format_time(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        return format_time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return format_time(self.self_cpu_time_total)

    @property
    def device_time_str(self) -> str:
        return format_time(self.device_time)

    @property
    def device_time_total_str(self) -> str:
        return format_time(self.device_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        return format_time(self.self_device_time_total)


class FunctionEvent(_Times):
    """One call: of an operation ("aten::mul"), a node ("MulBackward0"), a module, or a block named by record_function.

    sequence_nr          of the node that the operation recorded; a node has the same number as its operation. -1: none
    fwd_thread           of a node: the thread that recorded it
    module               the path of the module it ran in, where modules were asked for
    line                 the line of the program, as "file:line in function"; None if it is not known
    saved_bytes          what its node keeps for the backward pass, where memory was asked for
    is_composite         whether it is an operation made of those inside it, with no node of its own
    stack                all lines of the program's stack, the innermost first, where stacks were asked for
    id                   its number in the profile
    name                 the name
    start_us, end_us     when it began and ended, in microseconds
    overload_name        of the operation, or ""
    input_shapes, concrete_inputs  the shapes of its arguments, and those that are numbers
    scope                0: of an operation; 1: of a node
    use_device           the kind of the other device that takes part, or None
    cpu_memory_usage, device_memory_usage  bytes that it took, less those it gave back
    is_async, is_remote  whether it ends on another thread, or process
    node_id              of the process that it ran in
    device_type, device_index, device_resource_id  where it ran; the last is a thread or a stream
    flops                its floating-point operations, if counted
    is_user_annotation   whether it is a block that `record_function` named
    category             as a trace calls it: "cpu_op", ...
    leads_to             of an operation: the numbers of the nodes it recorded
    device, stream       of what ran on another device: its names

    >>> import undertow as ut
    >>> with ut.profiler.profile() as prof:
    ...     _ = ut.ones(2) * 3
    >>> prof.events()[-1].cpu_time_total > 0
    True
    """

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: Any = None,
        stack: Any = None,
        scope: int = 0,
        use_device: str | None = None,
        cpu_memory_usage: int = 0,
        device_memory_usage: int = 0,
        is_async: bool = False,
        is_remote: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        device_type: str = DEVICE_CPU,
        device_index: int = 0,
        device_resource_id: int | None = None,
        flops: int | None = None,
        concrete_inputs: Any = None,
        is_user_annotation: bool = False,
        module: str = "",
        line: str | None = None,
        category: str = "cpu_op",
        leads_to: tuple[int, ...] = (),
        device: str | None = None,
        stream: str | None = None,
        saved_bytes: int = 0,
        is_composite: bool = False,
    ) -> None:
        self.id, self.node_id, self.name, self.thread = id, node_id, name, thread
        self.overload_name = overload_name or ""
        self.trace_name = name
        self.time_range = Interval(start_us, end_us)
        self.fwd_thread, self.scope, self.use_device = fwd_thread, scope, use_device
        self.input_shapes, self.concrete_inputs = input_shapes or [], concrete_inputs or []
        self.stack = list(stack or ())
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.is_user_annotation = is_async, is_remote, is_user_annotation
        self.sequence_nr = sequence_nr
        self.device_type, self.device_index = device_type, device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.flops, self.module, self.line, self.category = flops, module, line, category
        self.leads_to, self.device, self.stream = leads_to, device, stream
        self.saved_bytes, self.is_composite = saved_bytes, is_composite
        self.count = 1
        self.kernels: list[Any] = []
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        return 0.0 if self.is_async else self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        return 0.0 if self.is_async else self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children)

    @property
    def self_cpu_memory_usage(self) -> int:
        return self.cpu_memory_usage - sum(c.cpu_memory_usage for c in self.cpu_children)

    device_time_total = self_device_time_total = 0.0
    self_device_memory_usage = 0

    def append_cpu_child(self, child: FunctionEvent) -> None:
        self.cpu_children.append(child)
        child.cpu_parent = self

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        self.cpu_parent = parent

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} thread={self.thread} "
            f"input_shapes={self.input_shapes} sequence_nr={self.sequence_nr} module={self.module!r} "
            f"cpu_children={[c.id for c in self.cpu_children]}>"
        )


class FunctionEventAvg(_Times):
    """Events of one name (and shapes, or stack, if grouped by them) together."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.node_id, self.scope = 0, 0
        self.is_async = self.is_remote = self.is_user_annotation = False
        self.use_device: str | None = None
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.device_memory_usage = self.self_device_memory_usage = 0
        self.flops = 0
        self.input_shapes: Any = None
        self.overload_name = ""
        self.stack: list[str] = []
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.device_type = DEVICE_CPU

    def add(self, other: Any) -> FunctionEventAvg:
        """Add an event, or another average of the same key."""
        if self.key is None:
            self.key, self.node_id = other.key, other.node_id
            self.input_shapes, self.stack = other.input_shapes, list(other.stack)
            self.cpu_parent, self.is_user_annotation = other.cpu_parent, other.is_user_annotation
        if not isinstance(other, FunctionEvent | FunctionEventAvg) or other.key != self.key:
            raise ValueError(f"an average of {self.key!r} takes events of the same name, got {other!r}")
        for name in ("cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "count"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes}>"
        )


class EventList(list[Any]):
    """A list of events or of averages, which prints as a table.

    *args           an iterable of them, as a list takes it
    profile_memory  whether the table has columns of memory
    with_flops      whether it has one of floating-point operations
    **kwargs        accepted, without effect

    >>> import undertow as ut
    >>> with ut.profiler.profile() as prof:
    ...     _ = ut.ones(2) * 3
    >>> [event.name for event in prof.events()][-1]
    'aten::mul'
    """

    def __init__(self, *args: Any, profile_memory: bool = False, with_flops: bool = False, **kwargs: Any) -> None:
        super().__init__(*args)
        self.profile_memory, self.with_flops = profile_memory, with_flops

    def _populate_cpu_children(self) -> None:
        """Let each event know those that ran inside it: on its thread, and wholly within its time."""
        threads: dict[Any, list[FunctionEvent]] = defaultdict(list)
        for event in self:
            if not event.is_async:
                threads[event.thread, event.node_id].append(event)
        for events in threads.values():
            stack: list[FunctionEvent] = []
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                while stack and not is_within(event, stack[-1]):
                    stack.pop()
                if stack:
                    stack[-1].append_cpu_child(event)
                stack.append(event)

    @property
    def self_cpu_time_total(self) -> float:
        return float(sum(event.self_cpu_time_total for event in self))

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """One FunctionEventAvg for each name; shapes and the innermost lines of stacks may make further differences.

        group_by_input_shapes   apart by the shapes of arguments
        group_by_stack_n        apart by so many of the innermost lines
        group_by_overload_name  accepted, without effect
        """
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            key = [event.key, event.is_user_annotation]
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n:
                key.extend(event.stack[:group_by_stack_n])
            found.setdefault(tuple(key), FunctionEventAvg()).add(event)
        averages = EventList(found.values(), profile_memory=self.profile_memory, with_flops=self.with_flops)
        for average in averages:
            average.stack = average.stack[:group_by_stack_n]
            if not group_by_input_shapes:
                average.input_shapes = ""
        return averages

    def total_average(self) -> FunctionEventAvg:
        total = FunctionEventAvg()
        for event in self:
            total.key = event.key  # whatever their names
            total.add(event)
        total.key = "Total"
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The list as a table, one row for each of its entries.

        sort_by                cpu_time, cpu_time_total, self_cpu_time_total, cpu_memory_usage, self_cpu_memory_usage or
                               count: the largest first
        row_limit              how many rows at most; -1: all
        max_src_column_width, max_name_column_width, max_shapes_column_width  how wide columns are at most
        header                 a line above it
        top_level_events_only  leave out what ran inside something else
        time_unit              "s", "ms" or "us"; None: as fits
        """
        return make_table(
            self,
            sort_by=sort_by,
            row_limit=row_limit,
            source_width=max_src_column_width,
            name_width=max_name_column_width,
            shapes_width=max_shapes_column_width,
            header=header,
            top_level_only=top_level_events_only,
            time_unit=time_unit,
            with_memory=self.profile_memory,
            with_flops=self.with_flops,
        )

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for Perfetto, or chrome://tracing; a profile writes more: threads by name, memory.

        path  the file to write
        """
        from undertow.instrument.profiler.chrome_trace import Trace

        Trace(self).write(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write one line per stack, "outermost;...;innermost;operation microseconds", as flame graphs are made of.

        path    the file to write
        metric  what is summed: "self_cpu_time_total", "cpu_time_total" or "self_cuda_time_total"
        """
        supported_export_stacks_metrics = ["self_cpu_time_total", "cpu_time_total", "self_cuda_time_total"]
        if metric not in supported_export_stacks_metrics:
            raise ValueError(f"metric should be one of: {supported_export_stacks_metrics}, got {metric!r}")
        name = metric.replace("cuda", "device")
        sums: dict[str, int] = defaultdict(int)
        for event in self:
            if event.stack:
                lines = [line.replace(";", ",").replace(" ", "_") for line in reversed(event.stack)]
                sums[";".join([*lines, event.key])] += int(getattr(event, name))
        with open(path, "w", encoding="utf-8") as file:
            file.writelines([f"{stack} {value}\n" for stack, value in sums.items() if value > 0])

    def supported_export_stacks_metrics(self) -> list[str]:
        return ["self_cpu_time_total", "cpu_time_total"]


def is_within(event: FunctionEvent, outer: FunctionEvent) -> bool:
    inner, around = event.time_range, outer.time_range
    return inner.start < around.end and inner.end <= around.end
