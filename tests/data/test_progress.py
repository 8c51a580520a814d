"""The progress bar: it fits the terminal, and is a few plain lines elsewhere."""

from __future__ import annotations

import io
import re
import sys

import pytest

import undertow as ut
from undertow.data import DataLoader, IterableDataset, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [10, 24, 40, 80, 200])
def test_the_bar_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    bar = Progress(50, terminal, interval=0)
    for step in range(1, 51):
        bar.update(step, "loss 0.1234")
    first, *drawn = terminal.getvalue().split("\r")
    assert first == "" and len(drawn) == 50 and drawn[-1].endswith("\n")
    assert {len(line.rstrip("\n")) for line in drawn} == {columns - 1}  # all alike, so that each covers the last
    assert drawn[0].strip().startswith("[" if columns >= 40 else "1/50")
    if columns >= 40:
        assert re.fullmatch(r"  \[#*\.+\]  25/50  loss 0\.1234  \d+ s left *", drawn[24])
        assert re.fullmatch(r"  \[#+\]  50/50  loss 0\.1234  \d+\.\d s *\n", drawn[49])


def test_the_bar_is_not_drawn_more_often_than_the_interval() -> None:
    terminal = Terminal()
    bar = Progress(1000, terminal, interval=60)
    for step in range(1, 1001):
        bar.update(step, "")
    assert terminal.getvalue().count("\r") == 2  # the first step and the last


@pytest.mark.parametrize(("total", "lines"), [(1, 1), (4, 4), (10, 10), (1000, 10)])
def test_elsewhere_a_few_lines_are_written(total: int, lines: int) -> None:
    stream = io.StringIO()
    bar = Progress(total, stream)
    for step in range(1, total + 1):
        bar.update(step, "loss 1")
    written = stream.getvalue().splitlines()
    assert len(written) == lines
    assert f"{total}/{total}" in written[-1]


def test_a_loader_shows_rate_and_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    terminal = Terminal()
    loader = DataLoader(range(20), batch_size=2, progress=terminal)
    for number, _ in enumerate(loader):
        loader.note = f"loss {number}"
    last = terminal.getvalue().split("\r")[-1]
    assert re.fullmatch(r"  \[#+\]  10/10  loss 9  \d+\.\d batches/s  \d+\.\d s *\n", last)


def test_an_abandoned_loop_leaves_the_cursor_on_a_new_line() -> None:
    terminal = Terminal()
    for number, _ in enumerate(DataLoader(range(20), batch_size=2, progress=terminal)):
        if number == 3:
            break
    assert "3/10" in terminal.getvalue() and terminal.getvalue().endswith("\n")


def test_an_unknown_number_of_batches_is_counted() -> None:
    class Endless(IterableDataset):
        def __iter__(self):
            return iter(range(40))

    stream = io.StringIO()
    assert len(list(DataLoader(Endless(), batch_size=4, progress=stream))) == 10
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["1", "2", "4", "8"]


def test_nothing_is_written_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    list(DataLoader(ut.arange(4), batch_size=2))
    assert capsys.readouterr() == ("", "")
    list(DataLoader(ut.arange(4), batch_size=2, progress=True))
    assert "2/2" in capsys.readouterr().err


def test_tqdm_draws_where_it_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    loader = DataLoader(range(20), batch_size=2, progress=True)
    for number, _ in enumerate(loader):
        loader.note = f"loss {number}"
    last = capsys.readouterr().err.split("\r")[-1]
    assert "100%|" in last and "10/10" in last and "loss 9" in last and "batches/s" in last


def test_without_tqdm_the_bar_is_our_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    list(DataLoader(range(20), batch_size=2, progress=True))
    assert "step 10/10" in capsys.readouterr().err
