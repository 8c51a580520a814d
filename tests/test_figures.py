"""Figures on pages are those that measurements wrote, and what the README says of them is so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import profiler
from tools import figures

FILES = sorted(path.stem for path in figures.FOLDER.glob("*.json"))


def test_pages_show_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main(["--check"]) == 0, capsys.readouterr().out + "run `python -m tools.figures`"


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_shown_and_says_when_and_where(name: str) -> None:
    found = figures.load(name)
    assert found["date"].startswith("20") and "cores" in found["machine"] and "python -m" in found["command"]
    assert any(f"<!-- figures: {name} -->" in page.read_text(encoding="utf-8") for page in figures.pages())


def test_figures_go_between_the_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: mine -->\nold\n<!-- end of figures -->\nafter\n")
    monkeypatch.setattr(figures, "pages", lambda: [page])
    rows = [["two of x + y", 2, 200.0, 450.0]]
    figures.store("mine", "profiler", "python -m mine", rows, tmp_path)
    assert json.loads((tmp_path / "mine.json").read_text())["figures"] == rows
    text = page.read_text()
    assert "old" not in text and text.startswith("before\n") and text.endswith("<!-- end of figures -->\nafter\n")
    assert "by `python -m mine`" in text and "| two of x + y | 2 | 200 ns | 450 ns | 125 ns |" in text
    assert figures.shown(text, tmp_path) == text


def test_a_page_may_show_some_rows(tmp_path: Path) -> None:
    text = '<!-- figures: core, rows of "embedding step" -->\nold\n<!-- end of figures -->\n'
    rows = [line for line in figures.shown(text).splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 1 and all("embedding step" in row for row in rows)
    assert figures.shown(figures.shown(text)) == figures.shown(text)


def ratios(part: str, of: str = "core") -> list[float]:
    rows: list[dict[str, Any]] = figures.load(of)["figures"]["tables"][0]["rows"]
    found = [row["ratio"] for row in rows if part in row["name"]]
    assert found, part
    return found


def test_what_the_readme_says_of_speed() -> None:
    text = " ".join((figures.ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "a recorded operation takes a tenth to a half of the time it takes in PyTorch" in text
    assert 0.05 <= min(ratios(", recorded")) <= max(ratios(", recorded")) <= 0.5
    assert "a node in the backward pass a tenth" in text
    assert all(0.05 < ratio < 0.15 for ratio in ratios("backward, "))
    assert "small networks train in 0.6 to 0.9 of it" in text
    assert all(0.55 < ratio < 0.9 for ratio in ratios("small MLP step") + ratios("LSTM"))


def test_a_profile_adds_less_than_a_microsecond() -> None:
    assert all(profiler.added_for_each(row) < 1000 for row in figures.load("profiler")["figures"])


def test_a_frame_of_the_page_leaves_time() -> None:
    for _, nodes, paint, play, zoom in figures.load("page")["figures"]:
        assert nodes > 5000 and paint < 1000 and max(play, zoom) < 8
