"""Programs that are started again, and programs that others start than undertow's own launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import undertow as ut
from tests.distributed.conftest import PATIENCE, Run
from undertow.distributed.launched import THREADS
from undertow.distributed.run import find_mpiexec


def test_a_killed_program_goes_on_from_its_checkpoint(run: Run, tmp_path: Path) -> None:
    done = run("resumed.py", str(tmp_path / "latest"), options=("--max-restarts", "1"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("went on after epoch 2") == 2
    assert all([f"rank {r} is done" in done.stdout for r in range(2)])
    assert "ended by SIGKILL; all 2 were stopped; start 2 of 2" in done.stderr


def test_mpi_is_not_imported_before_a_group_is_made() -> None:
    pytest.importorskip("mpi4py")
    program = """
import sys
import undertow.distributed as dist
from undertow.distributed import autograd, checkpoint, fsdp, optim, pipelining, rpc, sharding
from undertow.nn.parallel import DistributedDataParallel
assert dist.is_available() and "mpi4py" not in sys.modules
dist.init_process_group()
assert "mpi4py.MPI" in sys.modules
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(ut.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, env=environment
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("said", [None, "1", "2"])
def test_processes_under_mpiexec_share_the_cores(said: str | None) -> None:
    pytest.importorskip("mpi4py")
    pytest.importorskip("threadpoolctl")
    program = (
        "import undertow as ut, undertow.distributed as dist; dist.init_process_group(); "
        "print(f'{ut.get_num_threads()} of {dist.get_world_size()}\\n', end='', flush=True)"
    )
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    environment["PYTHONPATH"] = str(Path(ut.__file__).parents[1])
    if said is not None:
        environment["OMP_NUM_THREADS"] = said
    command = [find_mpiexec(), "-n", "2", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert done.returncode == 0, done.stderr
    cores = os.cpu_count() or 1
    expected = max(1, cores // 2) if said is None else min(int(said), cores)
    assert done.stdout.split("\n")[:2] == [f"{expected} of 2"] * 2
