"""From what a recorder wrote down to events: names, lines, modules, and which node belongs to which operation."""

from __future__ import annotations

from types import CodeType
from typing import Any

from undertow.autograd.interceptors.observer import name_of
from undertow.graph.user_lines import Site
from undertow.instrument.flops import backward_flops, flops_of
from undertow.instrument.profiler.events import EventList, FunctionEvent
from undertow.instrument.profiler.recorder import COMPOSITE, EXCHANGE, MODULE, NODE, OPERATION, SPAN, Recorder, Row

CATEGORY = {OPERATION: "cpu_op", COMPOSITE: "cpu_op", NODE: "backward", MODULE: "module", SPAN: "user_annotation",
            EXCHANGE: "exchange"}  # fmt: skip


def build_events(recorder: Recorder, with_flops: bool = False) -> EventList:
    """The events of a profile, in the order in which they began."""
    rows = in_order([explicit(Row(*row)) for row in recorder.rows])
    for row in rows:
        recorder.threads.setdefault(row.thread, (row.thread, f"thread {row.thread}"))
    numbers = {ident: k + 1 for k, ident in enumerate(recorder.threads)}
    forward: dict[int, Row] = {}
    for row in rows:
        if row.kind == OPERATION and row.sequence_nr is not None:
            forward.setdefault(row.sequence_nr, row)
    lines = Lines()
    events = EventList(profile_memory=recorder.allocations is not None, with_flops=with_flops)
    for k, row in enumerate(rows):
        event = event_of(row, k + 1, recorder.begin, numbers[row.thread], lines)
        if row.kind == NODE and row.sequence_nr in forward:
            event.fwd_thread = numbers[forward[row.sequence_nr].thread]
        if with_flops:
            event.flops = flops_of_row(row, forward)
        events.append(event)
    events._populate_cpu_children()
    for event in events:  # those around others began earlier
        if event.line is None and event.category == "cpu_op" and event.cpu_parent is not None:
            event.line = event.cpu_parent.line if event.cpu_parent.is_composite else None
    for event in reversed(events):  # those inside others began later
        event.cpu_memory_usage += sum(child.cpu_memory_usage for child in event.cpu_children)
    place_in_modules(events)
    return events


def flops_of_row(row: Row, forward: dict[int, Row]) -> int | None:
    """What a product takes, and what its node takes; `forward` has the operations by the numbers of their nodes."""
    operation = forward.get(row.sequence_nr or -1) if row.kind == NODE else row if row.kind == OPERATION else None
    if operation is None:
        return None
    name, more = name_of(operation.what), operation.more or {}
    flops = flops_of(name, operation.shapes, more.get("out"), more.get("given"))
    return flops if flops is None or row.kind == OPERATION else backward_flops(name, flops, (row.more or {})["wanted"])


def in_order(rows: list[Row]) -> list[Row]:
    """By when they began; without composites that are only another way into an operation of the same name."""
    rows = sorted(rows, key=lambda row: (row.begin, -row.end))
    kept: list[Row] = []
    for row in reversed(rows):
        if row.kind != COMPOSITE or not kept or not is_same_operation(row, kept[-1]):
            kept.append(row)
    return kept[::-1]


def is_same_operation(composite: Row, next: Row) -> bool:
    """Whether what began next, inside the composite, has its name."""
    is_inside = next.thread == composite.thread and next.end <= composite.end
    return is_inside and next.kind in (OPERATION, COMPOSITE) and name_of(next.what) == name_of(composite.what)


def explicit(row: Row) -> Row:
    """A row of the compiled core as Python writes it."""
    if row.kind != NODE or isinstance(row.what, str):
        return row
    name = f"undertow::autograd::{row.what.__name__}" if row.what.is_internal else row.what.__name__
    shapes = None if row.shapes is None else [list(row.shapes)]
    more = row.more if isinstance(row.more, dict) else {"leads_to": row.more or ()}
    return row._replace(what=name, shapes=shapes, more=more)


def event_of(row: Row, number: int, begin: int, thread: int, lines: Lines) -> FunctionEvent:
    more = row.more or {}
    stack = [lines.of(code, lasti) for code, lasti in more.get("stack", ())]
    line = lines.of(row.code, row.lasti) if row.code is not None else stack[0] if stack else None
    name = shown_name(row)
    if row.kind == SPAN and more.get("args"):
        name = f"{name}({more['args']})"
    return FunctionEvent(
        id=number, name=name, thread=thread,
        start_us=(row.begin - begin) / 1000, end_us=(row.end - begin) / 1000,
        input_shapes=row.shapes, concrete_inputs=more.get("given"), stack=stack,
        cpu_memory_usage=more.get("bytes", 0), saved_bytes=more.get("saved", 0),
        sequence_nr=row.sequence_nr if row.sequence_nr is not None and row.sequence_nr < 2**63 else -1,
        is_user_annotation=row.kind == SPAN, line=line, category=CATEGORY[row.kind],
        module=row.what if row.kind == MODULE else "", leads_to=more.get("leads_to", ()),
        device=more.get("device"), stream=more.get("stream"), scope=1 if row.kind == NODE else 0,
        is_composite=row.kind == COMPOSITE, is_async=row.kind == EXCHANGE,
    )  # fmt: skip


def shown_name(row: Row) -> str:
    """PyTorch's name: "aten::mul" for an operation, "MulBackward0" for a node, "nn.Module: Linear" for a module."""
    if row.kind in (OPERATION, COMPOSITE):
        name = name_of(row.what)
        return name if isinstance(row.what, str) and name[:1].isupper() else f"aten::{name}"  # a custom Function's
    if row.kind == MODULE:
        return f"nn.Module: {(row.more or {})['class']}"
    return str(row.what)


class Lines:
    """Lines of programs as text; most events come from few."""

    def __init__(self) -> None:
        self.known: dict[tuple[CodeType, int], str] = {}

    def of(self, code: CodeType, lasti: int) -> str:
        if (code, lasti) not in self.known:
            self.known[code, lasti] = f"{code.co_filename}({Site(code, lasti).line}): {code.co_name}"
        return self.known[code, lasti]


def place_in_modules(events: EventList) -> None:
    """Say in which module each operation ran; a node is where its operation was."""
    by_number: dict[int, str] = {}
    for event in events:
        around: Any = event
        while around is not None and not around.module:
            around = around.cpu_parent
        event.module = around.module if around is not None else ""
        if event.category == "cpu_op" and event.sequence_nr >= 0:
            by_number.setdefault(event.sequence_nr, event.module)
    for event in events:
        if event.category == "backward":
            event.module = by_number.get(event.sequence_nr, "")
