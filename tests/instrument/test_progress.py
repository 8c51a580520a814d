"""Progress: of a program's loops, and of undertow's own."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

import undertow as ut
from undertow.instrument import progress
from undertow.long_loops import long_loop, shown


def test_a_loop_of_the_program() -> None:
    out = io.StringIO()
    bar = progress(iter("abc"), total=3, name="letters", file=out)
    found = []
    for letter in bar:
        bar.note = letter
        found.append(letter)
    assert found == ["a", "b", "c"] and len(bar) == 3
    assert "letters c" in out.getvalue().splitlines()[-1]
    with pytest.raises(TypeError, match="not known"):
        len(progress(iter("abc")))


def test_loops_inside_a_block() -> None:
    out = io.StringIO()
    x = ut.randn(3, dtype=ut.float64, requires_grad=True)
    with progress(file=out):
        assert ut.autograd.gradcheck(ut.sin, (x,))
        wanted = ut.autograd.functional.jacobian(ut.sin, x)
    assert "gradcheck" in out.getvalue() and "jacobian" in out.getvalue()
    assert bool((wanted == ut.autograd.functional.jacobian(ut.sin, x)).all())
    assert shown.get() is None


def test_outside_a_block_a_loop_is_what_it_was() -> None:
    items = range(3)
    assert long_loop(items, 3, "loop") is items


def test_a_loop_that_is_left_early() -> None:
    out = io.StringIO()
    for k in progress(range(100), file=out):
        if k == 50:
            break
    assert "100/100" not in out.getvalue()


def test_tqdm_draws_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def tqdm(items: Any, **options: Any) -> Any:
        calls.append(options)
        return items

    monkeypatch.setattr("undertow.instrument.progress_bars.find_tqdm", lambda: tqdm)
    assert list(progress([1, 2], name="mine")) == [1, 2]
    assert calls == [{"total": 2, "desc": "mine"}]


def test_without_tqdm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert list(progress([1, 2])) == [1, 2]
    assert "2/2" in capsys.readouterr().err
