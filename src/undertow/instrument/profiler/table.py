"""The table of a profile, as PyTorch's users know it, and times and sizes as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

US_IN = {"s": 1e6, "ms": 1e3, "us": 1.0}


def format_time(us: float, unit: str | None = None) -> str:
    """A time in microseconds as a person reads it.

    >>> format_time(1536)
    '1.536ms'
    """
    if unit is None:
        unit = "s" if us >= 1e6 else "ms" if us >= 1e3 else "us"
    if unit not in US_IN:
        raise ValueError(f"time_unit must be one of {', '.join(US_IN)}, got {unit!r}")
    return f"{us / US_IN[unit]:.3f}{unit}"


def format_share(part: float, total: float) -> str:
    return f"{100 * part / total:.2f}%" if total else "NaN"


def format_memory(size: int) -> str:
    """
    >>> format_memory(-2048)
    '-2.00 KB'
    """
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(size) >= 1024**power:
            return f"{size / 1024**power:.2f} {unit}"
    return f"{size} B"


class Column(NamedTuple):
    title: str
    cells: list[str]
    is_left: bool = False


def make_table(
    events: Sequence[Any],
    *,
    sort_by: str | None,
    row_limit: int,
    source_width: int,
    name_width: int,
    shapes_width: int,
    header: str | None,
    top_level_only: bool,
    time_unit: str | None,
    with_memory: bool,
    with_flops: bool,
) -> str:
    if not events:
        return ""
    total = sum(event.self_cpu_time_total for event in events)
    rows = ordered(events, sort_by)
    if top_level_only:
        rows = [event for event in rows if event.cpu_parent is None]
    rows = rows if row_limit < 0 else rows[:row_limit]
    columns = [Column("Name", [shortened(event.key, name_width) for event in rows], True)]
    columns += time_columns(rows, total, time_unit)
    if with_memory:
        columns.append(Column("CPU Mem", [format_memory(e.cpu_memory_usage) for e in rows]))
        columns.append(Column("Self CPU Mem", [format_memory(e.self_cpu_memory_usage) for e in rows]))
    columns.append(Column("# of Calls", [str(event.count) for event in rows]))
    if any(event.input_shapes for event in rows):
        columns.append(Column("Input Shapes", [shortened(str(e.input_shapes), shapes_width) for e in rows]))
    if any(event.stack for event in rows):
        columns.append(Column("Source Location", [source_of(event, source_width) for event in rows], True))
    if with_flops:
        columns.append(Column("Total FLOPs", [str(event.flops) if event.flops else "--" for event in rows]))
    return drawn(columns, header) + f"Self CPU time total: {format_time(total, time_unit)}\n"


def ordered(events: Sequence[Any], sort_by: str | None) -> list[Any]:
    if sort_by is None:
        return list(events)
    name = sort_by.replace("cuda", "device")
    if not hasattr(events[0], name):
        raise ValueError(
            f"cannot sort by {sort_by!r}: choose cpu_time, cpu_time_total, self_cpu_time_total, cpu_memory_usage, "
            "self_cpu_memory_usage, flops or count"
        )
    return sorted(events, key=lambda event: getattr(event, name) or 0, reverse=True)


def time_columns(rows: Sequence[Any], total: float, unit: str | None) -> list[Column]:
    return [
        Column("Self CPU %", [format_share(e.self_cpu_time_total, total) for e in rows]),
        Column("Self CPU", [format_time(e.self_cpu_time_total, unit) for e in rows]),
        Column("CPU total %", [format_share(e.cpu_time_total, total) for e in rows]),
        Column("CPU total", [format_time(e.cpu_time_total, unit) for e in rows]),
        Column("CPU time avg", [format_time(e.cpu_time, unit) for e in rows]),
    ]


def source_of(event: Any, width: int) -> str:
    line = event.stack[0] if event.stack else ""
    return line if len(line) <= width else "..." + line[3 - width :]


def shortened(text: str, width: int) -> str:
    return text if width <= 0 or len(text) <= width else text[: width - 3] + "..."


def drawn(columns: Sequence[Column], header: str | None) -> str:
    widths = [max(len(column.title), *[len(cell) for cell in column.cells]) + 2 for column in columns]
    rule = "  ".join("-" * width for width in widths)
    lines = [header] if header else []
    lines += [rule, row_of([c.title for c in columns], columns, widths), rule]
    for cells in zip(*[column.cells for column in columns], strict=True):
        lines.append(row_of(cells, columns, widths))
    return "\n".join([*lines, rule, ""])


def row_of(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if column.is_left and k else cell.rjust(width)
        for k, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
