"""What a profile adds to operations and nodes: `python -m benchmarks.profiler [--update]`.

Nanoseconds per call on 4 x 4 matrices, which is all overhead; the smallest of many turns, with a profile and without
one. A call may be made of several operations, each of which a profile shows. The last row is the call to whose
operations a profile adds most, of a long list of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import setitem
from time import process_time
from typing import Any

import undertow as ut
from benchmarks.report import as_markdown, as_text
from tools.figures import store

HEADER = ["", "operations", "without", "in a profile", "added for each"]


def operations() -> dict[str, Callable[[], Any]]:
    x, y = ut.randn(4, 4), ut.randn(4, 4)
    w = ut.randn(4, 4, requires_grad=True)
    return {
        "x + y": lambda: x + y,
        "x * y": lambda: x * y,
        "x * y, recorded": lambda: w * y,
        "ut.matmul(x, y), over mm": lambda: ut.matmul(x, y),
        "x.relu()": lambda: x.relu(),
        "x.sum()": lambda: x.sum(),
        "x.add_(0.0)": lambda: x.add_(0.0),
        "x.reshape(16), over view": lambda: x.reshape(16),
        "ut.cat([x, y])": lambda: ut.cat([x, y]),
        "x[0]": lambda: x[0],
        "x[0] = 1.0": lambda: setitem(x, 0, 1.0),
        "x.detach()": lambda: x.detach(),
    }


def further_operations() -> dict[str, Callable[[], Any]]:
    """Calls of all kinds, by what PyTorch calls them; most of them are made of others."""
    f = ut.nn.functional
    x, y, v = ut.rand(4, 4), ut.rand(4, 4), ut.rand(4)
    images, kernel, batch = ut.rand(1, 2, 4, 4), ut.rand(2, 2, 3, 3), ut.rand(2, 4, 4)
    w, labels, index = ut.randn(4, 4, requires_grad=True), ut.tensor([0, 1, 2, 3]), ut.tensor([[0, 1, 2, 3]] * 4)
    spd, taps, pixels = x @ x.T + 4 * ut.eye(4), ut.rand(2, 4, 3), ut.rand(1, 8, 2, 2)
    return {
        "linear": lambda: f.linear(x, w, v), "conv1d": lambda: f.conv1d(batch, taps),
        "conv2d": lambda: f.conv2d(images, kernel), "conv_transpose2d": lambda: f.conv_transpose2d(images, kernel),
        "max_pool2d": lambda: f.max_pool2d(images, 2), "avg_pool2d": lambda: f.avg_pool2d(images, 2),
        "adaptive_avg_pool2d": lambda: f.adaptive_avg_pool2d(images, 1), "dropout": lambda: f.dropout(x),
        "batch_norm": lambda: f.batch_norm(x, None, None, training=True), "layer_norm": lambda: f.layer_norm(x, (4,)),
        "group_norm": lambda: f.group_norm(images, 2), "instance_norm": lambda: f.instance_norm(images),
        "embedding": lambda: f.embedding(labels, w), "one_hot": lambda: f.one_hot(labels, 4),
        "cross_entropy": lambda: f.cross_entropy(x, labels), "nll_loss": lambda: f.nll_loss(x, labels),
        "mse_loss": lambda: f.mse_loss(x, y), "l1_loss": lambda: f.l1_loss(x, y),
        "binary_cross_entropy": lambda: f.binary_cross_entropy(x, y), "huber_loss": lambda: f.huber_loss(x, y),
        "kl_div": lambda: f.kl_div(x, y, reduction="sum"), "cosine_similarity": lambda: f.cosine_similarity(x, y),
        "scaled_dot_product_attention": lambda: f.scaled_dot_product_attention(batch, batch, batch),
        "softmax": lambda: x.softmax(-1), "log_softmax": lambda: x.log_softmax(-1), "logsumexp": lambda: x.logsumexp(0),
        "gelu": lambda: f.gelu(w), "silu": lambda: f.silu(w), "elu": lambda: f.elu(x),
        "softplus": lambda: f.softplus(x),
        "leaky_relu": lambda: f.leaky_relu(x), "normalize": lambda: f.normalize(x), "pad": lambda: f.pad(x, (1, 1)),
        "interpolate": lambda: f.interpolate(images, scale_factor=2), "unfold": lambda: f.unfold(images, 2),
        "pixel_shuffle": lambda: f.pixel_shuffle(pixels, 2), "outer": lambda: ut.outer(v, v),
        "einsum": lambda: ut.einsum("ij,jk->ik", x, y), "tensordot": lambda: ut.tensordot(x, y, 1),
        "bmm": lambda: ut.bmm(batch, batch), "addmm": lambda: ut.addmm(x, x, y), "dot": lambda: ut.dot(v, v),
        "mv": lambda: ut.mv(x, v), "norm": lambda: x.norm(), "vector_norm": lambda: ut.linalg.vector_norm(x),
        "solve": lambda: ut.linalg.solve(spd, v), "inv": lambda: ut.linalg.inv(spd), "det": lambda: ut.linalg.det(spd),
        "cholesky": lambda: ut.linalg.cholesky(spd), "svd": lambda: ut.linalg.svd(x),
        "eigh": lambda: ut.linalg.eigh(spd),
        "qr": lambda: ut.linalg.qr(x), "var": lambda: x.var(), "std": lambda: x.std(0), "mean": lambda: x.mean(0),
        "prod": lambda: x.prod(), "max": lambda: x.max(0), "amax": lambda: x.amax(0), "any": lambda: (x > 0).any(),
        "argmax": lambda: x.argmax(0), "sort": lambda: x.sort(0), "topk": lambda: x.topk(2),
        "median": lambda: x.median(),
        "cumsum": lambda: x.cumsum(0), "cummax": lambda: x.cummax(0), "where": lambda: ut.where(x > 0, x, y),
        "clamp": lambda: x.clamp(0, 1), "stack": lambda: ut.stack([x, y]), "split": lambda: x.split(2),
        "chunk": lambda: x.chunk(2), "tensor_split": lambda: x.tensor_split(2), "repeat": lambda: x.repeat(2, 1),
        "expand": lambda: v.expand(4, 4), "permute": lambda: x.permute(1, 0), "flatten": lambda: x.flatten(),
        "squeeze": lambda: x.squeeze(), "unsqueeze": lambda: x.unsqueeze(0), "flip": lambda: x.flip(0),
        "roll": lambda: x.roll(1, 0), "tril": lambda: x.tril(), "diag": lambda: x.diag(),
        "gather": lambda: x.gather(1, index),
        "scatter_add": lambda: x.scatter_add(1, index, y), "index_select": lambda: x.index_select(0, labels),
        "masked_fill": lambda: x.masked_fill(x > 0, 0.0), "x[labels]": lambda: x[labels],
        "x[:, 1:3]": lambda: x[:, 1:3],
        "nonzero": lambda: x.nonzero(), "zeros": lambda: ut.zeros(4, 4), "zeros_like": lambda: ut.zeros_like(x),
        "full": lambda: ut.full((4, 4), 1.0), "arange": lambda: ut.arange(4), "randn": lambda: ut.randn(4, 4),
        "bernoulli": lambda: x.bernoulli(), "multinomial": lambda: v.multinomial(2), "clone": lambda: x.clone(),
        "to": lambda: x.to(ut.float64), "type_as": lambda: x.type_as(labels), "allclose": lambda: ut.allclose(x, y),
        "fft": lambda: ut.fft.fft(v), "meshgrid": lambda: ut.meshgrid(v, v, indexing="ij"),
        "cdist": lambda: ut.cdist(x, y),
        "erf": lambda: x.erf(), "pow": lambda: x**2, "lerp": lambda: x.lerp(y, 0.5), "addcmul": lambda: x.addcmul(x, y),
    }  # fmt: skip


def seconds_of_operation(run: Callable[[], Any], count: int) -> float:
    begin = process_time()
    for _ in range(count):
        run()
    return (process_time() - begin) / count


def seconds_of_node(count: int) -> float:
    w = out = ut.ones(4, 4, requires_grad=True)
    for _ in range(count):
        out = out * w
    loss = out.sum()
    begin = process_time()
    loss.backward()
    return (process_time() - begin) / count


def least(measure: Callable[[], float], inside: Callable[[], AbstractContextManager[Any]], turns: int) -> float:
    found = []
    for _ in range(turns):
        with inside():
            found.append(measure())
    return min(found)


def rows(turns: int, count: int) -> list[list[Any]]:
    """The first operations, a node, and the one of the further calls to whose operations a profile adds most."""
    found = [
        [name, operations_of(run), *nanoseconds(timed_calls(run, count), turns)] for name, run in operations().items()
    ]
    found.append(["a node of a backward pass", 1, *nanoseconds(lambda: seconds_of_node(count), turns)])
    further = [
        [name, operations_of(run), *nanoseconds(timed_calls(run, min(count, 100)), turns)]
        for name, run in further_operations().items()
    ]
    name, *most = max(further, key=added_for_each)
    return [*found, [f"{name}: the most of {len(further)} further calls", *most]]


def operations_of(run: Callable[[], Any]) -> int:
    """How many operations a profile shows of a call."""
    with ut.profiler.profile() as profiled:
        run()
    return len(profiled.events())


def added_for_each(row: list[Any]) -> float:
    """Nanoseconds that a profile adds to each of the operations that a row's call is made of."""
    _, count, off, on = row
    return float((on - off) / count)


def timed_calls(run: Callable[[], Any], count: int) -> Callable[[], float]:
    return lambda: seconds_of_operation(run, count)


def nanoseconds(measure: Callable[[], float], turns: int) -> tuple[float, float]:
    """The least of many turns without a profile and with one, in turn."""
    measure()
    pairs = [(least(measure, nullcontext, 1), least(measure, ut.profiler.profile, 1)) for _ in range(turns)]
    off, on = (1e9 * min(times) for times in zip(*pairs, strict=True))
    return off, on


def table(found: list[list[Any]]) -> list[list[str]]:
    return [HEADER, *map(shown, found)]


def shown(row: list[Any]) -> list[str]:
    name, count, off, on = row
    return [name, str(count), f"{off:.0f} ns", f"{on:.0f} ns", f"{added_for_each(row):.0f} ns"]


def as_page(figures: list[list[Any]]) -> str:
    return as_markdown(table(figures))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiler", description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--count", type=int, default=2000, help="operations in a turn")
    parser.add_argument("--update", action="store_true", help="write docs/figures/profiler.json, and docs/seeing.md")
    options = parser.parse_args(arguments)
    found = rows(options.turns, options.count)
    print(as_text(table(found)), end="")
    if options.update:
        store("profiler", "profiler", "python -m benchmarks.profiler --update", found)


if __name__ == "__main__":
    main()
