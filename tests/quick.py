"""What `--quick` runs: a row of everything, in this process.

- Of the samples of an operation, the first (`first_rows_only` in tests/samples).
- Of the rows of a table (tests/rows.py), all: they have one for each operation, or each class.
- Of the other sets of parameters of a test, the first; where one of them is called `name`, as that of an operation or a
  class is, the first for each name.
- Nothing that is marked `slow`, and nothing that starts other processes, which all load the library again.
"""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Hashable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import pytest


def choose(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of a quick run, and those that it leaves out."""
    seen: set[Hashable] = set()
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        row = row_of(item)
        is_chosen = (
            row not in seen
            and not item.get_closest_marker("slow")
            and not any(map(starts_processes, functions_of(item)))
        )
        seen.add(row)
        (chosen if is_chosen else left_out).append(item)
    return chosen, left_out


def row_of(item: pytest.Item) -> Hashable:
    """What the quick run has one of: the test, with the name or the rows that it is given."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    rows = [item.name for parameter in given if parameter.startswith("rows_of_")]
    return item.nodeid.partition("[")[0], str(given.get("name")), *rows


def functions_of(item: pytest.Item) -> list[Any]:
    """The function of a test, and those of its fixtures."""
    if not isinstance(item, pytest.Function):
        return []
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    return [item.function, *[definition.func for definitions in fixtures for definition in definitions]]


@cache
def starts_processes(function: Any) -> bool:
    """Whether it uses `subprocess`, or calls one of the tests' own functions that does."""
    waiting, seen = [function], {id(function)}
    while waiting:
        for value in used_by(inspect.unwrap(waiting.pop())):
            if value is subprocess:
                return True
            if isinstance(value, FunctionType) and value.__module__.startswith("tests.") and id(value) not in seen:
                seen.add(id(value))
                waiting.append(value)
    return False


def used_by(function: Any) -> Iterator[Any]:
    """The values of the global names in a function, and in those inside it."""
    codes = [function.__code__] if isinstance(function, FunctionType) else []
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        yield from [function.__globals__.get(name) for name in code.co_names]
