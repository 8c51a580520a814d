"""Functions of complex numbers and of whole ones that kernels have: NumPy's values, without the host."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cuda

NAMES = "exp2 expm1 log log2 log10 log1p arcsin arccos arctan arcsinh arccosh arctanh".split()

#: both sides of every branch cut, at zeros of either sign, near one and far away
PARTS = [-1e20, -2.5, -1.0, -0.3, -1e-9, -0.0, 0.0, 1e-9, 0.3, 0.75, 1.0, 2.5, 1e20]
POINTS = np.array([complex(x, y) for x, y in itertools.product(PARTS, PARTS)])


@pytest.fixture(autouse=True)
def not_on_the_host() -> Iterator[None]:
    ut.cuda.set_host_functions("error")
    yield
    ut.cuda.set_host_functions("allow")


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_complex_numbers(name: str) -> None:
    points = POINTS[np.abs(POINTS.real) < 300] if name in ("exp2", "expm1") else POINTS
    if name == "log1p":  # where NumPy takes the logarithm of a number that it has rounded
        points = points[(np.abs(points) < 1e-12) | (np.abs(points) > 1e-3)]
    if name in ("exp2", "expm1"):
        points = points[np.abs(points.imag) < 1e6]
    space: Any = cuda.namespace()
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(points)
    found = getattr(space, name)(space.asarray(points)).to_host()
    assert found.dtype == wanted.dtype
    for there, here in ((found.real, wanted.real), (found.imag, wanted.imag)):
        np.testing.assert_allclose(there, here, rtol=1e-7 if name == "log1p" else 1e-13, atol=1e-300)
        np.testing.assert_array_equal(np.signbit(there), np.signbit(here))
    narrow = getattr(space, name)(space.asarray(points[::3].astype(np.complex64))).to_host()
    np.testing.assert_allclose(narrow, wanted[::3], rtol=3e-5)


@pytest.mark.parametrize("name", ["arcsin", "arccos", "arcsinh", "arccosh"])
def test_inverse_functions_at_infinity(name: str) -> None:
    points = np.array([complex(x, y) for x in (-np.inf, 2.0, np.inf) for y in (-np.inf, 2.0, np.inf)])
    points = points[~np.isfinite(points)]
    space: Any = cuda.namespace()
    found, wanted = getattr(space, name)(space.asarray(points)).to_host(), getattr(np, name)(points)
    np.testing.assert_allclose(found.real, wanted.real, rtol=1e-14)
    np.testing.assert_allclose(found.imag, wanted.imag, rtol=1e-14)


def test_log1p_keeps_the_digits_of_small_numbers() -> None:
    z = complex(1e-9, 2e-9)
    assert ut.log1p(ut.tensor(z, dtype=ut.complex128, device="cuda")).item() == pytest.approx(z - z * z / 2, rel=1e-15)


@pytest.mark.parametrize("name", ["gcd", "lcm", "fmod"])
@pytest.mark.parametrize("dtype", ["i1", "i2", "i8", "u1", "u8"])
def test_functions_of_whole_numbers(name: str, dtype: str) -> None:
    low, high = (-11, 11) if dtype[0] == "i" else (0, 22)
    a, b = np.meshgrid(np.arange(low, high, dtype=dtype), np.arange(low, high, dtype=dtype))
    if dtype in ("i1", "u1"):  # the ends of what there is
        b = b.copy()
        b[0, :2] = np.iinfo(dtype).max
        a[0, :2] = 1
    space: Any = cuda.namespace()
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(a, b)
    found = getattr(space, name)(space.asarray(a), space.asarray(b)).to_host()
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_gamma() -> None:
    x = [-2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 4.0, 30.5, 171.0, 200.0, float("nan"), float("-inf"), float("inf")]
    here, there = [ut.special.gamma(ut.tensor(x, dtype=ut.float64, device=device)) for device in ("cpu", "cuda")]
    np.testing.assert_allclose(there.cpu().numpy(), here.numpy(), rtol=1e-13)
