"""How many threads NumPy's BLAS takes, and large kernels of the compiled core.

The number is the BLAS's own: threadpoolctl, where installed, reaches it. The kernels begin with the same number. Their
threads are made when a piece of work is first worth it, and sleep in between (csrc/loops/threads.c).
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

from undertow.compiled import core


def _threadpoolctl() -> Any:
    try:
        return importlib.import_module("threadpoolctl")
    except ImportError:
        return None


def set_num_threads(number: int) -> None:
    """Let matrix products, and what is computed over large arrays, take this many threads.

    For the products this needs threadpoolctl; without it, a warning says what else to do.

    number  how many, at least 1

    >>> import undertow as ut
    >>> ut.set_num_threads(ut.get_num_threads())
    """
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(number).__name__}")
    if number <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    _tell_kernels(int(number))
    library = _threadpoolctl()
    if library is not None:
        library.threadpool_limits(limits=int(number), user_api="blas")
    elif number != get_num_threads():
        warnings.warn(
            f"set_num_threads({number}) has no effect on matrix products without threadpoolctl: pip install "
            f"'undertow[threads]', or set OMP_NUM_THREADS={number} before Python starts.",
            stacklevel=2,
        )


def get_num_threads() -> int:
    """How many threads a matrix product takes at most.

    >>> import undertow as ut
    >>> ut.get_num_threads() >= 1
    True
    """
    library = _threadpoolctl()
    if library is not None:
        found = [pool["num_threads"] for pool in library.threadpool_info() if pool["user_api"] == "blas"]
        if found:
            return int(max(found))
    return _wanted()


def _wanted() -> int:
    """The number that the environment says, or that of the processors."""
    wanted = [os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")]
    numbers = [int(number) for number in wanted if number.isdigit() and int(number) > 0]
    return numbers[0] if numbers else _processors()


def _processors() -> int:
    """How many processors this process may run on."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def kernel_threads() -> int:
    """How many threads a kernel of the core takes at most; asked in the middle of operations."""
    return core.threads_at_most() if core is not None else 1


def _tell_kernels(number: int) -> None:
    set_threads = getattr(core, "set_threads", None)
    if set_threads is not None:
        set_threads(number)


_tell_kernels(_wanted())
