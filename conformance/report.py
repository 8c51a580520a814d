"""Figures by group against their denominators, as text and as Markdown, and the list of failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .groups import CLASSES, Deviation, Test, count
from .supervisor import Result


@dataclass(frozen=True)
class Row:
    """One group: tests passed and tests there are, by class."""

    name: str
    title: str
    passed: Counter[str]
    total: Counter[str]

    def score(self, *kinds: str) -> str:
        total = sum(self.total[kind] for kind in kinds)
        return f"{sum(self.passed[kind] for kind in kinds)}/{total}" if total else "-"


COLUMNS = {"A": ("A",), "A+B": ("A", "B"), "G1": ("G1",), "G2": ("G2",), "X": ("X",)}


def rows(tests: dict[str, Test], titles: dict[str, str], results: Iterable[Result]) -> list[Row]:
    """A row per group that was run, and the total below."""
    passed = [tests[result.test] for result in results if result.status == "passed"]
    table = []
    for name, title in titles.items():
        total = count(tests, name)
        if total:
            hits = Counter(test.kind for test in passed if test.group == name)
            table.append(Row(name, title, hits, total))
    table.append(Row("", "total", Counter(test.kind for test in passed), count(tests)))
    return table


def as_text(table: list[Row]) -> str:
    lines = [f"{'group':<72}" + "".join(f"{column:>9}" for column in COLUMNS)]
    for row in table:
        scores = "".join(f"{row.score(*kinds):>9}" for kinds in COLUMNS.values())
        lines.append(f"{f'{row.name:>3} {row.title}':<72}{scores}")
    return "\n".join(lines)


def as_markdown(table: list[Row]) -> str:
    lines = ["| group | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    for row in table:
        name = f"{row.name} {row.title}".strip()
        cells = [name, *(row.score(*kinds) for kinds in COLUMNS.values())]
        if not row.name:
            cells = [f"**{cell}**" for cell in cells]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def as_figures(table: list[Row]) -> list[dict[str, object]]:
    return [{"name": row.name, "title": row.title, "passed": row.passed, "total": row.total} for row in table]


def as_page(figures: list[dict[str, Any]]) -> str:
    """As docs/conformance.md shows it."""
    return as_markdown([Row(f["name"], f["title"], Counter(f["passed"]), Counter(f["total"])) for f in figures])


def summary(results: list[Result]) -> str:
    counts = Counter(result.status for result in results)
    parts = [f"{counts[status]} {status}" for status in ("passed", "failed", "skipped", "crashed", "timeout")]
    return f"{len(results)} run: " + ", ".join(parts)


def failures(tests: dict[str, Test], results: Iterable[Result]) -> str:
    """Every test that did not pass: class, id, first line of the error, where it was raised."""
    lines = []
    current = None
    for result in sorted(results, key=lambda result: _place(tests, result)):
        if result.status == "passed":
            continue
        test = tests[result.test]
        if test.group != current:
            current = test.group
            lines.append(f"\n# group {current}")
        where = f"  [{result.where}]" if result.where else ""
        status = "" if result.status == "failed" else f"{result.status}: "
        lines.append(f"{test.kind:<2} {result.test}  {status}{result.error}{where}")
    return "\n".join(lines).lstrip() + "\n"


def tracebacks(results: Iterable[Result]) -> str:
    return "\n".join(f"===== {result.test}\n{result.traceback or result.error}" for result in results if _broke(result))


def deviations(known: dict[str, Deviation], results: Iterable[Result]) -> str:
    """The tests undertow chooses not to follow, among those that ran; they count as failed above."""
    ran = {result.test: result.status for result in results}
    lines = []
    for test, deviation in known.items():
        if test in ran:
            better = f" Instead: {deviation.better}" if deviation.better else ""
            lines.append(f"  {test} ({ran[test]}): {deviation.reason}{better}")
    if not lines:
        return ""
    return f"{len(lines)} documented deviations, counted as failed:\n" + "\n".join(lines)


def _broke(result: Result) -> bool:
    return result.status not in ("passed", "skipped")


def _place(tests: dict[str, Test], result: Result) -> tuple[int, str, int, str]:
    test = tests[result.test]
    digits = test.group.rstrip("abc")
    return int(digits), test.group, CLASSES.index(test.kind), test.id
