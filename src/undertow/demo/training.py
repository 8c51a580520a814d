"""What the demo trains, and how: a network that reads digits, the way one writes it in PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import undertow as ut
from undertow import nn
from undertow.data import DataLoader, Subset, random_split
from undertow.demo.digits import SIDE, digits

#: images to train with, and to tell how well that went
IMAGES, SHARES = 8000, [0.8, 0.2]
#: so few that products of matrices are too small for several threads, which would wait for each other
BATCH = 16


def network(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def loss_of(model: Callable[[Any], Any], images: Any, labels: Any) -> Any:
    return ut.cross_entropy(model(images), labels)


@ut.no_grad()
def answers(model: nn.Module, images: Any) -> Any:
    """The digit that the network takes each image for."""
    return model(images).argmax(dim=1)


class Trained(NamedTuple):
    """What a training run leaves behind."""

    model: nn.Sequential
    losses: list[float]
    unseen: Subset
    seconds: float

    def some(self, count: int) -> tuple[Any, Any]:
        """Images that were not trained with, and what they show."""
        return self.unseen[list(range(count))]

    @property
    def accuracy(self) -> float:
        """The share of unseen images that are read right."""
        images, labels = self.some(len(self.unseen))
        return (answers(self.model, images) == labels).sum().item() / len(labels)

    @property
    def improved(self) -> bool:
        few = max(1, len(self.losses) // 10)
        return sum(self.losses[-few:]) < sum(self.losses[:few])


def train(epochs: int, hidden: int, seed: int, show: Callable[[int, float], None] | None = None) -> Trained:
    """Train for some passes over the images; `show(step, loss)` is called after each step."""
    ut.manual_seed(seed)
    training, unseen = random_split(digits(IMAGES, seed, noise=0.25, reach=1), SHARES)
    model = network(hidden)
    optimizer = ut.optim.Adam(model.parameters(), lr=3e-3)
    losses: list[float] = []
    started = time.perf_counter()
    for _ in range(epochs):
        for images, labels in DataLoader(training, batch_size=BATCH, shuffle=True):
            loss = loss_of(model, images, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if show is not None:
                show(len(losses), losses[-1])
    return Trained(model, losses, unseen, time.perf_counter() - started)


def saved_and_loaded(model: nn.Sequential, path: Path) -> nn.Sequential:
    """Write the parameters of a network into a file, and read them into a new network of its kind."""
    ut.save(model.state_dict(), path)
    found = network(model[1].out_features)
    found.load_state_dict(ut.load(path))
    return found


def check_gradients(seed: int, hidden: int = 4, count: int = 3) -> str | None:
    """Compare the gradients of a small network, in double precision, with finite differences.

    None if they agree, else what gradcheck says about the difference.
    """
    ut.manual_seed(seed)
    images, labels = digits(count, seed)[:]
    model = network(hidden).double()
    names = [name for name, _ in model.named_parameters()]

    def loss_at(*values: Any) -> Any:
        placed = dict(zip(names, values, strict=True))
        return loss_of(lambda x: ut.func.functional_call(model, placed, (x,)), images.double(), labels)

    try:
        ut.autograd.gradcheck(loss_at, list(model.parameters()))
    except ut.autograd.GradcheckError as error:
        return str(error)
    return None
