"""Relaxed distributions, distributions of matrices, of directions and of ratios, against PyTorch's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import undertow as ut

MATRIX = [[2.0, 0.3], [0.3, 1.0]]
FACTOR = [[1.0, 0.2], [0.4, 0.5], [0.1, 0.3]]
TRIANGLE = [[1.0, 0, 0], [0.6, 0.8, 0], [0.48, 0.36, 0.8]]

CASES = {
    "fisher": (lambda d, t: d.FisherSnedecor(t(5.0), t(6.0)), [0.5, 2.0]),
    "pareto": (lambda d, t: d.GeneralizedPareto(t(0.5), t(1.5), t(0.2)), [1.0, 2.0]),
    "pareto_bounded": (lambda d, t: d.GeneralizedPareto(t(0.5), t(1.5), t(-0.2)), [1.0, 2.0]),
    "pareto_exponential": (lambda d, t: d.GeneralizedPareto(t(0.5), t(1.5), t(0.0)), [1.0, 2.0]),
    "low_rank": (
        lambda d, t: d.LowRankMultivariateNormal(t([0.0, 1.0, 2.0]), t(FACTOR), t([0.5, 1.0, 2.0])),
        [0.1, 0.2, 0.3],
    ),
    "von_mises": (lambda d, t: d.VonMises(t(0.3), t(2.0)), [0.1, 1.0]),
    "lkj": (lambda d, t: d.LKJCholesky(3, t(1.5)), TRIANGLE),
    "wishart": (lambda d, t: d.Wishart(t(4.0), covariance_matrix=t(MATRIX)), [[3.0, 0.5], [0.5, 2.0]]),
    "wishart_precision": (lambda d, t: d.Wishart(t(4.0), precision_matrix=t(MATRIX)), [[3.0, 0.5], [0.5, 2.0]]),
    "continuous_bernoulli": (lambda d, t: d.ContinuousBernoulli(t([0.3, 0.5])), [0.2, 0.7]),
    "continuous_bernoulli_logits": (lambda d, t: d.ContinuousBernoulli(logits=t([0.3, 2.0])), [0.2, 0.7]),
    "logistic_normal": (lambda d, t: d.LogisticNormal(t([0.0, 1.0]), t([1.0, 2.0])), [0.2, 0.3, 0.5]),
    "relaxed_bernoulli": (lambda d, t: d.RelaxedBernoulli(t(0.7), t([0.3, 0.6])), [0.2, 0.7]),
    "relaxed_one_hot": (lambda d, t: d.RelaxedOneHotCategorical(t(0.7), t([0.3, 0.6, 0.1])), [0.2, 0.3, 0.5]),
}
FACTS = {
    "log_prob": lambda p, x: p.log_prob(x),
    "cdf": lambda p, x: p.cdf(x),
    "icdf": lambda p, x: p.icdf(x * 0 + 0.3),
    "entropy": lambda p, x: p.entropy(),
    "mean": lambda p, x: p.mean,
    "mode": lambda p, x: p.mode,
    "variance": lambda p, x: p.variance,
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_facts_are_pytorchs(torch, name: str) -> None:
    make, value = CASES[name]
    (ours, x), (theirs, y) = ((make(L.distributions, L.tensor), L.tensor(value)) for L in (ut, torch))
    compared = 0
    for fact, ask in FACTS.items():
        try:
            expected = ask(theirs, y).numpy()
        except NotImplementedError:
            continue
        np.testing.assert_allclose(ask(ours, x).numpy(), expected, rtol=1e-4, atol=1e-5, err_msg=fact)
        compared += 1
    assert compared
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of what it draws again
        assert tuple(ours.sample((2,)).shape) == tuple(theirs.sample((2,)).shape)
    assert bool(ours.support.check(ours.sample((5,))).all())


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("lkj", "logistic_normal")])
def test_samples_have_the_mean(name: str) -> None:
    made = CASES[name][0](ut.distributions, ut.tensor)
    ut.manual_seed(0)
    try:
        mean, deviation = made.mean.numpy(), made.variance.numpy() ** 0.5
    except NotImplementedError:
        pytest.skip("it has no formula for its mean")
    found = made.sample((4000,)).numpy().mean(0)
    assert (abs(found - mean) < 5 * deviation / 4000**0.5).all()


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("lkj", "von_mises")])
def test_gradients_lead_through_samples(name: str) -> None:
    leaves = []

    def parameter(data):
        leaves.append(ut.tensor(data, requires_grad=True))
        return leaves[-1]

    made = CASES[name][0](ut.distributions, parameter)
    sample = made.rsample((3,))
    (sample * ut.arange(sample.numel()).reshape(sample.shape)).sum().backward()  # the sum of some is always 1
    assert any(leaf.grad is not None and bool((leaf.grad != 0).any()) for leaf in leaves)
