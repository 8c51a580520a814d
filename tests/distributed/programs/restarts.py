"""Fails at its first start, and goes on at the second."""

from __future__ import annotations

import os
import sys

import undertow.distributed as dist

dist.init_process_group("mpi", timeout=60)
start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
assert dist.is_torchelastic_launched()
assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (str(dist.get_rank()), "2")
assert (os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]) == (os.environ["RANK"], "2")
dist.barrier()
if start == 0 and dist.get_rank() == 1:
    os._exit(3)
dist.barrier()
print(f"went on at start {start}", flush=True)
sys.exit(0)
