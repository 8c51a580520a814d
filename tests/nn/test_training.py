"""The same networks with the same weights learn the same things: 50 steps here and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

pytestmark = pytest.mark.torch

STEPS = 50


def mlp(L: Any) -> Any:
    nn = L.nn
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 4))


def cnn(L: Any) -> Any:
    nn = L.nn
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def lstm(L: Any) -> Any:
    class Reader(L.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = L.nn.Embedding(12, 6, padding_idx=0)
            self.lstm = L.nn.LSTM(6, 10, num_layers=2, bidirectional=True, batch_first=True)
            self.head = L.nn.Linear(20, 4)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.table(x))[0][:, -1])

    return Reader()


def transformer(L: Any) -> Any:
    class Small(L.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = L.nn.Embedding(12, 8)
            layer = L.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.encoder = L.nn.TransformerEncoder(layer, 2, L.nn.LayerNorm(8))
            self.head = L.nn.Linear(8, 4)
            mask = L.triu(L.full((7, 7), float("-inf")), 1)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, x: Any) -> Any:
            return self.head(self.encoder(self.table(x), mask=self.mask).mean(1))

    return Small()


def numbers(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(16, 8)).astype("f")


def images(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(16, 1, 8, 8)).astype("f")


def tokens(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 12, size=(16, 7))


def learn(L: Any, net: Any, x: Any, y: Any) -> list[float]:
    """Gradient descent with momentum, by hand."""
    criterion, losses = L.nn.CrossEntropyLoss(label_smoothing=0.05), []
    velocities = [L.zeros_like(p) for p in net.parameters()]
    for _ in range(STEPS):
        loss = criterion(net(x), y)
        net.zero_grad()
        loss.backward()
        L.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        with L.no_grad():
            for p, v in zip(net.parameters(), velocities, strict=True):
                v.mul_(0.9).add_(p.grad)
                p.sub_(v, alpha=0.05)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("build", "data"), [(mlp, numbers), (cnn, images), (lstm, tokens), (transformer, tokens)], ids=lambda f: f.__name__
)
def test_the_same_losses(torch: ModuleType, build: Callable[..., Any], data: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    x, y = data(rng), rng.integers(0, 4, size=16)
    theirs, ours = build(torch), build(ut)
    ours.load_state_dict(theirs.state_dict())
    their_losses = learn(torch, theirs, torch.tensor(x), torch.tensor(y))
    our_losses = learn(ut, ours, ut.tensor(x), ut.tensor(y))
    assert their_losses[-1] < their_losses[0] * 0.97  # it does learn
    np.testing.assert_allclose(our_losses, their_losses, rtol=2e-3, atol=1e-4)
    for name, tensor in ours.state_dict().items():
        np.testing.assert_allclose(
            tensor.numpy(), theirs.state_dict()[name].numpy(), rtol=2e-2, atol=2e-3, err_msg=name
        )


def test_what_is_trained_here_works_there(torch: ModuleType) -> None:
    ours, theirs = cnn(ut), cnn(torch)
    x = images(np.random.default_rng(1))
    ours(ut.tensor(x))  # so that there are statistics
    theirs.load_state_dict({name: torch.from_numpy(t.numpy()) for name, t in ours.state_dict().items()})
    with torch.no_grad():
        expected = theirs.eval()(torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours.eval()(ut.tensor(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
