"""Batches of different numbers, statistics of the whole batch, and optimizers that share their state."""

from __future__ import annotations

import undertow as ut
import undertow.distributed as dist
from undertow import nn
from undertow.distributed.algorithms.join import Join
from undertow.distributed.optim import ZeroRedundancyOptimizer
from undertow.nn.parallel import DistributedDataParallel

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()


def model_of(seed, *layers):
    ut.manual_seed(seed)
    return nn.Sequential(*layers or (nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))).double()


def same_everywhere(module):
    for p in [*module.parameters(), *module.buffers()]:
        found = [ut.empty_like(p) for _ in range(size)]
        dist.all_gather(found, p.detach().contiguous())
        assert all([ut.equal(found[0], f) for f in found])


# ---- statistics of the whole batch

ut.manual_seed(1)
whole = ut.randn(3 * size + size * (size - 1) // 2, 4, 5, dtype=ut.float64) + 100  # process k has 3 + k examples
first = 3 * rank + rank * (rank - 1) // 2
for momentum in (0.1, None):
    alone = nn.Sequential(nn.BatchNorm1d(4, momentum=momentum), nn.Conv1d(4, 2, 1)).double()
    nn.init.normal_(alone[0].weight)
    together = model_of(0, nn.BatchNorm1d(4, momentum=momentum), nn.Conv1d(4, 2, 1))
    together.load_state_dict(alone.state_dict())
    for p in together.parameters():
        dist.broadcast(p.detach(), 0)
    alone.load_state_dict(together.state_dict())
    together = nn.SyncBatchNorm.convert_sync_batchnorm(together)
    assert type(together[0]) is nn.SyncBatchNorm and type(alone[0]) is nn.BatchNorm1d
    for _ in range(2):
        mine = whole[first : first + 3 + rank].clone().requires_grad_()
        everything = whole.clone().requires_grad_()
        (together(mine) ** 3).sum().backward()
        (alone(everything) ** 3).sum().backward()
        assert ut.allclose(mine.grad, everything.grad[first : first + 3 + rank])
    for (name, p), q in zip(together.named_parameters(), alone.parameters(), strict=True):
        dist.all_reduce(p.grad)
        assert ut.allclose(p.grad, q.grad), name
    for name, b in alone[0].named_buffers():
        assert ut.allclose(b, together[0].get_buffer(name)), name
    assert ut.allclose(together.eval()(whole), alone.eval()(whole))

# ---- batches of different numbers: process k has 2 + k

ut.manual_seed(2)
examples = ut.randn(size, 2 + size, 3, 4, dtype=ut.float64)


def train_alone(divide_by_all):
    model, batches = model_of(3), range(2 + size)
    optimizer = ut.optim.SGD(model.parameters(), lr=0.1)
    for k in batches:
        active = [r for r in range(size) if k < 2 + r]
        optimizer.zero_grad()
        if active:
            loss = sum([(model(examples[r, k]) ** 2).sum() for r in active]) / (size if divide_by_all else len(active))
            loss.backward()
            optimizer.step()
    return model


for divide_by_all in (True, False):
    for bucket in (25.0, 1e-4):
        model = DistributedDataParallel(model_of(3), bucket_cap_mb=bucket)
        optimizer = ut.optim.SGD(model.parameters(), lr=0.1)
        with model.join(divide_by_initial_world_size=divide_by_all):
            for k in range(2 + rank):
                optimizer.zero_grad()
                (model(examples[rank, k]) ** 2).sum().backward()
                optimizer.step()
        same_everywhere(model)
        for p, q in zip(model.parameters(), train_alone(divide_by_all).parameters(), strict=True):
            assert ut.allclose(p, q), divide_by_all

model = DistributedDataParallel(model_of(3, nn.Linear(4, 3), nn.BatchNorm1d(3)))
shared = ZeroRedundancyOptimizer(model.parameters(), ut.optim.Adam, lr=0.01)
with Join([model, shared]):
    for k in range(2 + rank):
        shared.zero_grad()
        if k % 2:
            with model.no_sync():
                model(examples[rank, k]).sum().backward()
        else:
            (model(examples[rank, k]) ** 2).sum().backward()
        shared.step()
same_everywhere(model)

if size > 1:
    model = DistributedDataParallel(model_of(3))
    try:
        with model.join(throw_on_early_termination=True):
            for k in range(2 + rank):
                model(examples[rank, k]).sum().backward()
    except RuntimeError as error:
        assert "at least one rank that exhausted inputs" in str(error)
    else:
        raise AssertionError("nothing was raised")

# ---- an optimizer whose state is shared out

batch = examples[rank, 0]
plain, divided = DistributedDataParallel(model_of(4)), DistributedDataParallel(model_of(4))
one = ut.optim.AdamW(plain.parameters(), lr=0.05, weight_decay=0.1)
zero = ZeroRedundancyOptimizer(divided.parameters(), ut.optim.AdamW, lr=0.05, weight_decay=0.1)
schedules = [ut.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (one, zero)]
assert len(zero.optim.state if zero.optim else ()) == 0
for step in range(6):
    for model, optimizer, schedule in zip((plain, divided), (one, zero), schedules, strict=True):
        optimizer.zero_grad()
        (model(batch) ** 2).sum().backward()
        optimizer.step()
        schedule.step()
    for p, q in zip(plain.parameters(), divided.parameters(), strict=True):
        assert ut.allclose(p, q)
    if step == 3:  # go on with what was saved, divided anew
        zero.consolidate_state_dict(to=0)
        box = [zero.state_dict() if rank == 0 else None]
        if rank == 0:
            assert sorted(box[0]["state"]) == [0, 1, 2, 3] == sorted(one.state_dict()["state"])
        elif size > 1:
            try:
                zero.state_dict()
            except RuntimeError as error:
                assert "has not been consolidated on this rank" in str(error)
        dist.broadcast_object_list(box)
        zero = ZeroRedundancyOptimizer(divided.parameters(), ut.optim.AdamW, lr=1.0)
        zero.load_state_dict(box[0])
        schedules[1].optimizer = zero
mine = sum([p.numel() for p in (zero.optim.state if zero.optim else ())])
assert mine <= sum([p.numel() for p in divided.parameters()]) / size + 32
same_everywhere(divided)

# ---- parameters that are added after steps: what is there stays where it is

more = [ut.nn.Parameter(ut.full((k + 1,), 2.0, dtype=ut.float64)) for k in range(4)]
for p in more:
    p.grad = ut.ones_like(p)
before = zero._owner.copy()
zero.add_param_group({"params": more, "lr": 0.5})
assert before.items() <= zero._owner.items() and len(zero.param_groups) == 2
zero.step()
assert all([(p < 1.6).all() for p in more])
same_everywhere(divided)
try:
    ZeroRedundancyOptimizer([], ut.optim.Adam)
except ValueError as error:
    assert "empty parameter list" in str(error)
else:
    raise AssertionError("nothing was raised")
print(f"rank {rank} is done", flush=True)
