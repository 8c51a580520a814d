"""Schedules along a cosine."""

from __future__ import annotations

import math
from typing import Any

from undertow.optim.optimizer import Optimizer
from undertow.optim.schedulers.base import LRScheduler as LRScheduler


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to `eta_min` and back along a cosine; half a wave takes T_max steps.

    T_max  how many steps half a wave takes

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

    T_0     how many steps the first part takes
    T_mult  by how much each part is longer than the one before

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
