"""Memory of large arrays on the CPU: what is kept of it, and a switch for programs whose time goes into page faults.

The compiled core keeps the memory of large arrays that it has made (csrc/loops/memory.c), up to an eighth of the
machine's and half a gigabyte. What others make, such as NumPy, is the C library's. By default glibc gives large freed
blocks back to the system and asks for them again at the next step; every page then faults anew. "caching" tells it to
keep them. This concerns the whole process, so nothing happens unless the user asks:
`undertow.set_cpu_allocator("caching")`, or UNDERTOW_CPU_ALLOCATOR=caching in the environment.
"""

from __future__ import annotations

import ctypes
import os
import sys

from undertow.compiled import core

# malloc.h: options of mallopt
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8

_KINDS = ("default", "caching")
_chosen = ["default"]


def set_cpu_allocator(kind: str) -> None:
    """Choose how freed CPU memory is kept: "default", or "caching" (glibc on Linux only; it cannot be taken back).

    With "caching" the process keeps the memory it has freed and uses it again, without page faults.

    kind  "default" or "caching"

    >>> import undertow as ut
    >>> ut.set_cpu_allocator(ut.get_cpu_allocator())  # what it is already, which changes nothing
    """
    if kind not in _KINDS:
        raise ValueError(f"set_cpu_allocator() takes one of {', '.join(map(repr, _KINDS))}, not {kind!r}")
    if kind == _chosen[0]:
        return
    if kind == "default":
        raise RuntimeError('the "caching" allocator stays for the life of the process; start a new one without it')
    mallopt = _mallopt()
    for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_ARENA_MAX, 1)):
        if mallopt(option, value) != 1:
            raise RuntimeError(f"mallopt({option}, {value}) was refused: the C library does not support it")
    _chosen[0] = kind


def get_cpu_allocator() -> str:
    """The name of what large arrays get their memory from: see `set_cpu_allocator`.

    >>> import undertow as ut
    >>> ut.get_cpu_allocator() in ("default", "caching")
    True
    """
    return _chosen[0]


def empty_cache() -> None:
    """Give memory of the CPU that is kept for arrays to come back to the system. `cuda.empty_cache()` is the GPUs'.

    >>> import undertow as ut
    >>> ut.empty_cache()
    >>> ut.memory_stats()["kept"]
    0
    """
    if core is not None:
        core.keep_memory(core.keep_memory(0))


def memory_stats() -> dict[str, int]:
    """What large arrays (of 256 KiB and more) that undertow has made take of the CPU's memory, in bytes.

    used      what arrays have now
    peak      the most they have had
    kept      what was freed, and waits for the next array of about that size; `empty_cache` gives it back
    limit     up to which it is kept
    made      how often the system was asked for memory
    reused    how often what was kept could be used

    Without the compiled core nothing is kept, and all are 0. Smaller arrays and those that NumPy makes are not counted.

    >>> import undertow as ut
    >>> x = ut.ones(1_000_000)
    >>> ut.memory_stats()["used"] >= x.nbytes or not ut.memory_stats()["limit"]
    True
    """
    if core is None:
        return dict.fromkeys(("used", "peak", "kept", "limit", "made", "reused"), 0)
    kept, used, peak, made, reused = core.kept_memory()
    limit = core.keep_memory(1 << 62)
    core.keep_memory(limit)
    return {"used": used, "peak": peak, "kept": kept, "limit": limit, "made": made, "reused": reused}


def _mallopt() -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt"):
        raise RuntimeError('the "caching" allocator needs glibc (Linux); this system has another C library')
    return library.mallopt


def choose_from_environment() -> None:
    """Obey UNDERTOW_CPU_ALLOCATOR, if it is set."""
    kind = os.environ.get("UNDERTOW_CPU_ALLOCATOR")
    if kind:
        set_cpu_allocator(kind)
