"""Children that each rank forks: they end, by an error or without, and the ranks go on."""

from __future__ import annotations

import os
import sys

import undertow as ut
import undertow.distributed as dist
from undertow.distributed import rpc

by_calls = sys.argv[1] == "calls"
if by_calls:
    rpc.init_rpc(f"worker{os.environ['RANK']}")
else:
    dist.init_process_group("mpi", timeout=60)
rank = int(os.environ["RANK"])
for fails in (False, True):
    child = os.fork()
    if not child:
        if fails:
            raise ValueError("of the child")
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == fails
    if by_calls:
        assert rpc.rpc_sync(f"worker{1 - rank}", ut.add, args=(ut.ones(2), 1)).tolist() == [2, 2]
    else:
        dist.all_reduce(total := ut.ones(2))
        assert total.tolist() == [2, 2]
if by_calls:
    rpc.shutdown()
print(f"rank {rank} is done", flush=True)
