"""What a choice costs, and what it is good for: `python -m benchmarks.choices [NAME ...] [--update]`.

Each name is a table of one page. The ways to do something are measured in turns, of which the fastest counts: the
machine does other work, too. Times are those of the process, but for `branches`, which is about several cores.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np

import undertow as ut
from benchmarks.report import as_markdown, as_text
from tools.figures import store

Table = list[list[str]]
Context = AbstractContextManager[Any]
graph: Any = ut.autograd.graph


def fastest(steps: Sequence[Callable[[], Any]], turns: int, clock: Callable[[], float] = process_time) -> list[float]:
    """The seconds of each step, all in turns."""
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(turns + 1):  # the first turn is to warm up
        for step, found in zip(steps, times, strict=True):
            started = clock()
            step()
            found.append(clock() - started)
    return [min(found[1:]) for found in times]


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.1 else f"{1e3 * seconds:.0f} ms"


# ---- docs/derivatives.md


def residual(u: Any) -> Any:
    inner = u[2:] - 2 * u[1:-1] + u[:-2] + u[1:-1].exp()
    return ut.cat([u[:1], inner, u[-1:]])


def sparse_jacobian() -> Table:
    functional = ut.autograd.functional
    rows = []
    for count in (100, 1000, 10_000, 100_000):
        u = ut.zeros(count, dtype=ut.float64)
        middle = np.arange(1, count - 1)
        rows_of, columns = np.repeat(middle, 3), (middle[:, None] + [-1, 0, 1]).ravel()
        ends = np.array([0, count - 1])
        pattern = functional.SparsityPattern(np.append(rows_of, ends), np.append(columns, ends), (count, count))
        ways = [partial(functional.jacobian, residual, u, sparsity=pattern)]
        if count <= 1000:  # a matrix of all entries, with 8 bytes each, is too large above
            ways.append(partial(functional.jacobian, residual, u, vectorize=True))
            ways.append(partial(functional.jacobian, residual, u))
        found = [milliseconds(seconds) for seconds in fastest(ways, 5)]
        rows.append([f"{count:,}", *found, *([f"({8 * count**2 / 1e9:g} GB)", ""] if len(found) == 1 else [])])
    return [["unknowns", "sparse", "`vectorize=True`", "row by row"], *rows]


# ---- docs/saved-tensors.md


def saved_hooks() -> Table:
    rows: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, Callable[[], Context]] = {
            "none": nullcontext,
            "`save_on_disk` (a local disk, cached)": lambda: graph.save_on_disk(folder),
            "`compress_saved(float16)`": lambda: graph.compress_saved(ut.float16),
            '`compress_saved("zlib")`': lambda: graph.compress_saved("zlib"),
        }
        for activation in (ut.relu, ut.tanh):
            loss = network(activation)
            times = fastest([partial(step, loss, hooks) for hooks in ways.values()], 3)
            for (name, hooks), seconds in zip(ways.items(), times, strict=True):
                rows.setdefault(name, []).extend([f"{kept(loss, hooks):.1f} MiB", f"{seconds / times[0]:.1f}"])
    return [["hooks", "relu: memory", "time", "tanh: memory", "time"], *[[name, *row] for name, row in rows.items()]]


def network(activation: Callable[[Any], Any]) -> Callable[[], Any]:
    ut.manual_seed(0)
    layers = [ut.nn.Linear(512, 512) for _ in range(6)]
    inputs = ut.randn(2048, 512)

    def loss() -> Any:
        h = inputs
        for layer in layers:
            h = activation(layer(h))
        return h.sum()

    return loss


def step(loss: Callable[[], Any], hooks: Callable[[], Context]) -> None:
    with hooks():
        loss().backward()


def kept(loss: Callable[[], Any], hooks: Callable[[], Context]) -> float:
    with hooks():
        report = graph.saved_tensors_report(loss())
    return float(report.total_bytes - report.leaf_bytes) / 2**20


# ---- docs/hooks.md


def anomaly_mode() -> Table:
    logger = logging.getLogger("undertow.autograd")

    def logged() -> None:
        logger.setLevel(logging.DEBUG)
        try:
            chain(ut)
        finally:
            logger.setLevel(logging.NOTSET)

    def checked(library: Any) -> None:
        with library.autograd.set_detect_anomaly(True):
            chain(library)

    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    import torch

    torch.set_num_threads(1)
    plain = [lambda: chain(ut), lambda: checked(ut), logged, lambda: chain(torch), lambda: checked(torch)]
    ours, with_it, while_logged, theirs, theirs_with_it = [f"{1e6 * s / CHAIN:.2g} µs" for s in fastest(plain, 15)]
    return [
        ["each operation of a chain, forward and backward", "undertow", "PyTorch"],
        ["without the mode", ours, theirs],
        ["with anomaly mode", with_it, theirs_with_it],
        ["while every node is logged", while_logged, ""],
    ]


CHAIN = 300


def chain(library: Any) -> None:
    x = library.ones(4, requires_grad=True)
    h = x
    for _ in range(CHAIN):
        h = h * 1.0
    h.sum().backward()


# ---- docs/custom-functions.md


def followed_intermediates() -> Table:
    found = fastest([lambda: applied(Plain), lambda: applied(Keeping)], 15)
    plain, keeping = [f"{1e6 * seconds / CHAIN:.2g} µs" for seconds in found]
    return [["`apply` of two operations on 4 numbers", ""], ["nothing kept but inputs", plain],
            ["an intermediate kept, and followed", keeping]]  # fmt: skip


class Plain(ut.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.exp().sin()


class Keeping(ut.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        e = x.exp()
        ctx.save_for_backward(e)
        return e.sin()


def applied(function: type[ut.autograd.Function]) -> None:
    x = ut.ones(4, requires_grad=True)
    for _ in range(CHAIN):
        function.apply(x)


# ---- docs/engine.md


def branches() -> Table:
    sizes = {"64 KiB": 16, "256 KiB": 18, "1 MiB": 20, "4 MiB": 22, "16 MiB": 24}
    helpers = (0, 1, 3, 7)
    rows = []
    for name, power in sizes.items():
        leaves = [ut.ones(2**power // 4, requires_grad=True) for _ in range(8)]
        rows.append([name, *[f"{1e3 * backward_with(count, leaves):.1f} ms" for count in helpers]])
    return [["size of each array", "off", "1 helper", "3 helpers", "7 helpers"], *rows]


def backward_with(helpers: int, leaves: list[Any]) -> float:
    def run() -> float:
        total = ut.zeros(())
        for leaf in leaves:
            h = leaf
            for _ in range(3):
                h = (h * 0.9).sin().exp()
            total = total + h.sum()
        started = perf_counter()
        total.backward()
        return perf_counter() - started

    graph.set_parallel_branches(helpers, least_bytes=1)
    try:
        return min([run() for _ in range(8)][1:])
    finally:
        graph.set_parallel_branches(0)


# ---- docs/from-numpy.md


def by_hand() -> Table:
    rows = []
    for width in (16, 64, 256, 1024):
        steps = max(3, 20_000 // width)
        ways = [partial(repeated, make(width), steps) for make in (numpy_step, undertow_step)]
        hand, own = [seconds / steps for seconds in fastest(ways, 15)]
        rows.append([f"{width}", *[f"{1e6 * s:,.0f} µs" for s in (hand, own)], f"{own / hand:.2f}"])
    return [["width of both layers", "gradients by hand", "undertow", "ratio"], *rows]


EXAMPLES, RATE = 64, np.float32(1e-3)


def arrays(width: int) -> list[Any]:
    """Inputs and targets, and the weights and biases of two layers."""
    rng = np.random.default_rng(0)
    shapes = [(EXAMPLES, width), (EXAMPLES, width), (width, width), (width,), (width, width), (width,)]
    return [rng.normal(0, width**-0.5, shape).astype(np.float32) for shape in shapes]


def numpy_step(width: int) -> Callable[[], None]:
    """A step of gradient descent on the mean squared error of a network, whose backward pass is written out."""
    x, y, w1, b1, w2, b2 = arrays(width)

    def step() -> None:
        nonlocal w1, b1, w2, b2
        h = np.tanh(x @ w1 + b1)
        g = (2 / y.size) * (h @ w2 + b2 - y)
        inner = (g @ w2.T) * (1 - h * h)
        w2 -= RATE * (h.T @ g)
        b2 -= RATE * g.sum(0)
        w1 -= RATE * (x.T @ inner)
        b1 -= RATE * inner.sum(0)

    return step


def undertow_step(width: int) -> Callable[[], None]:
    x, y, *values = [ut.from_numpy(array) for array in arrays(width)]
    w1, b1, w2, b2 = parameters = [ut.nn.Parameter(value) for value in values]
    optimizer = ut.optim.SGD(parameters, lr=float(RATE))

    def step() -> None:
        h = (x @ w1 + b1).tanh()
        loss = ((h @ w2 + b2 - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def repeated(step: Callable[[], None], times: int) -> None:
    for _ in range(times):
        step()


MEASURED: dict[str, Callable[[], Table]] = {
    "sparse-jacobian": sparse_jacobian, "saved-hooks": saved_hooks, "anomaly-mode": anomaly_mode,
    "followed-intermediates": followed_intermediates, "branches": branches,
    "by-hand": by_hand,
}  # fmt: skip


def as_page(figures: Table) -> str:
    return as_markdown(figures)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choices", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *MEASURED], help="all, unless said")
    parser.add_argument("--update", action="store_true", help="write docs/figures/NAME.json, and the page")
    options = parser.parse_args()
    ut.set_num_threads(1)
    for name in options.names or MEASURED:
        found = MEASURED[name]()
        print(as_text(found))
        if options.update:
            store(name, "choices", f"python -m benchmarks.choices {name} --update", found)


if __name__ == "__main__":
    main()
