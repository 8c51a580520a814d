"""How many threads the array libraries use: they read it from the environment when they are loaded."""

from __future__ import annotations

import os
import subprocess
import sys

#: what the libraries that may be behind NumPy and PyTorch ask for
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    return {**os.environ, **dict.fromkeys(VARIABLES, str(threads))}


def one_thread(module: str) -> None:
    """Start this command again with one thread, unless it has one already; once, whatever it imports."""
    again = "UNDERTOW_BENCHMARK_STARTED_AGAIN"
    if os.environ.pop(again, None):
        if "numpy" in sys.modules:
            raise RuntimeError(f"{module} imports NumPy before it asks for one thread: import it inside of functions")
        return
    if os.environ.get(VARIABLES[0]) != "1" or "numpy" in sys.modules:
        os.environ[again] = "1"
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, env=environment(1)).returncode)
