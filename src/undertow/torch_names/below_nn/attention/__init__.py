"""Which kernel computes attention: there is one here, so the choice changes nothing.

>>> import undertow as ut
>>> with ut.nn.attention.sdpa_kernel(ut.nn.attention.SDPBackend.MATH):
...     pass
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any


class SDPBackend(enum.IntEnum):
    """The kernels of PyTorch."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


WARN_FOR_UNFUSED_KERNELS = False


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[dict[Any, Any]]:
    """A context, or a decorator, that would choose the kernel."""
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not chosen or not all([isinstance(backend, SDPBackend) for backend in chosen]):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    yield {}
