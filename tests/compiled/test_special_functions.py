"""The core's special functions are those of ops/pointwise/special, wherever a number lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from undertow.backend import cpu, kernels, special
from undertow.compiled import core
from undertow.ops.pointwise.special import bessel_i, error_functions, gamma, normal_distribution, quantile_slopes

pytestmark = pytest.mark.skipif(
    core is None or core.special_function("erfc", np.ones(1)) is None, reason="there are no compiled special functions"
)

threads = each_with(1, 3)

NAMES = ("lgamma", "digamma", "trigamma", "erfc", "erfinv", "special_erfcx", "special_log_ndtr", "special_ndtri")
NAMES += ("i0", "special_i0e", "special_i1", "special_i1e")


def plain(name: str, x: Any) -> Any:
    """By array functions, in double precision."""
    x = x.astype("d")
    with np.errstate(all="ignore"):
        if name == "trigamma":
            return gamma._polygamma_kernel(cpu, 1, x)
        if name == "erfc":
            return special._by_region(x, lambda y: 1 - special._erf_small(y), special._erfc_tail)
        kernels: dict[str, Any] = {
            "lgamma": gamma.lgamma_kernel,
            "digamma": gamma.digamma_kernel,
            "erfinv": error_functions._erfinv_kernel,
            "special_erfcx": lambda xp, x: special.erfcx(x),
            "special_log_ndtr": normal_distribution._log_ndtr_kernel,
            "special_ndtri": normal_distribution._ndtri_kernel,
            "i0": bessel_i._bessel(0, False),
            "special_i0e": bessel_i._bessel(0, True),
            "special_i1": bessel_i._bessel(1, False),
            "special_i1e": bessel_i._bessel(1, True),
        }
        return kernels[name](cpu, x)


def numbers(name: str, dtype: str) -> Any:
    rng, count = np.random.default_rng(4), 4000
    if name in ("erfinv", "special_ndtri"):
        parts = [rng.uniform(-1, 1, count), 1 - 10.0 ** rng.uniform(-16, 0, count), 10.0 ** rng.uniform(-30, 0, count)]
    else:
        parts = [rng.standard_normal(count), rng.uniform(-25, 25, count), 10.0 ** rng.uniform(-30, 30, count)]
        parts += [np.linspace(0.999, 2.001, count)]
    edges = [0.0, -0.0, 1, 2, -1, -2, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 3e38, -3e38, 0.46875, 4, 8, 10, 0.85]
    return np.concatenate([*parts, edges]).astype(dtype)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, dtype: str) -> None:
    x = numbers(name, dtype)
    found, expected = core.special_function(name, x), plain(name, x)
    assert found.dtype == dtype
    with np.errstate(over="ignore"):
        rounded = expected.astype(dtype)
    tolerance = 1.2e-7 if dtype == "f" else 2e-14  # lgamma and digamma have zeros, where digits are lost
    np.testing.assert_allclose(found, rounded, rtol=tolerance, atol=0 if name in ("erfc", "erfinv") else tolerance)
    zeros = found == 0
    assert (np.signbit(found[zeros]) == np.signbit(rounded[zeros])).all()


def test_exact_zeros() -> None:
    for dtype in "fd":
        np.testing.assert_array_equal(core.special_function("lgamma", np.array([1, 2], dtype)), 0)
        np.testing.assert_array_equal(core.special_function("erfinv", np.zeros(2, dtype)), 0)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", NAMES)
def test_a_value_does_not_depend_on_its_place(name: str, dtype: str) -> None:
    x = numbers(name, dtype)[-3000:]
    whole = core.special_function(name, x)
    for start, count in ((0, 1), (7, 31), (100, 513), (1, 2999), (2981, 19)):
        part = core.special_function(name, x[start : start + count].copy())
        np.testing.assert_array_equal(part, whole[start : start + count])


@pytest.mark.parametrize("name", NAMES)
def test_threads_change_nothing(name: str) -> None:
    x = np.random.default_rng(5).uniform(-0.99, 0.99, 100_000).astype("f")
    found = core.special_function(name, x)
    core.set_threads(1)
    np.testing.assert_array_equal(found, core.special_function(name, x))


def test_what_is_left_to_others() -> None:
    assert core.special_function("erf", np.ones(3)) is None
    assert core.special_function("erfc", np.ones(3, int)) is None
    assert core.special_function("erfc", np.ones(0)) is None
    assert core.special_function("erfc", np.ones((4, 4))[:, ::2]) is None
    assert core.special_function(1, np.ones(3)) is None


def test_any_layout() -> None:
    x = ut.rand(6, 5, 4).double() + 0.5
    for function in (ut.lgamma, ut.digamma, ut.erfc, ut.erfinv, lambda x: ut.polygamma(1, x)):
        for view in (x.permute(2, 0, 1), x[:, ::2], x[0, 0, 0], x[:0], x[:1].expand(3, 5, 4)):
            np.testing.assert_array_equal(function(view).numpy(), function(view.contiguous()).numpy())
            assert function(view).shape == view.shape


# ---- slopes of random numbers by parameters of their distributions


def variables(scale: float) -> tuple[Any, Any]:
    """The operands of gamma_slopes and of beta_slopes."""
    rng = np.random.default_rng(6)
    a, b = scale * np.exp(1.5 * rng.standard_normal((2, 1500)))
    return (a, rng.gamma(a)), (rng.beta(a, b), a, b)


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_slopes(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    of_gamma, of_beta = variables(scale)
    found = core.gamma_slopes(*of_gamma), core.beta_slopes(*of_beta)
    for name in ("gamma_slopes", "beta_slopes"):
        monkeypatch.setattr(kernels, name, lambda *arguments: None)
    with np.errstate(all="ignore"):
        expected = quantile_slopes._gamma_slope(cpu, *of_gamma), quantile_slopes._beta_slope(cpu, *of_beta)
    for values, others in zip(found, expected, strict=True):
        np.testing.assert_allclose(values, others, rtol=5e-12)


def test_slopes_do_not_depend_on_their_places() -> None:
    for kernel, operands in zip((core.gamma_slopes, core.beta_slopes), variables(1.0), strict=True):
        whole = kernel(*operands)
        for start, count in ((0, 1), (7, 31), (100, 513), (1, 1499), (1480, 20)):
            part = kernel(*[operand[start : start + count].copy() for operand in operands])
            np.testing.assert_array_equal(part, whole[start : start + count])


def test_slopes_of_what_is_not_a_number_end() -> None:
    edges = np.array([0.0, 1.0, np.inf, np.nan, 3.0, 5e-324])
    a, x, b = [part.ravel().copy() for part in np.meshgrid(edges, edges, edges)]
    usual = np.full(a.size, 2.0)
    slopes = core.gamma_slopes(a, x), core.beta_slopes(x, a, b), core.gamma_slopes(usual, x)
    assert np.isnan(slopes[0][np.isnan(a + x)]).all() and np.isnan(slopes[1][np.isnan(a + x + b)]).all()
    np.testing.assert_array_equal(slopes[2][x == 3], core.gamma_slopes(np.array([2.0]), np.array([3.0])).item())


def test_slopes_that_are_left_to_others() -> None:
    ones = np.ones(3)
    for other in (np.ones(4), np.ones(3, "f"), np.ones(3, int), np.ones(6)[::2], np.ones(0), None):
        assert core.gamma_slopes(ones, other) is None and core.gamma_slopes(other, ones) is None
        assert core.beta_slopes(ones, ones, other) is None and core.beta_slopes(other, ones, ones) is None
    assert core.gamma_slopes(ones) is None and core.beta_slopes(ones, ones) is None
