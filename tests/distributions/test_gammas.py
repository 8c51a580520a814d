"""Gamma variables as functions of their concentration."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import undertow as ut
from undertow.distributions.gammas import drawn_gamma, gamma_slope

CONCENTRATIONS = [0.02, 0.3, 1.0, 2.5, 30.0, 3000.0]


@pytest.mark.parametrize("alpha", CONCENTRATIONS)
def test_a_variable_moves_so_that_its_probability_stays(alpha: float) -> None:
    a = ut.full((200,), alpha, dtype=ut.float64)
    x = drawn_gamma(a).clamp(min=1e-12)
    slope, step = gamma_slope(a, x), 1e-6 * alpha
    above, below = (ut.igamma(a + h, x + h * slope) for h in (step, -step))
    change = (above - below) / (2 * step)
    density = ut.exp((a - 1) * x.log() - x - ut.lgamma(a))
    assert ut.all(change.abs() < 1e-5 * (density * slope).abs() + 1e-7)


def test_the_slopes_are_pytorchs_to_its_precision(torch: ModuleType) -> None:
    a = np.exp(np.linspace(-3, 6, 300))
    x = np.random.default_rng(0).gamma(a).clip(1e-30)
    theirs = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x)).numpy()
    np.testing.assert_allclose(gamma_slope(ut.tensor(a), ut.tensor(x)).numpy(), theirs, rtol=2e-3)


def test_small_concentrations_give_no_zeros() -> None:
    """Their variables are smaller than any float, and have logarithms nonetheless."""
    drawn = ut.distributions.Gamma(ut.full((100,), 1e-3), ut.ones(100)).sample()
    assert bool((drawn > 0).all()) and bool(drawn.log().isfinite().all())
