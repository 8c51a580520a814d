"""A model in stages: gradients are those of one process, and few microbatches are alive at once."""

from __future__ import annotations

import undertow as ut
import undertow.distributed as dist
from undertow import nn
from undertow.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()


class Two(nn.Module):
    """Two tensors in, two out; the second is whole numbers, which have no gradient."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x, counts):
        return ut.tanh(self.layer(x)) * counts.unsqueeze(1), counts + 1


class Last(Two):
    def forward(self, x, counts):
        return self.layer(x) + counts.unsqueeze(1)


def stages():
    ut.manual_seed(3)
    return [m.double() for m in (*[Two() for _ in range(size - 1)], Last())]


ut.manual_seed(1)
inputs, counts = ut.randn(12, 6, dtype=ut.float64), ut.arange(12)
targets = ut.randn(12, 6, dtype=ut.float64)
alone = stages()
found = (inputs, counts)
for module in alone:
    found = module(*found)
loss = nn.functional.mse_loss(found, targets)
loss.backward()

for kind, microbatches in (
    (ScheduleGPipe, 4), (ScheduleGPipe, 5), (Schedule1F1B, 4), (Schedule1F1B, 5), (Schedule1F1B, 12), (Schedule1F1B, 1)
):  # fmt: skip
    parts = [len(part) for part in targets.tensor_split(microbatches)]  # five of them have 3, 3, 2, 2 and 2 examples
    module = stages()[rank]
    stage = PipelineStage(module, rank, size)
    schedule = kind(stage, microbatches, nn.functional.mse_loss)
    for times in (1, 2):
        losses = []
        given = (inputs, counts) if rank == 0 else ()
        out = schedule.step(*given, target=targets if rank == size - 1 else None, losses=losses)
        for p, q in zip(module.parameters(), alone[rank].parameters(), strict=True):
            assert ut.allclose(p.grad, q.grad * times), kind
        if rank == size - 1:
            assert ut.allclose(out, found) and len(losses) == microbatches
            assert ut.allclose(sum([part * loss for part, loss in zip(parts, losses, strict=True)]) / 12, loss)
        else:
            assert out is None
    assert stage.most_alive == (microbatches if kind is ScheduleGPipe else min(microbatches, size - rank))
    assert not stage.alive
    out = schedule.eval(*given)
    assert not stage.alive and (rank < size - 1 or ut.allclose(out, found))
    assert [k for what, k in schedule.order() if what == "B"] == list(range(microbatches))


class Masked(nn.Module):
    def forward(self, x, mask):
        return x * mask


schedule = ScheduleGPipe(PipelineStage(Masked(), rank, size), 4)
out = schedule.eval(*([inputs] if rank == 0 else []), mask=counts.unsqueeze(1))  # arguments with names are cut, too
assert rank < size - 1 or ut.allclose(out, inputs * counts.unsqueeze(1) ** size)
try:
    with ut.no_grad():
        schedule.step(inputs)
except RuntimeError as error:
    assert "eval() is forward only" in str(error)
else:
    raise AssertionError("nothing was raised")
try:
    ScheduleGPipe(stage, 13).step(inputs, counts)
except ValueError as error:
    assert "cannot be cut into 13 microbatches" in str(error)
else:
    raise AssertionError("nothing was raised")
print(f"rank {rank} is done", flush=True)
