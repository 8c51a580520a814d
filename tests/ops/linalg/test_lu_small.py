"""LU factorisations of small matrices by the compiled core: the same as by array functions."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.backend import cpu
from undertow.compiled import core
from undertow.ops.linalg import lu

pytestmark = pytest.mark.skipif(core is None, reason="there is no compiled core")


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 4), (2, 5, 3), (2, 3, 5), (2, 32, 32), (1, 20, 31)])
def test_factors_and_pivots(shape: tuple[int, ...], dtype: str) -> None:
    A = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    factors, exchanged = core.lu_small(A)
    expected, pivots = lu._eliminated(cpu, A)
    np.testing.assert_array_equal(exchanged, pivots)
    np.testing.assert_allclose(factors, expected, rtol=1e-4 if dtype == "f" else 1e-12, atol=1e-6)


def test_columns_without_a_pivot() -> None:
    A = np.array([[[0.0, 0, 1], [0, 0, 2], [0, 3, 4]]])
    for found, expected in zip(core.lu_small(A), lu._eliminated(cpu, A), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_first_nan_is_the_pivot() -> None:
    A = np.array([[[1.0, 2], [3, 4], [np.nan, 5], [np.nan, 6]]])
    for found, expected in zip(core.lu_small(A), lu._eliminated(cpu, A), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_what_is_left_to_array_functions() -> None:
    for A in (np.ones((33, 2)), np.ones((2, 33)), np.ones((0, 2, 2)), np.ones(3), np.ones((2, 2), complex)):
        assert core.lu_small(A) is None
