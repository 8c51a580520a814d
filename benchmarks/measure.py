"""One process of measurements: `python -m benchmarks.measure`, started by `python -m benchmarks`.

The number of threads of BLAS and OpenMP is read from the environment when these are loaded, hence a process for each
number. Every finished case is printed as a line of JSON.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
from typing import Any

from benchmarks.cases import Case, all_cases
from benchmarks.sampling import Sampler, interleave


def libraries(threads: int) -> list[Any]:
    """undertow, and PyTorch where it is installed."""
    found = [importlib.import_module("undertow")]
    if importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        torch.set_num_threads(threads)
        found.append(torch)
    return found


def describe(threads: int, found: list[Any]) -> dict[str, Any]:
    """The machine in general terms."""
    return {
        "threads": threads,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": importlib.import_module("numpy").__version__,
        "undertow": found[0].__version__,
        "torch": found[1].__version__ if len(found) > 1 else None,
    }


def compared(case: Case, found: list[Any]) -> tuple[Sampler, Sampler | None]:
    """undertow's work, and what it is compared with."""
    if case.other is not None:
        return case.make(found[0]), case.other(found[0])
    return case.make(found[0]), case.make(found[1]) if len(found) > 1 else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure", description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    found = libraries(options.threads)
    has_core = importlib.import_module("undertow.compiled").core is not None
    print(json.dumps(describe(options.threads, found)), flush=True)
    for case in all_cases(options.quick):
        if case.name in options.names:
            figures = interleave(*compared(case, found), options.repeats)
            budget = case.budget if has_core else None  # budgets are the compiled core's
            row = {"name": case.name, "unit": case.unit, "budget": budget, **figures._asdict()}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
