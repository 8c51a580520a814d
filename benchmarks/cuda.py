"""undertow on a GPU beside PyTorch: ``python -m benchmarks.cuda [--only NAME] [--repeats N] [--update]``.

Every case is the same program for both libraries, run in turn in one process; times are medians of runs that end with a
synchronisation, in microseconds. A ratio above the goal is marked.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tools.figures import store

Step = Callable[[], Any]


class Case(NamedTuple):
    """A program: `make(library)` gives a step; `inner` of them are timed together."""

    name: str
    goal: float
    make: Callable[[Any], Step]
    inner: int = 5


# ---- models


def numbers(lib: Any, *shape: int, dtype: Any = None, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return lib.tensor(drawn, device="cuda").to(dtype or lib.float32)


def classes(lib: Any, count: int, *shape: int) -> Any:
    return lib.tensor(np.random.default_rng(1).integers(0, count, shape), device="cuda")


def trained(lib: Any, model: Any, loss: Callable[[Any], Any], optimizer: str, **options: Any) -> Step:
    model = model.to("cuda")
    steps = getattr(lib.optim, optimizer)(model.parameters(), lr=1e-3, **options)

    def step() -> None:
        steps.zero_grad()
        loss(model).backward()
        steps.step()

    return step


def perceptron(sizes: list[int], batch: int, optimizer: str = "SGD", fused: bool = False) -> Callable[[Any], Step]:
    def make(lib: Any) -> Step:
        nn = lib.nn
        layers = [m for i, o in itertools.pairwise(sizes) for m in (nn.Linear(i, o), nn.ReLU())][:-1]
        x, y = numbers(lib, batch, sizes[0]), classes(lib, sizes[-1], batch)
        options = {"fused": True} if fused else {}
        loss = lambda model: nn.functional.cross_entropy(model(x), y)
        return trained(lib, nn.Sequential(*layers), loss, optimizer, **options)

    return make


def small_cnn(lib: Any) -> Step:
    nn = lib.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    x, y = numbers(lib, 32, 1, 28, 28), classes(lib, 10, 32)
    return trained(lib, model, lambda model: nn.functional.cross_entropy(model(x), y), "SGD")


def transformer(layers: int, width: int, heads: int, batch: int, length: int, half: bool) -> Callable[[Any], Step]:
    def make(lib: Any) -> Step:
        nn, dtype = lib.nn, lib.bfloat16 if half else lib.float32
        block = [
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, 0.0, batch_first=True, norm_first=True, activation="gelu"
            )
            for _ in range(layers)
        ]
        x = numbers(lib, batch, length, width, dtype=dtype)
        return trained(lib, nn.Sequential(*block).to(dtype), lambda model: model(x).square().mean(), "SGD")

    return make


def lstm_by_hand(lib: Any) -> Step:
    weights = [numbers(lib, 64, 256, seed=k) * 0.1 for k in range(2)]
    for w in weights:
        w.requires_grad_()
    xs = [numbers(lib, 16, 64, seed=k) for k in range(100)]

    def step() -> None:
        h = c = lib.zeros(16, 64, device="cuda")
        for x in xs:
            i, f, g, o = (x @ weights[0] + h @ weights[1]).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        h.sum().backward()

    return step


def adam(count: int, size: int) -> Callable[[Any], Step]:
    def make(lib: Any) -> Step:
        params = [numbers(lib, size, seed=k).requires_grad_() for k in range(count)]
        for p in params:
            p.grad = lib.ones_like(p)
        steps = lib.optim.Adam(params, fused=True)
        return lambda: steps.step()

    return make


def changing_shapes(lib: Any) -> Step:
    weight, sizes = numbers(lib, 128, 128).requires_grad_(), iter(range(1, 1 << 30))
    x = numbers(lib, 512, 128)

    def step() -> None:
        weight.grad = None
        part = x[: 1 + 7 * next(sizes) % 500]
        (part @ weight).tanh().mul(2).sum().backward()

    return step


# ---- operations


def forward(function: Callable[[Any, Any], Any], *shape: int) -> Callable[[Any], Step]:
    def make(lib: Any) -> Step:
        x = numbers(lib, *shape)
        return lambda: function(lib, x)

    return make


def both(function: Callable[..., Any], *shapes: tuple[int, ...], half: bool = False) -> Callable[[Any], Step]:
    """The function of tensors of these shapes, forward and backward."""

    def make(lib: Any) -> Step:
        dtype = lib.bfloat16 if half else lib.float32
        leaves = [numbers(lib, *shape, dtype=dtype, seed=k).requires_grad_() for k, shape in enumerate(shapes)]
        slope = lib.ones_like(function(lib, *leaves).detach())

        def step() -> None:
            for leaf in leaves:
                leaf.grad = None
            function(lib, *leaves).backward(slope)

        return step

    return make


def chain(lib: Any) -> Step:
    x = numbers(lib, 8).requires_grad_()

    def step() -> None:
        y = x
        for _ in range(50):
            y = y.sin()
        y.sum().backward()

    return step


def attend(lib: Any, q: Any, k: Any, v: Any) -> Any:
    return lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def cases() -> Iterator[Case]:
    large, rows = 1 << 26, (4096, 1024)
    f = lambda lib: lib.nn.functional
    yield Case("a + a, 8 numbers", 0.15, forward(lambda lib, x: x + x, 8), 50)
    yield Case("a.sum(), 8 numbers", 0.25, forward(lambda lib, x: x.sum(), 8), 50)
    yield Case("a @ a, 64 x 64", 0.3, forward(lambda lib, x: x @ x, 64, 64), 50)
    yield Case("50 sines both ways", 0.12, chain, 10)
    yield Case("changing shapes both ways", 0.5, changing_shapes, 10)
    yield Case("small MLP, SGD", 0.2, perceptron([128, 256, 10], 64), 10)
    yield Case("small MLP, Adam (fused)", 0.2, perceptron([128, 256, 10], 64, "Adam", fused=True), 10)
    yield Case("medium MLP, SGD", 1.0, perceptron([2048, 2048, 2048, 2048, 10], 512))
    yield Case("LSTM by hand, 100 steps", 0.2, lstm_by_hand)
    yield Case("small CNN, SGD", 0.6, small_cnn, 10)
    yield Case("transformer layer 8 x 128 x 256", 0.35, transformer(1, 256, 4, 8, 128, False), 10)
    yield Case("4 transformer layers in bfloat16, 4 x 2048 x 1024", 1.0, transformer(4, 1024, 16, 4, 2048, True))
    yield Case("Adam (fused), 100 x 10", 0.25, adam(100, 10), 10)
    yield Case("Adam (fused), 100 x 500,000", 1.02, adam(100, 500_000))
    yield Case("conv2d 64 x 64 x 56^2 both ways", 1.0,
               both(lambda lib, x, w: f(lib).conv2d(x, w, padding=1), (64, 64, 56, 56), (64, 64, 3, 3)))  # fmt: skip
    yield Case("batch_norm 64 x 64 x 56^2 both ways", 0.7,
               both(lambda lib, x: f(lib).batch_norm(x, None, None, training=True), (64, 64, 56, 56)))  # fmt: skip
    yield Case(
        "max_pool2d 64 x 64 x 56^2 both ways", 1.0, both(lambda lib, x: f(lib).max_pool2d(x, 2), (64, 64, 56, 56))
    )
    yield Case("softmax both ways", 0.7, both(lambda lib, x: x.softmax(-1), rows))
    yield Case("layer_norm both ways", 0.7,
               both(lambda lib, x, w, b: f(lib).layer_norm(x, (1024,), w, b), rows, (1024,), (1024,)))  # fmt: skip
    yield Case("gelu both ways", 0.7, both(lambda lib, x: f(lib).gelu(x), rows))
    yield Case("cross_entropy both ways", 0.7,
               both(lambda lib, x: f(lib).cross_entropy(x, classes(lib, 1024, 4096)), rows))  # fmt: skip
    yield Case("embedding 50,000 x 512, 16,384 of them, both ways", 1.0,
               both(lambda lib, w: f(lib).embedding(classes(lib, 50_000, 16_384), w), (50_000, 512)))  # fmt: skip
    yield Case("sort, 64 x 100,000", 1.0, forward(lambda lib, x: x.sort(-1), 64, 100_000))
    yield Case("cumsum, 4096 x 1024", 1.0, forward(lambda lib, x: x.cumsum(-1), *rows))
    yield Case("a + a, 64M numbers", 1.0, forward(lambda lib, x: x + x, large))
    yield Case("tanh(a * a + a), 64M numbers", 0.55, forward(lambda lib, x: (x * x + x).tanh(), large))
    yield Case("a.sum(), 64M numbers", 1.05, forward(lambda lib, x: x.sum(), large))
    yield Case(
        "a @ a in bfloat16, 4096 x 4096",
        1.0,
        lambda lib: (lambda x: lambda: x @ x)(numbers(lib, 4096, 4096).bfloat16()),
    )
    yield Case(
        "attention in bfloat16, 2 x 16 x 4096 x 64, both ways", 1.0, both(attend, *[(2, 16, 4096, 64)] * 3, half=True)
    )
    yield Case("attention, 8 x 4 x 512 x 64, both ways", 1.0, both(attend, *[(8, 4, 512, 64)] * 3))
    yield Case("a.sum().item()", 1.1, forward(lambda lib, x: x.sum().item(), 8), 1)


# ---- measuring


def timed(lib: Any, step: Step, inner: int) -> float:
    lib.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(inner):
        step()
    lib.cuda.synchronize()
    return (time.perf_counter() - begin) / inner * 1e6


def measure(case: Case, libraries: list[Any], repeats: int) -> dict[str, Any]:
    steps = [case.make(lib) for lib in libraries]
    for _ in range(4):
        for lib, step in zip(libraries, steps, strict=True):
            timed(lib, step, case.inner)
    taken: list[list[float]] = [[] for _ in libraries]
    for _ in range(repeats):
        for lib, step, times in zip(libraries, steps, taken, strict=True):
            times.append(timed(lib, step, case.inner))
    found = [statistics.median(times) for times in taken]
    return {"name": case.name, "goal": case.goal, "undertow": found[0], "torch": found[1], "ratio": found[0] / found[1]}


def as_page(figures: dict[str, Any]) -> str:
    """The table of docs/cuda.md."""
    head = f"{figures['device']}, beside PyTorch {figures['torch']} in the same process; microseconds.\n\n"
    lines = ["| | PyTorch | undertow | ratio | goal |", "| --- | --- | --- | --- | --- |"]
    for row in figures["cases"]:
        times = [f"{t:.1f}" if t < 10 else f"{t:,.0f}" for t in (row["torch"], row["undertow"])]
        lines.append(f"| {row['name']} | {' | '.join(times)} | {row['ratio']:.2f} | {row['goal']:.2f} |")
    return head + "\n".join(lines)


def as_line(row: dict[str, Any]) -> str:
    mark = "" if row["ratio"] <= row["goal"] else "  *"
    times = f"{row['undertow']:10.1f} {row['torch']:10.1f}"
    return f"{row['name']:58s} {times}   {row['ratio']:.2f} (goal {row['goal']}){mark}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="cases whose name contains this")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--update", action="store_true", help="write docs/figures/cuda.json, and docs/cuda.md")
    options = parser.parse_args()
    ut, torch = libraries = [importlib.import_module(name) for name in ("undertow", "torch")]
    found: dict[str, Any] = {"device": ut.cuda.get_device_name(), "torch": torch.__version__, "cases": []}
    print(found["device"], found["torch"])
    for case in cases():
        if not options.only or any([part in case.name for part in options.only]):
            found["cases"].append(measure(case, libraries, options.repeats))
            print(as_line(found["cases"][-1]), flush=True)
    if options.update:
        store("cuda", "cuda", "python -m benchmarks.cuda --update", found)


if __name__ == "__main__":
    main()
