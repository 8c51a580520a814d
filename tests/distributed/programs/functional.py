"""Exchanges that gradients go through: as if one process had all tensors, for first and second derivatives."""

from __future__ import annotations

import undertow as ut
import undertow.distributed as dist
import undertow.distributed.nn.functional as F
from undertow.distributed import ReduceOp

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
ranks = range(size)
ut.manual_seed(0)
EVERYBODYS = [ut.randn(size, 3, dtype=ut.float64) for _ in ranks]


def compare(name, mine, whole):
    """mine(x): this rank's loss, which exchanges; whole(xs): the sum of all ranks' losses."""
    x = EVERYBODYS[rank].clone().requires_grad_()
    (first,) = ut.autograd.grad(mine(x), x, create_graph=True)
    (second,) = ut.autograd.grad((first * first).sum(), x)
    xs = [t.clone().requires_grad_() for t in EVERYBODYS]
    firsts = ut.autograd.grad(whole(xs), xs, create_graph=True)
    seconds = ut.autograd.grad(sum([(f * f).sum() for f in firsts]), xs)
    assert ut.allclose(first, firsts[rank]), f"{name}, rank {rank}: {first}, expected {firsts[rank]}"
    assert ut.allclose(second, seconds[rank]), f"{name}, rank {rank}, second: {second}, expected {seconds[rank]}"


compare("all_reduce", lambda x: (F.all_reduce(x**2) ** 2).sum(), lambda xs: size * (sum([x**2 for x in xs]) ** 2).sum())
compare(
    "all_reduce, mean",
    lambda x: (F.all_reduce(x**2, ReduceOp.AVG) ** 2).sum(),
    lambda xs: size * ((sum([x**2 for x in xs]) / size) ** 2).sum(),
)
compare(
    "all_gather",
    lambda x: sum([(t**3).sum() * (k + 1 + rank) for k, t in enumerate(F.all_gather(x))]),
    lambda xs: sum([(t**3).sum() * (k + 1 + r) for r in ranks for k, t in enumerate(xs)]),
)
compare(
    "all_reduce of an expanded gradient, and of a transposed tensor",
    lambda x: F.all_reduce(x.t() ** 3).sum() * (rank + 1),
    lambda xs: sum([(r + 1) * (x**3).sum() for r in ranks for x in xs]),
)
compare(
    "reduce of a transposed tensor",
    lambda x: (F.reduce((x**2).t(), 0) ** 2).sum() * (rank + 1),
    lambda xs: (sum([x**2 for x in xs]) ** 2).sum(),
)
compare(
    "reduce_scatter",
    lambda x: (F.reduce_scatter(x, [x * (k + 1) for k in ranks]) ** 3).sum(),
    lambda xs: sum([(sum([x * (k + 1) for x in xs]) ** 3).sum() for k in ranks]),
)
compare(
    "all_to_all_single",
    lambda x: (F.all_to_all_single(x, x**2) ** 2).sum() * (rank + 1),
    lambda xs: sum([((x[r] ** 2) ** 2).sum() * (r + 1) for r in ranks for x in xs]),
)
compare(
    "all_to_all",
    lambda x: sum([(t**3).sum() for t in F.all_to_all([x[0]] * size, list(x.unbind()))]) * (rank + 1),
    lambda xs: sum([(x[r] ** 3).sum() * (r + 1) for r in ranks for x in xs]),
)
compare(
    "broadcast",
    lambda x: (F.broadcast(x, size - 1) ** 3).sum() * (rank + 1) + (x**2).sum(),
    lambda xs: sum([(xs[-1] ** 3).sum() * (r + 1) for r in ranks]) + sum([(x**2).sum() for x in xs]),
)
compare(
    "reduce",
    lambda x: (F.reduce(x**2, 0) ** 2).sum(),
    lambda xs: (sum([x**2 for x in xs]) ** 2).sum(),
)
compare(
    "gather",
    lambda x: sum([(t**3).sum() * (k + 1) for k, t in enumerate(F.gather(x, 0))]),
    lambda xs: sum([(t**3).sum() * (k + 1) for k, t in enumerate(xs)]),
)
compare(
    "scatter",
    lambda x: (F.scatter(list(x.unbind()), 0) ** 3).sum() * (rank + 1) + (x**2).sum(),
    lambda xs: sum([(xs[0][r] ** 3).sum() * (r + 1) for r in ranks]) + sum([(x**2).sum() for x in xs]),
)

# ---- a pipeline: each rank has a stage, micro-batches go through one after another

weights = [ut.randn(8, 8) / 3 for _ in ranks]
batch = ut.randn(8, 8)
mine = weights[rank].clone().requires_grad_()
ends = []
for k in range(4):
    h = batch[2 * k : 2 * k + 2] if rank == 0 else F.recv((2, 8), rank - 1, tag=k)
    h = ut.tanh(h @ mine)
    ends.append((h**2).sum() if rank == size - 1 else F.send(h, rank + 1, tag=k))
for end in ends:
    end.backward()
alone = [w.clone().requires_grad_() for w in weights]
h = batch
for w in alone:
    h = ut.tanh(h @ w)
(h**2).sum().backward()
assert ut.allclose(mine.grad, alone[rank].grad, atol=1e-5)
# ---- messages, differentiated three times: the sender's number and the receiver's anchor say where each pass goes on


def gradients_of_two(first, second, with_loss):
    """The gradients of a loss of two tensors, those of the sum of their squares, and once more."""
    loss = ((first**2) ** 3 * second).sum()
    found = []
    for order in range(3):
        grads = ut.autograd.grad(loss, [first, second], create_graph=True)
        found.append(grads)
        loss = sum([(g * g).sum() for g in grads]) + (loss if with_loss and order == 0 else 0)
    return found


for tag, with_loss in enumerate((False, True)):
    xs = [EVERYBODYS[k][:1].clone().requires_grad_() for k in (0, -1)]
    expected = gradients_of_two(*xs, with_loss)
    if size > 1 and rank in (0, size - 1):
        x, mine, anchor = xs[rank != 0], rank != 0, ut.zeros((), dtype=ut.float64, requires_grad=True)
        if rank == 0:
            ends = [F.send(x**2, size - 1, tag=tag)]
        else:
            ends = [(F.recv((1, 3), 0, tag=tag, anchor=anchor) ** 3 * x).sum()]
        for order, firsts in enumerate(expected):
            followed = [x] if rank == 0 else [x, anchor]
            found = ut.autograd.grad(ends, followed, create_graph=True)
            assert ut.allclose(found[0], firsts[mine]), (rank, order, found[0], firsts[mine])
            ends = [(found[0] ** 2).sum(), *found[1:], *(ends if with_loss and order == 0 else ())]
dist.barrier()
try:
    F.recv((1, 3), rank, anchor=ut.zeros(2, requires_grad=True))
except ValueError as error:
    assert "the anchor is a number that requires grad" in str(error)
else:
    raise AssertionError("an anchor that is no number")

for op in (ReduceOp.MAX, ReduceOp.PRODUCT):
    try:
        F.all_reduce(mine, op)
    except RuntimeError as error:
        assert "derivative of all_reduce" in str(error)
    else:
        raise AssertionError("a derivative that is not there")
print(f"rank {rank} is done", flush=True)
