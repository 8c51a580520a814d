"""The accuracy of the special functions, against SciPy, and their limits, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import special

import undertow as ut
from undertow import ops
from undertow.backend import cpu
from undertow.ops.declare import REGISTRY
from undertow.ops.namespaces.special import SHARED
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


# ---- undertow.special

POINTS = np.concatenate([RNG.normal(size=200) * 3, RNG.uniform(0, 30, 200), -RNG.uniform(0, 30, 100), [0.0, 1.0, -1.0]])
#: SciPy itself loses digits in exp(x * x)
CLOSE = {"log_ndtr": 5e-13, "erfcx": 2e-13, "gamma": 1e-14}


@pytest.mark.parametrize("name", ["erfcx", "ndtr", "log_ndtr", "entr", "gamma", "spherical_bessel_j0"])
def test_special_functions_of_all_numbers(name: str) -> None:
    reference = {"spherical_bessel_j0": lambda x: special.spherical_jn(0, np.abs(x))}.get(
        name, getattr(special, name, None)
    )
    points = POINTS[POINTS != -1] if name == "gamma" else POINTS
    with np.errstate(all="ignore"):
        got = getattr(ut.special, name)(Tensor(points, cpu)).numpy()
        np.testing.assert_allclose(got, reference(points), rtol=CLOSE.get(name, 2e-13), atol=1e-300)


def test_quantiles_of_the_normal_distribution() -> None:
    p = np.concatenate(
        [RNG.uniform(0, 1, 300), 10.0 ** RNG.uniform(-300, -1, 300), 1 - 10.0 ** RNG.uniform(-15, -1, 99)]
    )
    np.testing.assert_allclose(ut.special.ndtri(Tensor(p, cpu)).numpy(), special.ndtri(p), rtol=2e-14, atol=1e-15)


def test_zeta() -> None:
    s, q = RNG.uniform(1.01, 40, 500), 10.0 ** RNG.uniform(-2, 6, 500)
    got = ut.special.zeta(Tensor(s, cpu), Tensor(q, cpu)).numpy()
    np.testing.assert_allclose(got, special.zeta(s, q), rtol=1e-13, atol=1e-305)


def test_zeta_at_its_limits(torch: ModuleType) -> None:
    s = np.array([2, 1, 0.5, 2, 2, 2, 3, 2.5, 50, math.nan, math.inf])
    q = np.array([1, 2, 2, 0, -1, -1.5, -1.5, -1.5, 0.5, 1, 1])
    expected = torch.special.zeta(torch.tensor(s), torch.tensor(q)).numpy()
    np.testing.assert_allclose(ut.special.zeta(Tensor(s, cpu), Tensor(q, cpu)).numpy(), expected, rtol=1e-13)


def test_zeta_far_out() -> None:
    s, q = np.array([math.inf, math.inf, 2.0]), np.array([3.0, 0.5, math.inf])
    assert ut.special.zeta(Tensor(s, cpu), Tensor(q, cpu)).tolist() == [0.0, math.inf, 0.0]


def test_zeta_has_no_derivative_by_its_order() -> None:
    s = ut.tensor(2.0, requires_grad=True)
    with pytest.raises(NotImplementedError, match="the derivative for 'zeta' is not implemented"):
        ut.special.zeta(s, ut.tensor(1.5)).backward()


LIMITS = [-3.0, -1.0, -0.0, 0.0, 1.0, 2.0, math.inf, -math.inf, math.nan, 1e-300, 0.5, 1.5, 30.0, -30.0, -40.0]


@pytest.mark.parametrize("name", ["entr", "erfcx", "log_ndtr", "ndtr", "ndtri", "xlog1py"])
def test_special_functions_at_their_limits(torch: ModuleType, name: str) -> None:
    points = np.array(LIMITS)
    others = (points[::-1].copy(),) if name == "xlog1py" else ()
    with np.errstate(all="ignore"):
        got = getattr(ut.special, name)(*[Tensor(a, cpu) for a in (points, *others)]).numpy()
    expected = getattr(torch.special, name)(*[torch.from_numpy(a) for a in (points, *others)]).numpy()
    np.testing.assert_allclose(got, expected, rtol=5e-13, atol=1e-190 if name == "ndtr" else 0)


BY_SCIPY = {"bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1", "modified_bessel_k0": "k0",
            "modified_bessel_k1": "k1", "scaled_modified_bessel_k0": "k0e", "scaled_modified_bessel_k1": "k1e",
            "modified_bessel_i0": "i0", "modified_bessel_i1": "i1"}  # fmt: skip


@pytest.mark.parametrize("name", BY_SCIPY)
def test_bessel_functions_are_those_of_pytorch(torch: ModuleType, name: str) -> None:
    points = RNG.uniform(0.01, 20, 200)
    got = getattr(ut.special, name)(Tensor(points, cpu)).numpy()
    np.testing.assert_allclose(got, getattr(special, BY_SCIPY[name])(points), rtol=1e-13)
    expected = getattr(torch.special, name)(torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)  # PyTorch's are right to six digits


def test_airy(torch: ModuleType) -> None:
    points = RNG.uniform(-10, 5, 200)
    expected = torch.special.airy_ai(torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(ut.special.airy_ai(Tensor(points, cpu)).numpy(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in ut.special.__all__ if "polynomial" in n])
def test_polynomials_are_those_of_pytorch(torch: ModuleType, name: str) -> None:
    x, n = RNG.uniform(-1.5, 1.5, (20, 1)), np.arange(-1.0, 12.0)
    got = getattr(ut.special, name)(Tensor(x, cpu), Tensor(n, cpu)).numpy()
    expected = getattr(torch.special, name)(torch.from_numpy(x), torch.from_numpy(n)).numpy()
    scale = np.abs(expected).max(axis=0, keepdims=True)
    assert (np.abs(got - expected) <= 1e-9 * scale + 1e-12).all()


def test_polynomials_have_no_derivative_by_the_degree() -> None:
    with pytest.raises(RuntimeError, match="no derivative with respect to the degree"):
        ut.special.legendre_polynomial_p(ut.ones(2), ut.ones(2, requires_grad=True))


def test_the_names_of_torch_special_are_there(torch: ModuleType) -> None:
    theirs = {n for n in torch.special.__all__ if not n.startswith("_")}
    undeclared = {name for name, op in SHARED.items() if op not in REGISTRY}
    assert sorted(theirs - set(ut.special.__all__) - undeclared) == []


def test_orders_are_numbers() -> None:
    with pytest.raises(TypeError, match="no derivative by it"):
        ut.special.jv(ut.tensor(1.0), ut.ones(2))


def test_out() -> None:
    out = ut.empty(2)
    assert ut.special.entr(ut.ones(2), out=out) is out
    assert out.tolist() == [0.0, 0.0]
    assert ut.special.ndtr(ut.zeros(2), out=out).tolist() == [0.5, 0.5]


def test_without_scipy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from undertow.backend.special import scipy_function

    scipy_function.cache_clear()
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ImportError, match=r"undertow\[special\]"):
        ut.special.bessel_j0(ut.ones(2))
    scipy_function.cache_clear()


def test_mvlgamma_refuses() -> None:
    assert ut.mvlgamma(ut.ones(2), 3).tolist() == [np.inf] * 2  # outside of (p-1)/2 it is computed, as in PyTorch 2.13
    with pytest.raises(RuntimeError, match="p has to be greater than or equal to 1"):
        ut.mvlgamma(ut.ones(2), 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoid_is_exact_far_out_and_silent(dtype: Any) -> None:
    """Where exp(-x) overflows another formula is used, for the whole array; neither warns, and nothing is lost."""
    near = np.linspace(-80, 80, 161).astype(dtype)
    far = np.array([-np.inf, -800, -100, -95, -89, -1, 0, 100, 800, np.inf, np.nan], dtype)
    for x in (near, far):
        with np.errstate(all="ignore"):
            wanted = np.exp(np.minimum(x, 0).astype(np.float64)) / (1 + np.exp(-np.abs(x).astype(np.float64)))
        found = ut.sigmoid(ut.from_numpy(x)).numpy()
        tiny = np.finfo(dtype).tiny  # below it a number has fewer digits
        np.testing.assert_allclose(
            found, wanted.astype(dtype), rtol=5e-7 if dtype is np.float32 else 1e-14, atol=tiny / 64
        )
    if dtype is np.float32:
        assert found[3] > 0  # sigmoid(-95), though exp(95) is infinite


def test_sigmoid_keeps_the_layout() -> None:
    assert ut.sigmoid(ut.randn(3, 4).t()).stride() == (1, 4)


def test_airy_beyond_a_million() -> None:
    # by mpmath; the phase, of 1e9 and more, has lost half of its digits
    points = np.array([-1e7, -1.0001e6, 1e7, np.inf])
    x = ut.tensor(points, requires_grad=True)
    value = ut.special.airy_ai(x)
    np.testing.assert_allclose(value.numpy(force=True), [0.00541851494421, 0.009389861947825, 0, 0], atol=1e-7)
    (slope,) = ut.autograd.grad(value.sum(), x)
    np.testing.assert_allclose(slope.numpy(), [-26.701707811976, 15.170612281693, 0, 0], atol=2e-4)


def test_polynomials_of_enormous_degrees() -> None:
    function = ut.special.chebyshev_polynomial_t
    assert function(ut.tensor([3.0, 3.0]), ut.tensor([1e16, 2.0])).tolist() == pytest.approx(
        [np.nan, 17.0], nan_ok=True
    )
    with pytest.raises(ValueError, match="a degree of 10000000 takes as many steps"):
        function(ut.tensor(0.5), 10_000_000)


@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
def test_the_spherical_bessel_function_near_its_zeros(dtype: Any) -> None:
    x = ut.tensor([math.pi * k for k in range(1, 60)], dtype=dtype)
    exact = np.array([math.sin(v) / v for v in x.tolist()])
    got = ut.special.spherical_bessel_j0(x).numpy()
    np.testing.assert_allclose(got, exact, rtol=2 * ut.finfo(dtype).eps)
    ends = ut.tensor([0.0, math.inf, -math.inf], dtype=dtype)
    assert ut.special.spherical_bessel_j0(ends).tolist() == [1, 0, 0]
