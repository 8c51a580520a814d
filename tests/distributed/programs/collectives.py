"""Every exchange, in every dtype that it takes: each rank knows what all the others brought."""

from __future__ import annotations

import functools
import itertools
import math
import sys

import undertow as ut
import undertow.distributed as dist
from undertow.distributed import ReduceOp, direct

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
ranks = range(size)


class Person:
    """Of a class that is no plain data."""

    def __init__(self, name):
        self.name = name


def equal(got, expected):
    expected = ut.tensor(expected) if isinstance(expected, list) else expected
    assert got.dtype == expected.dtype and got.tolist() == expected.tolist(), f"rank {rank}: {got}, expected {expected}"


# ---- reductions

FLOATS = (ut.float64, ut.float32, ut.float16, ut.bfloat16)
INTEGERS = (ut.int64, ut.int32, ut.uint8)
LARGE = 70_001  # more bytes than what goes round the ring, and no multiple of any number of ranks

for dtype, length in itertools.product((*FLOATS, *INTEGERS, ut.complex64), (0, 1, 3, LARGE)):
    mine = (ut.arange(length) % 2 + rank + 1).to(dtype)
    others = [(ut.arange(length) % 2 + r + 1).to(dtype) for r in ranks]
    results = {ReduceOp.SUM: sum(others[1:], others[0])}
    if dtype in FLOATS:
        results[ReduceOp.AVG] = (sum([o.double() for o in others[1:]], others[0].double()) / size).to(dtype)
    if dtype is not ut.complex64:
        results[ReduceOp.MAX] = others[-1]
        results[ReduceOp.MIN] = others[0]
    if dtype is ut.int64:
        results[ReduceOp.PRODUCT] = ut.tensor([math.prod(n) for n in zip(*[o.tolist() for o in others], strict=True)])
        results[ReduceOp.BAND] = (
            others[0]
            if size == 1
            else ut.tensor([functools.reduce(int.__and__, n) for n in zip(*[o.tolist() for o in others], strict=True)])
        )
        for op, combine in ((ReduceOp.BOR, int.__or__), (ReduceOp.BXOR, int.__xor__)):
            results[op] = ut.tensor(
                [functools.reduce(combine, n) for n in zip(*[o.tolist() for o in others], strict=True)]
            )
    for op, expected in results.items():
        if not length:
            expected = mine.clone()
        got, version = mine.clone(), 0
        version = got._version
        assert dist.all_reduce(got, op) is None and got._version == version + 1
        equal(got, expected)
        got = mine.clone()
        work = dist.all_reduce(got, op, async_op=True)
        assert work.wait() and work.is_completed() and work.is_success() and work.result()[0] is got
        equal(got, expected)
        got = mine.clone()
        dist.reduce(got, size - 1, op)
        equal(got, expected if rank == size - 1 else mine)


# ---- large ones, by each way there is: a ring of messages, or reading from each other's memory

world = dist.process_group.world()
read = world.read
for way in (None, read):
    world.read, direct.FROM_RANKS = way, 2
    large = [(ut.arange(length) % 5 + rank).to(ut.float32) for length in (90_000, LARGE, 600_000)]
    sums = [sum([(ut.arange(len(t)) % 5 + r).to(ut.float32) for r in ranks]) for t in large]
    works = [dist.all_reduce(t, async_op=True) for t in large[:2]]
    dist.all_reduce(large[2])  # while others are under way
    assert [work.wait() for work in reversed(works)] == [True, True]
    for got, expected in zip(large, sums, strict=True):
        equal(got, expected)
    expected = (sum([(ut.arange(size * 50_000) % 7 + r).double() for r in ranks]) / size).float().reshape(size, -1)
    for chosen in (None, rank, 0):  # new memory, or a part of what is given
        rows = (ut.arange(size * 50_000) % 7 + rank).to(ut.float32).reshape(size, -1)
        part = ut.empty(50_000) if chosen is None else rows[chosen]
        dist.reduce_scatter_tensor(part, rows, ReduceOp.AVG)
        equal(part, expected[rank])
world.read = read

truth = ut.tensor([rank == 0, True, False])
dist.all_reduce(truth)
equal(truth, ut.tensor([True, True, False]))
truth = ut.tensor([rank == 0, True, False])
dist.all_reduce(truth, ReduceOp.PRODUCT)
equal(truth, ut.tensor([size == 1, True, False]))

several = [ut.full((2, 3), float(rank)), ut.full((1,), 2.0)]
dist.all_reduce_coalesced(several)
equal(several[0], ut.full((2, 3), float(sum(ranks))))
equal(several[1], ut.full((1,), 2.0 * size))

several = [ut.full((2,), float(rank)), ut.tensor([rank], dtype=ut.int64), ut.full((1,), 1.0), ut.tensor([1j * rank])]
dist.all_reduce_coalesced(several)  # one message for each dtype
assert [t.tolist() for t in several] == [[sum(ranks)] * 2, [sum(ranks)], [size], [1j * sum(ranks)]]
lists = [[ut.zeros(2, 2), ut.zeros(0), ut.zeros(3, dtype=ut.int64)] for _ in ranks]
dist.all_gather_coalesced(lists, [ut.full((2, 2), float(rank)), ut.zeros(0), ut.tensor([rank] * 3)])
for r, found in enumerate(lists):
    assert [t.tolist() for t in found] == [[[r, r], [r, r]], [], [r, r, r]]
future = dist.group.WORLD.allreduce([ut.ones(2)]).get_future()
doubled = future.then(lambda f: f.wait()[0] * 2).then(lambda f: f.wait() + 1)
equal(doubled.wait(), ut.full((2,), 2.0 * size + 1))
equal(doubled.wait(), future.value()[0] * 2 + 1)

sparse = ut.sparse_coo_tensor(ut.tensor([[0, rank + 1]]), ut.tensor([1.0, 5.0]), (size + 1,))
dist.all_reduce(sparse)
equal(sparse.to_dense(), ut.tensor([float(size), *[5.0] * size]))

# ---- many under way at once, waited for in another order

tensors = [ut.full((n,), float(rank + n)) for n in (3, LARGE, 5, LARGE, 1)]
works = [dist.all_reduce(t, async_op=True) for t in tensors]
for k in (4, 1, 0, 3, 2):
    works[k].wait()
    n = (3, LARGE, 5, LARGE, 1)[k]
    equal(tensors[k], ut.full((n,), float(sum([r + n for r in ranks]))))
future = dist.all_reduce(t := ut.ones(2), async_op=True).get_future().then(lambda f: f.value()[0] * 10)
equal(future.wait(), ut.full((2,), 10.0 * size))

# ---- copies

for dtype in (*FLOATS, *INTEGERS, ut.bool_, ut.complex128):
    mine = ut.tensor([[rank, 1], [2, 3]]).to(dtype)
    everybodys = [ut.tensor([[r, 1], [2, 3]]).to(dtype) for r in ranks]
    got = mine.clone()
    dist.broadcast(got, size - 1)
    equal(got, everybodys[-1])
    parts = [ut.zeros(2, 2, dtype=dtype) for _ in ranks]
    dist.all_gather(parts, mine)
    for part, expected in zip(parts, everybodys, strict=True):
        equal(part, expected)
    for shape in ((2 * size, 2), (size, 2, 2)):
        whole = ut.zeros(shape, dtype=dtype)
        dist.all_gather_into_tensor(whole, mine)
        equal(whole, ut.stack(everybodys).reshape(shape))
    parts = [ut.zeros(2, 2, dtype=dtype) for _ in ranks]
    dist.gather(mine, parts if rank == 0 else None, 0)
    for part, expected in zip(parts, everybodys, strict=True):
        equal(part, expected if rank == 0 else ut.zeros(2, 2, dtype=dtype))
    got = ut.zeros(2, 2, dtype=dtype)
    dist.scatter(got, everybodys if rank == size - 1 else None, size - 1)
    equal(got, mine)

number = ut.tensor(float(rank))  # without dimensions
dist.broadcast(number, 0)
equal(number, ut.tensor(0.0))

# ---- parts of everybody's for everybody

table = ut.arange(2.0 * size).reshape(size, 2) + 100 * rank
part = ut.zeros(1, 2)
dist.reduce_scatter_tensor(part, table)
equal(part, (ut.arange(2.0) + 2 * rank).reshape(1, 2) * size + 100 * sum(ranks))
dist.reduce_scatter(part, list(table.reshape(size, 1, 2).unbind()), ReduceOp.AVG)
equal(part, (ut.arange(2.0) + 2 * rank).reshape(1, 2) + 100 * sum(ranks) / size)
half = ut.zeros(2, dtype=ut.float16)
dist.reduce_scatter_tensor(half, table.half().reshape(-1))
equal(half, ((ut.arange(2.0) + 2 * rank) * size + 100 * sum(ranks)).half())

got = ut.zeros(size)
dist.all_to_all_single(got, ut.arange(float(size)) + 10 * rank)
equal(got, ut.tensor([10.0 * r + rank for r in ranks]))
got = ut.zeros(size * (rank + 1))  # rank r gives r' + 1 numbers to rank r'
sent = ut.cat([ut.full((r + 1,), float(10 * rank + r)) for r in ranks])
dist.all_to_all_single(got, sent, [rank + 1] * size, [r + 1 for r in ranks])
equal(got, ut.cat([ut.full((rank + 1,), float(10 * r + rank)) for r in ranks]))
parts = [ut.zeros(rank + 1) for _ in ranks]
dist.all_to_all(parts, [ut.full((r + 1,), float(10 * rank + r)) for r in ranks])
for r, part in enumerate(parts):
    equal(part, ut.full((rank + 1,), float(10 * r + rank)))

# ---- messages

right, left = (rank + 1) % size, (rank - 1) % size
if size > 1:
    got = ut.zeros(3, dtype=ut.bfloat16)
    messages = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, ut.full((3,), rank, dtype=ut.bfloat16), right),
        dist.P2POp(dist.irecv, got, left),
    ])  # fmt: skip
    for message in messages:
        message.wait()
    equal(got, ut.full((3,), left, dtype=ut.bfloat16))
    if rank == 0:
        first, second = ut.zeros(1), ut.zeros(1)
        assert dist.recv(second, 1, tag=2) == 1 and dist.recv(first, tag=1) == 1
        equal(ut.cat([first, second]), ut.tensor([1.0, 2.0]))
    elif rank == 1:
        pending = [dist.isend(ut.tensor([float(tag)]), 0, tag=tag) for tag in (1, 2)]
        for message in pending:
            message.wait()

# ---- objects

found = [None] * size
dist.all_gather_object(found, {"rank": rank, "tensor": ut.full((rank,), 1.5), "text": "é" * rank, "none": None})
for r, value in enumerate(found):
    assert value["rank"] == r and value["tensor"].tolist() == [1.5] * r and value["text"] == "é" * r
found = [None] * size
dist.gather_object((rank, "x"), found if rank == 0 else None, 0)
assert found == ([(r, "x") for r in ranks] if rank == 0 else [None] * size)
values = [rank, [1, {"a": 2.5}]] if rank == 0 else [None, None]
dist.broadcast_object_list(values, 0)
assert values == [0, [1, {"a": 2.5}]]
mine = [None]
dist.scatter_object_list(mine, [{"for": r} for r in ranks] if rank == 0 else None, 0)
assert mine == [{"for": rank}]
if size > 1 and rank < 2:
    if rank == 0:
        dist.send_object_list(["a", {"b": ut.ones(2)}], 1)
        dist.send_object_list([b"\x00\xff", b""], group_dst=1)
    else:
        values = [None, None]
        assert dist.recv_object_list(values, 0) == 0 and values[0] == "a" and values[1]["b"].tolist() == [1, 1]
        assert dist.recv_object_list(values, group_src=0) == 0 and values == [b"\x00\xff", b""]

# ---- groups

odd = [r for r in ranks if r % 2]
group = dist.new_group(odd)
if rank in odd:
    assert dist.get_rank(group) == odd.index(rank) and dist.get_world_size(group) == len(odd)
    assert dist.get_process_group_ranks(group) == odd and dist.get_group_rank(group, rank) == odd.index(rank)
    assert dist.get_global_rank(group, 0) == odd[0]
    t = ut.tensor([float(rank)])
    dist.all_reduce(t, group=group)
    equal(t, ut.tensor([float(sum(odd))]))
    dist.broadcast(t, odd[-1], group)
else:
    assert group == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(group) == -1
backwards = dist.new_group(list(ranks)[::-1], sort_ranks=False, group_desc="backwards")
assert dist.get_process_group_ranks(backwards) == list(ranks)[::-1] and dist.get_rank(backwards) == size - 1 - rank
dist.all_gather(found := [ut.zeros(1) for _ in ranks], ut.full((1,), float(rank)), backwards)
equal(ut.cat(found), [float(r) for r in ranks][::-1])
mine, everybodys = dist.new_subgroups(1)
assert dist.get_process_group_ranks(mine) == [rank] and len(everybodys) == size and everybodys[rank] is mine
mine, _ = dist.new_subgroups_by_enumeration([list(ranks)[:1], list(ranks)[1:]][: min(size, 2)])
assert dist.get_process_group_ranks(mine) == ([0] if rank == 0 else list(ranks)[1:])
assert dist.new_subgroups_by_enumeration([[0]])[0] is None or rank == 0
dist.monitored_barrier(timeout=60)
dist.barrier()
dist.barrier(timeout=60)
assert dist.get_backend() == "mpi"


# ---- what is refused is refused before anything is sent, on the rank that asked for it


def refused(kind, text, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert text in str(error), f"{error}"
    else:
        raise AssertionError(f"{function} was not refused")


refused(ValueError, "must be contiguous", dist.all_reduce, ut.ones(2, 3).t())
refused(TypeError, "of type Tensor, not list", dist.all_reduce, [1.0])
refused(TypeError, "must be a ReduceOp", dist.all_reduce, ut.ones(2), "SUM")
refused(RuntimeError, "mean of integers", dist.all_reduce, ut.tensor([1]), ReduceOp.AVG)
for op in (ReduceOp.MAX, ReduceOp.PRODUCT):
    refused(ValueError, "complex", dist.all_reduce, ut.ones(2, dtype=ut.complex64), op)
refused(RuntimeError, "non-integral", dist.all_reduce, ut.ones(2), ReduceOp.BOR)
refused(RuntimeError, "on the CPU", dist.all_reduce, ut.ones(2, device="sim:0"))
count = f"one tensor for each of the {size} processes, not {size + 1}"
refused(ValueError, count, dist.all_gather, [ut.ones(2)] * (size + 1), ut.ones(2))
refused(
    ValueError,
    "one shape and dtype: those of the list are float32[3]",
    dist.all_gather,
    [ut.ones(3)] * size,
    ut.ones(2),
)
refused(ValueError, "times its size", dist.all_gather_into_tensor, ut.ones(size + 1), ut.ones(1))
refused(ValueError, "gather_list", dist.gather, ut.ones(2), None if rank == 0 else [ut.ones(2)], 0)
refused(ValueError, "not part of group", dist.broadcast, ut.ones(2), size)
refused(ValueError, "itself", dist.send, ut.ones(2), rank)
refused(ValueError, "tag", dist.send, ut.ones(2), right, tag=10**6) if size > 1 else None
refused(ValueError, "different numbers", dist.new_group, [0, 0])
refused(ValueError, "the backend is 'mpi', not 'nccl'", dist.new_group, [0], backend="nccl")
refused(ValueError, "use_local_synchronization", dist.new_group, [0], use_local_synchronization=True)
refused(ValueError, "does not belong", dist.get_global_rank, dist.GroupMember.NON_GROUP_MEMBER, 0)
refused(ValueError, "does not belong", dist.get_group_rank, dist.GroupMember.NON_GROUP_MEMBER, 0)
refused(ValueError, "must be divisible", dist.new_subgroups, size + 1)
refused(ValueError, "must be positive", dist.new_subgroups, 0)
refused(ValueError, "pass group_size", dist.new_subgroups)
refused(ValueError, "cannot be empty", dist.new_subgroups_by_enumeration, [])
refused(ValueError, "appeared in both", dist.new_subgroups_by_enumeration, [[0], [0]])
refused(ValueError, "twice", dist.init_process_group)
refused(TypeError, "Person", dist.broadcast_object_list, [Person("a")], rank)

# ---- profiles show exchanges

with ut.profiler.profile(record_shapes=True) as prof:
    dist.all_reduce(ut.ones(2, 3))
    work = dist.all_gather_into_tensor(ut.ones(size, dtype=ut.complex64), ut.ones(1, dtype=ut.complex64), async_op=True)
    (ut.ones(3) * 2).sum()
    work.wait()
events = [e for e in prof.events() if e.is_async]
assert [(e.name, e.input_shapes) for e in events] == [("mpi:all_reduce", [[2, 3]]), ("mpi:all_gather", [[1, 2]])]

# ---- a group that is left, and joined again

hook = sys.excepthook
assert (hook is sys.__excepthook__) == (size == 1)
dist.destroy_process_group()
assert sys.excepthook is sys.__excepthook__
refused(ValueError, "has not been initialized", dist.all_reduce, ut.ones(1))
dist.init_process_group("gloo", timeout=60, allow_pickle=True)
assert dist.get_backend() == "gloo" and sys.excepthook == hook
found = [None] * size
dist.all_gather_object(found, Person(f"number {rank}"))
assert [p.name for p in found] == [f"number {r}" for r in ranks]
equal(dist.all_reduce(t := ut.ones(3), async_op=True).result()[0], ut.full((3,), float(size)))
dist.destroy_process_group()
print(f"rank {rank} of {size} is done")
