"""fmod, remainder and floor_divide of floating-point numbers: to the last bit NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow.backend.cpu import FUNCTIONS
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

RNG = np.random.default_rng(1)
SPECIAL = [0, -0.0, 1, -1, 0.5, 7, -7, 1 / 3, 0.1, 1e-38, 3e38, -3e38, 2**24, 2**24 - 1, 2**24 + 2, 5e-324, 2.0**51,
           2.0**51 - 1, 2.0**53 - 1, 1e308, np.inf, -np.inf, np.nan]  # fmt: skip


def assert_same(a: Any, b: Any) -> None:
    for name in ("fmod", "remainder", "floor_divide"):
        with np.errstate(all="ignore"):
            found, expected = FUNCTIONS[name](a, b), getattr(np, name)(a, b)
        np.testing.assert_array_equal(found, expected)
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_special_numbers(dtype: str) -> None:
    with np.errstate(all="ignore"):
        special = np.array(SPECIAL).astype(dtype)
    assert_same(special[:, None], special)
    for number in special:
        assert_same(special, np.full(special.shape, number))


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_numbers_of_many_sizes(dtype: str) -> None:
    for _ in range(20):
        a = (RNG.standard_normal(3000) * 10.0 ** RNG.integers(-6, 8)).astype(dtype)
        b = (RNG.standard_normal(3000) * 10.0 ** RNG.integers(-6, 4)).astype(dtype)
        multiples = (RNG.integers(-(10**4), 10**4, 3000) * b).astype(dtype)
        up, down = [np.nextafter(multiples, np.array(to, dtype)) for to in (np.inf, -np.inf)]
        far = (RNG.integers(-(2**50), 2**50, 3000) * b).astype(dtype)
        for x, y in ((a, b), (a, b[:1]), (a[:1], b), (a[::-3], b[::3]), (multiples, b), (up, b), (down, b), (far, b)):
            assert_same(x, y)


def test_in_place_and_reports() -> None:
    x = RNG.standard_normal(3000)
    expected = np.remainder(x, 0.7)
    FUNCTIONS["remainder"](x, 0.7, out=x)
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(FUNCTIONS["remainder"].accumulate(x[:50]), np.remainder.accumulate(x[:50]))
    with np.errstate(all="raise"):
        FUNCTIONS["floor_divide"](x, 0.3)
        with pytest.raises(FloatingPointError, match="invalid value encountered in remainder"):
            FUNCTIONS["remainder"](x, 0.0)
        with pytest.raises(FloatingPointError, match="divide by zero encountered in floor_divide"):
            FUNCTIONS["floor_divide"](x, 0.0)
