"""The programs on the pages run, and give what one process gives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.distributed.conftest import Run

DOCS = Path(__file__).parents[2] / "docs"


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"^epoch \d+: loss ([\d.]+)$", text, re.M)]


def program_on(page: str) -> str:
    (code,) = re.findall(r"^```py\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)
    return str(code)


def test_a_backward_pass_through_two_processes(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "backward.py"
    program.write_text(program_on("distributed-backward.md"))
    done = run(str(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tensor([[") == 2


def test_the_program_on_the_page(run: Run, tmp_path: Path) -> None:
    code = program_on("distributed.md")
    program, found = tmp_path / "train.py", {}
    for ranks, batch_size in ((2, 32), (1, 64)):
        program.write_text(code.replace("batch_size=32", f"batch_size={batch_size}"))
        done = run(str(program), ranks=ranks)
        assert done.returncode == 0, done.stderr
        found[ranks] = losses(done.stdout)
    assert len(found[1]) == 10 and found[1][-1] < found[1][0] / 5
    assert found[2] == pytest.approx(found[1], abs=2e-4)


def test_a_process_on_its_own_is_not_stopped_by_an_error_that_is_shown() -> None:
    """In a test run, say, or a notebook: libraries show errors that they do not raise."""
    program = """
    import sys
    import undertow.distributed as dist
    hook = sys.excepthook
    dist.init_process_group("mpi")
    assert sys.excepthook is hook
    dist.destroy_process_group()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_processes_that_a_launcher_started_without_mpi_are_not_taken_for_one_each() -> None:
    program = "import undertow.distributed as dist; assert dist.get_node_local_rank() == 3; dist.init_process_group()"
    slurm = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env={**os.environ, **slurm}
    )
    assert done.returncode != 0
    assert "world_size is 4, but MPI started 1 process(es)" in done.stderr and "srun --mpi" in done.stderr


def test_the_examples_of_the_reference(run: Run) -> None:
    done = run("reference_examples.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all examples ran") == 2
