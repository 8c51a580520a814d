"""Reductions, scans and sorting where they have no derivative, or where a formula could lose it.

Each row states the gradient PyTorch 2.13 gives, and is compared with PyTorch where that is installed.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import undertow as ut

INF, NAN = float("inf"), float("nan")


class Kink(NamedTuple):
    """A call (`ns` is undertow or torch) on one tensor, a point, the gradient of the result's sum there."""

    name: str
    call: Any
    point: Any
    gradient: Any


KINKS = [
    Kink("amax, ties", lambda ns, x: ns.amax(x, 1), [[1, 2, 2], [3, 3, 1]], [[0, 0.5, 0.5], [0.5, 0.5, 0]]),
    Kink("amin, ties over all", lambda ns, x: ns.amin(x), [[1, 2], [1, 1]], [[1 / 3, 0], [1 / 3, 1 / 3]]),
    Kink("max, ties", lambda ns, x: ns.max(x), [3, 1, 3], [0.5, 0, 0.5]),
    Kink("max, NaN", lambda ns, x: ns.max(x), [1, NAN, NAN], [0, 0.5, 0.5]),
    Kink("min, NaN", lambda ns, x: ns.min(x), [NAN, 1], [1, 0]),
    Kink(
        "max along, first of ties",
        lambda ns, x: ns.max(x, 1)[0],
        [[1, 2, 2], [3, 3, 1]],
        [[0, 1, 0], [1, 0, 0]],
    ),
    Kink("max along, first NaN", lambda ns, x: ns.max(x, 0)[0], [1, NAN, NAN], [0, 1, 0]),
    Kink("aminmax, ties", lambda ns, x: sum(ns.aminmax(x)), [1, 3, 3, 1], [0.5] * 4),
    Kink("aminmax, one and the same", lambda ns, x: sum(ns.aminmax(x)), [2], [2]),
    Kink("median, ties", lambda ns, x: ns.median(x), [3, 1, 1, 2, 1, 5], [0, 1 / 3, 1 / 3, 0, 1 / 3, 0]),
    Kink("median, NaN", lambda ns, x: ns.median(x), [3, NAN, 1, NAN], [0, 0.5, 0, 0.5]),
    Kink("nanmedian", lambda ns, x: ns.nanmedian(x), [3, NAN, 1, NAN], [0, 0, 1, 0]),
    Kink("mode, last of the smallest", lambda ns, x: ns.mode(x)[0], [2, 2, 1, 1, 3], [0, 0, 0, 1, 0]),
    Kink("cummax, latest of ties", lambda ns, x: ns.cummax(x, 0)[0], [1, 3, 2, 3, 1], [1, 2, 0, 2, 0]),
    Kink("cummin, NaN stays", lambda ns, x: ns.cummin(x, 0)[0], [1, NAN, 0], [1, 2, 0]),
    Kink("sort, NaN last", lambda ns, x: ns.sort(x)[0][:2], [2, NAN, 1], [1, 0, 1]),
    Kink("prod, one zero", lambda ns, x: ns.prod(x), [1, 0, 2, 3], [0, 6, 0, 0]),
    Kink("prod, two zeros", lambda ns, x: ns.prod(x), [1, 0, 0, 3], [0, 0, 0, 0]),
    Kink("prod along, zeros", lambda ns, x: ns.prod(x, 1), [[1, 0, 2], [2, 3, 4]], [[0, 2, 0], [12, 8, 6]]),
    Kink("cumprod, zeros", lambda ns, x: ns.cumprod(x, 0), [1, 0, 2, 0, 3], [1, 3, 0, 0, 0]),
    Kink("nansum", lambda ns, x: ns.nansum(x), [NAN, 1], [0, 1]),
    Kink("nanmean, nothing there", lambda ns, x: ns.nanmean(x, 1), [[NAN, 1], [NAN, NAN]], [[0, 1], [NAN, NAN]]),
    Kink("std, equal elements", lambda ns, x: ns.std(x), [1, 1, 1], [0, 0, 0]),
    Kink("std_mean, equal elements", lambda ns, x: sum(ns.std_mean(x)), [1, 1], [0.5, 0.5]),
    Kink("logsumexp, one -inf", lambda ns, x: ns.logsumexp(x, 0), [-INF, 1], [0, 1]),
    Kink("logsumexp, only -inf", lambda ns, x: ns.logsumexp(x, 0), [-INF, -INF], [NAN, NAN]),
    Kink("logcumsumexp, -inf", lambda ns, x: ns.logcumsumexp(x, 0)[2:], [-INF, 2, -INF, 2], [NAN, 1.5, 0, 0.5]),
    Kink("norm at zero", lambda ns, x: ns.norm(x), [0, 0], [0, 0]),
    Kink("norm 1 at zero", lambda ns, x: ns.norm(x, 1), [0, -2], [0, -1]),
    Kink("norm 3 at zero", lambda ns, x: ns.norm(x, 3), [0, 0], [0, 0]),
    Kink("norm 1/2 at zero", lambda ns, x: ns.norm(x, 0.5), [0, -2], [0, -1]),
    Kink("norm inf, ties", lambda ns, x: ns.norm(x, INF), [1, -2, 2], [0, -0.5, 0.5]),
    Kink("norm -inf", lambda ns, x: ns.norm(x, -INF), [1, -2, 3], [1, 0, 0]),
    Kink("dist to itself", lambda ns, x: ns.dist(x, x.detach()), [1, 2], [0, 0]),
    Kink("cdist to itself", lambda ns, x: ns.cdist(x, x.detach()), [[1, 2], [1, 2]], [[0, 0], [0, 0]]),
    Kink("quantile on an element", lambda ns, x: ns.quantile(x, 0.5), [3, 1, 2], [0, 0, 1]),
    Kink("quantile, NaN", lambda ns, x: ns.nanquantile(x, 0.5), [3, NAN, 1, NAN], [0.5, 0, 0.5, 0]),
]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def gradient(ns: Any, kink: Kink) -> Any:
    x = ns.tensor(kink.point, dtype=ns.float64, requires_grad=True)
    (found,) = ns.autograd.grad(kink.call(ns, x).sum(), x)
    return np.asarray(found.tolist())


each = pytest.mark.parametrize("kink", KINKS, ids=[k.name for k in KINKS])


@each
def test_gradient(kink: Kink) -> None:
    np.testing.assert_allclose(gradient(ut, kink), kink.gradient, rtol=1e-14)


@each
def test_gradient_is_that_of_pytorch(torch: ModuleType, kink: Kink) -> None:
    np.testing.assert_allclose(gradient(torch, kink), kink.gradient, rtol=1e-14)


# ---- products: zeros, underflow, overflow


def second_derivatives(function: Any, point: list[float]) -> Any:
    """The Hessian of the result's sum."""
    x = ut.tensor(point, dtype=ut.float64, requires_grad=True)
    (first,) = ut.autograd.grad(function(x).sum(), x, create_graph=True)
    rows = [ut.autograd.grad(first[k], x, retain_graph=True)[0].tolist() for k in range(len(point))]
    return np.asarray(rows)


def test_second_derivatives_of_prod_at_zeros() -> None:
    hessian = second_derivatives(ut.prod, [0.0, 2.0, 0.0, 3.0])
    np.testing.assert_array_equal(hessian, [[0, 0, 6, 0], [0, 0, 0, 0], [6, 0, 0, 0], [0, 0, 0, 0]])


def test_second_derivatives_of_cumprod_at_zeros() -> None:
    # 0 + 0 x1 + 0 x1 x2, by hand
    hessian = second_derivatives(lambda x: ut.cumprod(x, 0), [0.0, 2.0, 0.0])
    np.testing.assert_array_equal(hessian, [[0, 1, 2], [1, 0, 0], [2, 0, 0]])


def test_third_derivative_of_prod_at_zeros() -> None:
    x = ut.tensor([0.0, 0.0, 0.0], dtype=ut.float64, requires_grad=True)
    (first,) = ut.autograd.grad(ut.prod(x), x, create_graph=True)
    (second,) = ut.autograd.grad(first[0], x, create_graph=True)
    (third,) = ut.autograd.grad(second[1], x)
    assert third.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("function", [ut.prod, lambda x: ut.cumprod(x, 0)[-1]], ids=["prod", "cumprod"])
def test_a_product_that_underflows_keeps_its_gradient(function: Any) -> None:
    x = ut.tensor([1e-200, 1e-200, 1e300], dtype=ut.float64, requires_grad=True)
    (found,) = ut.autograd.grad(function(x), x)
    np.testing.assert_allclose(found.tolist(), [1e100, 1e100, 0.0], rtol=1e-12)


def test_long_recurrences_survive_products_that_overflow() -> None:
    x = ut.tensor([0.0] + [1e10] * 99 + [0.0] * 100, dtype=ut.float64, requires_grad=True)
    (found,) = ut.autograd.grad(ut.cumprod(x, 0)[:3].sum(), x)
    expected = np.zeros(200)
    expected[0] = 1 + 1e10 + 1e20
    np.testing.assert_allclose(found.tolist(), expected, rtol=1e-12)


# ---- what accumulates in more precision than it returns


def test_half_precision_adds_up_in_single() -> None:
    ones = ut.ones((4096, 2), dtype=ut.float16)
    assert ut.sum(ones, 0).tolist() == [4096.0, 4096.0]
    assert ut.mean(ones * 100, 0).tolist() == [100.0, 100.0]
    assert ut.cumsum(ones, 0)[-1].tolist() == [4096.0, 4096.0]
    assert ut.sum(ones).dtype == ut.float16


def test_bools_and_small_integers_add_up_in_int64() -> None:
    for dtype in (ut.bool_, ut.uint8, ut.int8, ut.int32):
        ones = ut.ones(300, dtype=dtype)
        for total in (ut.sum(ones), ut.sum(ones, 0), ut.cumsum(ones, 0)[-1]):
            assert total.dtype == ut.int64 and total.item() == 300


# ---- nothing


def test_of_nothing() -> None:
    assert ut.sum(ut.zeros(0)).item() == 0
    assert ut.prod(ut.zeros(0)).item() == 1
    assert np.isnan(ut.mean(ut.zeros(0)).item())
    assert np.isnan(ut.median(ut.zeros(0)).item())
    assert ut.logsumexp(ut.zeros((0, 2)), 0).tolist() == [-INF, -INF]
    assert ut.any(ut.zeros(0)).item() is False
    assert ut.all(ut.zeros(0)).item() is True
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert np.isnan(ut.var(ut.zeros(0)).item())


def test_variance_of_one_element() -> None:
    x = ut.tensor([1.0], requires_grad=True)
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        out = ut.var(x)
    (found,) = ut.autograd.grad(out, x)
    assert np.isnan(out.item()) and np.isnan(found.item())


def test_the_count_of_elements_has_no_gradient_not_even_nan(L: ModuleType) -> None:
    x = L.tensor([1.0, 0.0, 2.0], requires_grad=True)
    y = L.linalg.vector_norm(x, 0) * NAN + x.sum()
    assert L.autograd.grad(y, x)[0].tolist() == [1, 1, 1]
