"""The judge of libraries: a small checkout is run with undertow, and counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import undertow as ut
from conformance import libraries

ROOT = Path(__file__).parents[2]


def test_what_pytest_says_is_counted() -> None:
    assert libraries.counted("1 failed\n== 3 failed, 30 passed, 2 errors in 24.36s ==") == {
        "failed": 3,
        "passed": 30,
        "error": 2,
    }
    assert libraries.counted("no tests ran in 4.17s") == {}


def test_every_library_says_how_to_run_it() -> None:
    for name, library in libraries.libraries().items():
        assert library["tests"] and "/" in library["source"], name
    with pytest.raises(SystemExit, match=r"which library is .*Name one of: entmax"):
        libraries.chosen(None, Path("/somewhere/else"))
    assert libraries.chosen(None, Path("/somewhere/nflows")) is not None


def test_a_checkout_is_run_with_undertow(tmp_path: Path) -> None:
    tmp_path.joinpath("entmax").mkdir()
    lines = [
        "import torch",
        "def test_it():",
        "    assert 'undertow' in torch.__version__",
        "def test_other():",
        "    assert 0",
    ]
    program = "\n".join(lines)
    tmp_path.joinpath("entmax", "test_it.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(ut.__file__).parents[1]), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", "conformance.libraries", "entmax", "--at", str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1 and "1 of 2 pass with undertow" in done.stdout, done.stdout + done.stderr


def test_each_nth_test_alone(tmp_path: Path) -> None:
    tmp_path.joinpath("test_numbers.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(7))\ndef test_n(n): assert n % 3 == 0\n"
    )
    library = {"tests": ["test_numbers.py"], "every": 3, "path": ["."]}
    environment = libraries.environment(library, tmp_path)
    done = subprocess.run(
        libraries.command(library, True, []), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert libraries.counted(done.stdout) == {"passed": 3}
