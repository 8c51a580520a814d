"""The accuracy of the special functions, against SciPy, and their limits, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import special

from undertow import ops
from undertow.backend import cpu
from undertow.tensor import Tensor

RNG = np.random.default_rng(0)
EVERYWHERE = np.concatenate([RNG.uniform(0, 3, 400), RNG.uniform(3, 30, 300), 10.0 ** RNG.uniform(-20, 20, 300)])
LEFT = -np.floor(RNG.uniform(0, 20, 600)) - RNG.uniform(0.05, 0.95, 600)
PROBABILITIES = np.concatenate([RNG.uniform(-1, 1, 400), 1 - 10.0 ** RNG.uniform(-15, -1, 400)])


@pytest.mark.parametrize(
    ("op", "reference", "at", "rtol", "atol"),
    [
        ("erfinv", special.erfinv, PROBABILITIES, 2e-15, 0),
        ("lgamma", special.gammaln, EVERYWHERE, 1e-13, 0),
        ("lgamma", special.gammaln, LEFT, 1e-13, 5e-14),
        ("digamma", special.digamma, EVERYWHERE, 1e-13, 1e-15),
        ("digamma", special.digamma, LEFT, 1e-12, 1e-13),
    ],
)
def test_accuracy(op: str, reference: Callable[[Any], Any], at: Any, rtol: float, atol: float) -> None:
    got = getattr(ops, op)(Tensor(at, cpu))
    np.testing.assert_allclose(got._array, reference(at), rtol=rtol, atol=atol)


def test_lgamma_keeps_its_digits_at_its_zeros() -> None:
    """lgamma(1 + z) is -0.577 z + 0.822 z * z - ..., lgamma(2 + z) is 0.423 z + 0.322 z * z - ..."""
    z = np.array([1e-9, -1e-9, 3e-6])
    many = np.ones(600)
    many[:3], many[3:6] = 1 + z, 2 + z
    got = ops.lgamma(Tensor(many, cpu))._array
    exact = np.concatenate([many[:3] - 1, many[3:6] - 2])
    slopes = np.array([-0.5772156649015329] * 3 + [0.4227843350984671] * 3)
    curves = np.array([0.8224670334241132] * 3 + [0.3224670334241132] * 3)
    np.testing.assert_allclose(got[:6], exact * slopes + exact**2 * curves, rtol=1e-11)
    assert (got[6:] == 0).all()


@pytest.mark.parametrize("op", ["erfinv", "lgamma", "digamma"])
def test_few_and_many_elements_agree(op: str) -> None:
    many = getattr(ops, op)(Tensor(PROBABILITIES[:600], cpu))._array
    few = [getattr(ops, op)(Tensor(part, cpu))._array for part in np.split(PROBABILITIES[:600], 60)]
    np.testing.assert_allclose(np.concatenate(few), many, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_polygamma(n: int) -> None:
    got = ops.polygamma(n, Tensor(EVERYWHERE[:700], cpu))._array
    np.testing.assert_allclose(got, special.polygamma(n, EVERYWHERE[:700]), rtol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_polygamma_left_of_zero(n: int) -> None:
    """polygamma(n, x + 1) - polygamma(n, x) = (-1) ** n * n! / x ** (n + 1)"""
    step = ops.polygamma(n, Tensor(LEFT + 1, cpu))._array - ops.polygamma(n, Tensor(LEFT, cpu))._array
    scale = np.abs(ops.polygamma(n, Tensor(LEFT, cpu))._array)
    wanted = (-1) ** n * math.factorial(n) / LEFT ** (n + 1)
    assert (np.abs(step - wanted) <= 1e-11 * scale + 1e-12).all()


@pytest.mark.parametrize("op", ["erfinv", "lgamma", "digamma"])
@pytest.mark.parametrize("repeat", [1, 100])
def test_limits(torch: ModuleType, op: str, repeat: int) -> None:
    points = np.tile([-math.inf, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, math.inf, math.nan], repeat)
    with np.errstate(all="ignore"):
        got = getattr(ops, op)(Tensor(points, cpu))._array
    np.testing.assert_allclose(got, getattr(torch, op)(torch.from_numpy(points)).numpy(), rtol=1e-14)


@pytest.mark.parametrize("op", ["erfinv", "lgamma", "digamma"])
def test_dtypes(op: str) -> None:
    function = getattr(ops, op)
    assert [function(np.array([0.5, 0.25], d)).dtype for d in ("f2", "f4", "f8")] == ["f2", "f4", "f8"]
    assert function(np.array([1, 1])).dtype == np.float32
    with pytest.raises(NotImplementedError, match=f"\"{op}\" not implemented for 'ComplexDouble'"):
        function(np.array([1j]))


def test_polygamma_of_order_zero_is_digamma() -> None:
    at = np.array([0.3, 4.0])
    assert ops.polygamma(0, at)._array.tolist() == ops.digamma(at)._array.tolist()


def test_polygamma_refuses() -> None:
    with pytest.raises(RuntimeError, match="does not support negative n"):
        ops.polygamma(-1, np.ones(2))
    with pytest.raises(TypeError, match="must be int"):
        ops.polygamma(1.0, np.ones(2))
