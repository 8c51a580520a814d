"""One thing that goes wrong, in rank 1; the first argument says which."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import undertow as ut
import undertow.distributed as dist
from undertow import nn
from undertow.distributed.pipelining import PipelineStage, ScheduleGPipe
from undertow.nn.parallel import DistributedDataParallel

case, limit = sys.argv[1], float(sys.argv[2])
dist.init_process_group("mpi", timeout=limit)
rank = dist.get_rank()


def reduce_ones(count=4, dtype=ut.float32):
    dist.all_reduce(ut.ones(count, dtype=dtype))


reduce_ones()
if case == "raise in backward":

    class Bad(ut.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            if rank == 1:
                raise ValueError("a bad gradient")
            return grad

    net = DistributedDataParallel(nn.Linear(2, 2))
    Bad.apply(net(ut.ones(1, 2))).sum().backward()
elif case == "killed":
    if rank == 1:
        print("it goes on", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    reduce_ones()
elif case == "dies while it is read":
    before = dist.group.WORLD.read

    def read(process, address, target):  # the others read from rank 1 when it is not there any more
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.5)
        before(process, address, target)

    assert before is not None
    dist.group.WORLD.read = read
    reduce_ones(400_000)
elif case == "ends without a word":
    if rank == 1:
        os._exit(0)
    reduce_ones(400_000)
elif case == "stopped":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    reduce_ones(400_000)
elif case == "other order":
    if rank == 0:
        reduce_ones()
        dist.broadcast(ut.ones(4), 0)
    else:
        dist.broadcast(ut.ones(4), 0)
        reduce_ones()
elif case == "other shape":
    reduce_ones(4 if rank == 0 else 6)
elif case == "other large shape":
    reduce_ones(600_000 if rank == 1 else 400_000)
elif case == "other dtype":
    reduce_ones(dtype=ut.float32 if rank == 0 else ut.float64)
elif case == "a batch less":
    for _ in range(3 - rank):
        reduce_ones()
elif case == "early exit":
    if rank == 1:
        sys.exit(0)
    reduce_ones()
elif case == "slow":
    if rank == 1:
        time.sleep(3 * limit)
    reduce_ones()
elif case == "interrupt":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)
    reduce_ones()
elif case == "nobody receives":
    if rank == 0:
        dist.recv(ut.ones(3), 1)
    else:
        time.sleep(3 * limit)
elif case.endswith("message"):
    if rank == 0:
        sent = {"longer": ut.ones(5), "shorter": ut.ones(1), "misread": ut.ones(1, dtype=ut.float64)}
        dist.send(sent[case.split()[0]], 1)
        time.sleep(3 * limit)
    else:
        dist.recv(ut.zeros(2), 0)
elif case == "other parts":
    dist.all_to_all_single(ut.ones(4), ut.ones(4), [2, 2], [1, 3] if rank else [2, 2])
elif case == "other parts of lists":
    dist.all_to_all([ut.ones(2), ut.ones(2)], [ut.ones(2 - rank), ut.ones(2)])
elif case == "other dtype in a group":
    group = dist.new_group([1, 0])
    dist.all_reduce(ut.ones(4 - 2 * rank, dtype=ut.float64 if rank else ut.float32), group=group)
elif case.endswith("in a pipeline"):

    class Layer(nn.Linear):
        passes = 0

        def forward(self, x):
            self.passes += 1
            if rank == 1 and self.passes == 3 and case.startswith("raises"):
                raise ValueError("a bad microbatch")
            if rank == 1 and self.passes == 3 and case.startswith("dies"):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().forward(x)

    parts = 5 if rank == 0 and case.startswith("other number") else 4
    schedule = ScheduleGPipe(PipelineStage(Layer(2, 2), rank, 2), parts, nn.functional.mse_loss)
    inputs, target = ((ut.ones(8, 2),), None) if rank == 0 else ((), ut.ones(8, 2))
    if case.startswith("evaluates alone") and rank == 0:
        schedule.eval(*inputs)
    if case.startswith("goes on") and rank == 1:
        with contextlib.suppress(ValueError):  # it has no target
            schedule.step()
    schedule.step(*inputs, target=target)
elif case == "unused":
    net = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    (net.module[0] if rank else net.module)(ut.ones(1, 2)).sum().backward()
elif case == "other models":
    DistributedDataParallel(nn.Linear(2, 2 + rank))
elif case == "monitored":
    if rank == 1:
        time.sleep(3 * limit)
    dist.monitored_barrier(timeout=limit)
print(f"rank {rank} has finished")
