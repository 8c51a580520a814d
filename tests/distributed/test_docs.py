"""The program on the page runs, and gives the losses of one process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.distributed.conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"^epoch \d+: loss ([\d.]+)$", text, re.M)]


def test_the_program_on_the_page(run: Run, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    program, found = tmp_path / "train.py", {}
    for ranks, batch_size in ((2, 32), (1, 64)):
        program.write_text(code.replace("batch_size=32", f"batch_size={batch_size}"))
        done = run(str(program), ranks=ranks)
        assert done.returncode == 0, done.stderr
        found[ranks] = losses(done.stdout)
    assert len(found[1]) == 10 and found[1][-1] < found[1][0] / 5
    assert found[2] == pytest.approx(found[1], abs=2e-4)
