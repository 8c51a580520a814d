"""What libraries ask of PyTorch's compiler beside compiling."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import is_compiling as is_compiling


@contextlib.contextmanager
def disable_cache_limit() -> Iterator[None]:
    """Without a limit for what was compiled: nothing is."""
    yield


def is_compile_supported(device_type: Any) -> bool:
    """Whether functions are compiled for a device: they are not."""
    return False
