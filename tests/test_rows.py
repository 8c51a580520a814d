"""Rows that count as one test: each runs, each that fails is named, and none hides behind another."""

from __future__ import annotations

import inspect
import itertools
import subprocess
from typing import Any

import numpy as np
import pytest

from tests import quick, rows
from tests.rows import run_all


def table(count: int) -> list[tuple[str, dict[str, int]]]:
    return [(f"row {n}", {"n": n}) for n in range(count)]


def test_every_row_runs_from_the_same_random_state() -> None:
    drawn = []
    run_all(table(3), lambda row: drawn.append((row["n"], np.random.random())))
    assert [n for n, _ in drawn] == [0, 1, 2] and len({number for _, number in drawn}) == 1


def test_rows_that_fail_are_named_and_the_others_run() -> None:
    ran = []

    def test(row: dict[str, int]) -> None:
        ran.append(row["n"])
        if row["n"] == 1:
            raise ValueError("one")
        if row["n"] == 3:
            pytest.fail("three")

    with pytest.raises(BaseExceptionGroup, match="2 of 5 rows failed") as caught:
        run_all(table(5), test)
    assert ran == [0, 1, 2, 3, 4]
    assert [error.__notes__ for error in caught.value.exceptions] == [["in the row row 1"], ["in the row row 3"]]
    with pytest.raises(ValueError, match="one"):
        run_all(table(2), test)


def test_a_row_that_is_skipped_does_not_hide_one_that_fails() -> None:
    def test(row: dict[str, int]) -> None:
        assert row["n"] < 2
        pytest.skip("not here")

    run_all(table(0), test)
    with pytest.raises(pytest.skip.Exception, match="not here"):
        run_all(table(2), test)
    with pytest.raises(AssertionError):
        run_all(table(3), test)


def test_names_of_rows() -> None:
    assert rows.labels_of(["a", "b"], [("x", 2), (len, object())], None) == ["x-2", "len-b1"]
    assert rows.labels_of(["a", "b"], [("x", 2)], lambda value: value) == ["x-2"]
    assert rows.labels_of(["a"], [(1,), (2,)], {"one": 1, "two": 2}) == ["one", "two"]


def test_two_tables_are_multiplied() -> None:
    seen = []

    @rows.rows("n", range(90), together=40)
    @rows.rows(("word", "length"), [("a", 1), ("bc", 2)])
    def test(n: int, word: str, length: int) -> None:
        seen.append((n, word, length))

    groups = {mark.args[0]: mark.args[1] for mark in test.pytestmark}
    assert set(groups) == set(inspect.signature(test).parameters) == {"rows_of_n", "rows_of_word"}
    for group in itertools.product(*groups.values()):
        test(**dict(zip(groups, group, strict=True)))
    assert sorted(seen) == [(n, word, len(word)) for n in range(90) for word in ("a", "bc")]


def test_a_quick_run_leaves_out_what_starts_processes() -> None:
    """Also where a function of the tests does it for another, inside another function."""

    def inner() -> Any:
        return lambda: starting()

    assert quick.starts_processes(starting) and quick.starts_processes(inner)
    assert not quick.starts_processes(table)


def starting() -> None:
    subprocess.run([])
