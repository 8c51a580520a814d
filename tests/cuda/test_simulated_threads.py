"""Kernels whose threads work together, with all of their threads: see simulated_threads.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda.conftest import REAL
from tests.cuda.simulated_threads import SIMULATED


@pytest.mark.skipif(REAL or shutil.which("g++") is None, reason="needs the emulated GPU")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs ucontext")
def test_threads_of_a_block_may_run_in_any_order() -> None:
    command = [sys.executable, "-m", "tests.cuda.simulated_threads"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    assert set(outcome.stdout.split()) == SIMULATED
