"""Waits that are interrupted, and messages whose results nobody keeps: MPI goes on with their memory."""

from __future__ import annotations

import gc
import signal
import time
import weakref

import undertow as ut
import undertow.distributed as dist
from undertow.distributed.point_to_point import Message

dist.init_process_group("mpi", timeout=60)
rank = dist.get_rank()
LARGE = 2_000_000


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


def interrupted(action, *arguments):
    """Call it, and interrupt it while it waits; its memory, if it is still there."""
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        action(*arguments)
    except Interrupted:
        pass
    else:
        raise AssertionError("it was not interrupted")
    return weakref.ref(arguments[0]._array)


signal.signal(signal.SIGALRM, interrupt)

# ---- what was not received is there for the next who receives, and its memory is free when MPI has let go of it

for size in (1, LARGE):
    dist.barrier()
    if rank == 1:
        kept = interrupted(dist.recv, ut.zeros(size), 0)
        gc.collect()
        assert kept() is not None and len(Message.dropped) == 1
    dist.barrier()
    if rank == 0:
        for value in (1.0, 2.0):
            dist.send(ut.full((size,), value), 1)
    else:
        for value in (1.0, 2.0):
            dist.recv(found := ut.zeros(size), 0)
            assert (found == value).all(), found
        assert kept() is None and not Message.dropped

# ---- what nobody waits for is sent as it was

dist.barrier()
if rank == 0:
    dist.isend(ut.full((LARGE,), 3.0), 1)
    others = [ut.full((LARGE,), -1.0) for _ in range(4)]  # would lie where the message was
    dist.barrier()
    dist.barrier()
    dist.send(ut.ones(1), 1)
    assert not Message.dropped
else:
    dist.barrier()
    dist.recv(found := ut.zeros(LARGE), 0)
    assert (found == 3).all(), found
    dist.barrier()
    dist.recv(ut.zeros(1), 0)

# ---- an exchange that was interrupted

dist.barrier()
if rank == 1:
    kept = interrupted(dist.all_reduce, ut.ones(3))
    gc.collect()
    assert kept() is not None
else:
    time.sleep(1)
    dist.all_reduce(total := ut.ones(3))
    assert total.tolist() == [2, 2, 2]
dist.barrier()

# ---- one that does not fit says so each time

if rank == 0:
    dist.send(ut.ones(1), 1)
else:
    message = dist.irecv(ut.zeros(2), 0)
    for _ in range(2):
        try:
            message.wait()
        except dist.DistMismatchError as error:
            assert "rank 0 has sent one of 4 bytes" in str(error), error
        else:
            raise AssertionError("a message that is too short was taken")
dist.barrier()
print(f"rank {rank} is done", flush=True)
