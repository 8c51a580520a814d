"""How the library was built, as PyTorch tells it: programs look for a word in the text."""

from __future__ import annotations

from undertow.backend.threads import get_num_threads
from undertow.compiled import core
from undertow.version import __version__

__all__ = ["parallel_info", "show"]


def show() -> str:
    """A text about how undertow was built.

    >>> "undertow" in show()
    True
    """
    return (
        f"undertow {__version__}, {'without' if core is None else 'with'} its compiled core, USE_CUDA=OFF, USE_MKL=OFF"
    )


def parallel_info() -> str:
    """A text about threads."""
    return f"undertow threads: {get_num_threads()}"
