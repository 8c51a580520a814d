"""A small `torch.optim`: SGD and Adam, in place and unrecorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import undertow


class Optimizer:
    def __init__(self, parameters: Iterable[Any]):
        self.parameters = list(parameters)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        with undertow.no_grad():
            for index, parameter in enumerate(self.parameters):
                if parameter.grad is not None:
                    self.update(index, parameter, parameter.grad)

    def update(self, index: int, parameter: Any, grad: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no update rule")


class SGD(Optimizer):
    def __init__(self, parameters: Iterable[Any], lr: float = 1e-3):
        super().__init__(parameters)
        self.lr = lr

    def update(self, index: int, parameter: Any, grad: Any) -> None:
        parameter.sub_(self.lr * grad)


class Adam(Optimizer):
    def __init__(self, parameters: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999)):
        super().__init__(parameters)
        self.lr = lr
        self.betas = betas
        self.eps = 1e-8
        self.moments: dict[int, tuple[int, Any, Any]] = {}

    def update(self, index: int, parameter: Any, grad: Any) -> None:
        zeros = undertow.zeros_like(parameter)
        steps, first, second = self.moments.get(index, (0, zeros, zeros))
        slow, slower = self.betas
        steps, first = steps + 1, slow * first + (1 - slow) * grad
        second = slower * second + (1 - slower) * grad * grad
        self.moments[index] = steps, first, second
        corrected = (second / (1 - slower**steps)).sqrt() + self.eps
        parameter.sub_(self.lr * (first / (1 - slow**steps)) / corrected)
