"""Python's own multiprocessing, through which tensors are sent without copies, and PyTorch's `spawn`.

From the import of this module on, a tensor that is given to another process (an argument, an element of a queue, a
pool's result) is moved to shared memory and arrives on the same memory: see `Tensor.share_memory_`.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403
from typing import Any

from .reductions import init_reductions
from .spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *multiprocessing.__all__, "ProcessContext", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "get_all_sharing_strategies", "get_sharing_strategy", "init_reductions", "set_sharing_strategy", "spawn",
    "start_processes",
]  # fmt: skip


_strategies = ["file_descriptor"]


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted for PyTorch's sake: memory has no name here, and goes to other processes by its descriptor."""
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(
            f"set_sharing_strategy() takes one of {sorted(get_all_sharing_strategies())}, not {new_strategy!r}"
        )
    _strategies[0] = new_strategy


def get_sharing_strategy() -> str:
    return _strategies[0]


def get_all_sharing_strategies() -> set[str]:
    return {"file_descriptor", "file_system"}


def __getattr__(name: str) -> Any:
    return getattr(multiprocessing, name)


init_reductions()
