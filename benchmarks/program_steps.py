"""Programs of many kinds, as people write them, once for both libraries. Each returns a function that does one step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]


def training(lib: Any, model: Any, loss: Callable[[], Any]) -> Step:
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


# ---- networks


def gpt(lib: Any) -> Step:
    """Two layers of a transformer over 16 sequences of 64 characters."""
    nn = lib.nn
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.ModuleDict(
        {"embed": nn.Embedding(96, 128), "body": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
         "head": nn.Linear(128, 96)}
    )  # fmt: skip
    text = lib.randint(0, 96, (16, 65))
    mask = lib.triu(lib.full((64, 64), -math.inf), diagonal=1)

    def loss() -> Any:
        hidden = model["body"](model["embed"](text[:, :-1]), mask=mask)
        return nn.functional.cross_entropy(model["head"](hidden).flatten(0, 1), text[:, 1:].flatten())

    return training(lib, model, loss)


def block_class(lib: Any) -> Any:
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, given: int, width: int, stride: int) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(given, width, 3, stride, 1), nn.Conv2d(width, width, 3, 1, 1)
            self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
            self.short = nn.Conv2d(given, width, 1, stride) if stride > 1 or given != width else nn.Identity()

        def forward(self, x: Any) -> Any:
            h = nn.functional.relu(self.norms[0](self.first(x)))
            return nn.functional.relu(self.norms[1](self.second(h)) + self.short(x))

    return Block


def residual_block(lib: Any) -> Step:
    model, x = block_class(lib)(32, 32, 1), lib.randn(16, 32, 32, 32)
    return training(lib, model, lambda: model(x).square().mean())


def resnet18(lib: Any) -> Step:
    """On four images of 32 by 32."""
    nn, block = lib.nn, block_class(lib)
    widths = [64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [block(a, b, 1 if a == b else 2) for a, b in zip([64, *widths], widths, strict=False)]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, 10),
    )  # fmt: skip
    x, target = lib.randn(4, 3, 32, 32), lib.randint(0, 10, (4,))
    return training(lib, model, lambda: nn.functional.cross_entropy(model(x), target))


def gru(lib: Any) -> Step:
    model, x = lib.nn.GRU(32, 64, batch_first=True), lib.randn(16, 50, 32)
    return training(lib, model, lambda: model(x)[0].square().mean())


def vae(lib: Any) -> Step:
    nn, f = lib.nn, lib.nn.functional
    encoder = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 40))
    decoder = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 784))
    model, x = nn.ModuleList([encoder, decoder]), lib.rand(128, 784)

    def loss() -> Any:
        mean, log_variance = encoder(x).chunk(2, dim=1)
        sample = mean + (0.5 * log_variance).exp() * lib.randn_like(mean)
        fit = f.binary_cross_entropy_with_logits(decoder(sample), x, reduction="sum")
        return (fit - 0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()) / len(x)

    return training(lib, model, loss)


def large_vocabulary(lib: Any) -> Step:
    nn = lib.nn
    model = nn.Sequential(nn.Embedding(20_000, 64), nn.Linear(64, 20_000))
    words = lib.randint(0, 20_000, (129,))
    return training(lib, model, lambda: nn.functional.cross_entropy(model(words[:-1]), words[1:]))


def checkpointed(lib: Any) -> Step:
    nn = lib.nn
    parts = [nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh()) for _ in range(8)]
    model, x = nn.Sequential(*parts), lib.randn(64, 256)
    checkpoint = lib.utils.checkpoint.checkpoint

    def loss() -> Any:
        h = x
        for part in parts:
            h = checkpoint(part, h, use_reentrant=False)
        return h.square().mean()

    return training(lib, model, loss)


# ---- derivatives of several kinds


def neural_ode(lib: Any) -> Step:
    """Twenty steps of Runge and Kutta's method through a small network."""
    nn = lib.nn
    model, x = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)), lib.randn(64, 16)

    def loss() -> Any:
        y, dt = x, 0.05
        for _ in range(20):
            k1 = model(y)
            k2 = model(y + dt / 2 * k1)
            k3 = model(y + dt / 2 * k2)
            y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + model(y + dt * k3))
        return y.square().mean()

    return training(lib, model, loss)


def gradient_penalty(lib: Any) -> Step:
    nn = lib.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.Softplus(), nn.Linear(128, 128), nn.Softplus(), nn.Linear(128, 1))
    x = lib.randn(256, 64).requires_grad_()

    def loss() -> Any:
        score = model(x)
        (slope,) = lib.autograd.grad(score.sum(), x, create_graph=True)
        return score.mean() + 10 * (slope.norm(2, dim=1) - 1).square().mean()

    return training(lib, model, loss)


def per_sample_gradients(lib: Any) -> Step:
    w, b = lib.randn(32, 10) * 0.1, lib.zeros(10)
    x, y = lib.randn(256, 32), lib.randint(0, 10, (256,))

    def loss(w: Any, b: Any, x: Any, y: Any) -> Any:
        return lib.nn.functional.cross_entropy((x @ w + b).unsqueeze(0), y.unsqueeze(0))

    gradients = lib.func.vmap(lib.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0, 0))
    return lambda: gradients(w, b, x, y)


def hessian(lib: Any) -> Step:
    a, x = lib.randn(40, 20), lib.randn(20)
    found = lib.func.hessian(lambda x: lib.log(1 + (a @ x).square()).sum() + lib.sin(x).prod())
    return lambda: found(x)


def custom_function(lib: Any) -> Step:
    class Bend(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.tanh()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (y,) = ctx.saved_tensors
            return grad * (1 - y * y)

    x = lib.randn(100).requires_grad_()

    def step() -> None:
        y = x
        for _ in range(100):
            y = Bend.apply(y) * 1.5
        y.sum().backward()

    return step


def saved_tensor_hooks(lib: Any) -> Step:
    x = lib.randn(1000).requires_grad_()

    def step() -> None:
        with lib.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            y = x
            for _ in range(50):
                y = lib.tanh(y * 1.1)
        y.sum().backward()

    return step


def deep_graph(lib: Any) -> Step:
    x = lib.ones(1).requires_grad_()

    def step() -> None:
        y = x
        for _ in range(20_000):
            y = y * 1.0
        y.backward()

    return step


# ---- arrays


def log_likelihood(lib: Any) -> Step:
    """Of a logistic regression with 10,000 rows, written out."""
    x, y = lib.randn(10_000, 20), (lib.rand(10_000) > 0.5).to(lib.float32)
    w = lib.zeros(20).requires_grad_()

    def step() -> None:
        w.grad = None
        score = (x * w).sum(1)
        (lib.nn.functional.softplus(score) - y * score + 1e-3 * lib.log(1 + score * score)).sum().backward()

    return step


def mixture(lib: Any) -> Step:
    """The likelihood of 20,000 numbers under a mixture of eight normal distributions."""
    x = lib.randn(20_000, 1)
    mean, scale, weight = [lib.randn(8).requires_grad_() for _ in range(3)]

    def step() -> None:
        z = (x - mean) / scale.exp()
        terms = lib.log_softmax(weight, 0) - scale - 0.5 * z * z
        (-lib.logsumexp(terms, 1).mean()).backward()

    return step


def physics_in_place(lib: Any) -> Step:
    """Fifty masses on springs, moved in place."""
    start = lib.linspace(0.0, 1.0, 50).requires_grad_()

    def step() -> None:
        place, speed = start * 1.0, lib.zeros(50)
        for _ in range(100):
            force = lib.zeros(50)
            stretch = place[1:] - place[:-1]
            force[:-1] += stretch
            force[1:] -= stretch
            speed = speed + 0.1 * force
            place = place + 0.1 * speed
        place.square().sum().backward()

    return step


def sort_and_gather(lib: Any) -> Step:
    x = lib.randn(1000, 256).requires_grad_()

    def step() -> None:
        x.grad = None
        values, places = x.sort(dim=1)
        top = x.topk(16, dim=1).values
        chosen = lib.gather(x, 1, places[:, :32])
        (values.cumsum(1).mean() + top.sum() + (chosen * chosen).sum()).backward()

    return step


def fft_convolution(lib: Any) -> Step:
    x, kernel = lib.randn(64, 4096), lib.randn(4096).requires_grad_()

    def step() -> None:
        kernel.grad = None
        product = lib.fft.rfft(x) * lib.fft.rfft(kernel)
        lib.fft.irfft(product, n=4096).square().mean().backward()

    return step


def batched_linear_algebra(lib: Any) -> Step:
    root, right = lib.randn(64, 10, 10).requires_grad_(), lib.randn(64, 10, 1)
    eye = lib.eye(10)

    def step() -> None:
        root.grad = None
        matrix = root @ root.mT + eye
        factor = lib.linalg.cholesky(matrix)
        (lib.linalg.solve(matrix, right).sum() + factor.diagonal(dim1=-2, dim2=-1).log().sum()).backward()

    return step


PROGRAMS: dict[str, Callable[[Any], Step]] = {
    "small GPT": gpt,
    "residual block": residual_block,
    "ResNet-18": resnet18,
    "GRU": gru,
    "neural ODE": neural_ode,
    "VAE": vae,
    "log-likelihood": log_likelihood,
    "mixture likelihood": mixture,
    "gradient penalty": gradient_penalty,
    "per-sample gradients": per_sample_gradients,
    "Hessian": hessian,
    "physics in place": physics_in_place,
    "sort, topk, gather": sort_and_gather,
    "convolution by FFT": fft_convolution,
    "large vocabulary": large_vocabulary,
    "custom Functions": custom_function,
    "checkpointed network": checkpointed,
    "hooks for saved tensors": saved_tensor_hooks,
    "batched linear algebra": batched_linear_algebra,
    "20,000 nodes": deep_graph,
}
