"""Optimizers and schedulers beside PyTorch's: the same parameters and the same state, step by step."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

pytestmark = pytest.mark.torch

STEPS = 25

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("SGD", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1, "betas": (0.5, 0.9), "eps": 1e-3}),
    ("Adam", {"lr": 0.05, "decoupled_weight_decay": True, "weight_decay": 0.1, "maximize": True}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "amsgrad": True, "maximize": True}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.05}),
    ("RMSprop", {"lr": 0.05, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
    ("Rprop", {"lr": 0.05}),
    ("ASGD", {"lr": 0.05, "t0": 5, "weight_decay": 0.1}),
]


def leaves(L: Any, dtype: str, rng: Any) -> list[Any]:
    """A matrix and a scalar to optimize."""
    arrays = [rng.standard_normal((3, 2)), rng.standard_normal(())]
    if dtype.startswith("complex"):
        arrays = [a + 1j * rng.standard_normal(a.shape) for a in arrays]
    return [L.tensor(np.asarray(a, dtype=dtype)).requires_grad_() for a in arrays]


def loss_of(params: list[Any]) -> Any:
    """Curved differently along every direction, and never at rest."""
    a, b = params
    total = ((a * a.conj()).real ** 2).sum() * 0.1 + ((a - 1) * (a - 1).conj()).real.sum() if a.is_complex() else (
        (a**4).sum() * 0.1 + ((a - 1) ** 2).sum()
    )  # fmt: skip
    return total + (b * b.conj()).real * 2 if b.is_complex() else total + b**2 * 2 + (b * a[0, 0]).sin()


def optimize(L: Any, name: str, options: dict[str, Any], dtype: str) -> tuple[list[Any], Any, list[list[Any]]]:
    params = leaves(L, dtype, np.random.default_rng(0))
    optimizer = getattr(L.optim, name)(params, **options)
    trace = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        (-loss_of(params) if options.get("maximize") else loss_of(params)).backward()
        optimizer.step()
        trace.append([p.detach().numpy().copy() for p in params])
    return params, optimizer, trace


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_every_step(torch: ModuleType, name: str, options: dict[str, Any], dtype: str) -> None:
    _, mine, found = optimize(ut, name, options, dtype)
    _, theirs, wanted = optimize(torch, name, options, dtype)
    tolerance = 1e-4 if dtype == "float32" else 1e-9
    for got, expected in zip(found, wanted, strict=True):
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    compare_states(mine.state_dict(), theirs.state_dict(), tolerance)


def compare_states(mine: Any, theirs: Any, tolerance: float) -> None:
    assert mine["state"].keys() == theirs["state"].keys()
    for number, values in theirs["state"].items():
        assert set(mine["state"][number]) == {k for k, v in values.items() if v is not None}
        for k, v in values.items():
            if v is not None:
                got = mine["state"][number][k]
                assert tuple(got.shape) == tuple(v.shape), k
                np.testing.assert_allclose(got.numpy(), v.numpy(), rtol=tolerance, atol=tolerance, err_msg=k)
    for a, b in zip(mine["param_groups"], theirs["param_groups"], strict=True):
        assert a["params"] == b["params"]
        assert all([b[k] == v for k, v in a.items() if k not in ("params", "decoupled_weight_decay")])


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs(torch: ModuleType, line_search: str | None) -> None:
    def run(L: Any) -> Any:
        x = L.tensor([-1.2, 1.0], dtype=L.float64, requires_grad=True)
        rate = 1 if line_search else 1e-3
        optimizer = L.optim.LBFGS([x], lr=rate, line_search_fn=line_search, history_size=5, max_iter=10)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(4)]
        state = optimizer.state[x]
        return losses, x.tolist(), state["func_evals"], state["n_iter"]

    found, wanted = run(ut), run(torch)
    assert found[0] == pytest.approx(wanted[0], rel=1e-7)
    assert found[1] == pytest.approx(wanted[1], rel=1e-7)
    assert found[2:] == wanted[2:]


SCHEDULERS: list[tuple[str, dict[str, Any]]] = [
    ("LambdaLR", {"lr_lambda": lambda n: 0.9**n}),
    ("LambdaLR", {"lr_lambda": [lambda n: 0.9**n, lambda n: 1 / (1 + n)]}),
    ("MultiplicativeLR", {"lr_lambda": lambda n: 0.95}),
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.5}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 6}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 8, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    ("OneCycleLR", {"max_lr": [0.5, 0.7], "total_steps": 30}),
    ("OneCycleLR", {"max_lr": 0.5, "epochs": 3, "steps_per_epoch": 10, "three_phase": True}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 30, "anneal_strategy": "linear"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 4}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 4, "step_size_down": 2, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 4, "mode": "exp_range", "gamma": 0.9}),
]


def schedule(L: Any, make: Any, steps: int = 25) -> list[Any]:
    params = [L.zeros(1, requires_grad=True), L.zeros(1, requires_grad=True)]
    optimizer = L.optim.SGD([{"params": [params[0]], "lr": 0.3}, {"params": [params[1]]}], lr=0.1, momentum=0.9)
    scheduler = make(L.optim.lr_scheduler, optimizer)
    trace = []
    for _ in range(steps):
        trace.append([*scheduler.get_last_lr(), *[g["lr"] for g in optimizer.param_groups]])
        trace[-1] += [g["momentum"] for g in optimizer.param_groups]
        optimizer.step()
        scheduler.step()
    return trace


@pytest.mark.parametrize(("name", "options"), SCHEDULERS, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_schedules(torch: ModuleType, name: str, options: dict[str, Any]) -> None:
    def make(module: Any, optimizer: Any) -> Any:
        return getattr(module, name)(optimizer, **options)

    np.testing.assert_allclose(schedule(ut, make), schedule(torch, make), rtol=1e-12)


def test_one_schedule_after_another(torch: ModuleType) -> None:
    def make(module: Any, optimizer: Any) -> Any:
        warm = module.LinearLR(optimizer, start_factor=0.1, total_iters=5)
        rest = module.CosineAnnealingLR(optimizer, T_max=10)
        return module.SequentialLR(optimizer, [warm, rest], milestones=[5])

    np.testing.assert_allclose(schedule(ut, make), schedule(torch, make), rtol=1e-12)


def test_schedules_together(torch: ModuleType) -> None:
    def make(module: Any, optimizer: Any) -> Any:
        return module.ChainedScheduler([module.ConstantLR(optimizer), module.ExponentialLR(optimizer, 0.9)])

    np.testing.assert_allclose(schedule(ut, make), schedule(torch, make), rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"mode": "max", "threshold_mode": "abs", "threshold": 0.1}, {"cooldown": 3}])
def test_plateaus(torch: ModuleType, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    measures = [*np.linspace(1, 0.5, 10), *(0.5 + 0.001 * rng.standard_normal(40))]

    def run(L: Any) -> list[float]:
        optimizer = L.optim.SGD([L.zeros(1, requires_grad=True)], lr=1.0)
        scheduler = L.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3, factor=0.5, min_lr=0.01, **options)
        found = []
        for measure in measures:
            scheduler.step(measure)
            found.append(optimizer.param_groups[0]["lr"])
        return found

    assert run(ut) == run(torch)
