"""Initialisation: ranges and moments, and what is refused."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("name", "args", "std"),
    [
        ("uniform_", (-1.0, 1.0), 2 / math.sqrt(12)),
        ("normal_", (0.0, 0.3), 0.3),
        ("trunc_normal_", (0.0, 1.0, -2.0, 2.0), 0.8796),
        ("xavier_uniform_", (2.0,), 2 * math.sqrt(2 / 500)),
        ("xavier_normal_", (), math.sqrt(2 / 500)),
        ("kaiming_uniform_", (0.5,), math.sqrt(2 / 1.25 / 300)),
        ("kaiming_normal_", (0, "fan_out", "relu"), math.sqrt(2 / 200)),
        ("orthogonal_", (), 1 / math.sqrt(300)),
    ],
)
def test_spread(L: ModuleType, name: str, args: Any, std: float) -> None:
    w = L.empty(200, 300, requires_grad=True)
    result = getattr(L.nn.init, name)(w, *args)
    assert result is w and w.grad_fn is None and w.requires_grad
    assert abs(w.mean().item()) < 0.01 and w.std().item() == pytest.approx(std, rel=0.02)
    if "uniform" in name:
        assert w.abs().max().item() <= std * math.sqrt(3) * 1.0001


def test_names_without_an_underscore_fill_and_warn(L: ModuleType) -> None:
    with pytest.warns(FutureWarning, match=r"`nn\.init\.constant` is now deprecated in favor of `nn\.init\.constant_`"):
        assert L.nn.init.constant(L.empty(2), 3.0).tolist() == [3, 3]
    assert L.nn.init._calculate_correct_fan(L.empty(2, 3, 5), "fan_in") == 15
    with pytest.raises(ValueError, match="Mode sideways not supported"):
        L.nn.init._calculate_correct_fan(L.empty(2, 3, 5), "sideways")


def test_fillings(L: ModuleType) -> None:
    init = L.nn.init
    assert init.constant_(L.empty(2), 3.0).tolist() == [3, 3]
    assert init.ones_(L.empty(1)).item() == 1 and init.zeros_(L.empty(1)).item() == 0
    assert L.equal(init.eye_(L.empty(2, 3)), L.eye(2, 3))
    x = L.randn(1, 2, 5)
    weight = init.dirac_(L.empty(2, 2, 3))
    assert L.allclose(L.nn.functional.conv1d(x, weight, padding=1), x)
    assert init.dirac_(L.empty(4, 2, 3, 3), groups=2).sum().item() == 4
    q = init.orthogonal_(L.empty(4, 2, 3, dtype=L.float64), gain=2.0).reshape(4, 6)
    assert L.allclose(q @ q.T, 4 * L.eye(4, dtype=L.float64))
    sparse = init.sparse_(L.empty(10, 4), 0.3)
    assert (sparse == 0).sum(0).tolist() == [3, 3, 3, 3]


def test_gains(L: ModuleType) -> None:
    gain = L.nn.init.calculate_gain
    assert gain("relu") == math.sqrt(2) and gain("tanh") == 5 / 3 and gain("conv2d") == 1 and gain("selu") == 0.75
    assert gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        gain("nothing")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda init, L: init.xavier_uniform_(L.empty(3)), "fewer than 2 dimensions"),
        (lambda init, L: init.kaiming_normal_(L.empty(3, 3), mode="sideways"), "not supported"),
        (lambda init, L: init.eye_(L.empty(3)), "Only tensors with 2 dimensions"),
        (lambda init, L: init.dirac_(L.empty(3)), "Only tensors with 3, 4, or 5 dimensions"),
        (lambda init, L: init.orthogonal_(L.empty(3)), "2 or more dimensions"),
        (lambda init, L: init.sparse_(L.empty(3), 0.1), "Only tensors with 2 dimensions"),
    ],
)
def test_refused(L: ModuleType, call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(L.nn.init, L)


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "LSTM", "Embedding", "MultiheadAttention"])
def test_layers_start_like_pytorch(L: ModuleType, name: str) -> None:
    """The spread of the first weights; the numbers themselves come from another generator."""
    args = {"Linear": (400, 300), "Conv2d": (30, 40, 3), "LSTM": (50, 100), "Embedding": (300, 40)}
    layer = getattr(L.nn, name)(*args.get(name, (128, 2)))
    expected = {"Linear": 400**-0.5 / 3**0.5, "Conv2d": 270**-0.5 / 3**0.5, "LSTM": 0.1 / 3**0.5, "Embedding": 1.0,
                "MultiheadAttention": math.sqrt(2 / 512)}  # fmt: skip
    weight = next(iter(layer.parameters()))
    assert weight.std().item() == pytest.approx(expected[name], rel=0.03)
