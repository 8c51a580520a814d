"""Schedulers made of others: one after another, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from undertow.optim.optimizer import Optimizer
from undertow.optim.schedulers.base import LRScheduler, set_option
from undertow.optim.schedulers.plateau import ReduceLROnPlateau


def check_parts(name: str, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
    for n, scheduler in enumerate(schedulers):
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name} does not support `ReduceLROnPlateau` scheduler, whose `step` needs a measure, but got one at "
                f"index {n} in the given schedulers sequence. Step it by itself."
            )
        if scheduler.optimizer is not optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                f"{type(scheduler).__name__} at index {n} with another"
            )


def undo_first_step(scheduler: LRScheduler) -> None:
    """A scheduler takes a step when it is made; one that is part of another has to wait."""
    for part in getattr(scheduler, "_schedulers", ()):
        undo_first_step(part)
    if hasattr(scheduler, "last_epoch"):
        scheduler.last_epoch -= 1


class CombinedScheduler(LRScheduler):
    """Schedulers in `_schedulers`, whose state is saved with this one's."""

    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        rest = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        return {**rest, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(CombinedScheduler):
    """One scheduler after another; each milestone is where the next begins.

    schedulers  a list of them
    milestones  at which steps the second, the third, ... begins

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.SequentialLR(
    ...     sgd,
    ...     [ut.optim.lr_scheduler.ConstantLR(sgd, 0.1, 2), ut.optim.lr_scheduler.ExponentialLR(sgd, 0.5)],
    ...     milestones=[2],
    ... )
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.08, 0.08, 0.8, 0.4]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        check_parts("SequentialLR", optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self.optimizer, self._schedulers, self._milestones = optimizer, list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            set_option(group, "lr", group["initial_lr"])
        for scheduler in self._schedulers:
            undo_first_step(scheduler)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next step of the scheduler whose turn it is.

        epoch  accepted, without effect
        """
        self.last_epoch += 1
        n = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[n]
        if n > 0 and self._milestones[n - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(CombinedScheduler):
    """Several schedulers that all step together, each on the rates that the one before has set.

    >>> import undertow as ut
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.8)
    >>> schedule = ut.optim.lr_scheduler.ChainedScheduler(
    ...     [ut.optim.lr_scheduler.ConstantLR(sgd, 0.5, 2), ut.optim.lr_scheduler.ExponentialLR(sgd, 0.5)]
    ... )
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     sgd.step()
    ...     schedule.step()
    >>> rates
    [0.4, 0.2, 0.2, 0.1]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        check_parts("ChainedScheduler", optimizer, schedulers)
        self._schedulers, self.optimizer = list(schedulers), optimizer
        self._last_lr = self._rates_now()

    def step(self, epoch: int | None = None) -> None:
        """Let all of them go on.

        epoch  accepted, without effect
        """
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates_now()
