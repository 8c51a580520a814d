"""Traces for Perfetto and chrome://tracing: JSON with a lane for each thread, arrows, and a curve of memory.

What was given to a stream of a device stands in a lane of its own, too, at the time of its launch (category "launch").
Arrows of the category "fwdbwd" lead from an operation to its node in the backward pass, those of "ready" from a node to
the one that it was the last to make ready.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from undertow.instrument.memory import Allocations

if TYPE_CHECKING:
    from undertow.instrument.profiler.events import FunctionEvent


#: in the place of a thread's number; those of threads are smaller
FIRST_LANE = 2**30


class Lane:
    """Slices of one line of a trace: each lies wholly inside or outside of every other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[FunctionEvent] = []
        self.open: list[FunctionEvent] = []

    def takes(self, event: FunctionEvent) -> bool:
        """Take an event that begins no earlier than those before it, if that can be drawn."""
        while self.open and self.open[-1].time_range.end <= event.time_range.start:
            self.open.pop()
        if self.open and self.open[-1].time_range.end < event.time_range.end:
            return False
        self.open.append(event)
        self.events.append(event)
        return True


def lanes_of_streams(events: Iterable[FunctionEvent]) -> list[Lane]:
    """One lane for each stream of a device; more where several threads give work to it at the same time."""
    lanes: dict[str, list[Lane]] = {}
    launched = [
        event for event in events if event.device is not None and not (event.is_composite and event.cpu_children)
    ]
    for event in sorted(launched, key=lambda event: (event.time_range.start, -event.time_range.end)):
        name = str(event.stream) if str(event.device) in str(event.stream) else f"{event.device} {event.stream}"
        found = lanes.setdefault(name, [])
        if not any(lane.takes(event) for lane in found):
            found.append(Lane(name))
            found[-1].takes(event)
    return [lane for name in sorted(lanes) for lane in lanes[name]]


class Trace:
    """The trace of a list of events.

    threads  thread number of the events -> (number of the operating system, name)
    offset   where the profile began on the wall clock, in microseconds: traces of several processes are merged by it
    rank     the number of this process among several
    """

    def __init__(
        self,
        events: Sequence[FunctionEvent],
        threads: dict[int, tuple[int, str]] | None = None,
        allocations: Allocations | None = None,
        begin: int = 0,
        offset: float = 0.0,
        metadata: dict[str, Any] | None = None,
        rank: int = 0,
    ) -> None:
        self.events, self.threads, self.allocations = events, threads or {}, allocations
        self.begin, self.offset, self.metadata, self.rank = begin, offset, metadata or {}, rank
        self.pid = os.getpid()
        self.lanes = lanes_of_streams(events)

    def entries(self) -> list[dict[str, Any]]:
        return [*self.names(), *map(self.slice, self.events), *self.launches(), *self.arrows(), *self.memory()]

    def names(self) -> Iterable[dict[str, Any]]:
        process = f"undertow {self.pid}" if not self.rank else f"undertow rank {self.rank}"
        yield {"ph": "M", "name": "process_name", "pid": self.pid, "tid": 0, "args": {"name": process}}
        yield {"ph": "M", "name": "process_sort_index", "pid": self.pid, "tid": 0, "args": {"sort_index": self.rank}}
        for tid, name in self.threads.values():
            yield {"ph": "M", "name": "thread_name", "pid": self.pid, "tid": tid, "args": {"name": name}}
        for tid, lane in enumerate(self.lanes, FIRST_LANE):
            yield {"ph": "M", "name": "thread_name", "pid": self.pid, "tid": tid, "args": {"name": lane.name}}

    def launches(self) -> Iterable[dict[str, Any]]:
        """What was given to the streams of devices, in lanes of their own."""
        for tid, lane in enumerate(self.lanes, FIRST_LANE):
            for event in lane.events:
                yield {**self.slice(event), "cat": "launch", "tid": tid}

    def tid(self, event: FunctionEvent) -> int:
        return self.threads[event.thread][0] if event.thread in self.threads else event.thread

    def place(self, event: FunctionEvent) -> dict[str, Any]:
        return {"pid": self.pid, "tid": self.tid(event)}

    def slice(self, event: FunctionEvent) -> dict[str, Any]:
        args = {
            "Sequence number": None if event.sequence_nr < 0 else event.sequence_nr,
            "Input Dims": event.input_shapes or None,
            "Concrete Inputs": [str(value) for value in event.concrete_inputs] or None,
            "Module": event.module or None,
            "Line": event.line,
            "Bytes": event.cpu_memory_usage or None,
            "Saved bytes": event.saved_bytes or None,
            "FLOPs": event.flops,
            "Device": event.device,
            "Stream": event.stream,
            "Call stack": ";".join(event.stack) or None,
        }
        return {
            "ph": "X", "cat": event.category, "name": event.name, **self.place(event),
            "ts": self.offset + event.time_range.start, "dur": event.time_range.elapsed_us(),
            "args": {name: value for name, value in args.items() if value is not None},
        }  # fmt: skip

    def arrows(self) -> Iterable[dict[str, Any]]:
        nodes = [event for event in self.events if event.category == "backward"]
        forward: dict[int, FunctionEvent] = {}
        for event in self.events:
            if event.category == "cpu_op" and event.sequence_nr >= 0:
                forward.setdefault(event.sequence_nr, event)
        number = 0
        for node in nodes:
            if node.sequence_nr in forward:
                number += 1
                yield from self.arrow("fwdbwd", number, forward[node.sequence_nr], node)
        for before, node in made_ready_by(nodes):
            number += 1
            yield from self.arrow("ready", number, before, node)

    def arrow(self, kind: str, number: int, start: FunctionEvent, end: FunctionEvent) -> Iterable[dict[str, Any]]:
        # a number: Perfetto drops an arrow whose id is any other text
        shared = {"cat": kind, "name": kind, "id": self.rank * 2**32 + number}
        begins = left = self.offset + start.time_range.start
        if kind == "ready":  # inside the slice it leaves, or Perfetto does not find it: a float before the end
            begins = max(left, math.nextafter(left + start.time_range.elapsed_us(), left))
        yield {"ph": "s", **shared, **self.place(start), "ts": begins}
        yield {"ph": "f", "bp": "e", **shared, **self.place(end), "ts": self.offset + end.time_range.start}

    def memory(self) -> Iterable[dict[str, Any]]:
        for when, alive in () if self.allocations is None else self.allocations.curve():
            time = self.offset + (when - self.begin) / 1000
            yield {"ph": "C", "name": "memory", "pid": self.pid, "tid": 0, "ts": time, "args": {"bytes": alive}}

    def write(self, path: str) -> None:
        content = {
            "schemaVersion": 1,
            "displayTimeUnit": "ms",
            "distributedInfo": {"rank": self.rank},
            **self.metadata,
            "traceEvents": self.entries(),
        }
        with open_text(path, "w") as file:
            json.dump(content, file, separators=(",", ":"), default=str)


def made_ready_by(nodes: Sequence[FunctionEvent]) -> Iterable[tuple[FunctionEvent, FunctionEvent]]:
    """Pairs of nodes: the last that led to the second, and so made it ready."""
    last: dict[int, FunctionEvent] = {}
    for node in sorted(nodes, key=lambda node: node.time_range.end):
        # numbers are not used twice, and of a second pass over the same graph the nodes come after the first's
        if node.sequence_nr in last:
            yield last[node.sequence_nr], node
        for number in node.leads_to:
            last[number] = node


def merge_traces(paths: Sequence[str], path: str) -> None:
    """Write the traces of several processes as one, with the processes of later files below those of earlier ones.

    paths  their files
    path   the file to write

    >>> import undertow as ut
    >>> import json, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with ut.profiler.profile() as prof:
    ...     _ = ut.ones(2) * 3
    >>> traces = [str(folder / f"rank{rank}.json") for rank in range(2)]
    >>> for trace in traces:  # each process would write its own
    ...     prof.export_chrome_trace(trace)
    >>> ut.profiler.merge_traces(traces, str(folder / "all.json"))
    >>> len(json.loads((folder / "all.json").read_text())["traceEvents"]) > 4
    True
    """
    merged: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": []}
    seen: set[int] = set()
    arrows: dict[tuple[int, Any], int] = {}
    for rank, each in enumerate(paths):
        with open_text(each, "r") as file:
            content = json.load(file)
        pids = {pid: unused(pid, seen) for pid in dict.fromkeys([entry["pid"] for entry in content["traceEvents"]])}
        for entry in content["traceEvents"]:
            entry["pid"] = pids[entry["pid"]]
            if "id" in entry:
                entry["id"] = arrows.setdefault((rank, entry["id"]), len(arrows) + 1)
            merged["traceEvents"].append(entry)
        seen |= set(pids.values())
    with open_text(path, "w") as file:
        json.dump(merged, file, separators=(",", ":"))


def unused(pid: int, seen: set[int]) -> int:
    """The number of a process; another one if it is taken: two machines may use one number."""
    return pid if pid not in seen else max(seen) + 1


def open_text(path: str, mode: str) -> IO[str]:
    """A text file; one whose name ends in .gz is compressed."""
    if str(path).endswith(".gz"):
        return gzip.open(path, "wt" if mode == "w" else "rt", encoding="utf-8")
    return open(path, mode, encoding="utf-8")
