"""Ranges for NVIDIA's profilers, `cuda.nvtx`: they are counted, and nobody else sees them.

`undertow.profiler.record_function` names a range that undertow's own profiles show.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_depth = [0]


def range_push(msg: str) -> int:
    """Begin a range; how many it is nested in."""
    _depth[0] += 1
    return _depth[0] - 1


def range_pop() -> int:
    """End the range that was begun last; how many it was nested in."""
    _depth[0] = max(_depth[0] - 1, 0)
    return _depth[0]


def range_start(msg: str) -> int:
    """Begin a range that may end anywhere: a number for `range_end`."""
    return 0


def range_end(range_id: int) -> None:
    """End a range of `range_start`."""


def mark(msg: str) -> None:
    """Mark a moment."""


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range as a block, or as a decorator."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
