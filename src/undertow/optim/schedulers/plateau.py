"""The scheduler that waits until a measure gets no better."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow.graph.user_lines import warn_user
from undertow.optim.optimizer import Optimizer
from undertow.optim.schedulers.base import EPOCH_DEPRECATION_WARNING, LRScheduler, one_per_group, set_option

if TYPE_CHECKING:
    from undertow.backend.interface import Array


class ReduceLROnPlateau(LRScheduler):
    """The rate times `factor` when a measure has not got better for more than `patience` steps: step(measure).

    mode            "min" if small measures are good, "max" if large ones are
    threshold       by how much a measure must be better than the best, to count as better
    threshold_mode  "rel": by that share of the best; "abs": by the number itself
    cooldown        how many steps after a change do not count
    min_lr          the rate does not go below; one number, or one for each group
    eps             changes that are not larger are left out

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
        self.min_lrs = one_per_group(optimizer, min_lr, "min_lrs")
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else min_lr
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = self._rates_now()

    def is_better(self, measure: float) -> bool:
        """Whether a measure is better than the best so far, by more than the threshold.

        A relative threshold is a factor of the best, as in PyTorch: where that is negative, it asks for less.
        """
        threshold = -self.threshold if self.mode == "min" else self.threshold
        bound = self.best * (1 + threshold) if self.threshold_mode == "rel" else self.best + threshold
        return measure < bound if self.mode == "min" else measure > bound

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def step(self, metrics: Array, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take in the measure of the last epoch (a number or a tensor).

        metrics  the measure
        """
        measure = float(metrics)
        if epoch is not None:
            warn_user(EPOCH_DEPRECATION_WARNING)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(measure):
            self.best, self.num_bad_epochs = measure, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates_now()

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self._least(), strict=True):
            before = float(group["lr"])
            rate = max(before * self.factor, least)
            if before - rate > self.eps:
                set_option(group, "lr", rate)

    def _least(self) -> list[float]:
        """The least rate of every group; groups that were added have the one that was given for all."""
        count = len(self.optimizer.param_groups)
        if count != len(self.min_lrs) and self.default_min_lr is None:
            raise RuntimeError(
                f"The number of param groups in the `optimizer` ({count}) differs from when `ReduceLROnPlateau` was "
                f"initialized ({len(self.min_lrs)}): a group was added. Please modify the `min_lrs` field to match."
            )
        if count != len(self.min_lrs):
            self.min_lrs = [self.default_min_lr] * count
        return self.min_lrs
