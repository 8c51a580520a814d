"""Schedulers: the learning rate of every parameter group as a function of the number of steps.

Some are formulas of the step number (`rate`); the others say how a rate follows from the one before, so that rates that
were changed by hand, or by another scheduler, are respected.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from undertow.optim.optimizer import Optimizer
from undertow.optim.schedulers.base import LRScheduler as LRScheduler
from undertow.optim.schedulers.combined import ChainedScheduler as ChainedScheduler
from undertow.optim.schedulers.combined import SequentialLR as SequentialLR
from undertow.optim.schedulers.cyclic import CyclicLR as CyclicLR
from undertow.optim.schedulers.cyclic import OneCycleLR as OneCycleLR
from undertow.optim.schedulers.plateau import ReduceLROnPlateau as ReduceLROnPlateau

#: the name that schedulers of users often inherit from
_LRScheduler = LRScheduler


def functions_per_group(optimizer: Optimizer, functions: Any) -> list[Any]:
    groups = len(optimizer.param_groups)
    found = list(functions) if isinstance(functions, list | tuple) else [functions] * groups
    if len(found) != groups:
        raise ValueError(f"Expected {groups} lr_lambdas, but got {len(found)}: one for each group")
    return found


class LambdaLR(LRScheduler):
    """The initial rate times a function of the step number (or one function for each group).

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


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to `eta_min` and back along a cosine; half a wave takes T_max steps.

    >>> import undertow as ut
    >>> optimizer = ut.optim.SGD([ut.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = ut.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(f"{scheduler.get_last_lr()[0]:.2f}")
    0.50
    0.00
    """

    def __init__(self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """By recursion, so that rates changed by hand (or by another scheduler) are respected."""
        step, total, low = self.last_epoch, self.T_max, self.eta_min
        now = self._rates_now()
        if self._is_initial:
            return now
        if self._step_count == 1 and step > 0:
            return self.rates_anew()
        if (step - 1 - total) % (2 * total) == 0:
            rise = (1 - math.cos(math.pi / total)) / 2
            return [lr + (base - low) * rise for lr, base in zip(now, self.base_lrs, strict=True)]
        ratio = (1 + math.cos(math.pi * step / total)) / (1 + math.cos(math.pi * (step - 1) / total))
        return [ratio * (lr - low) + low for lr in now]

    def rate(self, base: Any, group: int) -> float:
        height = (1 + math.cos(self.last_epoch * math.pi / self.T_max)) / 2
        return self.eta_min + (base - self.eta_min) * height


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to `eta_min` along a cosine and up again at once: after T_0 steps, then T_mult times as many, and so on.

    `step(epoch)` jumps, also to a part of an epoch: step(epoch + batch / batches).

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd, T_0=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.8, 0.4, 0.8, 0.4]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, float | int):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._jump(epoch)
        self._update_lr(math.floor(epoch))

    def _jump(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        self.T_cur, self.T_i = epoch, self.T_0
        if self.T_mult == 1:
            self.T_cur %= self.T_0
            return
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult

    def rate(self, base: Any, group: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
