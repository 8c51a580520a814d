"""Schedules that lower a rate (or raise it) by a formula of the epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from undertow.optim.optimizer import Optimizer
from undertow.optim.schedulers.base import LRScheduler as LRScheduler


def functions_per_group(optimizer: Optimizer, functions: Any) -> list[Any]:
    groups = len(optimizer.param_groups)
    found = list(functions) if isinstance(functions, list | tuple) else [functions] * groups
    if len(found) != groups:
        raise ValueError(f"Expected {groups} lr_lambdas, but got {len(found)}: one for each group")
    return found


class LambdaLR(LRScheduler):
    """The initial rate times a function of the step number (or one function for each group).

    lr_lambda  the function, or a list of them

    >>> import undertow as ut
    >>> optimizer = ut.optim.SGD([ut.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = ut.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    _functions = ("lr_lambdas",)

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas: list[Callable[[int], float]] = functions_per_group(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        return base * self.lr_lambdas[group](self.last_epoch)


class MultiplicativeLR(LRScheduler):
    """The last rate times a function of the step number (or one function for each group).

    lr_lambda  the function, or a list of them

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.MultiplicativeLR(sgd, lambda epoch: 0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.8, 0.4, 0.2, 0.1]
    """

    _functions = ("lr_lambdas",)

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas: list[Callable[[int], float]] = functions_per_group(optimizer, lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self._is_initial:
            return self._rates_now()
        return [lr * f(self.last_epoch) for lr, f in zip(self._rates_now(), self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """The rate times gamma, every `step_size` steps.

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.StepLR(sgd, step_size=2, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.8, 0.8, 0.4, 0.4]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        now = self._rates_now()
        turn = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return [lr * self.gamma for lr in now] if turn else now

    def rate(self, base: Any, group: int) -> Any:
        return base * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """The rate times gamma, at each of the milestones.

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.MultiStepLR(sgd, milestones=[1, 3], gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.8, 0.4, 0.4, 0.2]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        return [lr * self.gamma ** self.milestones.get(self.last_epoch, 0) for lr in self._rates_now()]

    def rate(self, base: Any, group: int) -> Any:
        return base * self.gamma ** bisect_right(sorted(Counter(self.milestones).elements()), self.last_epoch)


class ConstantLR(LRScheduler):
    """The rate times `factor`, for the first `total_iters` steps.

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.ConstantLR(sgd, factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.4, 0.4, 0.8, 0.8]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        change = {self.total_iters: 1 / self.factor if self.factor else 1.0, 0: self.factor}
        return [lr * change.get(self.last_epoch, 1.0) for lr in self._rates_now()]

    def rate(self, base: Any, group: int) -> Any:
        return base * (1.0 if self.last_epoch >= self.total_iters else self.factor)


class LinearLR(LRScheduler):
    """The rate times a factor that goes in a straight line from start_factor to end_factor.

    start_factor, end_factor  the first and the last factor
    total_iters               how many steps it takes from one to the other

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.LinearLR(sgd, start_factor=0.25, total_iters=3)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.2, 0.4, 0.6, 0.8]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float:
        done = min(self.total_iters, step) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in self._rates_now()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates_now()
        ratio = self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)
        return [lr * ratio for lr in self._rates_now()]

    def rate(self, base: Any, group: int) -> Any:
        return base * self._factor(self.last_epoch)


class ExponentialLR(LRScheduler):
    """The rate times gamma, every step.

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.ExponentialLR(sgd, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.8, 0.4, 0.2, 0.1]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        now = self._rates_now()
        return now if self._is_initial else [lr * self.gamma for lr in now]

    def rate(self, base: Any, group: int) -> Any:
        return base * self.gamma**self.last_epoch


class PolynomialLR(LRScheduler):
    """Down to 0 within `total_iters` steps, along a polynomial.

    power  of the polynomial; 1: a straight line

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.PolynomialLR(sgd, total_iters=4)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.8, 0.6, 0.4, 0.2]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        now, step, total = self._rates_now(), self.last_epoch, self.total_iters
        if self._is_initial or step > total:
            return now
        ratio = ((1 - step / total) / (1 - (step - 1) / total)) ** self.power
        return [lr * ratio for lr in now]

    def rate(self, base: Any, group: int) -> Any:
        return base * (1 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power
