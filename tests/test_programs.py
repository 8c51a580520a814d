"""Programs in tests/programs are written for PyTorch: with another import they print the same, number by number."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from types import ModuleType

import pytest

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")


def printed(path: Path, library: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the program prints when it imports this library, with the names of libraries left out."""
    source = re.sub(r"^(import|from) torch\b(?! )", rf"\1 {library}", path.read_text(), flags=re.MULTILINE)
    source = re.sub(r"^from torch ", f"from {library} ", source, flags=re.MULTILINE)
    source = source.replace(f"import {library}\n", f"import {library} as torch\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, path, "exec"), {"__name__": "program"})
    return re.sub(r"\b(torch|undertow)\.", "", capsys.readouterr().out)


@pytest.mark.torch
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_it_prints_what_it_prints_in_pytorch(torch: ModuleType, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, mine = (printed(path, library, capsys).splitlines() for library in ("torch", "undertow"))
    assert [NUMBER.sub("#", line) for line in mine] == [NUMBER.sub("#", line) for line in theirs]
    for line, wanted in zip(mine, theirs, strict=True):
        numbers, expected = ([float(n) for n in NUMBER.findall(text)] for text in (line, wanted))
        assert numbers == pytest.approx(expected, rel=2e-3, abs=2e-4), f"{line}\n{wanted}"
