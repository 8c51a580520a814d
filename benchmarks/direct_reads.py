"""Sums by reading other processes' memory, beside those by messages: python -m benchmarks.direct_reads

Both ways in turns, in the same processes, of which more than there are cores share them. A figure is the time that a
tenth of the exchanges stayed below: the machine does other work, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import as_markdown, as_text
from tools.figures import store

RANKS = (2, 3, 4, 8)
SIZES = {"128 KB": 1 << 17, "256 KB": 1 << 18, "1 MB": 1 << 20, "8 MB": 1 << 23, "32 MB": 1 << 25}
OPERATIONS = ("all_reduce", "reduce_scatter")
#: of one exchange both ways
SECONDS = 0.8


def measure(path: str) -> None:
    """In one of the processes; the first writes the ratios down."""
    import undertow as ut
    from undertow import distributed as dist
    from undertow.distributed import direct

    dist.init_process_group("mpi")
    direct.FROM_RANKS = direct.FROM_BYTES = direct.PARTS_FROM_BYTES = 0
    group: Any = dist.group.WORLD
    if group.read is None:
        sys.exit("no process may read another's memory here")
    found = {}
    for size, count in SIZES.items():
        whole = ut.ones(count // 4)
        part = ut.ones(count // 4 // dist.get_world_size())
        of_parts = whole[: part.numel() * dist.get_world_size()]
        steps: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda whole=whole: dist.all_reduce(whole.fill_(1.0)),
            "reduce_scatter": lambda part=part, whole=of_parts: dist.reduce_scatter_tensor(part, whole),
        }
        for name in OPERATIONS:
            found[f"{name} {size}"] = ratio(dist, ut, group, steps[name])
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(found))


def ratio(dist: Any, ut: Any, group: Any, step: Callable[[], Any]) -> float:
    read, times = group.read, {True: [], False: []}
    until, enough = time.perf_counter() + SECONDS, ut.zeros(1)
    while not enough.item():
        for is_direct, found in times.items():
            group.read = read if is_direct else None
            dist.barrier()
            started = time.perf_counter()
            step()
            found.append(time.perf_counter() - started)
        group.read = read
        enough = ut.tensor([float(time.perf_counter() > until and len(times[True]) > 20)])
        dist.broadcast(enough, 0)
    low = [sorted(found)[len(found) // 10] for found in times.values()]
    return low[0] / low[1]


def measured(ranks: int, folder: str) -> dict[str, float]:
    path = os.path.join(folder, "ratios")
    command = [sys.executable, "-m", "undertow.distributed.run", "-n", str(ranks), "-m", "benchmarks.direct_reads"]
    subprocess.run([*command, "--inside", path], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found: dict[str, float] = json.loads(Path(path).read_text())
    return found


def table(figures: dict[str, dict[str, float]]) -> list[list[str]]:
    names = next(iter(figures.values()))
    rows = [
        [f"`{name.split()[0]}`, {name.split(' ', 1)[1]}", *[f"{f[name]:.2f}" for f in figures.values()]]
        for name in names
    ]
    order = sorted(rows, key=lambda row: OPERATIONS.index(row[0].split("`")[1]))
    return [["", *[f"{ranks} processes" for ranks in figures]], *order]


def as_page(figures: dict[str, dict[str, float]]) -> str:
    return as_markdown(table(figures))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.direct_reads", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write docs/figures/direct-reads.json, and the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {str(ranks): measured(ranks, folder) for ranks in RANKS}
    print(as_text(table(found)), end="")
    if options.update:
        store("direct-reads", "direct-reads", "python -m benchmarks.direct_reads --update", found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        measure(sys.argv[2])
    else:
        main()
