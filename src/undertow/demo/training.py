"""Training, written out: forward, backward, and an update in place under no_grad."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import undertow as ut
from undertow.demo.model import accuracy_of, loss_of, parameters, scores, spirals

#: as many to train on, and as many again to tell how well that went
POINTS = 300


class Adam:
    """Adam (Kingma and Ba, 2015): steps of about `rate` for every parameter, whatever the size of its gradient."""

    def __init__(self, params: list[Any], rate: float = 0.01) -> None:
        self.params, self.rate, self.steps = params, rate, 0
        self.means = [ut.zeros_like(p) for p in params]
        self.squares = [ut.zeros_like(p) for p in params]

    def step(self) -> None:
        self.steps += 1
        slowing = (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
        with ut.no_grad():
            for p, mean, square in zip(self.params, self.means, self.squares, strict=True):
                mean.mul_(0.9).add_(p.grad, alpha=0.1)
                square.mul_(0.999).add_(p.grad * p.grad, alpha=0.001)
                p -= self.rate * slowing * mean / (square.sqrt() + 1e-8)
                p.grad = None


class Trained(NamedTuple):
    """What a training run leaves behind."""

    params: list[Any]
    first_loss: float
    last_loss: float
    accuracy: float
    seconds: float

    @property
    def improved(self) -> bool:
        return self.last_loss < self.first_loss


def train(steps: int, hidden: int, seed: int, show: Callable[[int, float, float], None] | None = None) -> Trained:
    """Train for `steps` steps; `show(step, loss, accuracy)` is called after each. Accuracy is that on new points."""
    points, arms = spirals(POINTS, seed)
    params = parameters(hidden, seed + 1)
    unseen = spirals(POINTS, seed + 2)
    optimizer = Adam(params)
    first_loss, seconds = loss_of(points, arms, params).item(), 0.0
    for step in range(1, steps + 1):
        started = time.perf_counter()
        loss = loss_of(points, arms, params)
        loss.backward()
        optimizer.step()
        seconds += time.perf_counter() - started
        if show is not None:
            show(step, loss.item(), accuracy_of(*unseen, params))
    last_loss = loss_of(points, arms, params).item()
    return Trained(params, first_loss, last_loss, accuracy_of(*unseen, params), seconds)


def check_gradients(seed: int, hidden: int = 4, count: int = 6) -> str | None:
    """Compare the gradients of a small copy of the network, in double precision, with finite differences.

    None if they agree, else what gradcheck says about the difference.
    """
    points, arms = spirals(count, seed, ut.float64)
    params = parameters(hidden, seed + 1, ut.float64)
    try:
        ut.autograd.gradcheck(lambda *p: loss_of(points, arms, list(p)), params)
    except ut.autograd.GradcheckError as error:
        return str(error)
    return None


def picture(params: list[Any], columns: int, rows: int) -> list[str]:
    """The plane as the network sees it, one character per arm."""
    x = ut.linspace(-1.1, 1.1, columns).expand(rows, columns)
    y = ut.linspace(1.1, -1.1, rows).unsqueeze(1).expand(rows, columns)
    points = ut.stack([x.reshape(-1), y.reshape(-1)], dim=1)
    with ut.no_grad():
        answers = scores(points, *params).argmax(dim=1).reshape(rows, columns)
    return ["".join(".o#"[arm] for arm in row) for row in answers.tolist()]
