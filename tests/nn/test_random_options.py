"""Layers with options, shapes and memory layouts by chance: outputs, gradients and buffers are PyTorch's."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import undertow as ut
from tests.rows import rows

Made = tuple[tuple[Any, ...], dict[str, Any], list[tuple[int, ...]]]


def spread(rng: random.Random, dims: int, low: int, high: int) -> Any:
    """A number, or one for each dimension."""
    each = tuple(rng.randint(low, high) for _ in range(dims))
    return each[0] if rng.random() < 0.5 else each


def sizes(rng: random.Random, dims: int, low: int = 4, high: int = 7) -> tuple[int, ...]:
    return tuple(rng.randint(low, high) for _ in range(dims))


def convolution(rng: random.Random, dims: int) -> Made:
    groups = rng.choice([1, 2])
    channels = groups * rng.randint(1, 2), groups * rng.randint(1, 2)
    options = {
        "stride": spread(rng, dims, 1, 2),
        "padding": spread(rng, dims, 0, 2),
        "dilation": spread(rng, dims, 1, 2),
        "groups": groups,
        "bias": rng.random() < 0.5,
        "padding_mode": rng.choice(["zeros", "zeros", "reflect", "replicate", "circular"]),
    }
    return (*channels, spread(rng, dims, 1, 2)), options, [(rng.randint(0, 2), channels[0], *sizes(rng, dims))]


def transposed(rng: random.Random, dims: int) -> Made:
    args, options, inputs = convolution(rng, dims)
    del options["padding_mode"]
    options |= {"padding": 0, "stride": 2, "output_padding": rng.randint(0, 1)}
    return args, options, [(inputs[0][0], *inputs[0][1:])]


def pool(rng: random.Random, dims: int) -> Made:
    options = {"stride": spread(rng, dims, 1, 3), "padding": rng.randint(0, 1), "ceil_mode": rng.random() < 0.5}
    return (spread(rng, dims, 2, 3),), options, [(*rng.choice([(2, 3), (3,)]), *sizes(rng, dims))]


def batch_norm(rng: random.Random, dims: int) -> Made:
    options = {"momentum": rng.choice([0.1, None]), "affine": rng.random() < 0.5}
    options["track_running_stats"] = rng.random() < 0.7
    return (3,), options, [(rng.choice([0, 2, 3]), 3, *sizes(rng, dims, 1, 3))]


def recurrent(rng: random.Random, dims: int) -> Made:
    options = {"num_layers": rng.randint(1, 2), "bidirectional": rng.random() < 0.5, "bias": rng.random() < 0.5}
    return (2, 3), options | {"batch_first": rng.random() < 0.5}, [(*rng.choice([(4, 2), (3,)]), 2)]


def attention(rng: random.Random, dims: int) -> Made:
    options = {"bias": rng.random() < 0.5, "add_bias_kv": rng.random() < 0.5, "add_zero_attn": rng.random() < 0.5}
    return (4, 2), options, [(3, 2, 4), (5, 2, 4), (5, 2, 4)]


LAYERS: dict[str, tuple[Callable[[random.Random, int], Made], int]] = {
    **{f"Conv{d}d": (convolution, d) for d in (1, 2, 3)},
    **{f"ConvTranspose{d}d": (transposed, d) for d in (1, 2, 3)},
    **{f"MaxPool{d}d": (pool, d) for d in (1, 2, 3)},
    **{f"AvgPool{d}d": (pool, d) for d in (1, 2, 3)},
    **{f"BatchNorm{d}d": (batch_norm, d) for d in (1, 2, 3)},
    **{name: (recurrent, 1) for name in ("RNN", "LSTM", "GRU")},
    "MultiheadAttention": (attention, 1),
}


def tensors(output: Any) -> list[Any]:
    return [t for part in output for t in tensors(part)] if isinstance(output, tuple) else [output]


def array(rng: random.Random, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers, in one order of the dimensions or another."""
    values = np.random.default_rng(rng.randint(0, 999)).normal(size=shape)
    return np.asfortranarray(values) if rng.random() < 0.3 else values


def run(L: Any, layer: Any, arrays: list[np.ndarray]) -> list[Any]:
    """Outputs, gradients of inputs and parameters, buffers."""
    inputs = [L.tensor(a).requires_grad_() for a in arrays]
    outputs = tensors(layer(*inputs))
    sum((out * (k + 1)).sum() + (out**2).sum() for k, out in enumerate(outputs)).backward()
    grads = [x.grad for x in (*inputs, *layer.parameters())]
    return [*outputs, *grads, *layer.buffers()]


@rows("seed", range(5))
@rows("name", LAYERS)
def test_layers(torch: ModuleType, name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    make, dims = LAYERS[name]
    args, options, shapes = make(rng, dims)
    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(ut.nn, name)(*args, **options).double()
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    arrays = [array(rng, shape) for shape in shapes]
    for training in (True, False):
        found = run(ut, ours.train(training).requires_grad_(), arrays)
        wanted = run(torch, theirs.train(training).requires_grad_(), arrays)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-7, atol=1e-10)
