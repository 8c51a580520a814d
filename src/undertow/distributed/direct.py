"""Exchanges inside one machine in which processes read each other's memory: one copy, where a message may take two.

Each process tells the others where its array lies; from there on they take what they need, piece by piece, through
memory that stays in the processor's cache. Messages say only when something may be read, and when it is not needed any
more. They go from one process to another, marked with the exchange's number, because several exchanges may be under way
in an order that differs from process to process.

Linux has `process_vm_readv` for it, and may forbid it; then there are the messages of reduce_op.py.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.distributed.errors import DistError

if TYPE_CHECKING:
    from undertow.distributed.process_group import ProcessGroup

#: bytes that are read and added up at a time
PIECE = 512 * 1024
#: from how many processes and bytes on a sum for all is faster than by the ring, and one for each than by MPI's own;
#: found by measuring
FROM_RANKS, FROM_BYTES, PARTS_FROM_BYTES = 3, 128 * 1024, 256 * 1024


class Span(ctypes.Structure):
    """`struct iovec`: some bytes of memory."""

    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


def reader() -> Callable[[int, int, Array], None] | None:
    """`read(process, address, target)` fills an array from another process's memory; None where there is no way."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None) if sys.platform == "linux" else None
    if call is None:
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_int, *[ctypes.POINTER(Span), ctypes.c_ulong] * 2, ctypes.c_ulong]

    def read(process: int, address: int, target: Array) -> None:
        done, size, start = 0, target.nbytes, address_of(target)
        while done < size:
            into, source = Span(start + done, size - done), Span(address + done, size - done)
            found = call(process, into, 1, source, 1, 0)
            if found <= 0:
                number = ctypes.get_errno()
                raise OSError(number, f"the memory of process {process} cannot be read: {os.strerror(number)}")
            done += found

    return read


def address_of(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def tried_reader(comm: Any) -> Callable[[int, int, Array], None] | None:
    """The reader, if all processes of a communicator can read from all: they are on one machine, and allowed to."""
    read = reader() if comm.size > 1 else None
    word = cpu.asarray([os.getpid() * 1_000_003 + comm.rank], dtype=dtypes.int64)
    found, works = cpu.empty(1, dtype=dtypes.int64), read is not None
    for process, address, expected in comm.allgather((os.getpid(), address_of(word), int(word[0]))):
        try:
            if works and read is not None:
                read(process, address, found)
                works = int(found[0]) == expected
        except OSError:
            works = False
    return read if all(comm.allgather(works)) else None


def applies(group: ProcessGroup, array: Array) -> bool:
    """Whether a sum for all is faster this way."""
    return group.read is not None and group.size() >= FROM_RANKS and array.nbytes >= FROM_BYTES


# ---- steps of exchanges: see work.py


def all_reduce(group: ProcessGroup, flat: Array, combine: Any) -> Iterator[Any]:
    """Each process adds up its part of all, and then takes the other parts from those that have added them up."""
    tag, rank, count, read = group.tag(), group.rank(), group.size(), group.read
    assert read is not None
    cuts = [flat.size * k // count for k in range(count + 1)]
    whose = yield from places(group, flat, tag)
    add_up(group, whose, cuts[rank] * flat.itemsize, flat[cuts[rank] : cuts[rank + 1]], combine)
    yield from told(group, whose[rank], tag + 1)  # all parts are added up
    for step in range(1, count):
        other = (rank + step) % count
        process, address = whose[other].tolist()
        read(process, address + cuts[other] * flat.itemsize, flat[cuts[other] : cuts[other + 1]])
    yield from told(group, whose[rank], tag + 2)  # all have read: the program may change the array


def reduce_scatter(group: ProcessGroup, flat: Array, part: Array, combine: Any) -> Iterator[Any]:
    """Each process adds up its part of all, in `part`, which may be memory of `flat`."""
    tag, first = group.tag(), group.rank() * part.size
    total = cpu.empty_like(part) if cpu.may_share_memory(part, flat) else part
    whose = yield from places(group, flat, tag)
    total[...] = flat[first : first + part.size]
    add_up(group, whose, first * flat.itemsize, total, combine)
    yield from told(group, whose[group.rank()], tag + 1)  # all have read: `flat` may be written
    if total is not part:
        part[...] = total


def told(group: ProcessGroup, mine: Array, tag: int) -> Generator[Any, None, Array]:
    """Everybody's `mine`, a few numbers: a message to each. Nobody gets past here before all have come."""
    comm, rank = group.comm, group.rank()
    found = cpu.empty((group.size(), mine.size), dtype=mine.dtype)
    found[rank] = mine
    others = [r for r in range(group.size()) if r != rank]
    yield [*[comm.Irecv(found[r], r, tag) for r in others], *[comm.Isend(mine, r, tag) for r in others]]
    return found


def places(group: ProcessGroup, array: Array, tag: int) -> Generator[Any, None, Array]:
    """For each process, its number and where its array lies."""
    mine = cpu.asarray([os.getpid(), address_of(array), array.nbytes], dtype=dtypes.int64)
    found = yield from told(group, mine, tag)
    if (found[:, 2] != array.nbytes).any():
        raise DistError(f"the ranks brought different numbers of bytes: {found[:, 2].tolist()}")
    return cpu.ascontiguousarray(found[:, :2])


def add_up(group: ProcessGroup, whose: Array, first: int, target: Array, combine: Any) -> None:
    """Add to `target` what the other processes have `first` bytes behind the start of their arrays, piece by piece."""
    rank, count, read = group.rank(), group.size(), group.read
    assert read is not None
    size = max(1, PIECE // target.itemsize)
    spare = group.borrow(size, target.dtype)
    for at in range(0, target.size, size):
        piece = target[at : at + size]
        received = spare[: piece.size]
        for step in range(1, count):
            process, address = whose[(rank + step) % count].tolist()
            read(process, address + first + at * target.itemsize, received)
            combine(piece, received, piece)
    group.give_back(spare)
