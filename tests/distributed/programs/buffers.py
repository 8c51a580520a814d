"""What processes start with, when buffers travel, what is left alone, and whose model all have after uneven batches."""

from __future__ import annotations

import undertow as ut
import undertow.distributed as dist
from undertow import nn
from undertow.nn.parallel import DistributedDataParallel

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()


class Counting(nn.Module):
    """`inner` is not trained; `seen` counts forward passes, and starts as the rank."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1)
        for k, p in enumerate(self.parameters()):
            nn.init.constant_(p, 10 * k + rank + 1)
        self.register_buffer("seen", ut.tensor(float(rank)))

    def forward(self, x):
        self.seen += 1 + rank
        return self.outer(self.inner(x))


def refused(kind, words, *args, **options):
    try:
        DistributedDataParallel(*args, **options)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{options} was taken")


x = ut.ones(3, 2) * (rank + 1)

# ---- what processes start with

values = lambda module: [p.flatten()[0].item() for p in module.parameters()]
for options, buffer in (
    ({}, 0),
    ({"broadcast_buffers": False}, rank),
    ({"forward_sync_buffers": False}, 0),
    ({"broadcast_buffers": False, "forward_sync_buffers": True}, 0),
):
    model = Counting()
    wrapped = DistributedDataParallel(model, **options)
    assert values(model) == [1, 11, 21, 31] and model.seen.item() == buffer, options
    assert wrapped.broadcast_buffers == wrapped.forward_sync_buffers == (len(options) != 1)
model = Counting()
DistributedDataParallel(model, init_sync=False)
assert values(model) == [rank + 1, rank + 11, rank + 21, rank + 31] and model.seen.item() == rank

# ---- when buffers travel: before a forward pass that follows one whose gradients were exchanged

model = Counting()
wrapped = DistributedDataParallel(model)
step = lambda: wrapped(x).sum().backward()
step()
assert model.seen.item() == rank + 1
step()
assert model.seen.item() == 2 + rank
with wrapped.no_sync():
    step()
    assert model.seen.item() == 3 + rank
    step()
    assert model.seen.item() == 4 + 2 * rank
step()
assert model.seen.item() == 5 + 3 * rank
with ut.no_grad():
    for _ in range(1 + rank):  # an evaluation of different lengths
        wrapped(x)
assert model.seen.item() == 5 + (1 + rank) ** 2
step()
assert model.seen.item() == 6 + rank + (1 + rank) ** 2
step()
assert model.seen.item() == 8 + rank  # rank 0 was at 7

# ---- whose model all have when batches have run out: of those that had the last one, the highest rank's

for options in ({}, {"forward_sync_buffers": False}):
    model = Counting()
    wrapped = DistributedDataParallel(model, **options)
    with wrapped.join():
        for _ in range(2 if rank else 1):
            step()
    first = 1 if options or size == 1 else size  # after the first batch, the last process's buffer is sent
    assert model.seen.item() == ((2 if rank else 1) * (1 + rank) if options else first + (size if size > 1 else 0))

# ---- what is left alone

model = Counting()
DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["outer.bias", "seen"])
wrapped = DistributedDataParallel(model)
assert values(model) == [1, 11, 21, rank + 31] and model.seen.item() == rank
step()
assert model.outer.bias.grad.item() == 3 and model.seen.item() == 2 * rank + 1
together = ut.tensor([g.item() for g in model.outer.weight.grad.flatten()])
dist.all_reduce(together, dist.ReduceOp.MAX)
assert ut.equal(together, model.outer.weight.grad.flatten())

# ---- sizes of buckets, and hints that change nothing

model = Counting()
late = dict(model.named_parameters())["outer.bias"]
wrapped = DistributedDataParallel(
    model,
    bucket_cap_mb_list=[1e-6, 5],
    skip_all_reduce_unused_params=True,
    batched_grad_copy=True,
    delay_all_reduce_named_params=[("outer.bias", late)],
    param_to_hook_all_reduce=model.outer.weight,
)
assert [len(b.parameters) for b in wrapped._reducer.buckets] == [1, 1]
step()
assert ut.allclose(late.grad, ut.tensor([3.0]))

# ---- what is refused, before anything is exchanged

refused(ValueError, "device_ids can only be None or contain a single element", Counting(), device_ids=[0, 1])
refused(ValueError, "got device_ids=[0], output_device=None. Leave them out", Counting(), device_ids=[0])
refused(ValueError, "output_device=1", Counting(), output_device=1)
refused(RuntimeError, "Run a dummy forward pass", nn.LazyLinear(2))
refused(RuntimeError, "doesn't have any parameter that requires a gradient", nn.ReLU())
refused(ValueError, "need to be set at the same time", Counting(), param_to_hook_all_reduce=late)
refused(ValueError, "use autocast", Counting(), mixed_precision=object())
refused(ValueError, "pass process_group", Counting(), device_mesh=object())
print(f"rank {rank} is done", flush=True)
