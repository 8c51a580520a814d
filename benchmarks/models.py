"""Models, written once for both libraries; each returns a function that does one step."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Step = Callable[[], None]


def functions(lib: Any) -> Any:
    """Where the library keeps linear, relu and cross_entropy."""
    return lib if hasattr(lib, "cross_entropy") else importlib.import_module("torch.nn.functional")


def layers(lib: Any, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """A weight, one row per output, and a bias for each layer."""
    return [
        ((lib.randn(n, m) * m**-0.5).requires_grad_(), lib.zeros(n, requires_grad=True)) for m, n in pairwise(sizes)
    ]


def descend(lib: Any, params: list[Any], rate: float) -> None:
    with lib.no_grad():
        for p in params:
            p.sub_(p.grad, alpha=rate)
            p.grad = None


def mlp(lib: Any, batch: int, sizes: tuple[int, ...]) -> Step:
    """Linear layers with relu between them, cross entropy, gradient descent."""
    lib.manual_seed(0)
    f, net = functions(lib), layers(lib, sizes)
    params = [p for layer in net for p in layer]
    x, target = lib.randn(batch, sizes[0]), lib.randint(0, sizes[-1], (batch,))

    def step() -> None:
        h = x
        for weight, bias in net[:-1]:
            h = f.relu(f.linear(h, weight, bias))
        f.cross_entropy(f.linear(h, *net[-1]), target).backward()
        descend(lib, params, 0.01)

    return step


def small_mlp(lib: Any) -> Step:
    return mlp(lib, 32, (784, 128, 10))


def medium_mlp(lib: Any, width: int = 2048) -> Step:
    return mlp(lib, 512, (width, width, width, 10))


def small_mlp_of_operators(lib: Any) -> Step:
    """The small MLP as one writes it without layers: @, +, tanh, log_softmax, indexing."""
    lib.manual_seed(0)
    f = functions(lib)
    w1, w2 = (lib.randn(784, 128) / 28).requires_grad_(), (lib.randn(128, 10) / 11).requires_grad_()
    b1, b2 = lib.zeros(128, requires_grad=True), lib.zeros(10, requires_grad=True)
    x, target, rows = lib.randn(32, 784), lib.randint(0, 10, (32,)), lib.arange(32)

    def step() -> None:
        h = lib.tanh(x @ w1 + b1)
        log_p = f.log_softmax(h @ w2 + b2, dim=1)
        loss = -log_p[rows, target].mean()
        loss.backward()
        descend(lib, [w1, b1, w2, b2], 0.01)

    return step


def lstm(lib: Any, steps: int = 100, hidden: int = 64, batch: int = 16) -> Step:
    """An LSTM cell of plain operations over a sequence, forward and backward."""
    lib.manual_seed(0)
    x = [lib.randn(batch, hidden) for _ in range(steps)]
    w, u = (lib.randn(hidden, 4 * hidden) / 8 for _ in range(2))
    params = [w.requires_grad_(), u.requires_grad_(), lib.zeros(4 * hidden, requires_grad=True)]
    zeros = lib.zeros(batch, hidden)

    def step() -> None:
        h = c = zeros
        for x_t in x:
            gates = x_t @ params[0] + h @ params[1] + params[2]
            i, f, g, o = gates.chunk(4, 1)
            c = lib.sigmoid(f) * c + lib.sigmoid(i) * lib.tanh(g)
            h = lib.sigmoid(o) * lib.tanh(c)
        h.sum().backward()
        for p in params:
            p.grad = None

    return step


def elementwise(lib: Any, size: int = 4_000_000) -> Step:
    """An expression over large arrays: what counts is memory and the speed of tanh."""
    lib.manual_seed(0)
    a, b, c = (lib.randn(size, requires_grad=True) for _ in range(3))

    def step() -> None:
        lib.tanh(a * b + c).sum().backward()
        a.grad = b.grad = c.grad = None

    return step
