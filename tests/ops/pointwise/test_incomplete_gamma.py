"""igamma and igammac beyond what the sample rows see: accuracy in every region, limits, what has no derivative."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import special

import undertow as ut
from undertow.autograd import forward_ad


def of(function: Any, a: Any, x: Any) -> Any:
    return function(ut.from_numpy(np.array(a, dtype=float)), ut.from_numpy(np.array(x, dtype=float))).numpy()


def points(name: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    if name == "wide":
        return 10 ** rng.uniform(-8, 2, 2000), 10 ** rng.uniform(-8, 2.5, 2000)
    if name == "near":
        a = 10 ** rng.uniform(1.3, 4, 2000)
        return a, a * (1 + rng.normal(size=2000) / np.sqrt(a))
    a = 10 ** rng.uniform(1, 2.5, 2000)
    return a, a * rng.uniform(0.2, 3, 2000)


@pytest.mark.parametrize("name", ["wide", "near", "far"])
def test_both_agree_with_scipy(name: str) -> None:
    a, x = points(name)
    np.testing.assert_allclose(of(ut.igamma, a, x), special.gammainc(a, x), rtol=2e-12, atol=1e-290)
    np.testing.assert_allclose(of(ut.igammac, a, x), special.gammaincc(a, x), rtol=2e-12, atol=1e-290)


def test_far_from_the_middle_of_a_large_order() -> None:
    """Five standard deviations off, where other libraries stop after 2000 terms: nearly the normal distribution."""
    a = 9e7
    below = of(ut.igamma, [a], [a - 5 * math.sqrt(a)])[0]
    skew = 1 / (3 * math.sqrt(a))  # the first term of Edgeworth's series
    normal = special.ndtr(-5) - skew * (25 - 1) * math.exp(-12.5) / math.sqrt(2 * math.pi)
    assert below == pytest.approx(normal, rel=1e-5)


def test_limits_are_torchs(torch: ModuleType) -> None:
    values = [0.0, 0.5, 2.0, math.inf, -1.0]
    a, x = np.repeat(values, 5), np.tile(values, 5)
    for name in ("igamma", "igammac"):
        expected = getattr(torch, name)(torch.tensor(a), torch.tensor(x)).numpy()
        np.testing.assert_allclose(of(getattr(ut, name), a, x), expected, rtol=1e-12, err_msg=name)


def test_nan_gives_nan() -> None:
    a, x = [math.nan, math.nan, math.nan, math.inf], [0.0, 1.0, math.inf, math.nan]
    assert np.isnan(of(ut.igamma, a, x)).all() and np.isnan(of(ut.igammac, a, x)).all()


def test_single_precision_is_kept() -> None:
    assert ut.igamma(ut.tensor([2.0]), ut.tensor([1.0])).dtype is ut.float32


def test_integers_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"igamma.*not implemented for"):
        ut.igamma(ut.tensor([2]), ut.tensor([1]))


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_no_derivative_in_the_first_argument(name: str) -> None:
    a, x = ut.tensor([2.0], requires_grad=True), ut.tensor([1.0], requires_grad=True)
    out = getattr(ut, name)(a, x)
    with pytest.raises(NotImplementedError, match=f"the derivative for '{name}: input' is not implemented"):
        out.sum().backward()
    (grad,) = ut.autograd.grad(getattr(ut, name)(a, x).sum(), x)
    assert grad.item() == pytest.approx({"igamma": 1, "igammac": -1}[name] * math.exp(-1))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(ut.tensor([2.0]), ut.tensor([1.0]))
        with pytest.raises(NotImplementedError, match=r"Trying to use forward AD with .* that does not support it"):
            getattr(ut, name)(dual, ut.tensor([1.0]))
