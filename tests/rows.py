"""Tests of many small cases that count as one: a thousand of a millisecond take longer to be counted than to run.

A failure names each row that failed, and does not keep the others from running.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tests.seeds import seed_everything

#: set by `pytest -k ...`, before any test is collected: each row is a test, to be chosen by its name
one_at_a_time = False


def rows(names: str | Sequence[str], values: Iterable[Any], ids: Any = None, together: int = 40) -> Callable[..., Any]:
    """What `pytest.mark.parametrize` does, with so many rows together in one test.

    They share the fixtures that the test asks for. With `-k` each row is a test again:

        @rows("case", CASES, ids=lambda case: case.id)
        def test_values(case: Case) -> None: ...

        pytest tests/ops/test_systems.py -k gather-negative_dim
    """
    names = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    arguments = [(value,) if len(names) == 1 else tuple(value) for value in values]
    table = [
        (label, dict(zip(names, row, strict=True)))
        for label, row in zip(labels_of(names, arguments, ids), arguments, strict=True)
    ]
    size = 1 if one_at_a_time else together
    groups = [table[start : start + size] for start in range(0, len(table), size)]
    place = f"rows_of_{names[0]}"

    def decorate(test: Callable[..., None]) -> Any:
        def of_group(*self: Any, **given: Any) -> None:
            run_all(given.pop(place), lambda row: test(*self, **row, **given))

        found = with_parameters(test, of_group, names, [inspect.Parameter(place, inspect.Parameter.KEYWORD_ONLY)])
        return pytest.mark.parametrize(place, groups, ids=[title(group) for group in groups])(found)

    return decorate


def together(**choices: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Call a test with every combination of these arguments."""
    table = [dict(zip(choices, row, strict=True)) for row in itertools.product(*choices.values())]

    def decorate(test: Callable[..., None]) -> Any:
        def of_all_rows(**fixtures: Any) -> None:
            run_all([(repr(row), row) for row in table], lambda row: test(**row, **fixtures))

        return with_parameters(test, of_all_rows, list(choices), [])

    return decorate


def labels_of(names: list[str], arguments: list[tuple[Any, ...]], ids: Any) -> list[str]:
    """The names of rows: as given, or made of their arguments, which are numbered where they do not show a name."""
    if ids is not None and not callable(ids):
        return [str(label) for label in ids]
    plain = (str, int, float, bool, type(None))
    show = ids or (lambda value: value if isinstance(value, plain) else getattr(value, "__name__", None))
    return [
        "-".join(str(f"{name}{number}" if show(v) is None else show(v)) for name, v in zip(names, row, strict=True))
        for number, row in enumerate(arguments)
    ]


def title(group: list[tuple[str, dict[str, Any]]]) -> str:
    return group[0][0] if len(group) == 1 else f"{group[0][0]}...{group[-1][0]}"


def with_parameters(test: Any, function: Any, without: list[str], more: list[inspect.Parameter]) -> Any:
    """The function, in the place of a test whose parameters it has, without those and with more."""
    signature = inspect.signature(test)
    kept = [p for p in signature.parameters.values() if p.name not in without]
    kept = [p if p.name == "self" else p.replace(kind=p.KEYWORD_ONLY) for p in kept]
    found: Any = functools.wraps(test)(function)
    found.__signature__ = signature.replace(parameters=[*kept, *more])
    return found


def run_all(table: list[tuple[str, dict[str, Any]]], test: Callable[[dict[str, Any]], None]) -> None:
    """Run each row from the same random state; raise what failed, or skip where every row was skipped."""
    failed: list[BaseException] = []
    skipped = []
    for label, row in table:
        seed_everything()
        try:
            test(row)
        except pytest.skip.Exception as reason:
            skipped.append(reason)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"in the row {label}")
            failed.append(error)
    if len(failed) > 1:
        raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows failed", failed)
    if failed:
        raise failed[0]
    if skipped and len(skipped) == len(table):
        raise skipped[0]
