"""Large arrays and several threads: `python -m benchmarks.large --threads 1 2 4 16`.

Every number of threads is a process of its own, in which undertow and PyTorch take turns. The table has the
milliseconds of both, their ratio, and how many times faster each became than with the first number of threads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import libraries
from benchmarks.models import functions
from benchmarks.threads import environment

MILLION = 1 << 20


def both_ways(lib: Any, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Any]:
    """A step: the function of leaves of these shapes, and the backward pass of its sum."""
    leaves = [lib.randn(*shape).requires_grad_() for shape in shapes]

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        function(*leaves).sum().backward()

    return step


def forward(lib: Any, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Any]:
    arrays = [lib.randn(*shape) for shape in shapes]
    return lambda: function(*arrays)


def likelihood(lib: Any, n: int) -> Callable[[], Any]:
    """Of a logistic regression."""
    x, y = lib.randn(n // 20, 20), (lib.rand(n // 20) > 0.5).to(lib.float32)
    f = functions(lib)
    return both_ways(lib, lambda w: f.softplus((x * w).sum(1)) - y * (x * w).sum(1), (20,))


def adam(lib: Any, n: int) -> Callable[[], Any]:
    parameter = lib.nn.Parameter(lib.randn(n))
    parameter.grad = lib.randn(n)
    step: Callable[[], Any] = lib.optim.Adam([parameter]).step
    return step


def bell(lib: Any, x: Any) -> Any:
    return lib.sigmoid(x * 2 + 1) * lib.exp(-x * x) + lib.sin(x)


#: a library and a number of elements -> a step
PROGRAMS: dict[str, tuple[int, Callable[[Any, int], Callable[[], Any]]]] = {
    "tanh(a * b + c).sum(), both ways": (
        4 * MILLION, lambda lib, n: both_ways(lib, lambda a, b, c: lib.tanh(a * b + c), (n,), (n,), (n,))),
    "a chain of nine, both ways": (MILLION, lambda lib, n: both_ways(lib, lambda x: bell(lib, x), (n,))),
    "softplus likelihood, both ways": (200_000, likelihood),
    "softplus(x).log(), both ways": (
        200_000, lambda lib, n: both_ways(lib, lambda x: functions(lib).softplus(x).log(), (n,))),
    "a + b": (64 * MILLION, lambda lib, n: forward(lib, lambda a, b: a + b, (n,), (n,))),
    "a.add_(b)": (16 * MILLION, lambda lib, n: forward(lib, lambda a, b: a.add_(b), (n,), (n,))),
    "a + row, both ways": (
        4 * MILLION, lambda lib, n: both_ways(lib, lambda a, b: a + b, (n // 256, 256), (256,))),
    "a * column.T, both ways": (
        4 * MILLION, lambda lib, n: both_ways(lib, lambda a, b: a * b.T, (2048, n // 2048), (n // 2048, 2048))),
    "softmax of rows of 1024, both ways": (
        MILLION, lambda lib, n: both_ways(lib, lambda a: lib.softmax(a, 1) ** 2, (n // 1024, 1024))),
    "layer_norm of rows of 1024, both ways": (
        4 * MILLION, lambda lib, n: both_ways(
            lib, lambda a, w, b: functions(lib).layer_norm(a, (1024,), w, b), (n // 1024, 1024), (1024,), (1024,))),
    "gelu, both ways": (4 * MILLION, lambda lib, n: both_ways(lib, functions(lib).gelu, (n,))),
    "relu, both ways": (4 * MILLION, lambda lib, n: both_ways(lib, lib.relu, (n,))),
    "mse_loss, both ways": (
        4 * MILLION, lambda lib, n: both_ways(lib, lambda a, b: functions(lib).mse_loss(a, b), (n,), (n,))),
    "Adam": (50 * MILLION, adam),
    "sum": (16 * MILLION, lambda lib, n: forward(lib, lambda a: a.sum(), (n,))),
    "sum of rows of 20": (4 * MILLION, lambda lib, n: forward(lib, lambda a: a.sum(1), (n // 20, 20))),
    "sum of columns": (4 * MILLION, lambda lib, n: forward(lib, lambda a: a.sum(0), (n // 256, 256))),
    "var of rows of 1024": (4 * MILLION, lambda lib, n: forward(lib, lambda a: a.var(1), (n // 1024, 1024))),
    "matmul of 1024, both ways": (
        MILLION, lambda lib, n: both_ways(lib, lambda a, b: a @ b, (1024, n // 1024), (n // 1024, 1024))),
}  # fmt: skip


def seconds_of(
    steps: list[Callable[[], Any]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The median time of each step; they take turns."""
    taken: list[list[float]] = [[] for _ in steps]
    for turn in range(repeats + 2):
        for step, times in zip(steps, taken, strict=True):
            start = clock()
            step()
            if turn >= 2:  # the first ones meet cold memory
                times.append(clock() - start)
    return [statistics.median(times) for times in taken]


def measure(options: argparse.Namespace) -> None:
    """Print the seconds of each program as a line of JSON."""
    found = libraries(options.measure)
    for name, (size, make) in chosen(options).items():
        steps = [make(lib, max(int(size * options.scale), 4096)) for lib in found]
        print(json.dumps([name, *seconds_of(steps, options.repeats)]), flush=True)


def chosen(options: argparse.Namespace) -> dict[str, Any]:
    return {name: made for name, made in PROGRAMS.items() if not options.only or options.only in name}


def rows_of(threads: int, options: argparse.Namespace) -> dict[str, list[float]]:
    command = [sys.executable, "-m", "benchmarks.large", "--measure", str(threads), "--repeats", str(options.repeats)]
    command += ["--scale", str(options.scale), "--only", options.only]
    done = subprocess.run(command, env=environment(threads), stdout=subprocess.PIPE, text=True, check=True)
    return {name: figures for name, *figures in map(json.loads, done.stdout.splitlines())}


def line(threads: int, figures: list[float], first: list[float]) -> str:
    cells = [f"{threads:7d}"] + [f"{seconds * 1e3:10.2f}" for seconds in figures]
    if len(figures) > 1:
        cells.append(f"{figures[0] / figures[1]:7.2f}")
    return "  ".join(cells + [f"{before / now:7.1f}" for before, now in zip(first, figures, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 16])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes, for small machines")
    parser.add_argument("--only", default="", help="programs whose names contain this")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options)
        return
    tables = {threads: rows_of(threads, options) for threads in options.threads}
    for name in chosen(options):
        print(f"{name}\n{'threads':>7}  {'undertow ms':>10} {'torch ms':>10}  {'ratio':>7}  speed-up of each")
        for threads, rows in tables.items():
            print(line(threads, rows[name], tables[options.threads[0]][name]))


if __name__ == "__main__":
    main()
