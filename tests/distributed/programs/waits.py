"""Says who it is, and waits for ever."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import undertow.distributed as dist

dist.init_process_group("mpi", timeout=600)
written = Path(sys.argv[1]).with_name(f"written{dist.get_rank()}")
written.write_text(str(os.getpid()))
written.rename(f"{sys.argv[1]}{dist.get_rank()}")  # whoever sees it sees all of it
if dist.get_rank() == 1:
    time.sleep(1000)
dist.barrier()
