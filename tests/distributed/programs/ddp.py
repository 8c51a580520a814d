"""DistributedDataParallel gives the gradients that one process gives on the whole batch."""

from __future__ import annotations

import functools
import pickle
import weakref

import undertow as ut
import undertow.distributed as dist
from undertow import nn
from undertow.autograd.checkpoint import checkpoint
from undertow.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from undertow.nn.parallel import DistributedDataParallel

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
EACH = 6
ut.manual_seed(0)
examples, labels = ut.randn(EACH * size, 32), ut.randint(0, 10, (EACH * size,))
part = slice(rank * EACH, (rank + 1) * EACH)
loss_of = nn.CrossEntropyLoss()


def network(seed):
    ut.manual_seed(seed)
    return nn.Sequential(nn.Linear(32, 150), nn.ReLU(), nn.Linear(150, 150), nn.ReLU(), nn.Linear(150, 10))


def close(found, expected, tolerance=1e-6):
    for name, p in expected.named_parameters():
        got = found.get_parameter(name)
        assert (got.grad is None) == (p.grad is None), name
        if p.grad is not None:
            assert (got.grad - p.grad).abs().max() <= tolerance, (
                f"rank {rank}, {name}: {(got.grad - p.grad).abs().max()}"
            )


def same_everywhere(tensors):
    flat = ut.cat([t.detach().reshape(-1) for t in tensors])
    highest, lowest = flat.clone(), flat.clone()
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    assert highest.tolist() == lowest.tolist()  # to the last bit


# ---- training, with buckets of several sizes; rank 0's parameters are everybody's

for options in (
    {},
    {"gradient_as_bucket_view": True},
    {"bucket_cap_mb": 0.05},
    {"bucket_cap_mb": 0.05, "gradient_as_bucket_view": True},
    {"find_unused_parameters": True, "broadcast_buffers": False},
    {"static_graph": True},
):
    alone, joined = network(0), DistributedDataParallel(network(rank), **options)
    optimizers = [ut.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (alone, joined)]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(alone(examples), labels).backward()
        loss_of(joined(examples[part]), labels[part]).backward()
        close(joined.module, alone)
        for optimizer in optimizers:
            optimizer.step()
    same_everywhere(joined.parameters())
    assert sorted(joined.state_dict()) == [f"module.{name}" for name in sorted(alone.state_dict())]

# ---- several passes before one that sends

alone, joined = network(0), DistributedDataParallel(network(0))
with joined.no_sync():
    loss_of(joined(examples[part][:3]), labels[part][:3]).backward()
    before = joined.module[0].weight.grad.clone()
loss_of(joined(examples[part][3:]), labels[part][3:]).backward()
(loss_of(alone(examples), labels) * 2).backward()
close(joined.module, alone)
assert size == 1 or not ut.equal(before, joined.module[0].weight.grad)

# two forward passes, one backward pass
joined = DistributedDataParallel(network(0))
(
    loss_of(joined(examples[part][:3]), labels[part][:3]) + loss_of(joined(examples[part][3:]), labels[part][3:])
).backward()
close(joined.module, alone)


# ---- parameters that are not used


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        ut.manual_seed(1)
        self.left, self.right, self.never = nn.Linear(4, 1), nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x, which):
        return self.left(x) if which == 0 else self.right(x)


for as_view in (False, True):
    joined = DistributedDataParallel(Branches(), find_unused_parameters=True, gradient_as_bucket_view=as_view)
    for _ in range(2):
        joined.zero_grad()
        joined(ut.ones(2, 4), 0 if rank == 0 else 1).sum().backward()
        assert ut.allclose(joined.module.left.weight.grad, ut.tensor(2 / size))
        if size > 1:
            assert ut.allclose(joined.module.right.weight.grad, ut.tensor(2 * (size - 1) / size))
        assert joined.module.never.weight.grad is None

# what earlier passes have left is averaged where a parameter is not used: gradients add up, in every process alike
for as_view in (False, True):
    alone = Branches()
    joined = DistributedDataParallel(Branches(), find_unused_parameters=True, gradient_as_bucket_view=as_view)
    for which in (0, 1):
        joined(ut.ones(2, 4), 0).sum().backward()
        joined(ut.ones(2, 4), which if rank == 0 else 1).sum().backward()
    assert ut.allclose(joined.module.left.weight.grad, ut.tensor(4 + 2 / size))
    assert ut.allclose(joined.module.right.weight.grad, ut.tensor(4 - 2 / size))
    same_everywhere([p.grad for p in joined.parameters() if p.grad is not None])

# used by a pass that exchanged nothing, and not by the one that does
joined = DistributedDataParallel(Branches(), find_unused_parameters=True)
with joined.no_sync():
    inside = joined(ut.ones(2, 4), 0)
inside.sum().backward()  # the forward pass counts
assert ut.allclose(joined.module.left.weight.grad, ut.tensor(2.0)) and joined.module.right.weight.grad is None
outside = joined(ut.ones(2, 4) * (rank + 1), 1)
with joined.no_sync():
    outside.sum().backward()
assert ut.allclose(joined.module.right.weight.grad, ut.tensor(size + 1.0)), joined.module.right.weight.grad

# ---- sparse gradients

for hook in (None, default_hooks.allreduce_hook):
    ut.manual_seed(3)
    words = [nn.Embedding(20, 3, sparse=sparse) for sparse in (False, True)]
    words[1].load_state_dict(words[0].state_dict())
    nets = [nn.Sequential(w, nn.Flatten(), nn.Linear(6, 1)) for w in words]
    nets[1].load_state_dict(nets[0].state_dict())
    alone, joined = nets[0], DistributedDataParallel(nets[1])
    if hook is not None:
        joined.register_comm_hook(None, hook)
    numbers = ut.arange(EACH * size * 2).reshape(-1, 2) % 20
    for _ in range(2):  # the second pass adds to the first
        alone(numbers).mean().backward()
        joined(numbers[part]).mean().backward()
    assert joined.module[0].weight.grad.is_sparse
    assert ut.allclose(joined.module[0].weight.grad.to_dense(), alone[0].weight.grad, atol=1e-6)
    assert ut.allclose(joined.module[2].weight.grad, alone[2].weight.grad, atol=1e-6)

# ---- pickled, and mixed precision

alone, joined = network(0), pickle.loads(pickle.dumps(DistributedDataParallel(network(0))))
loss_of(joined(examples[part]), labels[part]).backward()
loss_of(alone(examples), labels).backward()
close(joined.module, alone)
alone, joined = network(0), DistributedDataParallel(network(0))
with ut.autocast("cpu", dtype=ut.bfloat16):
    loss_of(joined(examples[part]), labels[part]).backward()
    loss_of(alone(examples), labels).backward()
close(joined.module, alone, 1e-2)
same_everywhere([p.grad for p in joined.parameters()])
half = DistributedDataParallel(network(0).to(ut.bfloat16))
loss_of(half(examples[part].to(ut.bfloat16)).float(), labels[part]).backward()
assert half.module[0].weight.grad.dtype == ut.bfloat16

# ---- an error in one pass does not spoil the next

joined = DistributedDataParallel(Branches())
if size > 1:
    try:
        joined(ut.ones(2, 4), 0).sum().backward()
    except dist.DistError as error:
        assert "right.weight, right.bias, never.weight, never.bias" in str(error)
    else:
        raise AssertionError("unused parameters were not noticed")

alone, joined = network(0), DistributedDataParallel(network(0))
for fails in (False, True, False):
    joined.zero_grad()
    loss = loss_of(joined(examples[part]), labels[part])
    handle = joined.module[2].weight.register_hook(lambda grad: 1 // 0) if fails else None
    try:
        loss.backward()
        assert not fails
    except ZeroDivisionError:
        handle.remove()
loss_of(alone(examples), labels).backward()
close(joined.module, alone)

# ---- checkpoints, hooks, buffers

for use_reentrant in (False, True):
    alone, inner = network(0), network(0)
    joined = DistributedDataParallel(inner)
    inner[2].register_forward_hook(lambda module, args, result: None)
    first, *others = inner
    inner.forward = lambda x, f=first, o=others, r=use_reentrant: nn.Sequential(*o)(checkpoint(f, x, use_reentrant=r))
    x = examples[part].clone().requires_grad_()
    loss_of(joined(x), labels[part]).backward()
    loss_of(alone(examples), labels).backward()
    close(joined.module, alone)

# a layer that two checkpoints use: each runs a pass of its own, and the end of none is the end of all
for options in ({"static_graph": True}, {"static_graph": True, "bucket_cap_mb": 0.05, "gradient_as_bucket_view": True}):
    alone, inner = network(0), network(0)
    joined = DistributedDataParallel(inner, **options)

    def twice(net, x):
        h = net[1](net[0](x))
        for _ in range(2):
            h = checkpoint(net[2], h, use_reentrant=True)
        return net[4](h)

    inner.forward = functools.partial(twice, inner)
    for _ in range(3):
        alone.zero_grad()
        joined.zero_grad()
        loss_of(joined(examples[part]), labels[part]).backward()
        loss_of(twice(alone, examples), labels).backward()
        close(joined.module, alone)
joined = DistributedDataParallel(inner)
try:
    loss_of(joined(examples[part]), labels[part]).backward()
except dist.DistError as error:
    assert "'2.weight' was given its gradient twice" in str(error) or "'2.bias'" in str(error)
    assert "static_graph=True" in str(error)
else:
    raise AssertionError("two passes for one parameter were not noticed")
dist.barrier()

norm = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(32), nn.Linear(32, 2)))
for _ in range(2):
    norm(examples[part] * (rank + 1)).sum().backward()
norm(examples[part])  # the statistics are sent before a pass
norm.eval()
norm.train()
norm.forward(examples[part])
dist.barrier()

# a hook that is registered later sees a gradient before it is sent; a model that is dropped sends nothing more


def doubled(p):
    p.grad *= 2


for as_view in (False, True):
    alone, inner = network(0), network(0)
    joined = DistributedDataParallel(inner, gradient_as_bucket_view=as_view)
    for p in (*alone.parameters(), *joined.parameters()):
        p.register_post_accumulate_grad_hook(doubled)
    for _ in range(2):
        alone.zero_grad()
        joined.zero_grad()
        loss_of(alone(examples), labels).backward()
        loss_of(joined(examples[part]), labels[part]).backward()
        close(joined.module, alone)
del joined
inner.zero_grad()
if rank == 0:
    loss_of(inner(examples), labels).backward()
    close(inner, alone)

# ---- other ways to send

for hook, state, tolerance in (
    (default_hooks.allreduce_hook, None, 1e-6),
    (default_hooks.fp16_compress_hook, None, 2e-3),
    (default_hooks.bf16_compress_hook, None, 1e-2),
    (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(start_powerSGD_iter=10), 1e-6),
    # of as many columns as there are, nothing is left out; half of the bytes, of a product and of what it leaves out
    (powerSGD_hook.batched_powerSGD_hook, powerSGD_hook.PowerSGDState(None, 200, 0), 1e-5),
    (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), None, 2e-3),
    (
        default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook),
        powerSGD_hook.PowerSGDState(None, 150, 0, min_compression_rate=0.01),
        2e-2,
    ),
):
    alone, joined = network(0), DistributedDataParallel(network(0), bucket_cap_mb=0.05)
    joined.register_comm_hook(state, hook)
    for _ in range(2):
        alone.zero_grad()
        joined.zero_grad()
        loss_of(alone(examples), labels).backward()
        loss_of(joined(examples[part]), labels[part]).backward()
        close(joined.module, alone, tolerance)
    same_everywhere([p.grad for p in joined.parameters()])

alone, joined = network(0), DistributedDataParallel(network(0))
joined.register_comm_hook(powerSGD_hook.PowerSGDState(None, 4, 2), powerSGD_hook.powerSGD_hook)
optimizers = [ut.optim.SGD(m.parameters(), lr=0.1) for m in (alone, joined)]
for _ in range(20):
    for optimizer, model, chosen in zip(optimizers, (alone, joined), (slice(None), part), strict=True):
        optimizer.zero_grad()
        loss_of(model(examples[chosen]), labels[chosen]).backward()
        optimizer.step()
reached = [loss_of(m(examples), labels).item() for m in (alone, joined.module)]
assert abs(reached[0] - reached[1]) < 0.2, reached
same_everywhere(joined.parameters())

# ---- what is refused

for make, text in (
    (lambda: DistributedDataParallel(nn.ReLU()), "doesn't have any parameter"),
    (lambda: joined.register_comm_hook(None, print), "only be called once"),
    (lambda: DistributedDataParallel(network(0)).register_comm_hook(None, 3), "must be callable"),
):
    try:
        make()
    except (RuntimeError, TypeError) as error:
        assert text in str(error)
    else:
        raise AssertionError(text)

# ---- what travels is what the model of docs/distributed.md says


class Counted:
    """A communicator that counts the bytes it is given to send."""

    def __init__(self, comm):
        self.comm, self.messages, self.reductions = comm, [], []

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def Isend(self, array, to, tag):
        self.messages.append(array.nbytes)
        return self.comm.Isend(array, to, tag)

    def Iallreduce(self, given, array, op):
        self.reductions.append(array.nbytes)
        return self.comm.Iallreduce(given, array, op)


joined = DistributedDataParallel(network(0))
for _ in range(2):
    joined.zero_grad()
    loss_of(joined(examples[part]), labels[part]).backward()
kept = weakref.ref(joined.module[0].weight.grad._array)
joined.zero_grad()
assert kept() is None  # gradients that the program drops are gone

group = dist.group.WORLD
before = group.comm
large = ut.ones(12 * 5 * 7 * 512)  # a part for each of up to 16 processes, but for 9, 11 and 13
read = group.read
if size > 1:  # a ring of messages
    group.comm, group.read = counted, _ = Counted(before), None
    dist.all_reduce(large)
    assert counted.messages == [large.nbytes // size] * 2 * (size - 1) and not counted.reductions
if size > 2 and read is not None:  # or everybody's part from everybody's memory; messages say where and when
    taken = []
    group.comm, group.read = counted, _ = Counted(before), lambda *given: (taken.append(given[2].nbytes), read(*given))
    dist.all_reduce(large)
    assert sum(taken) == 2 * (size - 1) * large.nbytes // size and max(counted.messages) <= 24
    assert len(counted.messages) == 3 * (size - 1) and not counted.reductions
group.read = read
for cap, buckets in ((None, 1), (0.05, 3)):
    joined = DistributedDataParallel(network(0), bucket_cap_mb=cap)
    loss_of(joined(examples[part]), labels[part]).backward()
    group.comm = counted = Counted(before)
    loss_of(joined(examples[part]), labels[part]).backward()
    total = sum([p.numel() for p in joined.parameters()])
    if size > 1:  # one exchange for each bucket, and a count for each parameter
        assert len(counted.reductions) == buckets and not counted.messages, counted.reductions
        assert sum(counted.reductions) == 4 * (total + 6)
group.comm = before

print(f"rank {rank} is done", flush=True)
