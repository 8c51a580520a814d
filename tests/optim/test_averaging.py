"""Averaged weights: as PyTorch's, step by step."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut


def model(L: Any) -> Any:
    net = L.nn.Sequential(L.nn.Linear(2, 3), L.nn.BatchNorm1d(3), L.nn.Linear(3, 1)).double()
    rng = np.random.default_rng(0)
    with L.no_grad():
        for p in net.parameters():
            p.copy_(L.tensor(rng.normal(size=tuple(p.shape))))
    return net


def averaged(L: Any, **options: Any) -> list[Any]:
    """The state after some steps of training."""
    net, rng = model(L), np.random.default_rng(1)
    average = L.optim.swa_utils.AveragedModel(net, **options)
    optimizer = L.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        net(L.tensor(rng.normal(size=(5, 2)))).square().mean().backward()
        optimizer.step()
        average.update_parameters(net)
    L.optim.swa_utils.update_bn([(L.tensor(rng.normal(size=(6, 2))), 0) for _ in range(3)], average)
    return [(name, t.numpy().copy()) for name, t in average.state_dict().items()]


OPTIONS = {
    "mean": lambda u: {},
    "mean by function": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "ema": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "ema by function": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
    "buffers": lambda u: {"use_buffers": True},
    "ema of buffers": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9), "use_buffers": True},
}


@pytest.mark.torch
@pytest.mark.parametrize("name", OPTIONS)
def test_averages_are_those_of_torch(torch: ModuleType, name: str) -> None:
    mine = averaged(ut, **OPTIONS[name](ut.optim.swa_utils))
    theirs = averaged(torch, **OPTIONS[name](torch.optim.swa_utils))
    for (key, a), (other, b) in zip(mine, theirs, strict=True):
        assert key == other and np.allclose(a, b, rtol=1e-9), key


def test_the_first_average_is_the_model(L: ModuleType) -> None:
    net = L.nn.Linear(2, 1)
    average = L.optim.swa_utils.AveragedModel(net)
    with L.no_grad():
        net.weight.fill_(3.0)
    average.update_parameters(net)
    assert average.module.weight.tolist() == [[3.0, 3.0]] and average.n_averaged.item() == 1
    with L.no_grad():
        net.weight.fill_(5.0)
    assert average.module.weight.tolist() == [[3.0, 3.0]]  # it has memory of its own


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 4])
@pytest.mark.torch
def test_rates_are_those_of_torch(torch: ModuleType, strategy: str, epochs: int) -> None:
    found = []
    for L in (ut, torch):
        groups = [{"params": [L.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.5)]
        optimizer = L.optim.SGD(groups, lr=1.0)
        scheduler = L.optim.swa_utils.SWALR(optimizer, [0.02, 0.3], epochs, strategy)
        rates = []
        for _ in range(7):
            optimizer.step()
            scheduler.step()
            rates.append(scheduler.get_last_lr())
        found.append(rates)
    assert np.allclose(found[0], found[1], rtol=1e-12)


def test_what_is_refused(L: ModuleType) -> None:
    utils, net = L.optim.swa_utils, L.nn.Linear(1, 1)
    optimizer = L.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        utils.AveragedModel(net, avg_fn=utils.get_swa_avg_fn(), multi_avg_fn=utils.get_swa_multi_avg_fn())
    with pytest.raises(ValueError, match="Invalid decay value 2"):
        utils.get_ema_avg_fn(2)
    with pytest.raises(ValueError, match="anneal_strategy must"):
        utils.SWALR(optimizer, 0.1, anneal_strategy="steps")
    with pytest.raises(ValueError, match="anneal_epochs must be equal or greater than 0"):
        utils.SWALR(optimizer, 0.1, anneal_epochs=-1)
