"""Memory that processes share: files without a name.

Guarantees: a block is there for as long as a process has it, by its descriptor or by arrays on it, and no longer: there
is no name that could be left behind by a process that is killed. Arrays on a segment hold the segment, which holds its
block. Small segments share a block, because every block costs two descriptors and at least a page.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import threading
import weakref
from typing import Any

import numpy as np

from undertow.backend.interface import Array

#: segments of at least so many bytes have a block of their own
LARGE = 1 << 18

#: of a block for small segments
SIZE = 1 << 20

ALIGNMENT = 64

#: whether descriptors can be handed to other processes
POSSIBLE = sys.platform != "win32"


class Block:
    """A file in memory, seen as bytes.

    descriptor  of the file; it is closed when the last array on the block is gone
    used        how much of it segments have taken, in the process that made it
    """

    def __init__(self, descriptor: int, size: int) -> None:
        weakref.finalize(self, os.close, descriptor).atexit = False
        self.descriptor, self.size, self.used = descriptor, size, 0
        self.bytes = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        self.address = int(self.bytes.ctypes.data)
        _state.blocks[identity(descriptor)] = self


class Segment:
    """A part of a block: the memory of one tensor, and of those that show parts of it."""

    def __init__(self, block: Block, offset: int, size: int) -> None:
        self.block, self.offset, self.size = block, offset, size

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size,),
            "typestr": "|u1",
            "data": (self.block.address + self.offset, False),
            "version": 3,
        }

    def bytes(self) -> Array:
        """An array of all bytes, whose base this segment is."""
        return np.asarray(self)


class _State:
    """What a process knows of its blocks.

    lock    guards the other two
    blocks  by their identity, for as long as they live
    open    the block that small segments are taken from. A process that is forked begins a new one: both would take the
            same bytes
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks: weakref.WeakValueDictionary[tuple[int, int], Block] = weakref.WeakValueDictionary()
        self.open: weakref.ref[Block] | None = None

    def after_fork(self) -> None:
        self.lock, self.open = threading.Lock(), None


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.after_fork)


def new_segment(size: int) -> Segment:
    """Memory of so many bytes, all zero."""
    if not POSSIBLE:
        raise NotImplementedError(
            "share_memory_(): memory cannot be handed to other processes on this system, which has no file "
            "descriptors. Send the tensors, which are copied, or use threads."
        )
    with _state.lock:
        if size >= LARGE:
            return Segment(_new_block(size), 0, size)
        block = None if _state.open is None else _state.open()
        if block is None or block.used + size > block.size:
            block = _new_block(SIZE)
            _state.open = weakref.ref(block)
        offset = block.used
        block.used += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        return Segment(block, offset, size)


def received_segment(descriptor: int, block_size: int, offset: int, size: int) -> Segment:
    """A segment of another process, by the descriptor of its block, which is closed if the block is known here."""
    with _state.lock:
        block = _state.blocks.get(identity(descriptor))
        if block is None:
            block = Block(descriptor, block_size)
        elif descriptor != block.descriptor:  # as it is of a second tensor, where both were inherited
            os.close(descriptor)
    return Segment(block, offset, size)


def segment_of(array: Array) -> Segment | None:
    """The segment that an array lies in, if it lies in one."""
    while array is not None and not isinstance(array, Segment):
        array = getattr(array, "base", None)
    return array


def identity(descriptor: int) -> tuple[int, int]:
    """What tells the file of a descriptor from all others that are open."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _new_block(size: int) -> Block:
    descriptor = _nameless_file()
    try:
        os.ftruncate(descriptor, size)
        return Block(os.dup(descriptor), size)
    finally:
        os.close(descriptor)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("undertow")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
