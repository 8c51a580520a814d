"""Averages of a model's weights over its training: stochastic weight averaging, and exponential moving averages."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend import dtypes
from undertow.long_loops import long_loop
from undertow.modes import no_grad
from undertow.nn.layers.normalization import BatchNorm
from undertow.nn.module import Module
from undertow.optim.optimizer import Optimizer
from undertow.optim.schedulers.base import LRScheduler, one_per_group

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """How an exponential moving average goes on: decay * average + (1 - decay) * current.

    >>> import undertow as ut
    >>> from undertow.optim import swa_utils
    >>> swa_utils.get_ema_avg_fn(0.75)(ut.tensor(4.0), ut.tensor(8.0), 1)
    tensor(5.)
    """
    _check_decay(decay)
    return no_grad()(lambda average, current, count: decay * average + (1 - decay) * current)


def get_swa_avg_fn() -> Callable[..., Any]:
    """How the mean goes on: average + (current - average) / (count + 1).

    >>> import undertow as ut
    >>> from undertow.optim import swa_utils
    >>> swa_utils.get_swa_avg_fn()(ut.tensor(4.0), ut.tensor(8.0), 1)
    tensor(6.)
    """
    return no_grad()(lambda average, current, count: average + (current - average) / (count + 1))


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """`get_ema_avg_fn` for lists of tensors, in place.

    decay  how much of the mean stays at each update

    >>> import undertow as ut
    >>> from undertow.optim import swa_utils
    >>> averages = [ut.tensor(4.0), ut.tensor(0.0)]
    >>> swa_utils.get_ema_multi_avg_fn(0.75)(averages, [ut.tensor(8.0), ut.tensor(4.0)], 1)
    >>> averages
    [tensor(5.), tensor(1.)]
    """
    _check_decay(decay)

    @no_grad()
    def update(averages: Sequence[Any], currents: Sequence[Any], count: Tensor) -> None:
        for average, current in zip(averages, currents, strict=True):
            _move(average, current, 1 - decay)

    return update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """`get_swa_avg_fn` for lists of tensors, in place.

    >>> import undertow as ut
    >>> from undertow.optim import swa_utils
    >>> averages = [ut.tensor(4.0)]
    >>> swa_utils.get_swa_multi_avg_fn()(averages, [ut.tensor(8.0)], 1)
    >>> averages
    [tensor(6.)]
    """

    @no_grad()
    def update(averages: Sequence[Any], currents: Sequence[Any], count: Tensor) -> None:
        for average, current in zip(averages, currents, strict=True):
            _move(average, current, 1 / (int(count) + 1))

    return update


def _move(average: Tensor, current: Tensor, share: float) -> None:
    """Move a tensor towards another by a share of their difference."""
    if average.is_floating_point() or average.is_complex():
        average.lerp_(current, share)
    else:
        average.copy_(average * (1 - share) + current * share)


class AveragedModel(Module):
    """A copy of a model whose parameters are the mean of those it has been shown by `update_parameters`.

    device        where the copy is
    avg_fn        `(average, current, number of models so far) -> new average` for another mean, of one parameter
    multi_avg_fn  `(averages, currents, number)`, which changes a list of averages in place
    use_buffers   average the buffers, too; otherwise they are copied

    >>> import undertow as ut
    >>> model = ut.nn.Linear(1, 1, bias=False)
    >>> averaged = ut.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     with ut.no_grad():
    ...         _ = model.weight.fill_(value)
    ...     averaged.update_parameters(model)
    >>> averaged(ut.ones(1)).item()
    3.0
    """

    n_averaged: Any

    def __init__(
        self,
        model: Any,
        device: Device | str | int | None = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", ops.zeros((), dtype=dtypes.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Any) -> None:
        """Count the model's present parameters in."""
        averages = [t.detach() for t in self._averaged(self.module)]
        currents = [t.detach().to(a.device) for t, a in zip(self._averaged(model), averages, strict=True)]
        if self.n_averaged.item() == 0:
            for average, current in zip(averages, currents, strict=True):
                average.copy_(current)
        elif self.avg_fn is not None:
            for average, current in zip(averages, currents, strict=True):
                average.copy_(self.avg_fn(average, current, self.n_averaged))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, currents, self.n_averaged)
        if not self.use_buffers:
            for own, current in zip(self.module.buffers(), model.buffers(), strict=True):
                own.copy_(current.to(own.device))
        self.n_averaged += 1

    def _averaged(self, model: Any) -> list[Any]:
        return [*model.parameters(), *(model.buffers() if self.use_buffers else ())]


@no_grad()
def update_bn(loader: Iterable[Any], model: Any, device: Device | str | int | None = None) -> None:
    """Let batch norms take their statistics from one pass over the data: after weights were averaged, theirs are wrong.

    loader  gives inputs, or tuples and lists that begin with them
    device  where the inputs are put
    model   the module, which is run in training mode

    >>> import undertow as ut
    >>> from undertow.optim import swa_utils
    >>> model = ut.nn.Sequential(ut.nn.BatchNorm1d(1))
    >>> swa_utils.update_bn([ut.tensor([[1.0], [3.0]]), ut.tensor([[5.0], [7.0]])], model)
    >>> model[0].running_mean
    tensor([4.])
    """
    count = len(loader) if isinstance(loader, Sized) else None
    momenta = {module: module.momentum for module in model.modules() if isinstance(module, BatchNorm)}
    if not momenta:
        return
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None  # the plain mean over all batches
    was_training = model.training
    model.train()
    for batch in long_loop(loader, count, "update_bn"):
        inputs = batch[0] if isinstance(batch, list | tuple) else batch
        model(inputs if device is None else inputs.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """The rate goes from what it is to `swa_lr` in `anneal_epochs` steps, and stays there.

    anneal_strategy  "cos" or "linear"

    >>> import undertow as ut
    >>> from undertow.optim import swa_utils
    >>> optimizer = ut.optim.SGD([ut.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     schedule.step()
    ...     print(optimizer.param_groups[0]["lr"])
    0.75
    0.5
    0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, rate in zip(optimizer.param_groups, one_per_group(optimizer, swa_lr, "swa_lr"), strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """From the present rates, which another scheduler may have changed since the last step."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        return [self._annealed(group["lr"], group["swa_lr"], before, now) for group in self.optimizer.param_groups]

    def _share(self, step: int) -> float:
        """How much of the way is behind us."""
        done = max(0, min(1, step / max(1, self.anneal_epochs)))
        return done if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * done)) / 2

    def _annealed(self, rate: float, goal: float, before: float, now: float) -> float:
        start = goal if before == 1 else (rate - before * goal) / (1 - before)
        return goal * now + start * (1 - now)
