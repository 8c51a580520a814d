"""Distributions: every formula is PyTorch's, samples have the moments they should, and gradients flow."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

RNG = np.random.default_rng(0)


def matrix(*shape: int) -> np.ndarray:
    """Positive definite."""
    factor = RNG.normal(size=shape)
    return factor @ np.swapaxes(factor, -1, -2) + np.eye(shape[-1])


#: name -> the distribution, parameters, values where it is evaluated
ROWS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "Normal": ("Normal", {"loc": RNG.normal(size=(3, 1)), "scale": RNG.random(4) + 0.5}, RNG.normal(size=(2, 3, 4))),
    "LogNormal": ("LogNormal", {"loc": RNG.normal(size=3), "scale": RNG.random(3) + 0.5}, RNG.random((2, 3)) + 0.1),
    "Laplace": ("Laplace", {"loc": RNG.normal(size=3), "scale": RNG.random(3) + 0.5}, RNG.normal(size=(2, 3))),
    "Uniform": ("Uniform", {"low": -RNG.random(3), "high": RNG.random(3) + 1}, RNG.random((2, 3))),
    "Exponential": ("Exponential", {"rate": RNG.random(3) + 0.5}, RNG.random((2, 3))),
    "Poisson": ("Poisson", {"rate": RNG.random(3) * 4 + 0.5}, RNG.integers(0, 6, (2, 3)).astype(float)),
    "Bernoulli by probs": ("Bernoulli", {"probs": RNG.random(3)}, RNG.integers(0, 2, (2, 3)).astype(float)),
    "Bernoulli by logits": ("Bernoulli", {"logits": RNG.normal(size=3)}, RNG.integers(0, 2, (2, 3)).astype(float)),
    "Categorical by probs": ("Categorical", {"probs": RNG.random((3, 4))}, RNG.integers(0, 4, (2, 3))),
    "Categorical by logits": ("Categorical", {"logits": RNG.normal(size=(3, 4))}, RNG.integers(0, 4, (2, 3))),
    "HalfNormal": ("HalfNormal", {"scale": RNG.random(3) + 0.5}, RNG.random((2, 3))),
    "Gumbel": ("Gumbel", {"loc": RNG.normal(size=3), "scale": RNG.random(3) + 0.5}, RNG.normal(size=(2, 3))),
    "Gamma": ("Gamma", {"concentration": RNG.random(3) * 2 + 0.3, "rate": RNG.random(3) + 0.5}, RNG.random((2, 3))),
    "Chi2": ("Chi2", {"df": RNG.random(3) * 3 + 0.5}, RNG.random((2, 3))),
    "Beta": (
        "Beta",
        {"concentration1": RNG.random(3) * 2 + 1.1, "concentration0": RNG.random(3) + 1.1},
        RNG.random((2, 3)),
    ),
    "StudentT": (
        "StudentT",
        {"df": RNG.random(3) * 4 + 5, "loc": RNG.normal(size=3), "scale": RNG.random(3) + 0.5},
        RNG.normal(size=(2, 3)),
    ),
    "Dirichlet": ("Dirichlet", {"concentration": RNG.random((2, 3)) * 2 + 1.1}, RNG.dirichlet([1, 1, 1], size=(4, 2))),
    "Geometric by probs": ("Geometric", {"probs": RNG.random(3) * 0.8 + 0.1}, RNG.integers(0, 5, (2, 3)).astype(float)),
    "Geometric by logits": ("Geometric", {"logits": RNG.normal(size=3)}, RNG.integers(0, 5, (2, 3)).astype(float)),
    "OneHotCategorical": (
        "OneHotCategorical",
        {"probs": RNG.random((3, 4))},
        np.eye(4)[RNG.integers(0, 4, (2, 3))],
    ),
    "MultivariateNormal": (
        "MultivariateNormal",
        {"loc": RNG.normal(size=(2, 3)), "covariance_matrix": matrix(3, 3)},
        RNG.normal(size=(4, 2, 3)),
    ),
    "MultivariateNormal by precision": (
        "MultivariateNormal",
        {"loc": RNG.normal(size=3), "precision_matrix": matrix(2, 3, 3)},
        RNG.normal(size=(2, 3)),
    ),
    "MultivariateNormal by factor": (
        "MultivariateNormal",
        {"loc": RNG.normal(size=3), "scale_tril": np.linalg.cholesky(matrix(3, 3))},
        RNG.normal(size=(5, 3)),
    ),
}
#: drawn without gradients to their parameters
PLAINLY = (
    "Poisson",
    "Bernoulli",
    "Categorical",
    "Geometric",
    "OneHot",
    "Gamma",
    "Chi2",
    "Beta",
    "Dirichlet",
    "StudentT",
)
CONTINUOUS = [n for n in ROWS if not n.startswith(PLAINLY)]


def made(L: ModuleType, name: str) -> tuple[Any, list[Any]]:
    kind, parameters, _ = ROWS[name]
    tensors = {n: L.tensor(v, requires_grad=True) for n, v in parameters.items()}
    return getattr(L.distributions, kind)(**tensors), list(tensors.values())


def same(a: Any, b: Any) -> bool:
    return bool(np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-7, atol=1e-10, equal_nan=True))


@pytest.mark.torch
@pytest.mark.parametrize("name", ROWS)
def test_densities_and_their_gradients(torch: ModuleType, name: str) -> None:
    value = ROWS[name][2]
    found = []
    for L in (ut, torch):
        distribution, parameters = made(L, name)
        density = distribution.log_prob(L.tensor(value))
        density.square().sum().backward()
        found.append((density, *[p.grad for p in parameters]))
    assert all(same(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.torch
@pytest.mark.parametrize("name", ROWS)
def test_facts(torch: ModuleType, name: str) -> None:
    mine, theirs = made(ut, name)[0], made(torch, name)[0]
    for fact in ("mean", "mode", "variance", "stddev"):
        assert same(getattr(mine, fact), getattr(theirs, fact)), fact
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(mine.event_shape) == tuple(theirs.event_shape)
    if name == "Poisson":  # there is no formula
        for distribution in (mine, theirs):
            with pytest.raises(NotImplementedError):
                distribution.entropy()
    else:
        assert same(mine.entropy(), theirs.entropy()) and same(mine.perplexity(), theirs.perplexity())


@pytest.mark.torch
@pytest.mark.parametrize("name", ["Normal", "LogNormal", "Laplace", "Uniform", "Exponential", "HalfNormal", "Gumbel"])
def test_cumulative_probabilities(torch: ModuleType, name: str) -> None:
    value, levels = ROWS[name][2], RNG.random(ROWS[name][2].shape)
    (mine, _), (theirs, _) = made(ut, name), made(torch, name)
    assert same(mine.cdf(ut.tensor(value)), theirs.cdf(torch.tensor(value)))
    assert same(mine.icdf(ut.tensor(levels)), theirs.icdf(torch.tensor(levels)))
    assert ut.allclose(mine.cdf(mine.icdf(ut.tensor(levels))), ut.tensor(levels))


@pytest.mark.parametrize("name", ROWS)
def test_samples_have_the_moments(name: str) -> None:
    ut.manual_seed(0)
    distribution, _ = made(ut, name)
    drawn = distribution.sample((20000,))
    assert drawn.shape == (20000, *distribution.batch_shape, *distribution.event_shape) and not drawn.requires_grad
    assert distribution.sample().shape == (*distribution.batch_shape, *distribution.event_shape)
    if name.startswith("Categorical"):
        shares = ut.nn.functional.one_hot(drawn, 4).double().mean(0)
        assert ut.allclose(shares, distribution.probs, atol=0.02)
        return
    spread = distribution.stddev
    assert ut.all((drawn.mean(0) - distribution.mean).abs() < 0.06 * spread)
    assert ut.all((drawn.std(0) / spread - 1).abs() < (0.3 if name == "LogNormal" else 0.06))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients_through_samples(name: str) -> None:
    """The derivative of the mean of samples is the derivative of the mean."""
    distribution, parameters = made(ut, name)
    assert distribution.has_rsample
    ut.manual_seed(1)
    by_samples = ut.autograd.grad(distribution.rsample((40000,)).mean(0).sum(), parameters, allow_unused=True)
    exact = ut.autograd.grad(distribution.mean.sum(), parameters, allow_unused=True)
    for found, wanted in zip(by_samples, exact, strict=True):
        wanted = ut.zeros_like(found) if wanted is None else wanted
        assert ut.allclose(found, wanted, rtol=0.2, atol=0.15)


PAIRS = ["Normal", "LogNormal", "Laplace", "Uniform", "Exponential", "Poisson", "Bernoulli", "Categorical",
         "HalfNormal", "Gumbel", "Gamma", "Chi2", "Beta", "Dirichlet", "OneHotCategorical"]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", PAIRS)
def test_divergences(torch: ModuleType, name: str) -> None:
    row = next(row for row in ROWS.values() if row[0] == name)
    rng = np.random.default_rng(3)
    first = row[1]
    second = {n: v + (0.3 * rng.random(v.shape) if n != "low" else -0.1) for n, v in first.items()}
    if name == "Bernoulli":
        second = {"probs": rng.random(first["probs"].shape)}
    found = []
    for L in (ut, torch):
        p, q = (getattr(L.distributions, name)(**{n: L.tensor(v) for n, v in each.items()}) for each in (first, second))
        found += [L.distributions.kl_divergence(p, q), L.distributions.kl_divergence(q, p)]
    assert same(found[0], found[2]) and same(found[1], found[3])


@pytest.mark.torch
def test_divergences_of_vectors(torch: ModuleType) -> None:
    a, b, m, n = RNG.normal(size=(2, 3)), RNG.normal(size=3), matrix(3, 3), matrix(2, 3, 3)
    found = []
    for L in (ut, torch):
        d = L.distributions
        p, q = d.MultivariateNormal(L.tensor(a), L.tensor(m)), d.MultivariateNormal(L.tensor(b), L.tensor(n))
        found.append(d.kl_divergence(p, q))
        r, s = (d.Independent(d.Normal(L.tensor(x), 1.0), 1) for x in (a, b))
        found += [d.kl_divergence(r, s), r.log_prob(L.tensor(a)), r.entropy()]
        assert tuple(r.batch_shape) == (2,) and tuple(r.event_shape) == (3,)
    assert all(same(x, y) for x, y in zip(found[:4], found[4:], strict=True))


def test_a_divergence_that_nobody_knows_and_one_that_is_registered() -> None:
    from undertow.distributions import Categorical, Normal, kl_divergence, register_kl

    class Mine(Normal):
        pass

    with pytest.raises(NotImplementedError, match="No KL"):
        kl_divergence(Normal(0.0, 1.0), Categorical(ut.ones(2)))
    assert kl_divergence(Mine(0.0, 1.0), Normal(0.0, 1.0)).item() == 0

    @register_kl(Mine, Mine)
    def of_mine(p: Any, q: Any) -> Any:
        return ut.tensor(7.0)

    assert kl_divergence(Mine(0.0, 1.0), Mine(0.0, 1.0)).item() == 7


def test_categories_of_probability_zero(L: ModuleType) -> None:
    p = L.distributions.Categorical(probs=L.tensor([0.5, 0.5, 0.0]))
    q = L.distributions.Categorical(logits=L.tensor([0.0, -float("inf"), 0.0]))
    assert p.entropy().item() == pytest.approx(np.log(2), rel=1e-5)
    assert q.entropy().item() == pytest.approx(np.log(2), rel=1e-5)
    assert L.distributions.kl_divergence(p, q).item() == float("inf")


def test_what_is_refused(L: ModuleType) -> None:
    d = L.distributions
    with pytest.raises(ValueError, match=r"Expected parameter scale .* GreaterThan\(lower_bound=0.0\)"):
        d.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match=r"Expected parameter probs .* Interval\(lower_bound=0.0, upper_bound=1.0\)"):
        d.Bernoulli(L.tensor([1.5]))
    with pytest.raises(ValueError, match=r"Expected parameter probs .* Simplex\(\)"):
        d.Categorical(L.tensor([1.5, -0.5]))
    with pytest.raises(ValueError, match=r"Expected parameter covariance_matrix .* PositiveDefinite\(\)"):
        d.MultivariateNormal(L.zeros(2), -L.eye(2))
    with pytest.raises(ValueError, match="but not both"):
        d.Categorical()
    with pytest.raises(ValueError, match=r"Expected parameter low .* LessThan\(upper_bound="):
        d.Uniform(1.0, 0.0)
    with pytest.raises(ValueError, match=r"within the support \(Boolean\(\)\)"):
        d.Bernoulli(0.5).log_prob(L.tensor(2.0))
    with pytest.raises(ValueError, match=r"IntegerInterval\(lower_bound=0, upper_bound=2\)"):
        d.Categorical(L.ones(3)).log_prob(L.tensor(3))
    assert d.Normal(0.0, -1.0, validate_args=False).loc.item() == 0
    with pytest.raises(NotImplementedError):
        d.Bernoulli(0.5).rsample()


def test_policy_gradients() -> None:
    """REINFORCE finds the better of two actions."""
    ut.manual_seed(0)
    logits = ut.zeros(2, requires_grad=True)
    optimizer = ut.optim.SGD([logits], lr=0.5)
    for _ in range(60):
        policy = ut.distributions.Categorical(logits=logits)
        actions = policy.sample((16,))
        optimizer.zero_grad()
        (-(policy.log_prob(actions) * actions.float()).mean()).backward()
        optimizer.step()
    assert policy.probs[1].item() > 0.9
    assert repr(policy) == "Categorical(logits: undertow.Size([2]))"
    assert repr(ut.distributions.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(ut.distributions.Normal(ut.zeros(1), 1.0)) == "Normal(loc: tensor([0.]), scale: tensor([1.]))"


# ---- single numbers, larger batches, all values


@pytest.mark.parametrize("name", ["Normal", "Laplace", "Uniform", "Cauchy", "Gumbel", "Gamma", "Beta"])
def test_one_number(L: ModuleType, name: str) -> None:
    distribution = getattr(L.distributions, name)(0.5, 1.0)
    assert distribution.sample().shape == () and distribution.sample((2, 3)).shape == (2, 3)


def test_no_mean_of_heavy_tails(L: ModuleType) -> None:
    cauchy = L.distributions.Cauchy(L.tensor([1.0]), L.tensor([2.0]))
    assert cauchy.mean.isnan().all() and cauchy.variance.isinf().all() and cauchy.mode.item() == 1
    assert cauchy.log_prob(L.tensor([1.0])).item() == pytest.approx(-np.log(2 * np.pi))
    assert cauchy.cdf(cauchy.icdf(L.tensor([0.3]))).item() == pytest.approx(0.3)
    assert cauchy.entropy().item() == pytest.approx(np.log(8 * np.pi), rel=1e-5)
    other = L.distributions.Cauchy(0.0, 1.0)
    assert L.distributions.kl_divergence(cauchy, other).item() == pytest.approx(np.log(10 / 8), rel=1e-4)


def test_trials(L: ModuleType) -> None:
    trials = L.distributions.Binomial(4, L.tensor([0.25, 0.5]))
    assert trials.mean.tolist() == [1.0, 2.0] and trials.variance.tolist() == [0.75, 1.0]
    assert trials.log_prob(L.tensor([1.0, 2.0])).exp().tolist() == pytest.approx([0.421875, 0.375])
    assert trials.mode.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="within the support"):
        trials.log_prob(L.tensor([5.0, 0.0]))


def test_trials_are_drawn() -> None:
    ut.manual_seed(0)
    drawn = ut.distributions.Binomial(4, ut.tensor([0.25, 0.5])).sample((5000,))
    assert drawn.shape == (5000, 2) and ut.allclose(drawn.mean(0), ut.tensor([1.0, 2.0]), atol=0.06)


@pytest.mark.parametrize("name", [n for n in ROWS if n != "LogNormal"])
def test_a_larger_batch(L: ModuleType, name: str) -> None:
    distribution, _ = made(L, name)
    larger = distribution.expand((5, *distribution.batch_shape))
    assert tuple(larger.batch_shape) == (5, *distribution.batch_shape)
    assert larger.sample((2,)).shape == (2, 5, *distribution.batch_shape, *distribution.event_shape)
    assert L.allclose(larger.mean[3], distribution.mean, equal_nan=True)


def test_all_values(L: ModuleType) -> None:
    d = L.distributions
    assert d.Bernoulli(L.tensor([0.5, 0.2])).enumerate_support().tolist() == [[0, 0], [1, 1]]
    assert d.Categorical(L.ones(2, 3)).enumerate_support(expand=False).tolist() == [[0], [1], [2]]
    assert d.OneHotCategorical(L.ones(2)).enumerate_support().tolist() == [[1, 0], [0, 1]]
    assert d.Independent(d.Bernoulli(L.tensor([0.5])), 0).enumerate_support().tolist() == [[0], [1]]
    with pytest.raises(NotImplementedError):
        d.Normal(0.0, 1.0).enumerate_support()


def test_values_of_another_shape(L: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"Value is not broadcastable with batch_shape\+event_shape"):
        L.distributions.Normal(L.zeros(2), L.ones(2)).log_prob(L.zeros(3))


def test_straight_through(L: ModuleType) -> None:
    probs = L.tensor([0.25, 0.75], requires_grad=True)
    drawn = L.distributions.OneHotCategoricalStraightThrough(probs).rsample()
    assert sorted(drawn.tolist()) == [0, 1]
    (drawn * L.tensor([1.0, 3.0])).sum().backward()
    assert probs.grad.tolist() == pytest.approx([-1.5, 0.5])


# ---- functions of random values

CHAINS: dict[str, Any] = {
    "exp": lambda t: [t.ExpTransform()],
    "tanh": lambda t: [t.TanhTransform()],
    "affine, tanh": lambda t: [t.AffineTransform(0.5, -2.0), t.TanhTransform()],
    "sigmoid, affine": lambda t: [t.SigmoidTransform(), t.AffineTransform(-1.0, 2.0)],
    "inverse of sigmoid": lambda t: [t.SigmoidTransform(), t.SigmoidTransform().inv],
}


@pytest.mark.torch
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("dims", [0, 1])
def test_transformed(torch: ModuleType, chain: Any, dims: int) -> None:
    found = []
    start = np.array([[-0.7, 0.1, 1.2]])
    for L in (ut, torch):
        d = L.distributions
        loc, scale = L.tensor([0.1, 0.2, 0.3], requires_grad=True), L.tensor([1.0, 2.0, 0.5], requires_grad=True)
        base = d.Normal(loc, scale)
        parts = chain(d.transforms)
        made = d.TransformedDistribution(d.Independent(base, 1) if dims else base, parts)
        value = d.transforms.ComposeTransform(parts)(L.tensor(start, dtype=loc.dtype))
        density = made.log_prob(value)
        density.sum().backward()
        found.append((density, loc.grad, scale.grad, *(() if dims else (made.cdf(value),))))
        assert made.sample((4,)).shape == (4, 3) and made.rsample().requires_grad
        assert tuple(made.event_shape) == ((3,) if dims else ()) and made.has_rsample
    for a, b in zip(*found, strict=True):
        assert np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_policy_within_bounds(L: ModuleType) -> None:
    d = L.distributions
    policy = d.TransformedDistribution(d.Normal(L.zeros(2), L.ones(2)), d.transforms.TanhTransform())
    actions = policy.rsample((100,))
    assert bool((actions.abs() <= 1).all()) and policy.log_prob(actions * 0.99).shape == (100, 2)
    assert policy.expand((3, 2)).sample().shape == (3, 2)
    with pytest.raises(ValueError, match="transforms must be a Transform or a list of Transforms"):
        d.TransformedDistribution(d.Normal(0.0, 1.0), ["tanh"])


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_samples_remember_their_origin(L: ModuleType) -> None:
    d = L.distributions
    wide = d.Normal(L.full((50,), 30.0), L.ones(50))
    forgetful = d.TransformedDistribution(wide, d.transforms.TanhTransform())
    remembering = d.TransformedDistribution(wide, [d.transforms.TanhTransform(cache_size=1)])
    assert not bool(forgetful.log_prob(forgetful.rsample()).isfinite().all())
    assert bool(remembering.log_prob(remembering.rsample()).isfinite().all())
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        d.transforms.TanhTransform(cache_size=2)


def test_multivariate_normal_keeps_one_factor_for_a_batch_and_can_be_derived_from(torch: ModuleType) -> None:
    """As libraries do it: they read the factor, and complete an object that they have made."""

    def facts(framework: ModuleType) -> list[Any]:
        class Named(framework.distributions.MultivariateNormal):
            def __init__(self, loc, covariance, name):
                super().__init__(loc, covariance)
                self.name = name

            def expand(self, batch_shape, _instance=None):
                new = self._get_checked_instance(Named, _instance)
                new.name = self.name
                return super().expand(batch_shape, _instance=new)

        loc, covariance = framework.zeros(2, 3), framework.eye(3) * 4.0
        normal = Named(loc, covariance, "mine")
        wide = normal.expand((5, 2))
        value = framework.ones(5, 2, 3)
        return [
            tuple(normal._unbroadcasted_scale_tril.shape), tuple(normal.scale_tril.shape), wide.name,
            tuple(wide.covariance_matrix.shape), wide.precision_matrix[0, 0].tolist(), tuple(wide.variance.shape),
            wide.log_prob(value).tolist(), wide.entropy().tolist(), tuple(wide.rsample((4,)).shape),
            framework.distributions.kl_divergence(normal, wide).tolist(),
        ]  # fmt: skip

    ours, theirs = facts(ut), facts(torch)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == (pytest.approx(np.array(other)) if isinstance(other, list) else other)
    with pytest.raises(NotImplementedError, match="must also define a custom"):
        type("Other", (ut.distributions.MultivariateNormal,), {"__init__": lambda self: None})().expand((2,))


def test_parameters_are_checked_for_all_examples_of_a_vmap(L: ModuleType) -> None:
    D, weights = L.distributions, L.full((3, 4, 5), 0.2)
    assert tuple(L.vmap(lambda w: D.Categorical(w).sample(), randomness="different")(weights).shape) == (3, 4)
    found = L.vmap(lambda w: D.Normal(w, 1.0).log_prob(w + 1))(weights)
    assert L.allclose(found, D.Normal(weights, 1.0).log_prob(weights + 1))
    with pytest.raises(ValueError, match=r"Expected parameter scale .* of shape \(2,\)"):
        L.vmap(lambda scale: D.Normal(0.0, scale).mean)(L.tensor([[1.0, 1.0], [1.0, -1.0]]))


def test_values_are_not_looked_at_where_that_is_off(L: ModuleType) -> None:
    normal = L.distributions.Normal(0.0, 1.0, validate_args=False)
    assert normal.cdf(0.0).item() == 0.5
    assert normal.log_prob(0.0).item() == normal.log_prob(L.tensor(0.0)).item()
    with pytest.raises(ValueError, match="must be a Tensor"):
        L.distributions.Normal(0.0, 1.0).log_prob(0.0)
