"""The memory that arrays lie in: whose it is, where an array begins, and how to write where NumPy would not."""

from __future__ import annotations

from typing import Any


def owner(xp: Any, array: Any) -> Any:
    """The array whose memory it is."""
    while array.base is not None:
        base = array.base
        if not isinstance(base, xp.ndarray):
            base = getattr(base, "base", None)  # NumPy's as_strided puts a holder in between
        if not isinstance(base, xp.ndarray):
            break
        array = base
    return array


def memory_of(xp: Any, array: Any) -> Any:
    """The whole stretch of memory the array lies in, as a 1-d array of its dtype."""
    root = owner(xp, array)
    if root.flags.c_contiguous and root.dtype == array.dtype:
        return root.reshape(-1)
    root = root[tuple([slice(None, None, -1 if s < 0 else 1) for s in root.strides])]
    span = sum([(n - 1) * s for n, s in zip(root.shape, root.strides, strict=True)]) // root.itemsize + 1
    flat = xp.lib.stride_tricks.as_strided(root, (span if root.size else 0,), (root.itemsize,)).view("uint8")
    return flat[: flat.size - flat.size % array.itemsize].view(array.dtype)


def address(array: Any) -> int:
    return int(array.ctypes.data)


def unlocked(xp: Any, part: Any, whole: Any) -> Any:
    """A read-only part of an array that can be written to, itself writable.

    NumPy hands expanded arrays out read-only, and every part of them; so does as_strided here, where windows overlap.
    That no two elements of this part share memory is known.
    """
    try:
        part.flags.writeable = True
    except ValueError:  # NumPy cannot follow memory that as_strided has cut
        memory = memory_of(xp, whole).view("uint8")
        behind = memory[address(part) - address(memory) :]
        behind = behind[: behind.size - behind.size % part.itemsize].view(part.dtype)
        return xp.lib.stride_tricks.as_strided(behind, part.shape, part.strides)
    return part
