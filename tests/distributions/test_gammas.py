"""Gamma variables as functions of their concentration."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest

import undertow as ut
from undertow.ops.random import rejection
from undertow.ops.random.mersenne_twister import Mersenne

CONCENTRATIONS = [0.02, 0.3, 1.0, 2.5, 30.0, 3000.0]


@pytest.mark.parametrize("alpha", CONCENTRATIONS)
def test_a_variable_moves_so_that_its_probability_stays(alpha: float) -> None:
    a = ut.full((200,), alpha, dtype=ut.float64)
    x = ut._standard_gamma(a).clamp(min=1e-12)
    slope, step = ut._standard_gamma_grad(a, x), 1e-6 * alpha
    above, below = (ut.igamma(a + h, x + h * slope) for h in (step, -step))
    change = (above - below) / (2 * step)
    density = ut.exp((a - 1) * x.log() - x - ut.lgamma(a))
    assert ut.all(change.abs() < 1e-5 * (density * slope).abs() + 1e-7)


def test_the_slopes_are_pytorchs_to_its_precision(torch: ModuleType) -> None:
    a = np.exp(np.linspace(-3, 14, 400))
    x = np.random.default_rng(0).gamma(a).clip(1e-30)
    theirs = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x)).numpy()
    np.testing.assert_allclose(ut._standard_gamma_grad(ut.tensor(a), ut.tensor(x)).numpy(), theirs, rtol=2e-3)


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1.0, 2.5, 40.0, 1e4])
def test_slopes_far_out_are_those_of_a_larger_precision(alpha: float) -> None:
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 60

    def exact(x: float) -> float:
        total, n, a, x = mp.mpf(0), 0, mp.mpf(alpha), mp.mpf(x)
        term, log, psi = x / a, mp.log(x), mp.digamma(a + 1)
        while n < x + 10 or abs(term) > 1e-40 * abs(total):
            total -= term * (log - psi)
            n += 1
            psi, term = psi + 1 / (a + n), term * x / (a + n)
        return float(total)

    far = [-6.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 6.0, 12.0]
    x = [at for at in (alpha + z * alpha**0.5 + max(z, 0) for z in far) if at > 1e-3]
    slopes = ut._standard_gamma_grad(ut.full((len(x),), alpha, dtype=ut.float64), ut.tensor(x, dtype=ut.float64))
    np.testing.assert_allclose(slopes.numpy(), [exact(at) for at in x], rtol=1e-11)


def test_slopes_where_there_are_none() -> None:
    a = ut.tensor([1.0, 2.0, math.nan, 1.0])
    assert not ut._standard_gamma_grad(a, ut.tensor([math.inf, math.nan, 1.0, 0.0])).isfinite()[1:3].any()
    assert ut._standard_gamma_grad(ut.ones(0), ut.ones(0)).shape == (0,)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.4), (0.5, 8.0), (3.0, 0.2), (40.0, 7.0), (900.0, 1100.0)])
def test_a_beta_variable_moves_so_that_its_probability_stays(a: float, b: float) -> None:
    special = pytest.importorskip("scipy.special")
    x = np.random.default_rng(0).beta(a, b, 100).clip(1e-9, 1 - 1e-9)
    slope = ut._dirichlet_grad(*(ut.tensor(v) for v in (x, np.full(100, a), np.full(100, a + b)))).numpy() * (1 - x)
    step = 1e-5 * a
    change = (special.betainc(a + step, b, x) - special.betainc(a - step, b, x)) / (2 * step)
    density = np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - special.betaln(a, b))
    np.testing.assert_allclose(-change, slope * density, rtol=1e-4, atol=1e-7)


def test_slopes_of_shares_are_pytorchs_to_its_precision(torch: ModuleType) -> None:
    x = np.random.default_rng(0).dirichlet([0.5, 2, 5], size=300)
    alpha = np.array([0.5, 2, 5]) + 0 * x
    given = x, alpha, alpha.sum(-1, keepdims=True) + 0 * x
    theirs = torch._dirichlet_grad(*map(torch.tensor, given)).numpy()
    np.testing.assert_allclose(ut._dirichlet_grad(*map(ut.tensor, given)).numpy(), theirs, rtol=2e-3)


@pytest.mark.parametrize("kind", ["Gamma", "Beta", "Dirichlet", "StudentT", "FisherSnedecor", "InverseGamma", "Chi2"])
def test_the_slope_of_a_sample_has_no_derivative(kind: str) -> None:
    """A second derivative would lack how the slope moves with the sample and the concentration: an error, as there."""
    a = ut.tensor([0.5, 2.0], requires_grad=True)
    second = {"Gamma": 1.0, "Beta": 2.0, "FisherSnedecor": 3.0, "InverseGamma": 1.0}
    made = getattr(ut.distributions, kind)(a, *[second[kind]] if kind in second else [])
    (grad,) = ut.autograd.grad((made.rsample() ** 2).sum(), a, create_graph=True)
    with pytest.raises(RuntimeError):  # NotDifferentiableError is one
        ut.autograd.grad(grad.sum(), a)


# ---- samples of a seed


def both_drawn(torch: ModuleType, name: str, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """What the two draw from a seed, and what uniform numbers come next."""
    found = []
    for library in (ut, torch):
        library.manual_seed(5)
        numbers = getattr(library, name)(*map(library.tensor, arrays))
        found += [numbers.numpy(), library.rand(3).numpy()]
    return tuple(found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["_standard_gamma", "_sample_dirichlet", "poisson", "binomial"])
def test_samples_are_pytorchs_bit_for_bit(torch: ModuleType, name: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    wide = np.exp(2 * rng.normal(size=(1001, 3))).astype(dtype)
    many = rng.integers(0, 300, (1001, 3)).astype(dtype), rng.random((1001, 3)).astype(dtype)
    given = {"poisson": (4 * wide,), "binomial": many}.get(name, (wide,))
    ours, next_of_ours, theirs, next_of_theirs = both_drawn(torch, name, *given)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(next_of_ours, next_of_theirs)


def test_samples_without_the_kernels_are_the_same() -> None:
    rng = np.random.default_rng(0)
    alpha, count, prob = np.exp(2 * rng.normal(size=500)), rng.integers(0, 200, 500) * 1.0, rng.random(500)
    compiled, plain = Mersenne(7), Mersenne(7)
    for dtype in (np.float64, np.float32):
        a, n, p = (array.astype(dtype) for array in (alpha, count, prob))
        for ours, theirs in (
            (rejection.each(rejection.gamma, plain, a), compiled.gammas(a)),
            (rejection.each(rejection.poisson, plain, 5 * alpha), compiled.poissons(5 * alpha)),
            (rejection.each(rejection.binomial, plain, n, p), compiled.binomials(n, p)),
        ):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
    assert plain.words(1) == compiled.words(1)


def test_parameters_at_the_ends() -> None:
    ends = ut.tensor([0.0, -1.0, math.nan, math.inf])
    drawn = ut._standard_gamma(ends)
    assert drawn[0] > 0 and drawn[1:3].isnan().all() and drawn[3] == math.inf
    with pytest.raises(RuntimeError, match="finite"):
        ut.poisson(ends[3:])
    with pytest.raises(RuntimeError, match="finite"):
        ut.binomial(ends[3:], ut.tensor([0.5]))
    assert ut.binomial(ut.tensor([7.0, 7.0, 0.0]), ut.tensor([0.0, 1.0, 0.5])).tolist() == [0.0, 7.0, 0.0]
    with pytest.raises(NotImplementedError):
        ut._standard_gamma(ut.ones(2, dtype=ut.int64))


def test_shares_are_neither_0_nor_1() -> None:
    for dtype in (ut.float32, ut.float64):
        shares = ut.distributions.Beta(ut.full((2000,), 1e-3, dtype=dtype), 1e-3).sample()
        assert bool((shares > 0).all()) and bool((shares < 1).all())


def test_small_concentrations_give_no_zeros() -> None:
    """Their variables are smaller than any float, and have logarithms nonetheless."""
    drawn = ut.distributions.Gamma(ut.full((100,), 1e-3), ut.ones(100)).sample()
    assert bool((drawn > 0).all()) and bool(drawn.log().isfinite().all())
