"""Learning rates that go up and down in cycles, with the momentum going the other way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from undertow.optim.optimizer import Optimizer
from undertow.optim.schedulers.base import (
    LRScheduler,
    one_per_group,
    require_momentum,
    set_momentum,
    set_option,
)


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and far down again, over all steps of a training (Smith and Topin, 2018); momentum goes the other
    way, where the optimizer has one.

    max_lr                   the highest rate; one number, or one for each group
    total_steps              how many steps there are in all; or
    epochs, steps_per_epoch  their product is the number of steps
    pct_start                the share of the steps in which the rate rises
    anneal_strategy          "cos" or "linear"
    cycle_momentum           whether momentum goes from max_momentum to base_momentum and back
    base_momentum, max_momentum  its bounds
    div_factor               the first rate is max_lr divided by it
    final_div_factor         the last rate is the first divided by it
    three_phase              back to the first rate in as many steps as the rise takes, and then on to the last

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.OneCycleLR(sgd, max_lr=1.0, total_steps=5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.04, 0.9505, 0.6113, 0.1883]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(
                    "You must define either total_steps OR (epochs AND steps_per_epoch), to say how long the cycle is"
                )
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0 or not isinstance(total_steps, int):
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        peak = float(pct_start * total_steps) - 1
        ends = [peak, 2 * peak, total_steps - 1] if three_phase else [peak, total_steps - 1]
        self.ends = ends
        self.levels = []  # for each group, the rates at the start and at these ends
        for group, top in zip(optimizer.param_groups, one_per_group(optimizer, max_lr, "max_lr"), strict=True):
            low = top / div_factor
            self.levels.append(
                [low, top, low, low / final_div_factor] if three_phase else [low, top, low / final_div_factor]
            )
            if last_epoch == -1:
                group["initial_lr"] = low
        self.momenta = None
        if cycle_momentum:
            require_momentum(optimizer)
            lows, highs = (one_per_group(optimizer, m, "momenta") for m in (base_momentum, max_momentum))
            self.momenta = [
                [high, low, high, high] if three_phase else [high, low, high]
                for low, high in zip(lows, highs, strict=True)
            ]
        super().__init__(optimizer, last_epoch)

    def _at(self, levels: Sequence[float]) -> float:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}: make the "
                "scheduler with as many as there are"
            )
        start = 0.0
        for n, end in enumerate(self.ends):
            if step <= end or n == len(self.ends) - 1:
                part = (step - start) / (end - start)
                return self._between(levels[n], levels[n + 1], part)
            start = end
        raise AssertionError("there is no phase after the last")

    def _between(self, first: float, last: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return (last - first) * part + first
        return last + (first - last) / 2 * (1 + math.cos(math.pi * part))

    def get_lr(self) -> list[float]:
        if self.momenta is not None:
            set_momentum(self.optimizer, [self._at(levels) for levels in self.momenta])
        return [self._at(levels) for levels in self.levels]


class CyclicLR(LRScheduler):
    """Between `base_lr` and `max_lr`, up and down (Smith, 2017); momentum the other way, where there is one.

    base_lr, max_lr  the bounds; one number, or one for each group
    step_size_up, step_size_down  how many steps each way takes; down as up, if None
    mode             "triangular"; "triangular2": half as high each time; "exp_range": times gamma ** step
    gamma            of "exp_range"
    scale_fn         by which factor the rise is less high, instead of `mode`: a function of the cycle or of the step
    scale_mode       "cycle" or "iterations": what `scale_fn` is given
    cycle_momentum   whether momentum goes from max_momentum to base_momentum and back
    base_momentum, max_momentum  its bounds

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.CyclicLR(sgd, base_lr=0.1, max_lr=0.5, step_size_up=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.1, 0.3, 0.5, 0.3]
    """

    _functions = ("scale_fn",)

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError("mode is invalid and scale_fn is None")
        bases = one_per_group(optimizer, base_lr, "base_lr")
        self.max_lrs = one_per_group(optimizer, max_lr, "max_lr")
        if last_epoch == -1:
            for group, base in zip(optimizer.param_groups, bases, strict=True):
                set_option(group, "lr", base)
                group["initial_lr"] = base
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self.scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            require_momentum(optimizer)
            self.base_momentums = one_per_group(optimizer, base_momentum, "base_momentum")
            self.max_momentums = one_per_group(optimizer, max_momentum, "max_momentum")
        super().__init__(optimizer, last_epoch)

    def _scale(self, cycle: float) -> float:
        x = cycle if self.scale_mode == "cycle" else self.last_epoch
        if self.scale_fn is not None:
            return self.scale_fn(x)
        return {"triangular": 1.0, "triangular2": 1 / 2.0 ** (cycle - 1), "exp_range": self.gamma**x}[self.mode]

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self._scale(cycle)
        if self.cycle_momentum:
            ends = zip(self.base_momentums, self.max_momentums, strict=True)
            set_momentum(self.optimizer, [high - (high - low) * height for low, high in ends])
        return [base + (top - base) * height for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]
