"""Training steps as people write them: modules, a loss, an optimizer."""

from __future__ import annotations

from typing import Any

from benchmarks.models import Step


def mlp_of_modules(lib: Any) -> Step:
    """The small MLP of `models`, out of nn and optim."""
    lib.manual_seed(0)
    nn = lib.nn
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return step_of(lib, model, lib.optim.SGD(model.parameters(), lr=0.01), lib.randn(32, 784))


def medium_mlp_of_modules(lib: Any, width: int = 2048) -> Step:
    """The medium MLP of `models`, out of nn and optim, with Adam."""
    lib.manual_seed(0)
    nn = lib.nn
    hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*hidden, nn.Linear(width, 10))
    return step_of(lib, model, lib.optim.Adam(model.parameters()), lib.randn(512, width))


def step_of(lib: Any, model: Any, optimizer: Any, x: Any) -> Step:
    target, loss_of = lib.randint(0, 10, (x.shape[0],)), lib.nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(x), target).backward()
        optimizer.step()

    return step


def lstm_of_modules(lib: Any, length: int = 30, hidden: int = 64, batch: int = 16) -> Step:
    """An LSTM over sequences, a linear layer on its last output, and Adam."""
    lib.manual_seed(0)
    nn = lib.nn
    lstm, head = nn.LSTM(hidden, hidden, batch_first=True), nn.Linear(hidden, 10)
    optimizer = lib.optim.Adam([*lstm.parameters(), *head.parameters()])
    return step_of(lib, lambda x: head(lstm(x)[0][:, -1]), optimizer, lib.randn(batch, length, hidden))


def adam_of_small(lib: Any, count: int = 100, size: int = 10) -> Step:
    """Adam's update of many small parameters."""
    params = [lib.ones(size, requires_grad=True) for _ in range(count)]
    for p in params:
        p.grad = lib.ones(size)
    return lib.optim.Adam(params).step
