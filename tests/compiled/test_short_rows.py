"""Large arrays of short rows: sums of their columns, operands that are repeated, softmax and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from undertow import ops
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

RNG = np.random.default_rng(5)


_threads = each_with(1, 3)


def numbers(*shape: int, dtype: str = "f") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_sums_of_columns(dtype: str) -> None:
    for rows, columns in ((20_000, 8), (9_001, 5), (5_000, 64), (5_000, 65), (700, 33), (130_000, 2)):
        x = numbers(rows, columns, dtype=dtype)
        found = ut.tensor(x).sum(0).numpy()
        np.testing.assert_allclose(found, x.astype("g").sum(0), rtol=0, atol=2e-4 if dtype == "f" else 1e-11)
        core.set_threads(1)
        np.testing.assert_array_equal(found, ut.tensor(x).sum(0).numpy())
    x = numbers(3, 9_001, 7, dtype=dtype)
    np.testing.assert_allclose(ut.tensor(x).sum(1).numpy(), x.astype("d").sum(1), rtol=0, atol=2e-4)


#: pairs of shapes that are broadcast to 150,000 numbers and more
SHAPES = (
    ((20_000, 1), (8,)),
    ((20_000, 8), (8,)),
    ((20_000, 1), (20_000, 8)),
    ((9_000, 17), (9_000, 1)),
    ((9_000, 16), (9_000, 1)),
    ((140_000, 1), (1, 2)),
    ((40, 1, 600, 1), (1, 3, 1, 7)),
    ((40, 5, 1, 1), (5, 100, 9)),
    ((3, 5), (40_000, 3, 5)),
    ((1, 5), (11_000, 3, 5)),
)


@pytest.mark.parametrize("dtype", ["f", "d", "D", "e", "b"])
def test_operands_that_are_repeated(dtype: str) -> None:
    for shape, other in SHAPES:
        a, b = (numbers(*shape) * 9).astype(dtype), (numbers(*other) * 9).astype(dtype)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal((ut.tensor(a) - ut.tensor(b)).numpy(), a - b)
            np.testing.assert_array_equal((ut.tensor(b) * ut.tensor(a)).numpy(), a * b)
    a, b = numbers(8, 20_000).T[::-1], numbers(16)[::-2]
    np.testing.assert_array_equal((ut.tensor(a) - ut.tensor(b)).numpy(), a - b)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_softmax_and_its_kin(dtype: str) -> None:
    near: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6} if dtype == "f" else {"rtol": 1e-13, "atol": 1e-14}
    for rows, columns in ((3_001, 1), (3_001, 8), (129, 31), (701, 32), (701, 33)):
        x = numbers(rows, columns, dtype=dtype) * 8
        wide = x.astype("d") - x.astype("d").max(1, keepdims=True)
        sums = np.exp(wide).sum(1, keepdims=True)
        given = ut.tensor(x)
        np.testing.assert_allclose(ut.softmax(given, 1).numpy(), np.exp(wide) / sums, **near)
        np.testing.assert_allclose(ut.log_softmax(given, 1).numpy(), wide - np.log(sums), **near)
        expected = (x.astype("d").max(1, keepdims=True) + np.log(sums))[:, 0]
        np.testing.assert_allclose(ut.logsumexp(given, 1).numpy(), expected, **near)


def test_infinite_rows_and_nan() -> None:
    x = numbers(2_000, 8)
    x[70, 3], x[71, 0], x[72], x[73, 5], x[74, :7] = np.nan, np.nan, -np.inf, np.inf, -np.inf
    given = ut.tensor(x)
    with np.errstate(invalid="ignore"):
        found, safe = ut.softmax(given, 1).numpy(), ops._safe_softmax(given, 1).numpy()
    assert np.isnan(found[70:74]).all()
    assert found[74].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    assert not np.isnan(np.delete(found, range(70, 74), 0)).any()
    assert ut.logsumexp(given, 1)[72:75].tolist() == [-np.inf, np.inf, x[74, 7]]
    assert safe[72].tolist() == [0] * 8
    assert np.isnan(safe[[70, 71, 73]]).all()
    np.testing.assert_array_equal(np.delete(safe, range(70, 74), 0), np.delete(found, range(70, 74), 0))
