"""One model in a process of its own: `python -m benchmarks.alone undertow small_mlp` prints the seconds per step.

In a process that has both libraries, importing PyTorch changes how the C library's allocator returns memory.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks import models
from benchmarks.sampling import statement


def main() -> None:
    library, model = sys.argv[1:]
    lib = importlib.import_module(library)
    if library == "torch":
        lib.set_num_threads(1)
    print(statement("step()", {"step": getattr(models, model)(lib)}, seconds=0.3)())


if __name__ == "__main__":
    main()
