"""Tables, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

HEADER = ["", "undertow", "torch", "ratio", "middle half", "budget"]
MEMORY = "Memory, in operands of 512 x 512 (1.0 is one such array)"


def title(machine: Row) -> str:
    threads = machine["threads"]
    against = f"torch {machine['torch']}" if machine["torch"] else "torch is not installed"
    return (
        f"{threads} thread{'s' * (threads > 1)} (undertow {machine['undertow']}, {against}, NumPy {machine['numpy']}, "
        f"Python {machine['python']}, {machine['cores']} cores)"
    )


def cells(row: Row) -> list[str]:
    ours = f"{duration(row['ours'])} / {row['unit']}"
    if row["theirs"] is None:
        return [row["name"], ours, "-", "-", "-", budget(row)]
    spread = f"{row['low']:.2f}-{row['high']:.2f}"
    return [row["name"], ours, duration(row["theirs"]), f"{row['ratio']:.2f}", spread, budget(row)]


def budget(row: Row) -> str:
    if row["budget"] is None:
        return ""
    return f"{row['budget']:.2f}" + " MISSED" * is_missed(row)


def is_missed(row: Row) -> bool:
    return row["budget"] is not None and row["ratio"] is not None and row["ratio"] > row["budget"]


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def as_text(table: list[list[str]]) -> str:
    widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
    return "".join(aligned(line, widths) + "\n" for line in table)


def aligned(line: list[str], widths: list[int]) -> str:
    first, *rest = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
    return "  ".join([first.strip().ljust(widths[0]), *rest]).rstrip()


def as_markdown(table: list[list[str]]) -> str:
    first, *rest = table
    rule = ["---", *["---:"] * (len(first) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in [first, rule, *rest])


def as_page(figures: Row) -> str:
    """All tables, as docs/benchmarks.md shows them."""
    return tables(figures["tables"], figures.get("memory"), as_markdown)


def rows_of(figures: Row, words: str) -> Row:
    """The figures of the measurements that have some words in their names."""
    found = [{**part, "rows": [row for row in part["rows"] if words in row["name"]]} for part in figures["tables"]]
    return {"tables": [part for part in found if part["rows"]]}


def tables(measured: list[Row], memory: list[list[str]] | None, formatted: Callable[[list[list[str]]], str]) -> str:
    parts = []
    for part in measured:
        rows = [HEADER, *map(cells, part["rows"])]
        parts += [title(part) + "\n", formatted(rows), closing(part["rows"])]
    if memory:
        parts += [MEMORY + "\n", formatted(memory)]
    return "\n".join(part for part in parts if part)


def closing(rows: list[Row]) -> str:
    judged = [row for row in rows if row["budget"] is not None and row["ratio"] is not None]
    missed = sum(map(is_missed, judged))
    return f"{len(judged) - missed} of {len(judged)} within their budget.\n" if judged else ""
