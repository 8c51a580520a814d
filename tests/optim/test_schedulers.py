"""Schedulers made anew, saved, and written by users; each rule proven on PyTorch where it has one."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def sgd(L: Any, lr: Any = 0.1) -> Any:
    return L.optim.SGD([L.zeros(2, requires_grad=True)], lr=lr, momentum=0.9)


def run(optimizer: Any, scheduler: Any, steps: int) -> list[float]:
    rates = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ExponentialLR", {"gamma": 0.5}),
        ("MultiplicativeLR", {"lr_lambda": lambda n: 0.5}),
        ("LinearLR", {"start_factor": 0.5, "total_iters": 8}),
        ("PolynomialLR", {"total_iters": 8}),
        ("CosineAnnealingLR", {"T_max": 8}),
    ],
)
def test_a_scheduler_made_for_a_later_epoch_goes_on_where_the_last_one_was(
    L: ModuleType, name: str, options: dict[str, Any]
) -> None:
    make = getattr(L.optim.lr_scheduler, name)
    whole, halves = sgd(L), sgd(L)
    wanted = run(whole, make(whole, **options), 6)
    found = run(halves, make(halves, **options), 3)
    found += run(halves, make(halves, **options, last_epoch=2), 3)
    assert found == pytest.approx(wanted)


class Halving:
    def __init__(self, base: float) -> None:
        self.base = base

    def __call__(self, step: int) -> float:
        return self.base**step


def test_functions_are_not_saved_and_objects_are_saved_by_their_attributes(L: ModuleType) -> None:
    optimizer = sgd(L)
    saved = L.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n).state_dict()
    assert saved["lr_lambdas"] == [None]
    saved = L.optim.lr_scheduler.LambdaLR(optimizer, Halving(0.25)).state_dict()
    assert saved["lr_lambdas"] == [{"base": 0.25}]
    again = L.optim.lr_scheduler.LambdaLR(optimizer, Halving(0.5))
    again.load_state_dict(saved)
    assert again.lr_lambdas[0](1) == 0.25


def test_a_state_saved_by_pytorch_leaves_functions_alone(torch: ModuleType) -> None:
    theirs = sgd(torch)
    scheduler = torch.optim.lr_scheduler.LambdaLR(theirs, lambda n: 0.5**n)
    run(theirs, scheduler, 2)
    optimizer = sgd(ut)
    ours = ut.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    ours.load_state_dict(scheduler.state_dict())
    assert run(optimizer, ours, 1) == run(theirs, scheduler, 1)


def test_cycles_with_a_function_of_the_user_are_saved_without_it(L: ModuleType) -> None:
    make = L.optim.lr_scheduler.CyclicLR
    optimizer, other = sgd(L), sgd(L)
    scheduler = make(optimizer, base_lr=0.1, max_lr=0.5, step_size_up=2, scale_fn=lambda x: 0.5)
    run(optimizer, scheduler, 3)
    again = make(other, base_lr=0.1, max_lr=0.5, step_size_up=2, scale_fn=lambda x: 0.5)
    again.load_state_dict(scheduler.state_dict())
    assert run(optimizer, scheduler, 3) == run(other, again, 3)


def test_a_function_that_is_none(L: ModuleType) -> None:
    with pytest.raises(TypeError, match="lr_lambda should be a function, but got float"):
        L.optim.lr_scheduler.MultiplicativeLR(sgd(L), 0.5)
    with pytest.raises(ValueError, match="Expected 1 lr_lambdas, but got 2"):
        L.optim.lr_scheduler.LambdaLR(sgd(L), [lambda n: 1.0] * 2)


def test_a_scheduler_of_the_user(L: ModuleType) -> None:
    """With the base class and the flag that such schedulers usually name."""

    class Thirds(L.optim.lr_scheduler._LRScheduler):  # type: ignore[misc, name-defined]
        def get_lr(self) -> list[float]:
            if not self._get_lr_called_within_step:
                warnings.warn("asked directly", stacklevel=2)
            return [base / 3**self.last_epoch for base in self.base_lrs]

    optimizer = sgd(L, lr=9.0)
    scheduler = Thirds(optimizer)
    assert run(optimizer, scheduler, 2) == [3.0, 1.0]
    with pytest.warns(UserWarning, match="asked directly"):
        scheduler.get_lr()
    with pytest.warns(UserWarning, match="The epoch parameter"):
        scheduler.step(0)
    assert scheduler.get_last_lr() == [9.0]


def test_warm_restarts_know_where_they_are(L: ModuleType) -> None:
    scheduler = L.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer := sgd(L, lr=1.0), T_0=2, T_mult=3)
    places = []
    for _ in range(4):
        optimizer.step()
        scheduler.step()
        places.append((scheduler.T_cur, scheduler.T_i))
    assert places == [(1, 2), (0, 6), (1, 6), (2, 6)]
    scheduler.step(5.0)
    assert (scheduler.T_cur, scheduler.T_i) == (3, 6) and scheduler.get_last_lr() == [pytest.approx(0.5)]
    with pytest.raises(ValueError, match="Expected non-negative epoch, but got -1"):
        scheduler.step(-1)


def test_values_for_each_group(L: ModuleType) -> None:
    S, optimizer = L.optim.lr_scheduler, sgd(L)
    for make, name in (
        (lambda: S.OneCycleLR(optimizer, max_lr=[0.1, 0.2], total_steps=5), "max_lr"),
        (lambda: S.CyclicLR(optimizer, base_lr=[0.1, 0.2], max_lr=1.0), "base_lr"),
        (lambda: L.optim.swa_utils.SWALR(optimizer, swa_lr=[0.1, 0.2]), "swa_lr"),
    ):
        with pytest.raises(ValueError, match=f"{name} must have the same length as optimizer.param_groups"):
            make()


def test_a_rate_that_is_a_tensor_is_changed_in_place_and_remembered_by_copy(L: ModuleType) -> None:
    rate = L.tensor(1.0)
    optimizer = sgd(L, lr=rate)
    scheduler = L.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    run(optimizer, scheduler, 2)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.25
    assert optimizer.param_groups[0]["initial_lr"].item() == 1.0 and scheduler.base_lrs[0].item() == 1.0
