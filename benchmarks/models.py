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


def embedding(lib: Any, rows: int = 100_000, sparse: bool = True) -> Step:
    """640 rows of a table of 64 columns, squared differences, and a step that changes these rows."""
    lib.manual_seed(0)
    table, wanted = lib.randn(rows, 64, requires_grad=True), lib.randn(640, 64)
    index = lib.randint(0, rows, (640,))

    def step() -> None:
        found = lib.embedding(table, index, -1, False, sparse)
        ((found - wanted) ** 2).sum().backward()
        descend(lib, [table], 0.01)

    return step


def elementwise(lib: Any, size: int = 4_000_000) -> Step:
    """An expression over large arrays: what counts is memory and the speed of tanh."""
    lib.manual_seed(0)
    a, b, c = (lib.randn(size, requires_grad=True) for _ in range(3))

    def step() -> None:
        lib.tanh(a * b + c).sum().backward()
        a.grad = b.grad = c.grad = None

    return step


def filled_rows(lib: Any) -> Step:
    """A NumPy habit: the rows of a tensor, assigned one by one."""
    x = lib.ones(16, requires_grad=True)

    def step() -> None:
        y = lib.zeros(1000, 16)
        for i in range(1000):
            y[i] = x * 2.0
        y.sum().backward()
        x.grad = None

    return step


# ---- networks


def layer_functions(lib: Any) -> Any:
    """Where the library keeps the functions of layers."""
    return importlib.import_module(f"{lib.__name__}.nn.functional")


def transformer_block(lib: Any, batch: int = 8, length: int = 128, width: int = 256, heads: int = 4) -> Step:
    """Attention and a perceptron, each behind a layer norm and beside a sum, forward and backward."""
    lib.manual_seed(0)
    f = layer_functions(lib)
    x = lib.randn(batch, length, width, requires_grad=True)
    sizes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    (qkv, out, up, down), norms = (
        [layers(lib, size)[0] for size in sizes],
        [layer_norm_weights(lib, width) for _ in "12"],
    )
    params = [x, *qkv, *out, *up, *down, *norms[0], *norms[1]]

    def split_heads(t: Any) -> Any:
        return t.reshape(batch, length, heads, width // heads).transpose(1, 2)

    def step() -> None:
        parts = f.linear(f.layer_norm(x, (width,), *norms[0]), *qkv).chunk(3, -1)
        attended = f.scaled_dot_product_attention(*[split_heads(t) for t in parts])
        h = x + f.linear(attended.transpose(1, 2).reshape(batch, length, width), *out)
        h = h + f.linear(f.gelu(f.linear(f.layer_norm(h, (width,), *norms[1]), *up)), *down)
        (h * h).mean().backward()
        for p in params:
            p.grad = None

    return step


def layer_norm_weights(lib: Any, width: int) -> tuple[Any, Any]:
    return lib.ones(width, requires_grad=True), lib.zeros(width, requires_grad=True)


def small_cnn(lib: Any, batch: int = 32, size: int = 28) -> Step:
    """Two convolutions of 3 x 3 with relu and pooling, a linear layer, cross entropy; forward and backward."""
    lib.manual_seed(0)
    f = layer_functions(lib)
    kernels = [(lib.randn(n, m, 3, 3) * 0.1).requires_grad_() for m, n in pairwise((1, 16, 32))]
    biases = [lib.zeros(n, requires_grad=True) for n in (16, 32)]
    weight, bias = layers(lib, (32 * (size // 4) ** 2, 10))[0]
    x, target = lib.randn(batch, 1, size, size), lib.randint(0, 10, (batch,))

    def step() -> None:
        h = x
        for kernel, b in zip(kernels, biases, strict=True):
            h = f.max_pool2d(f.relu(f.conv2d(h, kernel, b, padding=1)), 2)
        f.cross_entropy(f.linear(h.flatten(1), weight, bias), target).backward()
        for p in (*kernels, *biases, weight, bias):
            p.grad = None

    return step


def over_rows(lib: Any, name: str, size: int = 1024) -> Step:
    """One function of `size` rows of `size` numbers, forward and backward."""
    lib.manual_seed(0)
    f = layer_functions(lib)
    x, g = lib.randn(size, size, requires_grad=True), lib.randn(size, size)
    weight, bias = layer_norm_weights(lib, size)
    target = lib.randint(0, size, (size,))
    calls: dict[str, Callable[[], Any]] = {
        "softmax": lambda: f.softmax(x, -1).backward(g),
        "log_softmax": lambda: f.log_softmax(x, -1).backward(g),
        "layer_norm": lambda: f.layer_norm(x, (size,), weight, bias).backward(g),
        "rms_norm": lambda: f.rms_norm(x, (size,), weight).backward(g),
        "cross_entropy": lambda: f.cross_entropy(x, target).backward(),
        "gelu": lambda: f.gelu(x).backward(g),
        "logsumexp": lambda: lib.logsumexp(x, -1).backward(g[0]),
        "batch_norm": lambda: f.batch_norm(x, None, None, weight, bias, True).backward(g),
    }

    def step() -> None:
        calls[name]()
        x.grad = weight.grad = bias.grad = None

    return step
