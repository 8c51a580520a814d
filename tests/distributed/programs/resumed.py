"""Trains from its last checkpoint on; at the first start one process is killed in the middle."""

from __future__ import annotations

import os
import signal
import sys

import undertow as ut
import undertow.distributed as dist
from undertow import nn
from undertow.distributed import checkpoint
from undertow.nn.parallel import DistributedDataParallel

EPOCHS, FATAL = 5, 3
folder = sys.argv[1]
dist.init_process_group("mpi", timeout=60)
rank, size, start = dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
ut.manual_seed(0)
examples = ut.randn(4 * size, 3)


def trained(model, part, first=0, after_epoch=lambda epoch: None, optimizer=None):
    for epoch in range(first, EPOCHS):
        optimizer.zero_grad()
        (model(part) ** 2).mean().backward()
        optimizer.step()
        after_epoch(epoch)


def network():
    ut.manual_seed(1)
    return nn.Linear(3, 2)


model = DistributedDataParallel(network())
optimizer = ut.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": -1}
if start:
    (model(examples) * 0).sum().backward()
    optimizer.step()  # makes the state, which is then replaced
    state |= {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.load(state, folder)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    assert state["epoch"] == FATAL - 1
    print(f"went on after epoch {state['epoch']}", flush=True)


def after_epoch(epoch):
    if start == 0 and epoch == FATAL:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
    checkpoint.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
        folder,
    )


trained(model, examples[4 * rank : 4 * rank + 4], state["epoch"] + 1, after_epoch, optimizer)
alone = network()
trained(alone, examples, optimizer=ut.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9))
for found, expected in zip(model.parameters(), alone.parameters(), strict=True):
    assert ut.allclose(found, expected, atol=1e-6), (found, expected)
print(f"rank {rank} is done", flush=True)
