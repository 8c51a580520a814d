"""Distributions with powers in them, mixtures and counts: PyTorch's formulas, and samples that follow them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

RNG = np.random.default_rng(0)

#: name -> parameters, values where it is evaluated, the facts that PyTorch has a formula for
ROWS: dict[str, tuple[dict[str, Any], Any, list[str]]] = {
    "Pareto": (
        {"scale": RNG.random(3) + 0.5, "alpha": RNG.random(3) * 3 + 4.5},
        RNG.random((2, 3)) + 2,
        ["mean", "mode", "variance", "entropy", "cdf", "icdf"],
    ),
    "Weibull": (
        {"scale": RNG.random(3) + 0.5, "concentration": RNG.random(3) + 1.2},
        RNG.random((2, 3)) + 0.1,
        ["mean", "mode", "variance", "entropy", "cdf", "icdf"],
    ),
    "Kumaraswamy": (
        {"concentration1": RNG.random(3) + 1.2, "concentration0": RNG.random(3) + 1.2},
        RNG.random((2, 3)),
        ["mean", "variance", "entropy", "cdf", "icdf"],
    ),
    "InverseGamma": (
        {"concentration": RNG.random(3) * 3 + 4.5, "rate": RNG.random(3) + 0.5},
        RNG.random((2, 3)) + 0.1,
        ["mean", "mode", "variance", "entropy"],
    ),
    "HalfCauchy": ({"scale": RNG.random(3) + 0.5}, RNG.random((2, 3)), ["mode", "entropy", "cdf", "icdf"]),
    "NegativeBinomial": (
        {"total_count": np.array([1.0, 2.0, 5.5]), "probs": RNG.random(3) * 0.6 + 0.1},
        RNG.integers(0, 6, (2, 3)).astype(float),
        ["mean", "mode", "variance"],
    ),
    "Multinomial": (
        {"total_count": 5, "probs": RNG.random((2, 3)) + 0.1},
        np.array([[[1.0, 2, 2], [5, 0, 0]]]),
        ["mean", "variance"],
    ),
}


def made(L: ModuleType, name: str) -> tuple[Any, list[Any]]:
    given = {k: v if isinstance(v, int) else L.tensor(v, requires_grad=True) for k, v in ROWS[name][0].items()}
    return getattr(L.distributions, name)(**given), [v for v in given.values() if not isinstance(v, int)]


def same(a: Any, b: Any) -> bool:
    return bool(np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-7, atol=1e-10, equal_nan=True))


@pytest.mark.parametrize("name", ROWS)
def test_densities_and_their_gradients(torch: ModuleType, name: str) -> None:
    found = []
    for L in (ut, torch):
        distribution, parameters = made(L, name)
        density = distribution.log_prob(L.tensor(ROWS[name][1]))
        density.square().sum().backward()
        found.append((density, *[p.grad for p in parameters if name != "NegativeBinomial" or p is not parameters[0]]))
    assert all(same(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_facts(torch: ModuleType, name: str) -> None:
    (ours, _), (theirs, _) = made(ut, name), made(torch, name)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    levels = RNG.random((2, 3))
    for fact in ROWS[name][2]:
        if fact in ("cdf", "icdf"):
            x = ROWS[name][1] if fact == "cdf" else levels
            assert same(getattr(ours, fact)(ut.tensor(x)), getattr(theirs, fact)(torch.tensor(x))), fact
        else:
            a, b = (getattr(d, fact) for d in (ours, theirs))
            assert same(a() if fact == "entropy" else a, b() if fact == "entropy" else b), fact


@pytest.mark.parametrize("name", ROWS)
def test_samples(name: str) -> None:
    ut.manual_seed(0)
    distribution, parameters = made(ut, name)
    drawn = distribution.sample((20000,))
    assert drawn.shape == (20000, *distribution.batch_shape, *distribution.event_shape) and not drawn.requires_grad
    assert bool(distribution.support.check(drawn).all())
    if name == "HalfCauchy":  # it has no mean
        assert ut.allclose(drawn.median(0).values, distribution.scale, rtol=0.05)
        return
    assert ut.all((drawn.mean(0) - distribution.mean).abs() < 0.06 * distribution.stddev)
    if distribution.has_rsample:
        by_samples = ut.autograd.grad(distribution.rsample((40000,)).mean(0).sum(), parameters)
        exact = ut.autograd.grad(distribution.mean.sum(), parameters)
        assert all(ut.allclose(a, b, rtol=0.2, atol=0.15) for a, b in zip(by_samples, exact, strict=True))


def test_the_mode_of_kumaraswamy_has_the_largest_density() -> None:
    """PyTorch's formula gives NaN."""
    distribution = ut.distributions.Kumaraswamy(ut.tensor([2.0, 3.0]), ut.tensor([4.0, 1.5]))
    most = distribution.log_prob(distribution.mode)
    grid = ut.linspace(0.01, 0.99, 99).unsqueeze(1)
    assert bool((distribution.log_prob(grid) <= most + 1e-6).all())


@pytest.mark.parametrize("vectors", [False, True])
def test_mixtures(torch: ModuleType, vectors: bool) -> None:
    weights, shape = RNG.random((2, 3)), (2, 3, 4) if vectors else (2, 3)
    loc, scale = RNG.normal(size=shape), RNG.random(shape) + 0.5
    value, found = RNG.normal(size=(5, 2, 4) if vectors else (5, 2)), []
    for L in (ut, torch):
        d = L.distributions
        parts = d.Normal(L.tensor(loc), L.tensor(scale))
        mixed = d.MixtureSameFamily(d.Categorical(L.tensor(weights)), d.Independent(parts, 1) if vectors else parts)
        found.append([mixed.log_prob(L.tensor(value)), mixed.mean, mixed.variance])
        if not vectors:
            found[-1].append(mixed.cdf(L.tensor(value)))
        drawn = mixed.sample((4000,))
        assert tuple(drawn.shape) == (4000, *mixed.batch_shape, *mixed.event_shape)
        assert bool(((drawn.mean(0) - mixed.mean).abs() < 0.1 * mixed.stddev).all())
    assert all(same(a, b) for a, b in zip(*found, strict=True))


def test_impossible_mixtures(L: ModuleType) -> None:
    d = L.distributions
    with pytest.raises(ValueError, match="Mixture distribution needs to be an"):
        d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(L.zeros(2), 1.0))
    with pytest.raises(ValueError, match="does not equal"):
        d.MixtureSameFamily(d.Categorical(L.ones(3)), d.Normal(L.zeros(2), L.ones(2)))


def test_conditions_of_mixtures_keep_the_shape_of_values() -> None:
    positive = ut.distributions.constraints.positive
    found = ut.distributions.constraints.MixtureSameFamilyConstraint(positive).check(ut.tensor([[1.0, -1.0]]))
    assert found.tolist() == [[True, False]]


def test_supports_that_depend_on_parameters_say_so_on_the_class(torch: Any) -> None:
    for name in torch.distributions.__all__:
        theirs, ours = getattr(torch.distributions, name), getattr(ut.distributions, name, None)
        if isinstance(theirs, type) and issubclass(theirs, torch.distributions.Distribution) and ours is not None:
            try:
                expected = torch.distributions.constraints.is_dependent(theirs.support)
            except NotImplementedError:
                continue
            assert ut.distributions.constraints.is_dependent(ours.support) == expected, name
