"""How numbers from several processes become one."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.distributed import direct

if TYPE_CHECKING:
    from undertow.distributed.process_group import ProcessGroup

#: from this many bytes on, a ring of messages is faster than MPI's own reduction, among at most so many processes
RING_FROM, RING_UP_TO = 128 * 1024, 16


class ReduceOp(enum.Enum):
    """What `all_reduce` and its kin do with the tensors of all processes, element by element.

    Example: `dist.all_reduce(ut.ones(2), op=dist.ReduceOp.MAX)`
    """

    SUM = "SUM"
    AVG = "AVG"
    PRODUCT = "PRODUCT"
    MIN = "MIN"
    MAX = "MAX"
    BAND = "BAND"
    BOR = "BOR"
    BXOR = "BXOR"


#: what PyTorch calls the class of the members, which there is another one
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]

#: MPI's name of each
MPI_NAMES = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX", "BAND": "BAND", "BOR": "BOR",
             "BXOR": "BXOR"}  # fmt: skip
#: NumPy's, of those that a ring adds up itself
UFUNCS = {"SUM": cpu.add, "AVG": cpu.add, "PRODUCT": cpu.multiply, "MIN": cpu.minimum, "MAX": cpu.maximum}
#: what they are of truth values, which are added up as integers of one byte
OF_BOOL = {"SUM": "MAX", "PRODUCT": "MIN"}


def check_reducible(what: str, array: Array, op: ReduceOp) -> None:
    """Refuse what has no meaning, before anything is sent."""
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{what}: op must be a ReduceOp, such as ReduceOp.SUM, not {op!r}")
    kind = array.dtype.kind
    if op is ReduceOp.AVG and kind in "bui":
        raise RuntimeError(
            f"{what}: ReduceOp.AVG of {array.dtype}: a mean of integers is none. Convert the tensor first."
        )
    if kind == "c" and op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise ValueError(f"{what} does not support {op} on complex tensors")
    if kind in "fcV" and op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        raise RuntimeError(f"Cannot use {op} with non-integral dtype ({what} of {array.dtype})")


def reduction(group: ProcessGroup, array: Array, op: ReduceOp, run: Any) -> Iterator[Any]:
    """The steps of an exchange that reduces `array`, in place: `run(array, name)`, in a dtype that MPI computes in.

    Half precision is added up in float32, and rounded once.
    """
    name = op.value
    if array.dtype == dtypes.bool_:
        yield from run(array.view(dtypes.uint8), OF_BOOL.get(name, name))
    elif needs_wider(array):
        wide = array.astype(dtypes.float32)
        yield from run(wide, name)
        array[...] = wide / group.size() if op is ReduceOp.AVG else wide
        return
    else:
        yield from run(array, name)
    if op is ReduceOp.AVG:
        cpu.divide(array, array.dtype.type(group.size()), array)


def needs_wider(array: Array) -> bool:
    """Whether it is of half precision."""
    return bool(array.dtype.kind == "V" or array.dtype == dtypes.float16)


def all_reduce_steps(group: ProcessGroup, flat: Array, op: ReduceOp) -> Iterator[Any]:
    def run(array: Array, name: str) -> Iterator[Any]:
        if group.size() == 1:
            return
        in_ring = array.nbytes >= RING_FROM and name in UFUNCS and group.size() <= RING_UP_TO
        if in_ring and array.size >= group.size():
            way = direct.all_reduce if direct.applies(group, array) else ring
            yield from way(group, array, UFUNCS[name])
        else:
            yield [group.comm.Iallreduce(group.mpi.IN_PLACE, array, getattr(group.mpi, MPI_NAMES[name]))]

    return reduction(group, flat, op, run)


def reduce_scatter_steps(group: ProcessGroup, flat: Array, out: Array, op: ReduceOp) -> Iterator[Any]:
    """The sum of everybody's `flat`, of which this process's part goes into `out`."""
    is_direct = group.read is not None and group.size() <= RING_UP_TO and op.value in UFUNCS
    if is_direct and flat.nbytes >= direct.PARTS_FROM_BYTES and flat.dtype != dtypes.bool_ and not needs_wider(flat):
        yield from reduction(group, out, op, lambda part, name: direct.reduce_scatter(group, flat, part, UFUNCS[name]))
        return
    whole = flat.copy()

    def run(array: Array, name: str) -> Iterator[Any]:
        part = cpu.empty(out.size, dtype=array.dtype)
        yield [group.comm.Ireduce_scatter_block(array, part, getattr(group.mpi, MPI_NAMES[name]))]
        array[: out.size] = part

    yield from reduction(group, whole, op, run)
    out[...] = whole[: out.size]


def ring(group: ProcessGroup, flat: Array, combine: Any) -> Iterator[Any]:
    """Each process adds its part to what comes from the left and hands it on to the right; then the sums go round.

    Two messages of a part for each of the others: no process sends more than twice its memory.
    """
    count, rank, comm = group.size(), group.rank(), group.comm
    tag = group.tag()
    cuts = [flat.size * k // count for k in range(count + 1)]
    parts = [flat[a:b] for a, b in pairwise(cuts)]
    right, left = (rank + 1) % count, (rank - 1) % count
    spare = group.borrow(-(-flat.size // count), flat.dtype)
    for step in range(count - 1):
        mine, theirs = parts[(rank - step) % count], parts[(rank - step - 1) % count]
        received = spare[: theirs.size]
        yield [comm.Irecv(received, left, tag), comm.Isend(mine, right, tag)]
        combine(theirs, received, theirs)
    for step in range(count - 1):
        mine, theirs = parts[(rank + 1 - step) % count], parts[(rank - step) % count]
        yield [comm.Irecv(theirs, left, tag + 1), comm.Isend(mine, right, tag + 1)]
    group.give_back(spare)
