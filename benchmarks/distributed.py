"""Exchanges between two processes, beside PyTorch's with gloo: python -m benchmarks.distributed

Both libraries run the same program in turns, each in two processes of one thread. A figure of a turn is the median of
its steps, and the page shows the medians of the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import as_markdown, as_text, duration
from tools.figures import store

#: what is measured: bytes of an all_reduce, batches and widths of networks, and numbers of parameters
SIZES = {"`all_reduce`, 1 KB": 1 << 10, "`all_reduce`, 1 MB": 1 << 20, "`all_reduce`, 64 MB": 1 << 26}
NETWORKS = {
    "step of a small network (32-64-10)": (64, (32, 64, 10)),
    "step of a medium network (256-1024-1024-10)": (64, (256, 1024, 1024, 10)),
}
PARAMETERS = (100, 1000)
#: of which it is asked how much of its exchange the backward pass hides
HIDING = "step of a medium network (256-1024-1024-10)"
HEADER = ["two processes", "undertow", "PyTorch, gloo", "ratio", "of the turns", "at most"]
LIMITS = dict(zip([*SIZES, *NETWORKS], (0.1, 0.6, 0.4, 0.8, 1.0), strict=True)) | {
    "a call, and a backward pass through both": 1.5
}
GLOO = """
import os, sys
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], RANK=sys.argv[2], WORLD_SIZE="2")
import torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
from benchmarks.distributed import measure
measure(torch, sys.argv[3], float(sys.argv[4]))
torch.distributed.destroy_process_group()
"""


# ---- in each of the processes


def median_times(lib: Any, steps: list[Callable[[], float | None]], seconds: float) -> list[float]:
    """How long steps take that are run in turns; a step may return what it took itself."""
    for step in steps * 3:
        step()
    times: list[list[float]] = [[] for _ in steps]
    until = time.perf_counter() + seconds
    enough = lib.zeros(1)
    while not enough.item():
        for step, found in list(zip(steps, times, strict=True)) * 5:
            started = time.perf_counter()
            own = step()
            found.append(time.perf_counter() - started if own is None else own)
        enough = lib.tensor([float(time.perf_counter() > until)])
        lib.distributed.broadcast(enough, 0)  # both must stop after the same step
    return [statistics.median(found) for found in times]


def measure(lib: Any, path: str, seconds: float) -> None:
    """All of it, in one of the processes; the first writes the figures down."""
    found = measure_exchanges(lib, seconds)
    found |= measure_networks(lib, seconds)
    for count in PARAMETERS:
        found[f"of DistributedDataParallel, for each of {count} parameters"] = cost_of_parameter(lib, count, seconds)
    found |= measure_calls(lib, seconds)
    if lib.distributed.get_rank() == 0:
        Path(path).write_text(json.dumps(found))


def measure_exchanges(lib: Any, seconds: float) -> dict[str, float]:
    found = {}
    for name, size in SIZES.items():
        data = lib.ones(size // 4)
        step = lambda data=data: lib.distributed.all_reduce(data.fill_(1.0)) and None
        (found[name],) = median_times(lib, [step], seconds)
    return found


def data_parallel(lib: Any) -> Any:
    return import_module(f"{lib.__name__}.nn.parallel").DistributedDataParallel


def measure_networks(lib: Any, seconds: float) -> dict[str, float]:
    found = {}
    for name, (batch, widths) in NETWORKS.items():
        net, x = network(lib, widths), lib.randn(batch, widths[0])
        (found[name],) = median_times(lib, [step_of(lib, data_parallel(lib)(net), x)], seconds)
        if name == HIDING:
            found["of its exchange, hidden behind the backward pass"] = hidden_share(lib, network(lib, widths), x)
    return found


def network(lib: Any, widths: tuple[int, ...]) -> Any:
    lib.manual_seed(0)
    layers = [part for a, b in pairwise(widths) for part in (lib.nn.Linear(a, b), lib.nn.ReLU())]
    return lib.nn.Sequential(*layers[:-1])


def hidden_share(lib: Any, net: Any, x: Any, steps: int = 60) -> float:
    """How much of the time in which gradients are on their way gradients are still computed, by what DDP logs."""
    joined = data_parallel(lib)(net, bucket_cap_mb=1)
    joined._set_ddp_runtime_logging_sample_rate(1)
    step, shares = step_of(lib, joined, x), []
    for _ in range(steps):
        step()
        facts = joined._get_ddp_logging_data()
        if facts.get("backward_comm_time"):
            shares.append(facts["backward_compute_comm_overlap_time"] / facts["backward_comm_time"])
    return statistics.median(shares[10:])


def step_of(lib: Any, net: Any, x: Any) -> Callable[[], None]:
    optimizer = lib.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        (net(x) ** 2).mean().backward()
        optimizer.step()

    return step


def cost_of_parameter(lib: Any, count: int, seconds: float) -> float:
    """What a backward pass takes longer, in a group of this process alone: nothing is sent."""

    class Chain(lib.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.factors = lib.nn.ParameterList([lib.nn.Parameter(lib.ones(8)) for _ in range(count)])
            self.listed = list(self.factors)

        def forward(self, x: Any) -> Any:
            for factor in self.listed:
                x = x * factor
            return x.sum()

    rank, x = lib.distributed.get_rank(), lib.randn(8)
    own = [lib.distributed.new_group([k]) for k in range(2)][rank]

    def backward(net: Any) -> float:
        net.zero_grad()
        loss = net(x)
        started = time.thread_time()
        loss.backward()
        return time.thread_time() - started

    nets = [Chain(), data_parallel(lib)(Chain(), process_group=own)]
    alone, joined = median_times(lib, [lambda net=net: backward(net) for net in nets], seconds)
    return (joined - alone) / count


def tanh_layer(x: Any, weight: Any) -> Any:
    """What the other process computes."""
    return (x @ weight).tanh()


def measure_calls(lib: Any, seconds: float) -> dict[str, float]:
    """A call of the other process, and one with a backward pass through both."""
    rpc = import_module(f"{lib.__name__}.distributed.rpc")
    autograd = import_module(f"{lib.__name__}.distributed.autograd")
    rank = lib.distributed.get_rank()
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    x, weight = lib.randn(32, 64, requires_grad=True), lib.randn(64, 64, requires_grad=True)

    def call() -> None:
        rpc.rpc_sync("worker1", tanh_layer, args=(x, weight))

    def call_and_backward() -> None:
        with autograd.context() as number:
            loss = rpc.rpc_sync("worker1", tanh_layer, args=(x, weight)).sum()
            autograd.backward(number, [loss])

    steps = {"a call of the other process": call, "a call, and a backward pass through both": call_and_backward}
    found = {}
    for name, step in steps.items():
        (found[name],) = median_times(lib, [step if rank == 0 else lambda: None], seconds)
    rpc.shutdown()
    return found


# ---- both libraries in turns


def run_undertow(path: str, seconds: float) -> None:
    module = ["-m", "benchmarks.distributed", "--inside", path, str(seconds)]
    command = [sys.executable, "-m", "undertow.distributed.run", "-n", "2", *module]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def run_torch(path: str, seconds: float, port: int = 29511) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", GLOO, str(port), str(rank), path, str(seconds)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    if any([child.wait() for child in children]):
        sys.exit("PyTorch's processes failed")


def measured_in_turns(turns: int, seconds: float) -> dict[str, list[list[float]]]:
    """For each name, the figures of both libraries in each turn."""
    found: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            figures = []
            for run in (run_undertow, run_torch):
                path = os.path.join(folder, run.__name__)
                run(path, seconds)
                figures.append(json.loads(Path(path).read_text()))
            for name, mine in figures[0].items():
                found.setdefault(name, []).append([mine, figures[1][name]])
    return found


def cells(name: str, turns: list[list[float]]) -> list[str]:
    """The medians of the turns, and the range of their ratios."""
    mine, theirs = (statistics.median(side) for side in zip(*turns, strict=True))
    if "hidden" in name:
        return [name, f"{mine:.0%}", f"{theirs:.0%}", "", "", ""]
    ratios = [a / b for a, b in turns]
    spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
    limit = f"{LIMITS[name]:.1f}" if name in LIMITS else "1 us" if "parameters" in name else ""
    return [name, duration(mine), duration(theirs), f"{mine / theirs:.2f}", spread, limit]


def as_page(figures: dict[str, list[list[float]]]) -> str:
    return as_markdown([HEADER, *[cells(name, turns) for name, turns in figures.items()]])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure of a turn")
    parser.add_argument("--update", action="store_true", help="write docs/figures/distributed.json, and the page")
    options = parser.parse_args()
    found = measured_in_turns(options.turns, options.seconds)
    print(as_text([HEADER, *[cells(name, turns) for name, turns in found.items()]]), end="")
    if options.update:
        command = f"python -m benchmarks.distributed --turns {options.turns} --seconds {options.seconds:g} --update"
        store("distributed", "distributed", command, found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        import undertow as ut

        ut.distributed.init_process_group("mpi")
        measure(ut, sys.argv[2], float(sys.argv[3]))
    else:
        main()
