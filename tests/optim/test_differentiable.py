"""Steps that are part of the graph: `differentiable=True`, against PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}],
    "Adam": [{"lr": 0.1}, {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1, "maximize": True}],
    "AdamW": [{"lr": 0.1}],
    "Adamax": [{"lr": 0.1}],
    "NAdam": [{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{"lr": 0.1}, {"lr": 0.1, "betas": (0.9, 0.5)}],
    "Adagrad": [{"lr": 0.1, "lr_decay": 0.1}],
    "RMSprop": [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.5, "centered": True}],
    "Adadelta": [{"lr": 0.1, "weight_decay": 0.1}],
    "Rprop": [{"lr": 0.1}],
    "ASGD": [{"lr": 0.1, "t0": 1.0}],
}
CASES = [(name, options) for name, several in OPTIONS.items() for options in several]


def moved(library: Any, name: str, options: dict[str, Any], start: Any, gradients: Any) -> Any:
    """The parameter after a step with each of the gradients."""
    p = start.clone()
    optimizer = getattr(library.optim, name)([p], differentiable=True, **options)
    for gradient in gradients:
        p.grad = gradient * 1.0
        optimizer.step()
    return p


def leaves(library: Any) -> list[Any]:
    rng = np.random.default_rng(4)
    return [library.tensor(rng.normal(size=4), requires_grad=True) for _ in range(3)]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{k}" for k, (n, _) in enumerate(CASES)])
def test_steps_are_those_of_pytorch(torch: ModuleType, name: str, options: dict[str, Any]) -> None:
    found = []
    for library in (ut, torch):
        start, *gradients = leaves(library)
        p = moved(library, name, options, start, gradients[:1])
        grads = library.autograd.grad((p * p).sum(), [start, gradients[0]], allow_unused=True)
        two = moved(library, name, options, start, gradients)
        tensors = [p, two, *[library.zeros(4) if g is None else g for g in grads]]
        found.append([t.detach().numpy() for t in tensors])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)  # PyTorch counts steps in float32


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{k}" for k, (n, _) in enumerate(CASES)])
def test_gradients_go_through_several_steps(name: str, options: dict[str, Any]) -> None:
    """In PyTorch several optimizers change in place what their first step saved, and raise."""
    if "momentum" in options and name == "SGD":
        options = {k: v for k, v in options.items() if k not in ("momentum", "nesterov")}  # begins without a history
    ut.autograd.gradcheck(lambda start, *gradients: moved(ut, name, options, start, gradients), leaves(ut))


def test_gradients_go_to_the_rate() -> None:
    start, rate = ut.tensor([1.0, 2.0], requires_grad=True), ut.tensor(0.1, requires_grad=True)
    p = start.clone()
    p.grad = ut.tensor([3.0, 4.0])
    ut.optim.SGD([p], lr=rate, differentiable=True).step()
    p.sum().backward()
    assert rate.grad.item() == -7
    assert start.grad.tolist() == [1, 1]


def test_leaves_are_refused_before_anything_is_changed() -> None:
    computed, leaf = ut.ones(2, requires_grad=True).clone(), ut.ones(2, requires_grad=True)
    computed.grad = leaf.grad = ut.ones(2)
    with pytest.raises(RuntimeError, match=r"give the optimizer a clone\(\) of the leaf"):
        ut.optim.SGD([computed, leaf], lr=0.1, differentiable=True).step()
    assert computed.tolist() == [1, 1]
    with pytest.raises(ValueError, match="non-leaf"):
        ut.optim.SGD([computed], lr=0.1)


def test_steps_are_silent() -> None:
    p = ut.full((3,), 3e38, requires_grad=True)
    p.grad = ut.full((3,), -3e38)
    with np.errstate(all="raise"):
        ut.optim.SGD([p], lr=2.0).step()
        ut.optim.Adam([p], lr=2.0).step()
    assert not p.isfinite().any()
