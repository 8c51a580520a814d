"""Programs under Slurm's own launcher, on a cluster of one machine that the tests start, where Slurm is installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import undertow as ut
from tests.distributed.conftest import PATIENCE
from tests.distributed.test_docs import losses, program_on
from undertow.distributed.launched import THREADS
from undertow.distributed.run import find_mpiexec

Srun = Callable[..., "subprocess.CompletedProcess[str]"]

#: MPICH meets its processes over PMI-2, which Slurm's plugin of that name speaks
CLUSTER = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
MpiDefault=pmi2
KillWait=2
FirstJobId={first_job}
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores}
PartitionName=all Nodes=ALL Default=YES
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a user's shell has on a cluster; its controller and its only node run meanwhile."""
    pytest.importorskip("mpi4py")
    missing = [name for name in ("slurmctld", "slurmd", "srun") if shutil.which(name) is None]
    if missing or os.geteuid():
        pytest.skip(f"{', '.join(missing)} not installed" if missing else "only root can start Slurm's node")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    settings = {"host": socket.gethostname().split(".")[0], "ports": free_ports(2), "folder": folder}
    # a job that is killed leaves shared memory behind, which MPICH names after the job's number: none comes twice
    settings["first_job"] = time.time_ns() // 10**9 % 60_000_000 + 1
    (folder / "slurm.conf").write_text(CLUSTER.format(cores=os.cpu_count(), **settings))
    names = {name: value for name, value in os.environ.items() if name not in THREADS}
    found = {**names, "SLURM_CONF": str(folder / "slurm.conf"), "PYTHONPATH": str(Path(ut.__file__).parents[1])}
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with (folder / f"{name}.log").open("w") as log:
                daemons.append(subprocess.Popen([name, "-D"], env=found, stdout=log, stderr=log))
        wait_for_the_node(found)
        yield found
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)


def wait_for_the_node(environment: dict[str, str]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        shown = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True, timeout=60)
        if shown.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    raise AssertionError(f"the node is not there: {shown.stdout}{shown.stderr}")


@pytest.fixture
def srun(environment: dict[str, str], tmp_path: Path) -> Srun:
    """`srun(text, 2)`: the program of that text in so many processes."""

    def srun(text: str, ranks: int) -> subprocess.CompletedProcess[str]:
        program = tmp_path / "program.py"
        program.write_text(text)
        command = ["srun", "--overcommit", "--kill-on-bad-exit", "-n", str(ranks), sys.executable, str(program)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)

    return srun


def test_the_program_on_the_page_prints_what_it_prints_under_mpiexec(
    srun: Srun, environment: dict[str, str], tmp_path: Path
) -> None:
    text = program_on("distributed.md")
    under_srun = srun(text, 2)
    assert under_srun.returncode == 0, under_srun.stderr
    command = [find_mpiexec(), "-n", "2", sys.executable, str(tmp_path / "program.py")]
    under_mpiexec = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert len(losses(under_srun.stdout)) == 10
    assert losses(under_srun.stdout) == losses(under_mpiexec.stdout)


def test_processes_share_the_cores(srun: Srun) -> None:
    done = srun(
        "import undertow as ut, undertow.distributed as dist; dist.init_process_group(); "
        "print(f'{ut.get_num_threads()} of {dist.get_world_size()}\\n', end='', flush=True)",
        2,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == [f"{max(1, (os.cpu_count() or 1) // 2)} of 2"] * 2


def test_one_that_is_killed_ends_all_and_is_named(srun: Srun) -> None:
    done = srun(
        f"""
import os
import undertow as ut
import undertow.distributed as dist
dist.init_process_group("mpi")
dist.barrier()
if dist.get_rank() == 1:
    os.kill(os.getpid(), {int(signal.SIGKILL)})
dist.all_reduce(ut.ones(3))
print("went on")
""",
        2,
    )
    assert done.returncode != 0
    assert "task 1" in done.stderr and "Killed" in done.stderr
    assert "went on" not in done.stdout
