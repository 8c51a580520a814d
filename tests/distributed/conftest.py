"""Programs in several processes, started as a user starts them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import undertow as ut

PROGRAMS = Path(__file__).parent / "programs"
#: a machine that is busy may take a minute to start a few processes
PATIENCE = 240

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run() -> Run:
    """`run("ddp.py", "argument", ranks=2)`: the program of that name in `programs`, in several processes."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")

    def run(
        program: str, *arguments: str, ranks: int = 2, options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        paths = [str(Path(ut.__file__).parents[1]), str(Path(__file__).parents[2])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "undertow.distributed.run", "-n", str(ranks), *options]
        return subprocess.run(
            [*command, str(PROGRAMS / program), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=environment,
        )

    return run
