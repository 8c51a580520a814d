"""`python -m undertow watch`, and lines of what runs: UNDERTOW_DEBUG."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import undertow as ut
from undertow.backend import kernels
from undertow.compiled import core
from undertow.modes import current

PROGRAM = """
import sys
import undertow as ut
import beside
model = ut.nn.Linear(3, 2)
for step in range(int(sys.argv[1])):
    model(ut.ones(4, 3)).pow(2).sum().backward()
print("done", sys.argv[1:], __name__, beside.VALUE)
if "fail" in sys.argv:
    sys.exit(3)
if "raise" in sys.argv:
    raise ValueError("on purpose")
"""


def run(folder: Path, *arguments: str, **variables: str) -> Any:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
    )  # fmt: skip


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "beside.py").write_text("VALUE = 7\n")
    path = tmp_path / "code" / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def test_a_program_is_run_and_watched(program: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "undertow", "watch", "--passes", "2", str(program), "5", "--flag")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done ['5', '--flag'] __main__ 7"
    assert "2 backward passes (and 3 more that are not shown)" in done.stderr
    page = (tmp_path / "watch.html").read_text()
    data = page.split('id="recording">')[1].split("</script>")[0]
    assert len(json.loads(data)["passes"]) == 2 and json.loads(data)["title"] == "backward passes of program.py"
    events = json.loads((tmp_path / "watch.trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in events]
    assert names.count("LinearBackward0") == 5 and "nn.Module: Linear" in names


def test_the_page_is_written_also_if_the_program_ends_early(program: Path, tmp_path: Path) -> None:
    done = run(
        tmp_path, "-m", "undertow", "watch", "--page", "p.html", "--trace", "t.json.gz", str(program), "1", "fail"
    )
    assert done.returncode == 3 and (tmp_path / "p.html").exists() and (tmp_path / "t.json.gz").exists()
    done = run(tmp_path, "-m", "undertow", "watch", str(program), "1", "raise")
    assert done.returncode == 1 and "ValueError: on purpose" in done.stderr
    assert (tmp_path / "watch.html").exists()


def test_a_program_for_pytorch_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "theirs.py"
    path.write_text("import torch\ntorch.ones(2, requires_grad=True).sin().sum().backward()\nprint(torch.__version__)")
    done = run(tmp_path, "-m", "undertow", "watch", "--as-torch", str(path))
    assert done.returncode == 0 and "undertow" in done.stdout, done.stderr
    assert "1 backward pass, 3 nodes" in done.stderr and "SinBackward0" in (tmp_path / "watch.html").read_text()


def test_a_program_that_runs_pytorch_is_told_how_it_is_watched(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "theirs.py"
    path.write_text("import torch\ntorch.ones(2, requires_grad=True).sum().backward()")
    done = run(tmp_path, "-m", "undertow", "watch", str(path))
    assert done.returncode == 0 and "--as-torch gives it undertow" in done.stderr


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "undertow", "watch", "nothing.py")
    assert done.returncode == 2 and "expected a Python file, got 'nothing.py'" in done.stderr


# ---- lines


def test_a_line_for_each_operation_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import undertow as ut\nx = ut.ones(3, requires_grad=True)\n(x * 2).sum().backward()\n"
    )
    one = run(tmp_path, "p.py", UNDERTOW_DEBUG="1")
    assert one.stdout == "" and [line.split()[1] for line in one.stderr.splitlines()] == ["mul", "sum"]
    assert one.stderr.splitlines()[0].startswith("undertow: mul float32[3] 2 -> float32[3]  ")
    assert one.stderr.splitlines()[0].endswith("  p.py:3")
    two = run(tmp_path, "p.py", UNDERTOW_DEBUG="2")
    found = [line.split()[1].rpartition("::")[2] for line in two.stderr.splitlines()]
    assert found == ["mul", "sum", "SumBackward0", "MulBackward0", "AccumulateGrad"]
    none = run(tmp_path, "p.py", UNDERTOW_DEBUG="0")
    assert none.stderr == "" and none.returncode == 0


def test_a_level_that_does_not_exist(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", "import undertow", UNDERTOW_DEBUG="yes")
    assert done.returncode != 0 and "UNDERTOW_DEBUG=yes: expected 1" in done.stderr


def test_kernels_of_a_block() -> None:
    layer, out = ut.nn.Conv2d(2, 3, 3), io.StringIO()
    with ut.instrument.debug(3, file=out):
        layer(ut.randn(1, 2, 5, 5)).sum().backward()
        with ut.no_grad():
            ut.ones(2).add_(ut.ones(2), alpha=3)
    printed = out.getvalue()
    assert "undertow: convolution float32[1, 2, 5, 5]" in printed and "undertow:   ConvolutionBackward0" in printed
    assert ("kernel convolve float32[1, 2, 5, 5]" in printed) == (core is not None)
    assert "undertow: add_ float32[2] float32[2] alpha=3 -> float32[2]" in printed
    assert kernels.listeners == [] and current().intercept is None
