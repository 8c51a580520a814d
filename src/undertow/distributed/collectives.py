"""Exchanges in which every process of a group takes part, with the tensors' own memory."""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from undertow import ops
from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType
from undertow.distributed.errors import DistMismatchError, DistTimeoutError
from undertow.distributed.process_group import ProcessGroup, resolve
from undertow.distributed.reduce_op import (
    MPI_NAMES,
    ReduceOp,
    all_reduce_steps,
    check_reducible,
    reduce_scatter_steps,
    reduction,
)
from undertow.distributed.work import Work, abandoned, seconds_of
from undertow.tensor import Tensor, counter_of

# ---- memory


def memory_of(what: str, tensor: Any) -> Array:
    """The array behind a tensor, which MPI reads and writes."""
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `tensor` of type Tensor, not {type(tensor).__name__} "
            f"({what})"
        )
    array = tensor._array
    if tensor._xp is not cpu or type(array) is not cpu.ndarray:
        raise RuntimeError(
            f"{what}: exchanges are between dense tensors on the CPU; this one is on {tensor.device}, {tensor.layout}"
        )
    if not array.flags.c_contiguous:
        raise ValueError(
            f"Tensors must be contiguous: {what} works on the tensor's own memory. Call .contiguous() first."
        )
    return array


def to_write(what: str, tensor: Any) -> Array:
    """The same, for an exchange that writes into it: one more version, as of any operation in place."""
    array = memory_of(what, tensor)
    if not array.flags.writeable:
        raise RuntimeError(f"{what}: the tensor's memory is read-only, or several of its elements share it; clone() it")
    counter_of(tensor).bump(what)
    return array


def as_bytes(array: Array) -> Array:
    """The memory as MPI takes it whatever the dtype is."""
    return array.reshape(-1).view(dtypes.uint8)


def check_same(what: str, listed: Sequence[Array], other: Array, members: ProcessGroup) -> None:
    """Refuse a list that does not have one tensor for each process, all of the other tensor's shape and dtype."""
    if len(listed) != members.size():
        raise ValueError(
            f"{what}: the list must have one tensor for each of the {members.size()} processes, not {len(listed)}"
        )
    if any([(a.shape, a.dtype) != (other.shape, other.dtype) for a in listed]):
        raise ValueError(
            f"{what}: the tensors must have one shape and dtype: those of the list are "
            f"{', '.join([f'{a.dtype}{list(a.shape)}' for a in listed])}, and the other is "
            f"{other.dtype}{list(other.shape)}"
        )


def described(name: str, array: Array, *more: object) -> str:
    return in_words(name, array.dtype, array.shape, more)


@functools.lru_cache(4096)
def in_words(name: str, dtype: DType, shape: tuple[int, ...], more: tuple[object, ...]) -> str:
    """Kept, because NumPy takes longer to name a dtype than MPI takes for a short message."""
    return f"{name}({', '.join([f'{dtype}{list(shape)}', *map(str, more)])})"


def root_of(what: str, group: ProcessGroup, among_all: int | None, in_group: int | None) -> int:
    """The place in the group of the process that an exchange starts from or ends at."""
    if among_all is not None and in_group is not None:
        raise ValueError(f"{what}: give the rank among all processes or that in the group, not both")
    if in_group is not None:
        return in_group
    return group.member(group.ranks[0] if among_all is None else among_all, what)


def one(request: Any) -> Iterator[list[Any]]:
    yield [request]


# ---- reductions


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Let every process have the sum (or what `op` says) of the tensors of all, in the tensor itself.

    Example: `dist.all_reduce(ut.ones(2), op=dist.ReduceOp.SUM)`
    """
    members = resolve(group, "all_reduce")
    if members is None:
        return None
    if isinstance(tensor, Tensor) and tensor.is_sparse:
        if op not in (ReduceOp.SUM, ReduceOp.AVG):
            raise RuntimeError(f"all_reduce of sparse tensors adds them up: {op} is not possible")
        what = f"all_reduce(sparse {tensor._array.dtype}{list(tensor.shape)}, {op.value})"
        return members.start(what, all_reduce_sparse(tensor, op, members), [tensor], async_op)
    check_reducible("all_reduce", memory_of("all_reduce", tensor), op)
    to_write("all_reduce", tensor)
    return start_all_reduce(members, tensor, op, async_op)


def start_all_reduce(members: ProcessGroup, tensor: Tensor, op: ReduceOp, async_op: bool) -> Work | None:
    """`all_reduce` of a tensor that is known to be fit for it: a group's own, which no graph has saved."""
    array = tensor._array
    steps = all_reduce_steps(members, array.reshape(-1), op)
    return members.start(described("all_reduce", array, op.value), steps, [tensor], async_op, [array])


def all_reduce_sparse(tensor: Tensor, op: ReduceOp, group: ProcessGroup) -> Iterator[Any]:
    """The sum of sparse tensors: the places and values of all, which are added up where they coincide."""
    mine = tensor.detach().coalesce()
    counts = group.gathered(mine._nnz(), "all_reduce of sparse tensors")
    found = []
    for part in (mine.indices().t().contiguous(), mine.values().contiguous()):
        array = part._array
        whole = cpu.empty((sum(counts), *array.shape[1:]), dtype=array.dtype)
        row = whole.nbytes // len(whole) if len(whole) else 0
        yield [group.comm.Iallgatherv(as_bytes(array), [as_bytes(whole), [row * n for n in counts]])]
        found.append(Tensor(whole, cpu))
    total = ops.sparse_coo_tensor(found[0].t(), found[1], tensor.shape).coalesce()
    tensor._array = (total / group.size() if op is ReduceOp.AVG else total)._array
    counter_of(tensor).bump("all_reduce")


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several tensors as one message, or one for each dtype.

    op  a ReduceOp: the sum, unless said

    Example: `dist.all_reduce_coalesced([ut.ones(2), ut.ones(3)])`
    """
    members = resolve(group, "all_reduce_coalesced")
    if members is None:
        return None
    for t in tensors:
        check_reducible("all_reduce", memory_of("all_reduce_coalesced", t), op)
    arrays = [to_write("all_reduce_coalesced", t) for t in tensors]

    def steps() -> Iterator[Any]:
        for dtype in dict.fromkeys([a.dtype for a in arrays]):
            alike = [a for a in arrays if a.dtype == dtype]
            flat = cpu.concatenate([a.reshape(-1) for a in alike])
            yield from all_reduce_steps(members, flat, op)
            fill(alike, flat)

    what = f"all_reduce_coalesced({', '.join([f'{a.dtype}{list(a.shape)}' for a in arrays])}, {op.value})"
    return members.start(what, steps(), list(tensors), async_op, arrays)


def fill(arrays: Sequence[Array], flat: Array) -> None:
    """Give arrays the numbers that lie one behind the other in `flat`."""
    at = 0
    for array in arrays:
        array[...] = flat[at : at + array.size].reshape(array.shape)
        at += array.size


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Let the process `dst` have the sum (or what `op` says) of the tensors of all; the others' stay as they are.

    tensor  this process's; at `dst` it becomes the sum

    Example: `dist.reduce(ut.ones(2), dst=0)`
    """
    members = resolve(group, "reduce")
    if members is None:
        return None
    root = root_of("reduce", members, dst, group_dst)
    check_reducible("reduce", memory_of("reduce", tensor), op)
    receives = members.rank() == root
    array = to_write("reduce", tensor) if receives else memory_of("reduce", tensor)
    sent = array if receives else array.copy()  # widening and dividing must not touch what stays as it is

    def run(flat: Array, name: str) -> Iterator[Any]:
        mpi_op = getattr(members.mpi, MPI_NAMES[name])
        send = members.mpi.IN_PLACE if receives else flat
        yield [members.comm.Ireduce(send, flat if receives else None, mpi_op, root)]

    steps = reduction(members, sent.reshape(-1), op, run)
    return members.start(described("reduce", array, op.value, f"dst={root}"), steps, [tensor], async_op, [array])


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """The sum of all inputs, cut into one part for each process: its part goes into `output`.

    input  as many rows as all outputs have together
    op     a ReduceOp: the sum, unless said

    Example: `dist.reduce_scatter_tensor(ut.empty(2), ut.ones(2 * dist.get_world_size()))`
    """
    members = resolve(group, "reduce_scatter_tensor")
    if members is None:
        return None
    array = memory_of("reduce_scatter_tensor", input)
    check_reducible("reduce_scatter_tensor", array, op)
    out = to_write("reduce_scatter_tensor", output)
    if array.size != out.size * members.size() or array.dtype != out.dtype:
        raise ValueError(
            f"reduce_scatter_tensor: the input must have the output's dtype and {members.size()} times its size: "
            f"{array.dtype}{list(array.shape)} and {out.dtype}{list(out.shape)}"
        )
    steps = reduce_scatter_steps(members, array.reshape(-1), out.reshape(-1), op)
    return members.start(described("reduce_scatter", array, op.value), steps, [output], async_op, [array])


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """The same, with the parts as a list of tensors.

    output      what this process's part goes into
    input_list  a tensor for each process
    op          a ReduceOp: the sum, unless said

    Example: `dist.reduce_scatter(ut.empty(2), [ut.ones(2) for _ in range(dist.get_world_size())])`
    """
    members = resolve(group, "reduce_scatter")
    if members is None:
        return None
    arrays = [memory_of("reduce_scatter", t) for t in input_list]
    check_same("reduce_scatter", arrays, memory_of("reduce_scatter", output), members)
    return reduce_scatter_tensor(output, Tensor(cpu.stack(arrays), cpu), op, group, async_op)


# ---- copies


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Let every process have what the tensor of the process `src` holds.

    Example: `dist.broadcast(ut.ones(2), src=0)`
    """
    members = resolve(group, "broadcast")
    if members is None:
        return None
    root = root_of("broadcast", members, src, group_src)
    array = memory_of("broadcast", tensor) if members.rank() == root else to_write("broadcast", tensor)
    steps = one(members.comm.Ibcast(as_bytes(array), root))
    return members.start(described("broadcast", array, f"src={root}"), steps, [tensor], async_op, [array])


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The tensors of all processes, one behind the other or stacked, as the shape of `output_tensor` says.

    input_tensor  this process's

    Example: `dist.all_gather_into_tensor(ut.empty(2 * dist.get_world_size()), ut.ones(2))`
    """
    members = resolve(group, "all_gather_into_tensor")
    if members is None:
        return None
    array, out = memory_of("all_gather_into_tensor", input_tensor), to_write("all_gather_into_tensor", output_tensor)
    if out.size != array.size * members.size() or out.dtype != array.dtype:
        raise ValueError(
            f"all_gather_into_tensor: the output must have the input's dtype and {members.size()} times its size: "
            f"{out.dtype}{list(out.shape)} and {array.dtype}{list(array.shape)}"
        )
    steps = one(members.comm.Iallgather(as_bytes(array), as_bytes(out)))
    return members.start(described("all_gather", array), steps, [output_tensor], async_op, [array])


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """The tensors of all processes, each in one of the list.

    tensor_list  a list with a tensor for each process
    tensor       this process's

    Example: `dist.all_gather([ut.empty(2) for _ in range(dist.get_world_size())], ut.ones(2))`
    """
    members = resolve(group, "all_gather")
    if members is None:
        return None
    array = memory_of("all_gather", tensor)
    outs = [to_write("all_gather", t) for t in tensor_list]
    check_same("all_gather", outs, array, members)
    whole = cpu.empty((members.size(), *array.shape), dtype=array.dtype)

    def steps() -> Iterator[Any]:
        yield [members.comm.Iallgather(as_bytes(array), as_bytes(whole))]
        for part, out in zip(whole, outs, strict=True):
            out[...] = part

    return members.start(described("all_gather", array), steps(), list(tensor_list), async_op, [array])


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]],
    input_tensor_list: Sequence[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """`all_gather` of several tensors as one message: one list for each process, with a tensor for each of its own.

    output_tensor_lists  for each process, a list of tensors
    input_tensor_list    this process's tensors

    Example: `dist.all_gather_coalesced([[ut.empty(2)] for _ in range(dist.get_world_size())], [ut.ones(2)])`
    """
    members = resolve(group, "all_gather_coalesced")
    if members is None:
        return None
    arrays = [memory_of("all_gather_coalesced", t) for t in input_tensor_list]
    outs = [[to_write("all_gather_coalesced", t) for t in found] for found in output_tensor_lists]
    expected = [(a.shape, a.dtype) for a in arrays]
    if len(outs) != members.size() or any([[(a.shape, a.dtype) for a in found] != expected for found in outs]):
        raise ValueError(
            f"all_gather_coalesced: output_tensor_lists must have {members.size()} lists, each with tensors of the "
            f"shapes and dtypes of those given: {[f'{dtype}{list(shape)}' for shape, dtype in expected]}"
        )
    mine = cpu.concatenate([as_bytes(a) for a in arrays])
    whole = cpu.empty((members.size(), mine.size), dtype=dtypes.uint8)

    def steps() -> Iterator[Any]:
        yield [members.comm.Iallgather(mine, whole)]
        for row, found in zip(whole, outs, strict=True):
            fill([as_bytes(out) for out in found], row)

    what = f"all_gather_coalesced({', '.join([f'{a.dtype}{list(a.shape)}' for a in arrays])})"
    return members.start(what, steps(), [list(found) for found in output_tensor_lists], async_op, arrays)


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """The tensors of all processes, in the list of the process `dst`; the others give none.

    tensor       this process's
    gather_list  at `dst` a list with a tensor for each process, elsewhere None

    Example: `dist.gather(ut.ones(2), list(ut.empty(dist.get_world_size(), 2)) if dist.get_rank() == 0 else None)`
    """
    members = resolve(group, "gather")
    if members is None:
        return None
    root = root_of("gather", members, dst, group_dst)
    array, receives = memory_of("gather", tensor), members.rank() == root
    check_list("gather", "gather_list", "dst", gather_list, receives)
    outs = [to_write("gather", t) for t in gather_list or ()]
    if receives:
        check_same("gather", outs, array, members)
    whole = cpu.empty((members.size(), *array.shape), dtype=array.dtype) if receives else None

    def steps() -> Iterator[Any]:
        yield [members.comm.Igather(as_bytes(array), None if whole is None else as_bytes(whole), root)]
        for out, part in zip(outs, () if whole is None else whole, strict=True):
            out[...] = part

    result = [list(gather_list or ())]
    return members.start(described("gather", array, f"dst={root}"), steps(), result, async_op, [array])


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """One tensor of the list of the process `src` for each; the others give none.

    scatter_list  at `src` a list with a tensor for each process, elsewhere None

    Example: `dist.scatter(ut.empty(2), dist.get_world_size() * [ut.ones(2)] if dist.get_rank() == 0 else None)`
    """
    members = resolve(group, "scatter")
    if members is None:
        return None
    root = root_of("scatter", members, src, group_src)
    sends, out = members.rank() == root, to_write("scatter", tensor)
    check_list("scatter", "scatter_list", "src", scatter_list, sends)
    arrays = [memory_of("scatter", t) for t in scatter_list or ()]
    if sends:
        check_same("scatter", arrays, out, members)
    whole = as_bytes(cpu.stack(arrays)) if sends else None
    steps = one(members.comm.Iscatter(whole, as_bytes(out), root))
    return members.start(described("scatter", out, f"src={root}"), steps, [tensor], async_op, arrays)


def check_list(what: str, name: str, end: str, given: Sequence[Tensor] | None, is_end: bool) -> None:
    if is_end and not given:
        raise ValueError(
            f"Argument ``{name}`` must be specified on {'destination' if end == 'dst' else 'source'} rank. ({what})"
        )
    if not is_end and given:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on other ranks than {end}. ({what})")


# ---- everybody to everybody


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Cut `input` along its first dimension, a part for each process, and put the parts that come behind each other.

    *_split_sizes  how many rows each part has; the same for all if not given
    output         what is received into
    input_split_sizes, output_split_sizes  rows for, and from, each process

    Example: `dist.all_to_all_single(ut.empty(dist.get_world_size()), ut.arange(float(dist.get_world_size())))`
    """
    members = resolve(group, "all_to_all_single")
    if members is None:
        return None
    array, out = memory_of("all_to_all_single", input), to_write("all_to_all_single", output)
    if array.dtype != out.dtype:
        raise ValueError(f"all_to_all_single: input and output must have one dtype, not {array.dtype} and {out.dtype}")
    sent = part_bytes("input", array, input_split_sizes, members.size())
    received = part_bytes("output", out, output_split_sizes, members.size())
    steps = parts_exchanged(members, as_bytes(array), sent, as_bytes(out), received)
    return members.start(f"all_to_all({array.dtype})", steps, [output], async_op, [array])


def parts_exchanged(
    members: ProcessGroup, given: Array, sent: list[int], out: Array, received: list[int]
) -> Iterator[Any]:
    """Parts of so many bytes to and from each process. Sizes go first: MPI takes parts that are too short for whole."""
    theirs = cpu.empty(members.size(), dtype=dtypes.int64)
    yield [members.comm.Ialltoall(cpu.asarray(sent, dtype=dtypes.int64), theirs)]
    for rank, came, awaited in zip(members.ranks, theirs.tolist(), received, strict=True):
        if came != awaited:
            raise DistMismatchError(
                f"rank {rank} sends {came} bytes to rank {members.ranks[members.rank()]}, which expects {awaited}. "
                "What a process sends to another must be as large as what that one receives from it"
            )
    yield [members.comm.Ialltoallv([given, sent], [out, received])]


def part_bytes(name: str, array: Array, sizes: Sequence[int] | None, count: int) -> list[int]:
    """How many bytes each part has."""
    rows = array.shape[0] if array.ndim else 1
    if sizes is None or not len(sizes):
        if rows % count:
            raise RuntimeError(
                f"Tensor's dim 0 does not divide equally across group size: {name} has {rows} rows, and {count} "
                f"processes are to have a part each. Give {name}_split_sizes."
            )
        sizes = [rows // count] * count
    if len(sizes) != count or sum(sizes) != rows:
        raise RuntimeError(
            f"Split sizes doesn't match total dim 0 size: {name}_split_sizes {list(sizes)} of {rows} rows for {count} "
            "processes"
        )
    row = array.nbytes // rows if rows else 0
    return [n * row for n in sizes]


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Give each process one tensor of the list, and put what comes into those of the other; sizes may differ.

    output_tensor_list  what is received into, one tensor for each process
    input_tensor_list   what is sent, one tensor for each process

    Example: `dist.all_to_all(list(ut.empty(dist.get_world_size(), 1)), dist.get_world_size() * [ut.ones(1)])`
    """
    members = resolve(group, "all_to_all")
    if members is None:
        return None
    arrays = [memory_of("all_to_all", t) for t in input_tensor_list]
    outs = [to_write("all_to_all", t) for t in output_tensor_list]
    for name, found in (("input", arrays), ("output", outs)):
        if len(found) != members.size():
            raise ValueError(
                f"all_to_all: {name}_tensor_list must have one tensor for each of the {members.size()} processes, not "
                f"{len(found)}"
            )
    if len({a.dtype for a in (*arrays, *outs)}) != 1:
        raise ValueError("all_to_all: the tensors must have one dtype")
    sent = cpu.concatenate([as_bytes(a) for a in arrays])
    received = cpu.empty(sum([o.nbytes for o in outs]), dtype=dtypes.uint8)

    def steps() -> Iterator[Any]:
        yield from parts_exchanged(members, sent, [a.nbytes for a in arrays], received, [o.nbytes for o in outs])
        at = 0
        for out in outs:
            as_bytes(out)[...] = received[at : at + out.nbytes]
            at += out.nbytes

    return members.start(f"all_to_all({arrays[0].dtype})", steps(), list(output_tensor_list), async_op, arrays)


# ---- waiting for each other


def barrier(
    group: Any = None,
    async_op: bool = False,
    device_ids: Any = None,
    timeout: datetime.timedelta | float | None = None,
) -> Work | None:
    """Wait until all processes of the group have come here.

    timeout     how long at most, if it is not to be the group's limit; of an `async_op`, its `wait` is told
    device_ids  accepted, without effect

    Example: `dist.barrier()`
    """
    members = resolve(group, "barrier")
    if members is None:
        return None
    work = members.start("barrier()", one(members.comm.Ibarrier()), None, async_op or timeout is not None)
    if async_op or work is None:
        return work
    work.wait(timeout)
    return None


def monitored_barrier(
    group: Any = None, timeout: datetime.timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier that says which processes have not come within the limit of time.

    wait_all_ranks  name all of them, and not the first only

    Example: `dist.monitored_barrier()`
    """
    members = resolve(group, "monitored_barrier")
    if members is None:
        return
    limit = members.timeout if timeout is None else seconds_of(timeout)
    until = time.monotonic() + limit
    members.monitored += 1
    tag = MONITORED + members.monitored % 1000  # of this one: what a rank sends that comes too late meets no other
    others = [r for r in members.ranks if r != members.ranks[members.rank()]]
    places = [members.ranks.index(r) for r in others]
    missing = {r: members.check.Irecv(bytearray(1), k, tag) for r, k in zip(others, places, strict=True)}
    sends = [members.check.Isend(b"x", k, tag) for k in places]
    while missing:
        missing = {rank: call for rank, call in missing.items() if not call.Test()}
        if missing and time.monotonic() > until:
            for call in missing.values():
                call.Cancel()
            abandoned.extend([missing, sends])
            raise DistTimeoutError(who_failed(members, list(missing), limit, wait_all_ranks))
        time.sleep(1e-4)
    members.mpi.Request.Waitall(sends)


def who_failed(group: ProcessGroup, missing: list[int], limit: float, all_of_them: bool) -> str:
    rank, first = group.ranks[group.rank()], group.ranks[0]
    mine = (
        f"Rank {rank} timed out in monitoredBarrier after {limit * 1000:.0f} ms"
        if rank == first
        else f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
        f"rank {first}"
    )
    named = f"Ranks {', '.join(map(str, missing))}" if all_of_them else f"Rank {missing[0]}"
    known = group.roll_call(group.number)  # this barrier is no exchange that the board counts
    return f"{mine}: {named} failed to pass monitoredBarrier in {limit * 1000:.0f} ms{known}"


#: the first tag of monitored_barrier's messages
MONITORED = 31000
