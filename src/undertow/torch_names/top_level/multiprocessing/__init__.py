"""Python's own multiprocessing, with PyTorch's way to start several processes. Tensors travel as copies.

See examples/hogwild.py for parameters in memory that processes share.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403
from typing import Any

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
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn", "start_processes",
]  # fmt: skip


def set_sharing_strategy(new_strategy: str) -> None:
    """Tensors are copied to other processes, however they are sent."""


def get_sharing_strategy() -> str:
    return "file_system"


def get_all_sharing_strategies() -> set[str]:
    return {"file_system"}


def __getattr__(name: str) -> Any:
    return getattr(multiprocessing, name)
