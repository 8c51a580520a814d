"""Exchanges between two processes, beside PyTorch's with gloo: python -m benchmarks.distributed

Both libraries run the same program, one after the other, each in two processes of one thread; the figures are medians.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

#: what is measured: bytes of an all_reduce, and the widths of networks
SIZES = {"all_reduce, 1 KB": 1 << 10, "all_reduce, 1 MB": 1 << 20, "all_reduce, 64 MB": 1 << 26}
NETWORKS = {"step of a small network": (64, (32, 64, 10)), "step of a medium network": (64, (256, 1024, 1024, 10))}
GLOO = """
import os, sys
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], RANK=sys.argv[2], WORLD_SIZE="2")
import torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
from benchmarks.distributed import measure
measure(torch, sys.argv[3])
torch.distributed.destroy_process_group()
"""


def median_time(lib: Any, step: Callable[[], None], seconds: float = 2.0) -> float:
    for _ in range(3):
        step()
    times: list[float] = []
    until = time.perf_counter() + seconds
    enough = lib.zeros(1)
    while not enough.item():
        for _ in range(5):
            started = time.perf_counter()
            step()
            times.append(time.perf_counter() - started)
        enough = lib.tensor([float(time.perf_counter() > until)])
        lib.distributed.broadcast(enough, 0)  # both must stop after the same step
    return statistics.median(times)


def measure(lib: Any, path: str) -> None:
    """All of it, in one of the processes; the first writes the figures down."""
    from importlib import import_module

    ddp = import_module(f"{lib.__name__}.nn.parallel").DistributedDataParallel
    found = {}
    for name, size in SIZES.items():
        data = lib.ones(size // 4)
        found[name] = median_time(lib, lambda data=data: lib.distributed.all_reduce(data.fill_(1.0)))  # type: ignore[misc]
    for name, (batch, widths) in NETWORKS.items():
        lib.manual_seed(0)
        layers = [part for a, b in pairwise(widths) for part in (lib.nn.Linear(a, b), lib.nn.ReLU())]
        net = ddp(lib.nn.Sequential(*layers[:-1]))
        optimizer, x = lib.optim.SGD(net.parameters(), lr=0.01), lib.randn(batch, widths[0])

        def step(net: Any = net, optimizer: Any = optimizer, x: Any = x) -> None:
            optimizer.zero_grad()
            (net(x) ** 2).mean().backward()
            optimizer.step()

        found[name] = median_time(lib, step)
    found |= measure_calls(lib)
    if lib.distributed.get_rank() == 0:
        Path(path).write_text(json.dumps(found))


def tanh_layer(x: Any, weight: Any) -> Any:
    """What the other process computes."""
    return (x @ weight).tanh()


def measure_calls(lib: Any) -> dict[str, float]:
    """A call of the other process, and one with a backward pass through both."""
    from importlib import import_module

    rpc = import_module(f"{lib.__name__}.distributed.rpc")
    autograd = import_module(f"{lib.__name__}.distributed.autograd")
    rank = lib.distributed.get_rank()
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    x, weight = lib.randn(32, 64, requires_grad=True), lib.randn(64, 64, requires_grad=True)
    calls = rank == 0
    others_turn = lambda: None

    def call() -> None:
        rpc.rpc_sync("worker1", tanh_layer, args=(x, weight))

    def call_and_backward() -> None:
        with autograd.context() as number:
            loss = rpc.rpc_sync("worker1", tanh_layer, args=(x, weight)).sum()
            autograd.backward(number, [loss])

    steps = {"a call": call, "a call, and backward": call_and_backward}
    found = {name: median_time(lib, step if calls else others_turn) for name, step in steps.items()}
    rpc.shutdown()
    return found


def run_undertow(path: str) -> None:
    command = [
        sys.executable,
        "-m",
        "undertow.distributed.run",
        "-n",
        "2",
        "-m",
        "benchmarks.distributed",
        "--inside",
        path,
    ]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def run_torch(path: str, port: int = 29511) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", GLOO, str(port), str(rank), path], env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        for rank in range(2)
    ]
    if any([child.wait() for child in children]):
        sys.exit("PyTorch's processes failed")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = []
        for run in (run_undertow, run_torch):
            path = os.path.join(folder, run.__name__)
            run(path)
            figures.append(json.loads(Path(path).read_text()))
    print(f"{'two processes':28} {'undertow':>10} {'gloo':>10} {'ratio':>6}")
    for name, mine in figures[0].items():
        theirs = figures[1][name]
        print(f"{name:28} {mine * 1e3:7.3f} ms {theirs * 1e3:7.3f} ms {mine / theirs:6.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        import undertow as ut

        ut.distributed.init_process_group("mpi")
        measure(ut, sys.argv[2])
    else:
        main()
