"""What all schedulers have: the rates of the groups, the number of the step, and their state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from undertow.graph.user_lines import warn_user
from undertow.optim.optimizer import Optimizer
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler: it counts by itself."
)


class LRScheduler:
    """Sets `lr` of every group at once and after every `step()`. Call it after the optimizer's step.

    last_epoch  the number of the step to go on from; -1: begin

    >>> import undertow as ut
    >>> class Halving(ut.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [base / 2**self.last_epoch for base in self.base_lrs]
    >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = Halving(sgd)
    >>> sgd.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    #: for `get_lr`: whether it is asked by a step, or by the user; and whether the scheduler is being made
    _get_lr_called_within_step = False
    _is_initial = False
    #: the names of attributes that are functions, or lists of them
    _functions: tuple[str, ...] = ()

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        for n, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", own(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{n}] when resuming scheduler with last_epoch "
                    ">= 0: load the optimizer's state before making the scheduler"
                )
        self.optimizer = optimizer
        self.base_lrs: list[float] = [own(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[float] = self._rates_now()
        optimizer.watch_steps()
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            del self._is_initial

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next step, or to `epoch`."""
        if self._step_count == 1 and not self.optimizer.has_stepped:
            warn_user(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite order: "
                "`optimizer.step()` before `lr_scheduler.step()`, or the first value of the schedule is skipped."
            )
        self._step_count += 1
        if epoch is not None:
            warn_user(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._get_lr_called_within_step = True
        try:
            self._set(self.get_lr() if epoch is None else self._get_closed_form_lr())
        finally:
            del self._get_lr_called_within_step

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_option(group, "lr", rate)
        self._last_lr = self._rates_now()

    def get_lr(self) -> list[float]:
        """The rates of the present step; some schedulers make them from those of the step before."""
        return self.rates_anew()

    def _get_closed_form_lr(self) -> list[float]:
        """The rates of the present step, from its number alone; as get_lr says, if there is no formula."""
        return self.get_lr() if type(self).rate is LRScheduler.rate else self.rates_anew()

    def rates_anew(self) -> list[float]:
        """The rates of the present step, from its number alone."""
        return [self.rate(base, n) for n, base in enumerate(self.base_lrs)]

    def rate(self, base: float, group: int) -> float:
        """The rate of a group with the initial rate `base`, at the present step."""
        raise NotImplementedError(f"{type(self).__name__} does not say how the rate goes on: it needs a `get_lr`")

    def get_last_lr(self) -> list[float]:
        """The rates that were last set."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of functions, only what objects with `__call__` remember."""
        saved = {k: v for k, v in self.__dict__.items() if k != "optimizer"}
        return {**saved, **{name: without_functions(saved[name]) for name in self._functions}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned; functions stay those that the scheduler was made with."""
        functions = {name: getattr(self, name) for name in self._functions}
        self.__dict__.update(state_dict)
        for name, made_with in functions.items():
            restore(made_with, state_dict.get(name))
            setattr(self, name, made_with)

    def _rates_now(self) -> list[float]:
        return [own(group["lr"]) for group in self.optimizer.param_groups]


def without_functions(value: Any) -> Any:
    """A function as it is saved: None, or the attributes of an object that can be called."""
    if isinstance(value, list):
        return [without_functions(v) for v in value]
    return dict(vars(value)) if remembers(value) else None


def restore(functions: Any, loaded: Any) -> None:
    """Give objects that can be called the attributes they were saved with."""
    if isinstance(functions, list):
        for function, state in zip(functions, loaded or [], strict=False):
            restore(function, state)
    elif loaded is not None and remembers(functions):
        vars(functions).update(loaded)


def remembers(function: Callable[..., Any]) -> bool:
    return hasattr(function, "__dict__") and not isinstance(function, FunctionType | MethodType | type)


def own(value: Array) -> Any:
    """A number as it is, a tensor copied: groups, and who asks for their rates, share none."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def set_option(group: dict[str, Any], name: str, value: Array) -> None:
    """Set an option of a group; where it is a tensor, that gets the value, and stays."""
    if isinstance(group[name], Tensor):
        group[name].fill_(float(value))
    else:
        group[name] = value


def one_per_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, list | tuple) else [value] * groups
    if len(values) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups: {name} has {len(values)} values, "
            f"param_groups has {groups}."
        )
    return [own(v) for v in values]


def set_momentum(optimizer: Optimizer, values: Sequence[float]) -> None:
    for group, momentum in zip(optimizer.param_groups, values, strict=True):
        if "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            set_option(group, "momentum", momentum)


def require_momentum(optimizer: Optimizer) -> None:
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
