"""softmax, log_softmax and logsumexp along dimensions before the last: the formulas' numbers, by any threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from undertow.backend import cpu, kernels
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

RNG = np.random.default_rng(5)

_threads = each_with(1, 2, 5)

SHAPES = (((4, 10, 64, 64), 1), ((5, 3), 0), ((2, 100, 7), 1), ((3, 40, 300), -2), ((1, 1, 9), 1), ((6, 50, 33), 0))


def formulas(x: Any, dim: int) -> tuple[Any, Any, Any]:
    shifted = x.astype("d") - x.max(dim, keepdims=True)
    total = np.log(np.exp(shifted).sum(dim, keepdims=True))
    return np.exp(shifted - total), shifted - total, (total + x.max(dim, keepdims=True)).squeeze(dim)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f", 2e-6), ("d", 1e-14)])
def test_columns(dtype: str, tolerance: float) -> None:
    for shape, dim in SHAPES:
        x = (4 * RNG.standard_normal(shape)).astype(dtype)
        expected = formulas(x, dim)
        for which in (kernels.SOFTMAX, kernels.LOG_SOFTMAX, kernels.LOGSUMEXP):
            found = kernels.softmax_columns(cpu, x, dim, which, None)
            np.testing.assert_allclose(found, expected[which], rtol=10 * tolerance, atol=tolerance)
        numbers = RNG.standard_normal(expected[2].shape).astype(dtype)
        scaled = kernels.softmax_columns(cpu, x, dim, kernels.SOFTMAX, numbers)
        np.testing.assert_allclose(scaled, expected[0] * np.expand_dims(numbers, dim), rtol=10 * tolerance, atol=1e-30)
        less = kernels.softmax_columns(cpu, x, dim, kernels.LOGSUMEXP, numbers)
        np.testing.assert_allclose(less, expected[2] - numbers, rtol=10 * tolerance, atol=4 * tolerance)


def test_undefined_numbers_stay_in_their_column_and_infinite_ones_are_left_to_the_formula() -> None:
    x = np.zeros((2, 3, 200), "f")
    x[1, 2, 150], x[0, 1, 3] = np.nan, -np.inf
    found = kernels.softmax_columns(cpu, x, 1, kernels.SOFTMAX, None)
    assert np.isnan(found[1, :, 150]).all()
    assert np.isnan(found).sum() == 3
    np.testing.assert_array_equal(found[0, :, 3], np.array([0.5, 0, 0.5], "f"))
    x[0, :, 0] = -np.inf
    assert kernels.softmax_columns(cpu, x, 1, kernels.LOGSUMEXP, None) is None
    assert ut.logsumexp(ut.tensor(x), 1)[0, 0] == -np.inf


def test_what_is_left_to_the_formula() -> None:
    x = np.zeros((3, 4, 5), "f")
    for wrong in ((x, 2), (x, 3), (x, -4), (x[:, ::2], 1), (x.astype("e"), 1), (x[:0], 1)):
        assert kernels.softmax_columns(cpu, *wrong, kernels.SOFTMAX, None) is None
    assert kernels.softmax_columns(cpu, x, 1, 3, None) is None
    assert kernels.softmax_columns(cpu, x, 1, kernels.SOFTMAX, np.zeros(14, "f")) is None
    assert kernels.softmax_columns(cpu, x, 1, kernels.SOFTMAX, np.zeros(15, "d")) is None


def test_cross_entropy_of_images() -> None:
    scores = ut.tensor(RNG.standard_normal((2, 5, 30, 30)), requires_grad=True)
    target = ut.tensor(RNG.integers(0, 5, (2, 30, 30)))
    loss = ut.nn.functional.cross_entropy(scores, target, ignore_index=3)
    flat = scores.detach().movedim(1, -1).reshape(-1, 5).requires_grad_()
    other = ut.nn.functional.cross_entropy(flat, target.flatten(), ignore_index=3)
    np.testing.assert_allclose(loss.item(), other.item(), rtol=1e-12)
    loss.backward()
    other.backward()
    expected = flat.grad.reshape(2, 30, 30, 5).movedim(-1, 1)
    np.testing.assert_allclose(scores.grad.numpy(), expected.numpy(), rtol=0, atol=1e-14)
