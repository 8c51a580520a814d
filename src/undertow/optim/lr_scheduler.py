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


class LRScheduler:
    """Sets `lr` of every group at once and after every `step()`. Call it after the optimizer's step.

    last_epoch  the number of the step to go on from; -1: begin
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        for n, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{n}] when resuming an optimizer: load the "
                    "optimizer's state before making the scheduler"
                )
        self.optimizer = optimizer
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._last_lr: list[float] = [group["lr"] for group in optimizer.param_groups]
        self.step()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next step, or to `epoch`."""
        self._step_count += 1
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set(self.get_lr() if epoch is None else self.get_lr_anew())

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def get_lr(self) -> list[float]:
        """The rates of the present step; some schedulers make them from those of the step before."""
        return self.get_lr_anew()

    def get_lr_anew(self) -> list[float]:
        """The rates of the present step, from its number alone."""
        return [self.rate(base, n) for n, base in enumerate(self.base_lrs)]

    def rate(self, base: float, group: int) -> float:
        """The rate of a group with the initial rate `base`, at the present step."""
        raise NotImplementedError(f"{type(self).__name__} does not say how the rate goes on")

    def get_last_lr(self) -> list[float]:
        """The rates that were last set."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; functions are left out, and given anew when the scheduler is made."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not _has_functions(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)

    def _rates_now(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]


def _has_functions(value: Any) -> bool:
    return callable(value) or (isinstance(value, list) and any(callable(v) for v in value))


def _one_per_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    values = list(value) if isinstance(value, list | tuple) else [value] * len(optimizer.param_groups)
    if len(values) != len(optimizer.param_groups):
        raise ValueError(f"Expected {len(optimizer.param_groups)} {name}, but got {len(values)}: one for each group")
    return values


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

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas: list[Callable[[int], float]] = _one_per_group(optimizer, lr_lambda, "lr_lambdas")
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        return base * self.lr_lambdas[group](self.last_epoch)


class MultiplicativeLR(LambdaLR):
    """The last rate times a function of the step number."""

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._rates_now()
        return [lr * f(self.last_epoch) for lr, f in zip(self._rates_now(), self.lr_lambdas, strict=True)]

    def get_lr_anew(self) -> list[float]:
        return self.get_lr()


class StepLR(LRScheduler):
    """The rate times gamma, every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        now = self._rates_now()
        turn = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return [lr * self.gamma for lr in now] if turn else now

    def rate(self, base: float, group: int) -> float:
        return base * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """The rate times gamma, at each of the milestones."""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [lr * self.gamma ** self.milestones[self.last_epoch] for lr in self._rates_now()]

    def rate(self, base: float, group: int) -> float:
        return base * self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch)


class ConstantLR(LRScheduler):
    """The rate times `factor`, for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        change = {0: self.factor, self.total_iters: 1 / self.factor if self.factor else 1.0}
        return [lr * change.get(self.last_epoch, 1.0) for lr in self._rates_now()]

    def rate(self, base: float, group: int) -> float:
        return base * (1.0 if self.last_epoch >= self.total_iters else self.factor)


class LinearLR(LRScheduler):
    """The rate times a factor that goes in a straight line from start_factor to end_factor."""

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

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in self._rates_now()]
        if self.last_epoch > self.total_iters:
            return self._rates_now()
        ratio = self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)
        return [lr * ratio for lr in self._rates_now()]

    def rate(self, base: float, group: int) -> float:
        return base * self._factor(self.last_epoch)


class ExponentialLR(LRScheduler):
    """The rate times gamma, every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        now = self._rates_now()
        return now if self.last_epoch == 0 else [lr * self.gamma for lr in now]

    def rate(self, base: float, group: int) -> float:
        return base * self.gamma**self.last_epoch


class PolynomialLR(LRScheduler):
    """Down to 0 within `total_iters` steps, along a polynomial."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        now, step, total = self._rates_now(), self.last_epoch, self.total_iters
        if step == 0 or step > total:
            return now
        ratio = ((1 - step / total) / (1 - (step - 1) / total)) ** self.power
        return [lr * ratio for lr in now]

    def rate(self, base: float, group: int) -> float:
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

    def get_lr(self) -> list[float]:
        """By recursion, so that rates changed by hand (or by another scheduler) are respected."""
        step, total, low = self.last_epoch, self.T_max, self.eta_min
        now = self._rates_now()
        if step == 0:
            return now
        if self._step_count == 1 and step > 0:
            return self.get_lr_anew()
        if (step - 1 - total) % (2 * total) == 0:
            rise = (1 - math.cos(math.pi / total)) / 2
            return [lr + (base - low) * rise for lr, base in zip(now, self.base_lrs, strict=True)]
        ratio = (1 + math.cos(math.pi * step / total)) / (1 + math.cos(math.pi * (step - 1) / total))
        return [ratio * (lr - low) + low for lr in now]

    def rate(self, base: float, group: int) -> float:
        height = (1 + math.cos(self.last_epoch * math.pi / self.T_max)) / 2
        return self.eta_min + (base - self.eta_min) * height


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to `eta_min` along a cosine and up again at once: after T_0 steps, then T_mult times as many, and so on."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        length, since = self.T_0, self.last_epoch
        while since >= length:
            since -= length
            length *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * since / length)) / 2


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and far down again, over all steps of a training (Smith and Topin, 2018); momentum goes the other
    way, where the optimizer has one."""

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
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
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
        for group, top in zip(
            optimizer.param_groups, _one_per_group(optimizer, max_lr, "values for max_lr"), strict=True
        ):
            low = top / div_factor
            self.levels.append(
                [low, top, low, low / final_div_factor] if three_phase else [low, top, low / final_div_factor]
            )
            if last_epoch == -1:
                group["initial_lr"] = low
        self.momenta = None
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
            high, low = max_momentum, base_momentum
            self.momenta = [high, low, high, high] if three_phase else [high, low, high]
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
            _set_momentum(self.optimizer, [self._at(self.momenta)] * len(self.base_lrs))
        return [self._at(levels) for levels in self.levels]


def _set_momentum(optimizer: Optimizer, values: Sequence[float]) -> None:
    for group, momentum in zip(optimizer.param_groups, values, strict=True):
        if "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(LRScheduler):
    """Between `base_lr` and `max_lr`, up and down (Smith, 2017); momentum the other way, where there is one."""

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
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError("mode is invalid and scale_fn is None")
        bases = _one_per_group(optimizer, base_lr, "values for base_lr")
        self.max_lrs = _one_per_group(optimizer, max_lr, "values for max_lr")
        if last_epoch == -1:
            for group, base in zip(optimizer.param_groups, bases, strict=True):
                group["lr"] = base
                group["initial_lr"] = base
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self.scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        if cycle_momentum and "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.cycle_momentum, self.momenta = cycle_momentum, (base_momentum, max_momentum)
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
            low, high = self.momenta
            _set_momentum(self.optimizer, [high - (high - low) * height] * len(self.base_lrs))
        return [base + (top - base) * height for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]


class SequentialLR(LRScheduler):
    """One scheduler after another; each milestone is where the next begins."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler to be chained, but got no scheduler")
        for n, scheduler in enumerate(schedulers):
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"SequentialLR expects all schedulers to belong to the same optimizer, but got scheduler {n} with "
                    "another"
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "SequentialLR expects number of schedulers provided to be one more than the number of milestone "
                f"points, but got number of schedulers {len(schedulers)} and the number of milestones to be equal to "
                f"{len(milestones)}"
            )
        self.optimizer, self.schedulers, self.milestones = optimizer, list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:  # each scheduler has taken its first step: undo that
            group["lr"] = group["initial_lr"]
        for scheduler in self.schedulers:
            scheduler.last_epoch -= 1
            scheduler._step_count -= 1
        self.schedulers[0].step()
        self._last_lr = self.schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch += 1
        n = bisect_right(self.milestones, self.last_epoch)
        scheduler = self.schedulers[n]
        if n > 0 and self.milestones[n - 1] == self.last_epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        rest = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "schedulers")}
        return {**rest, "_schedulers": [s.state_dict() for s in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self.schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(SequentialLR):
    """Several schedulers that all step together, each on the rates that the one before has set."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler")
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        if any([s.optimizer is not optimizer for s in schedulers]):
            raise ValueError("ChainedScheduler expects all schedulers to belong to the same optimizer")
        self.schedulers, self.optimizer = list(schedulers), optimizer
        self._last_lr = self._rates_now()

    def step(self, epoch: int | None = None) -> None:
        for scheduler in self.schedulers:
            scheduler.step()
        self._last_lr = self._rates_now()


class ReduceLROnPlateau(LRScheduler):
    """The rate times `factor` when a measure has not got better for more than `patience` steps: step(measure).

    >>> import undertow as ut
    >>> optimizer = ut.optim.SGD([ut.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = ut.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    >>> for loss in (1.0, 1.0, 1.0):
    ...     scheduler.step(loss)
    >>> scheduler.get_last_lr()
    [0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = _one_per_group(optimizer, min_lr, "min_lrs")
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = self._rates_now()

    def is_better(self, measure: float) -> bool:
        """Whether a measure is better than the best so far, by more than the threshold."""
        sign = 1 if self.mode == "min" else -1
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1)
        if math.isinf(self.best):
            return sign * measure < sign * self.best
        return sign * measure < sign * self.best - margin

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take in the measure of the last epoch (a number or a tensor)."""
        measure = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(measure):
            self.best, self.num_bad_epochs = measure, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates_now()

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            rate = max(group["lr"] * self.factor, least)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate
