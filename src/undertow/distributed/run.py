"""Start a program in several processes of this machine: python -m undertow.distributed.run -n 4 program.py [arguments]

Every process finds RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE in its environment, and its share of the cores as
OMP_NUM_THREADS. If one ends with an error, all are stopped, and one line says which, how, and what it said last; with
--max-restarts all are started again, to go on from their last checkpoint (TORCHELASTIC_RESTART_COUNT counts). On a
cluster its own launcher does this: `srun -n 64 python program.py`, `mpiexec -n 64 python program.py`.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from undertow.distributed import last_words
from undertow.distributed.launched import NAMES, THREADS

#: the option of our own by which a process knows that it is one of several
INSIDE = "--one-of-several"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m undertow.distributed.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "-n",
        "--nproc-per-node",
        type=int,
        default=os.cpu_count(),
        metavar="N",
        help="how many processes; one for each core if not given",
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="how long an exchange may take")
    parser.add_argument(
        "--debug",
        choices=["OFF", "INFO", "DETAIL"],
        help="DETAIL compares what the ranks are about to do before each exchange",
    )
    parser.add_argument(
        "--max-restarts", type=int, default=0, metavar="N", help="how often to start again after an error"
    )
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module, as in python -m")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args(arguments)
    if asked.nproc_per_node < 1:
        parser.error(f"-n: there must be at least one process, not {asked.nproc_per_node}")
    if not asked.module and not os.path.isfile(asked.program):
        parser.error(f"{asked.program}: there is no such file")
    return asked


def environment(asked: argparse.Namespace, attempt: int, folder: str) -> dict[str, str]:
    """What the processes get: limits, their share of the cores, and where to note how they ended."""
    found = dict(os.environ)
    threads = str(max(1, (os.cpu_count() or 1) // asked.nproc_per_node))
    for name in THREADS:
        found.setdefault(name, threads)
    if asked.debug is not None:
        found["UNDERTOW_DISTRIBUTED_DEBUG"] = asked.debug
    if asked.timeout is not None:
        found["UNDERTOW_DISTRIBUTED_TIMEOUT"] = str(asked.timeout)
    found["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
    found[last_words.FOLDER] = folder
    return found


def find_mpiexec() -> str:
    beside = os.path.dirname(sys.executable)
    found = shutil.which("mpiexec", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if found is None:
        sys.exit("undertow.distributed.run: there is no mpiexec. pip install 'undertow[mpi]' installs MPICH.")
    return found


def run(asked: argparse.Namespace, attempt: int, folder: str) -> int:
    """Start the processes and wait for all; the exit code of mpiexec."""
    inside = [sys.executable, "-m", "undertow.distributed.run", INSIDE, *(["-m"] if asked.module else [])]
    command = [find_mpiexec(), "-n", str(asked.nproc_per_node), *inside, asked.program, *asked.arguments]
    child = subprocess.Popen(command, env=environment(asked, attempt, folder))
    # mpiexec and the processes are in this one's group, so an interrupt reaches them, too: what is left is to wait
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
    }
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def launch(arguments: Sequence[str] | None = None) -> int:
    asked = parse(arguments)
    for attempt in range(asked.max_restarts + 1):
        with tempfile.TemporaryDirectory(prefix="undertow-run-") as folder:
            code = run(asked, attempt, folder)
            endings = list(last_words.notes(folder))
            if code == 130 or (code == 0 and ended_well(endings, asked.nproc_per_node)):
                return code
            first = min(endings, key=lambda ending: (not ending.status, ending), default=None)
        who = f"mpiexec ended {last_words.in_words(code)}" if first is None else first.who()
        if first is not None and not first.status:
            who = f"{who} while others went on, and mpiexec {last_words.in_words(code)}"
        said = f"; its last words: {first.line}" if first is not None and first.line else ""
        more = f"; start {attempt + 2} of {asked.max_restarts + 1}" if attempt < asked.max_restarts else ""
        print(
            f"undertow.distributed.run: {who}; all {asked.nproc_per_node} were stopped{more}{said}",
            file=sys.stderr,
            flush=True,
        )
    return (first.code() if first is not None else 0) or code or 1


def ended_well(endings: list[last_words.Ending], count: int) -> bool:
    """Whether all ranks ended by themselves. mpiexec, which ends the others when one is gone, may still return 0."""
    return not last_words.WATCHED or (len(endings) == count and not any([ending.status for ending in endings]))


# ---- one of the processes


def one_of_several(arguments: list[str]) -> Any:
    """Say in the environment which one this is, and run the program as Python would."""
    for ours, theirs in NAMES.items():
        value = next((os.environ[n] for n in theirs if n in os.environ), None)
        if value is not None:
            os.environ[ours] = value  # what the program was started with may be an outer launcher's
    last_words.stand_by()
    is_module = arguments[0] == "-m"
    sys.argv = arguments[is_module:]
    if is_module:
        sys.path[0] = os.getcwd()
        return runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    return runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:2] == [INSIDE]:
        one_of_several(sys.argv[2:])
    else:
        sys.exit(launch())
