"""Reductions to extremes, products and norms, of arrays of all sizes, against NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cpu
from undertow.compiled import core
from undertow.ops.reduce.folds import fold, places_along

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

FOLDS: dict[str, Callable[..., Any]] = {
    "maximum": np.maximum.reduce,
    "minimum": np.minimum.reduce,
    "multiply": np.multiply.reduce,
    "sizes": lambda x, *rest, **options: np.add.reduce(np.abs(x), *rest, **options),
    "squares": lambda x, *rest, **options: np.add.reduce(x * x, *rest, **options),
}
SHAPES = [(1,), (5,), (33,), (70_001,), (3, 1), (200, 7), (7, 200), (300, 2049), (40, 3, 600), (2, 700, 5), (600, 513)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    ut.set_num_threads(ut.get_num_threads())


def numbers(shape: tuple[int, ...], dtype: str, name: str = "") -> Any:
    found = np.random.default_rng(7).standard_normal(shape)
    return (np.exp(found * 1e-3) * np.sign(found) if name == "multiply" else found).astype(dtype)


def dims_of(shape: tuple[int, ...]) -> list[Any]:
    return [None, *range(len(shape)), -1, *([(0, 1)] if len(shape) > 1 else [])]


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", FOLDS)
def test_values(name: str, dtype: str) -> None:
    for shape in SHAPES:
        x = numbers(shape, dtype, name)
        for dim in dims_of(shape):
            for keepdim in (False, True):
                found = fold(cpu, x, name, dim, keepdim)
                expected = FOLDS[name](x.astype("d"), axis=dim, keepdims=keepdim)
                assert found.dtype == x.dtype and found.shape == expected.shape
                near = (1e-3 if name == "multiply" else 2e-5) if dtype == "f" else 1e-11
                np.testing.assert_allclose(found, expected, rtol=near)


@pytest.mark.parametrize("name", FOLDS)
def test_numbers_do_not_depend_on_threads(name: str) -> None:
    for shape in [(700_001,), (700, 1000), (100_000, 7)]:
        x = numbers(shape, "f", name)
        for dim in dims_of(shape):
            core.set_threads(1)
            expected = fold(cpu, x, name, dim, False).tobytes()
            for number in (2, 5):
                core.set_threads(number)
                assert fold(cpu, x, name, dim, False).tobytes() == expected


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_sums_of_columns(dtype: str) -> None:
    for shape in [(1024, 8, 3), (5003, 2, 2), (3001, 32, 16), (1001, 33, 3), (700, 5, 17), (4, 10, 4096), (9, 1000, 5)]:
        x = ut.tensor(numbers(shape, dtype))
        expected = x.numpy().astype("d").sum(1)
        core.set_threads(1)
        found, mean = x.sum(1).numpy(), x.mean(1).numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 if dtype == "f" else 1e-12)
        np.testing.assert_allclose(mean, expected / shape[1], rtol=0, atol=1e-5 if dtype == "f" else 1e-13)
        for number in (2, 5):
            core.set_threads(number)
            np.testing.assert_array_equal(x.sum(1).numpy(), found)


@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_running_extremes(dtype: str, smallest: bool) -> None:
    ufunc = np.minimum if smallest else np.maximum
    for shape, dim in [((300, 70), 1), ((300, 70), 0), ((4, 300, 7), 1), ((3, 40, 500), 1), ((9,), 0), ((1, 1), 0)]:
        x = np.round(numbers(shape, dtype), 1)  # with many that are equal: the last counts
        x.reshape(-1)[len(x) // 2 :: 397] = np.nan
        expected = ufunc.accumulate(x, dim)
        steps = np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))])
        places = np.maximum.accumulate(np.where((x == expected) | np.isnan(x), steps, 0), dim)
        for threads in (1, 3):
            core.set_threads(threads)
            found = core.running_extremes(x, dim, smallest)
            np.testing.assert_array_equal(found[0], expected)
            np.testing.assert_array_equal(found[1], places)
    assert core.running_extremes(x, 2, smallest) is None
    assert core.running_extremes(x.astype("e"), 0, smallest) is None


@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_places(dtype: str, smallest: bool) -> None:
    for shape in SHAPES:
        x = np.round(numbers(shape, dtype), 1)  # with many that are equal: the first counts
        x.reshape(-1)[len(x) // 2 :: 97] = np.nan
        for threads in (1, 3):
            core.set_threads(threads)
            for dim in range(len(shape)):
                expected = (np.argmin if smallest else np.argmax)(x, dim, keepdims=True)
                np.testing.assert_array_equal(places_along(cpu, x, dim, smallest), expected)
                values, places = getattr(ut.tensor(x), "min" if smallest else "max")(dim, keepdim=True)
                np.testing.assert_array_equal(places.numpy(), expected)
                np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, dim))


@pytest.mark.parametrize("size", [7, 5000, 100_000])
def test_what_is_not_finite(size: int) -> None:
    x = numbers((size,), "f")
    for special in (np.nan, np.inf, -np.inf):
        x[size // 2] = special
        for name in ("maximum", "minimum"):
            with np.errstate(all="raise"):
                np.testing.assert_array_equal(fold(cpu, x, name, None, False), getattr(np, name).reduce(x))
        assert ut.tensor(x).norm().item() == pytest.approx(abs(special), nan_ok=True)
    assert ut.full((size,), -np.inf).amax() == -np.inf
    assert ut.full((size,), np.inf).amin() == np.inf


def test_overflows_are_infinite() -> None:
    x = np.full(10_000, 1e30, "f")
    with np.errstate(over="raise"):
        for name in ("squares", "multiply"):
            assert fold(cpu, x, name, None, False) == np.inf
    with np.errstate(under="raise"):
        assert fold(cpu, x * 0 + np.float32(1e-30), "squares", None, False) == 0


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_logsumexp(dtype: str) -> None:
    near = 2e-6 if dtype == "f" else 1e-13
    for shape in [(1,), (5,), (70, 8), (300, 2049), (3, 4, 50), (2, 70_001)]:
        x = numbers(shape, dtype) * 20
        expected = np.logaddexp.reduce(x.astype("d"), -1)
        for threads in (1, 3):
            core.set_threads(threads)
            np.testing.assert_allclose(core.logsumexp_rows(x), expected, rtol=near, atol=near)
            leaf, g = ut.tensor(x, requires_grad=True), numbers(shape[:-1], dtype)
            out = leaf.logsumexp(-1)
            out.backward(ut.tensor(g))
            slopes = g[..., None] * np.exp(x - expected[..., None])
            np.testing.assert_allclose(leaf.grad.numpy(), slopes, rtol=30 * near, atol=near)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_logsumexp_of_what_is_not_finite() -> None:
    x = numbers((4, 6), "f")
    x[0], x[1, 2], x[2, 3] = -np.inf, np.inf, np.nan
    np.testing.assert_array_equal(ut.tensor(x).logsumexp(1).numpy()[:3], [-np.inf, np.inf, np.nan])
    assert core.logsumexp_rows(np.zeros((3, 0), "f")) is None
    assert core.logsumexp_rows_gradient(x, np.zeros((3, 2), "f")) is None


@pytest.mark.parametrize("dims", [(0, 2), (0, 2, 3), (1, 3), (0, 3), (3, 1)])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_sums_over_dimensions_that_are_not_neighbours(dtype: str, dims: tuple[int, ...]) -> None:
    x = (np.random.default_rng(5).standard_normal((16, 6, 20, 33)) + 100).astype(dtype)
    exact = x.astype("d").sum(dims, keepdims=True)
    for keepdim in (True, False):
        for found, truth in (
            (ut.tensor(x).sum(dims, keepdim), exact),
            (ut.tensor(x).mean(dims, keepdim), exact * exact.size / x.size),
        ):
            assert found.shape == (truth.shape if keepdim else np.squeeze(truth, dims).shape)
            np.testing.assert_allclose(found.numpy().ravel(), truth.ravel(), rtol={"f": 1.2e-7, "d": 1e-15}[dtype] * 2)


@pytest.mark.parametrize("count", [63, 64, 65, 100, 128, 129, 2048, 2049, 2100])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_an_extreme_is_found_wherever_it_lies(dtype: str, count: int) -> None:
    x = np.zeros((4, count), dtype)
    for place in {0, 1, count // 2, count - 1, count - 2, max(count - 65, 0)}:
        for value in (1.0, -1.0, np.nan, np.inf):
            x[2, place] = value
            np.testing.assert_array_equal(ut.tensor(x).amax(1).numpy(), x.max(1))
            np.testing.assert_array_equal(ut.tensor(x).amin(1).numpy(), x.min(1))
            x[2, place] = 0
