"""The samples of a seed, the moments and the densities are PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

#: a distribution of numbers and its parameters
KINDS: dict[str, tuple[float, ...]] = {
    "Bernoulli": (0.3,), "Beta": (2.0, 3.0), "Binomial": (5, 0.3), "Cauchy": (1.0, 2.0), "Chi2": (3.0,),
    "ContinuousBernoulli": (0.3,), "Exponential": (2.0,), "FisherSnedecor": (3.0, 4.5), "Gamma": (2.0, 3.0),
    "GeneralizedPareto": (0.0, 1.0, 0.2), "Geometric": (0.3,), "Gumbel": (0.5, 2.0), "HalfCauchy": (2.0,),
    "HalfNormal": (2.0,), "InverseGamma": (3.5, 3.0), "Kumaraswamy": (1.5, 3.0), "Laplace": (1.0, 2.0),
    "LogNormal": (1.0, 0.5), "NegativeBinomial": (3.0, 0.4), "Normal": (1.0, 2.0), "Pareto": (1.5, 3.0),
    "Poisson": (3.0,), "StudentT": (3.0, 1.0, 2.0), "Uniform": (1.0, 2.0), "VonMises": (1.0, 2.0),
    "Weibull": (1.5, 3.0),
}  # fmt: skip


def both(torch: ModuleType, kind: str, dtype: str) -> tuple[Any, Any]:
    """The distribution, three times; of PyTorch and of undertow."""
    made = [
        getattr(side.distributions, kind)(
            *[side.full((3,), value, dtype=getattr(side, dtype)) for value in KINDS[kind]]
        )
        for side in (torch, ut)
    ]
    return made[0], made[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_numbers(torch: ModuleType, kind: str, dtype: str) -> None:
    theirs, ours = both(torch, kind, dtype)
    torch.manual_seed(3)
    ut.manual_seed(3)
    close = {"float32": {"rtol": 1e-4, "atol": 1e-6}, "float64": {"rtol": 1e-10, "atol": 1e-13}}[dtype]
    for shape in ((100,), (), (2, 3)):
        expected, found = theirs.sample(shape), ours.sample(shape)
        assert str(found.dtype) == str(expected.dtype).replace("torch", "undertow")
        np.testing.assert_allclose(found.numpy(), expected.numpy(), **close)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_densities_and_probabilities_are_pytorchs(torch: ModuleType, kind: str) -> None:
    theirs, ours = both(torch, kind, "float32")
    values = theirs.sample((50,))
    compared = 0
    for name in ("mean", "variance", "stddev", "mode", "entropy", "log_prob", "cdf", "icdf"):
        if (kind, name) == ("Kumaraswamy", "mode"):
            continue  # PyTorch takes a logarithm of a negative number there
        given = {"log_prob": (values,), "cdf": (values,), "icdf": (torch.rand(50, 1),)}.get(name, ())
        try:
            expected = getattr(theirs, name)
            expected = expected(*given) if callable(expected) else expected
        except NotImplementedError:
            continue
        found = getattr(ours, name)
        found = found(*[ut.tensor(x.numpy()) for x in given]) if callable(found) else found
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-4, atol=2e-5, err_msg=name)
        compared += 1
    assert compared > 2


def families() -> list[Any]:
    d = ut.distributions
    two = ut.tensor([0.7, 2.3], dtype=ut.float64)
    probs = ut.tensor([0.2, 0.9], dtype=ut.float64)
    return [
        d.Normal(two, two + 1), d.Exponential(two), d.Gamma(two, two + 1), d.Chi2(two), d.Beta(two, two + 1),
        d.Dirichlet(ut.stack([two, two + 1], -1)), d.Bernoulli(probs), d.ContinuousBernoulli(probs),
    ]  # fmt: skip


@pytest.mark.parametrize("family", families(), ids=lambda family: type(family).__name__)
def test_the_entropy_of_an_exponential_family_follows_from_its_parameters(family: Any) -> None:
    by_parameters = ut.distributions.ExponentialFamily.entropy(family)
    np.testing.assert_allclose(by_parameters.detach().numpy(), family.entropy().numpy(), rtol=1e-9, atol=1e-12)


def test_a_poisson_distribution_has_no_carrier_measure() -> None:
    with pytest.raises(NotImplementedError, match="carrier measure"):
        ut.distributions.Poisson(ut.tensor([2.0])).entropy()


def test_what_depends_on_no_parameter_is_known_by_the_class() -> None:
    d = ut.distributions
    assert d.Normal.support is d.constraints.real and d.HalfNormal.support is d.constraints.nonnegative
    assert d.constraints.is_dependent(d.Pareto.support) and d.constraints.is_dependent(d.Uniform.support)


@pytest.mark.parametrize(
    "kind", ["Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma", "Kumaraswamy", "Pareto", "Weibull"]
)
def test_what_is_a_function_of_another_says_so(torch: ModuleType, kind: str) -> None:
    theirs, ours = both(torch, kind, "float64")
    assert isinstance(ours, ut.distributions.TransformedDistribution)
    assert type(ours.base_dist).__name__ == type(theirs.base_dist).__name__
    wider = ours.expand((4, 3))
    assert type(wider) is type(ours) and wider.batch_shape == (4, 3) and wider.sample().shape == (4, 3)
    values = ours.sample((2, 1))
    assert ut.equal(wider.log_prob(values), ours.log_prob(values).expand(2, 4, 3))
    assert (
        repr(ours.expand((3,)))
        == f"{kind}({', '.join(f'{name}: undertow.Size([3])' for name in ours.arg_constraints)})"
    )
