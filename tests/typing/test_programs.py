"""mypy and pyright on a user's programs: right ones pass, mistakes are found, and types are known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.typing import checkers
from tests.typing.checkers import PROGRAMS, Report

RIGHT = ["derivatives.py", "mathematics.py", "pytorch_names.py", "training.py"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder: Path = tmp_path_factory.mktemp(request.param)
    return getattr(checkers, request.param)(folder, sorted(PROGRAMS.glob("*.py")))


def lines_of(name: str) -> list[tuple[int, str]]:
    return list(enumerate((PROGRAMS / name).read_text().splitlines(), 1))


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_have_no_errors(report: Report, name: str) -> None:
    complaints = report.errors | report.warnings
    assert {line: text for (file, line), text in complaints.items() if file == name} == {}


def test_each_mistake_is_found_on_its_line(report: Report) -> None:
    planted = [line for line, text in lines_of("mistakes.py") if text.endswith("# mistake")]
    assert sorted(line for file, line in report.errors if file == "mistakes.py") == planted


def test_types_of_expressions(report: Report) -> None:
    expected = {
        line: text.rpartition("# ")[2] for line, text in lines_of("revealed.py") if text.startswith("reveal_type(")
    }
    found = {line: plain(text) for (file, line), text in report.revealed.items() if file == "revealed.py"}
    assert found == {line: plain(text) for line, text in expected.items()}


def plain(text: str) -> str:
    """Without modules, and without bool beside int, which mypy leaves out."""
    return re.sub(r"\b\w+\.(?=\w)", "", text).replace("int | float | bool", "int | float")


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_run(name: str) -> None:
    source = (PROGRAMS / name).read_text()
    exec(compile(source, name, "exec"), {"__name__": "__main__"})
