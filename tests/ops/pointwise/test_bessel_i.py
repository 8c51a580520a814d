"""Modified Bessel functions far from and near to zero, as SciPy has them."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut


def test_bessel_functions_far_and_near() -> None:
    special = pytest.importorskip("scipy.special")
    x = np.concatenate([np.linspace(-40, 40, 801), np.linspace(-700, 700, 101), np.logspace(-12, 0, 50)])
    for name, function in (("i0", ut.i0), ("i0e", ut.ops.special_i0e), ("i1", ut.ops.special_i1),
                           ("i1e", ut.ops.special_i1e)):  # fmt: skip
        np.testing.assert_allclose(function(ut.tensor(x)).numpy(), getattr(special, name)(x), rtol=5e-15)
    ends = ut.tensor([np.inf, -np.inf], dtype=ut.float64)
    assert ut.ops.special_i1(ends).tolist() == [np.inf, -np.inf] and ut.ops.special_i0e(ends).tolist() == [0.0, 0.0]


def test_the_largest_numbers() -> None:
    largest = ut.tensor([1.7e308, -1.7e308], dtype=ut.float64)
    assert ut.i0(largest).tolist() == [np.inf, np.inf] and ut.ops.special_i1(largest).tolist() == [np.inf, -np.inf]
    scaled = 1 / np.sqrt(2 * np.pi) / np.sqrt(1.7e308)
    np.testing.assert_allclose(ut.ops.special_i0e(largest).numpy(), [scaled, scaled], rtol=1e-14)
