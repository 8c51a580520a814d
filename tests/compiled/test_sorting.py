"""The order of the elements of rows, as NumPy's stable sort has it: every type, ties, NaN, any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiled.threads import each_with
from undertow.backend import cpu
from undertow.compiled import core
from undertow.ops.reduce.stable_order import _merged, order, place_of_rank

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

RNG = np.random.default_rng(3)
SHAPES = ((1,), (5,), (32,), (33,), (3, 40), (300, 100), (2, 3, 5000), (7, 1))
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0)


_threads = each_with(1, 2, 5)


def numbers(shape: tuple[int, ...], dtype: str, wide: bool) -> Any:
    """With ties, and all that floating-point numbers have; or from the whole range of the type."""
    if dtype == "?":
        return RNG.random(shape) > 0.5
    if dtype in "efd":
        x = RNG.standard_normal(shape) * (1e4 if wide else 1)
        x = np.where(RNG.random(shape) < 0.3, np.round(x), x)
        return np.where(RNG.random(shape) < 0.2, RNG.choice(SPECIAL, shape), x).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max) if wide else (max(limits.min, -20), 20)
    return RNG.integers(low, high, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", list("?efdbBhHiIlLqQ"))
def test_orders(dtype: str) -> None:
    for shape in SHAPES:
        x, n = numbers(shape, dtype, wide=len(shape) % 2 == 0), shape[-1]
        rising = _merged(cpu, x, x.ndim - 1, False)
        for descending in (False, True):
            expected = _merged(cpu, x, x.ndim - 1, descending)
            for count in {n, 1, max(1, n // 5), max(1, n - 1)}:
                found = core.order_rows(x, descending, count, -1)
                np.testing.assert_array_equal(found, expected[..., :count])
                assert found.dtype == np.int64
        for rank in {0, n // 2, n - 1}:
            np.testing.assert_array_equal(core.order_rows(x, False, 1, rank), rising[..., rank : rank + 1])


def test_rows_that_are_in_order() -> None:
    rising = np.repeat(np.arange(3000.0), 3)
    for x in (rising, rising[::-1].copy(), np.zeros(9000), np.tile(rising[:100], 90)):
        expected = np.argsort(x, kind="stable")
        np.testing.assert_array_equal(core.order_rows(x, False, 9000, -1), expected)
        np.testing.assert_array_equal(core.order_rows(x, False, 1500, -1), expected[:1500])
        assert core.order_rows(x, False, 1, 4500) == expected[4500]


def test_dimensions_and_layouts() -> None:
    x = numbers((30, 40, 50), "f", wide=False)
    for axis in (0, 1, 2):
        for array in (x, np.asfortranarray(x), x[::-1, ::2, ::-1]):
            np.testing.assert_array_equal(order(cpu, array, axis, True), _merged(cpu, array, axis, True))
            first = np.take(_merged(cpu, array, axis, False), range(3), axis)
            np.testing.assert_array_equal(order(cpu, array, axis, False, 3), first)
    np.testing.assert_array_equal(place_of_rank(cpu, x.T, 7), _merged(cpu, x.T, 2, False)[..., 7:8])


def test_what_it_leaves_to_numpy() -> None:
    x = numbers((4, 9), "f", wide=False)
    for array in (x.astype("F"), x.astype("g"), x.astype(object), x.astype(">f4"), x.T, x[:0], x[:, :0], x[0, 0], 3):
        assert core.order_rows(array, False, 1, -1) is None
    for wanted, rank in ((0, -1), (10, -1), (-3, -1), (1, 9), (2, 3)):
        assert core.order_rows(x, False, wanted, rank) is None
