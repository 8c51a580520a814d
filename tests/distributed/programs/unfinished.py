"""A rank gives up between two exchanges, and the others catch the error that follows: all end as they want to."""

from __future__ import annotations

import sys
import threading
import time

import undertow as ut
import undertow.distributed as dist

dist.init_process_group(timeout=float(sys.argv[1]))
model = ut.nn.parallel.DistributedDataParallel(ut.nn.Linear(8, 8))


def work() -> None:
    model(ut.ones(2, 8)).sum().backward()


work()
if dist.get_rank():
    try:
        work()
    except dist.DistError as error:
        print(type(error).__name__, flush=True)
    time.sleep(0.1 * dist.get_rank())
print("ended", threading.active_count() > 1, flush=True)
