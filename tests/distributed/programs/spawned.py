"""A program as it is written for PyTorch: no launcher, processes by `spawn` or by hand, losses of rank 0 printed.

spawned.py spawn START_METHOD PORT [raise | kill]   two processes of this program's own
spawned.py alone                                    one process that has all of the data
spawned.py environment                              one of several, as the environment says
"""

from __future__ import annotations

import os
import signal
import sys

import undertow as ut
import undertow.distributed as dist
from undertow import multiprocessing, nn


def train(rank: int, size: int, module: nn.Module) -> list[float]:
    generator = ut.Generator().manual_seed(3)
    x, y = ut.randn(8, 4, generator=generator), ut.randn(8, 2, generator=generator)
    mine = slice(rank * 8 // size, (rank + 1) * 8 // size)
    optimizer, losses = ut.optim.SGD(module.parameters(), lr=0.1), []
    for _ in range(4):
        loss = nn.functional.mse_loss(module(x[mine]), y[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        whole = loss.detach().clone()
        if size > 1:
            dist.all_reduce(whole)
        losses.append(round(whole.item() / size, 5))
    return losses


def model() -> nn.Module:
    ut.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def worker(rank: int, port: str, ending: str) -> None:
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"tcp://127.0.0.1:{port}", timeout=60)
    losses = train(rank, 2, nn.parallel.DistributedDataParallel(model()))
    if rank == 0:
        print(losses, flush=True)
    if rank == 1 and ending == "raise":
        raise ValueError("rank 1 has had enough")
    if rank == 1 and ending == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()


def main(way: str, *rest: str) -> None:
    if way == "alone":
        print(train(0, 1, model()))
    elif way == "spawn":
        method, port, ending = (*rest, "")[:3]
        multiprocessing.start_processes(worker, args=(port, ending), nprocs=2, start_method=method)
    else:
        dist.init_process_group("gloo")
        losses = train(dist.get_rank(), dist.get_world_size(), nn.parallel.DistributedDataParallel(model()))
        if dist.get_rank() == 0:
            print(losses)


if __name__ == "__main__":
    main(*sys.argv[1:])
