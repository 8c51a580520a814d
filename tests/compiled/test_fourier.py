"""Fourier transforms of several signals at once, against NumPy's: lengths, dimensions, threads, what is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

RNG = np.random.default_rng(3)

_threads = each_with(1, 3)

LENGTHS = [2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 25, 27, 30, 45, 64, 75, 81, 120, 125, 128, 400, 512, 1000]
COMPLEX, INVERSE, OF_REAL, TO_REAL = range(4)


def numbers(dtype: str, *shape: int) -> Any:
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if dtype in "FD" else x).astype(dtype)


def transformed(x: Any, dim: int, kind: int, factor: float = 1.0) -> Any:
    length, single = x.shape[dim], x.dtype.char in "fF"
    points, count = {COMPLEX: (length, length), INVERSE: (length, length), OF_REAL: (length // 2, length // 2 + 1),
                     TO_REAL: (length - 1, 2 * (length - 1))}[kind]  # fmt: skip
    shape = [count if d == dim else n for d, n in enumerate(x.shape)]
    out = np.full(shape, np.nan, ("fF" if single else "dD")[kind != TO_REAL])
    plan = core.fourier_plan(points, single)
    return out if plan is not None and core.fourier(plan, x, out, dim, kind, factor) else None


def agree(found: Any, expected: Any) -> None:
    epsilon = np.finfo(found.dtype).eps
    assert abs(found - expected).max() <= 8 * epsilon * abs(expected).max()


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("shape", [(8, -1), (19, -1), (5, -1), (3, 7, -1), (2, -1, 8), (1, -1, 21), (3, -1, 2, 3)])
def test_complex_signals(shape: tuple[int, ...], dtype: str) -> None:
    dim = shape.index(-1)
    for length in LENGTHS:
        x = numbers(dtype, *[length if n == -1 else n for n in shape])
        agree(transformed(x, dim, COMPLEX, 0.5), np.fft.fft(x.astype("D"), axis=dim) / 2)
        agree(transformed(x, dim, INVERSE), np.fft.ifft(x.astype("D"), axis=dim, norm="forward"))


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("shape", [(8,), (19,), (5,), (3, 7)])
def test_real_signals(shape: tuple[int, ...], dtype: str) -> None:
    for half in LENGTHS:
        x, spectrum = numbers(dtype, *shape, 2 * half), numbers(dtype.upper(), *shape, half + 1)
        agree(transformed(x, x.ndim - 1, OF_REAL), np.fft.rfft(x.astype("d")))
        agree(transformed(spectrum, x.ndim - 1, TO_REAL), np.fft.irfft(spectrum.astype("D"), norm="forward"))


def test_many_signals_are_divided_among_threads() -> None:
    x = numbers("F", 301, 512)
    agree(transformed(x, 1, COMPLEX), np.fft.fft(x.astype("D")))
    np.testing.assert_array_equal(transformed(x, 1, COMPLEX)[:8], transformed(x[:8], 1, COMPLEX))
    turned = np.ascontiguousarray(x.T)
    np.testing.assert_array_equal(transformed(turned, 0, COMPLEX).T, transformed(x, 1, COMPLEX))


def test_what_is_not_finite_stays_in_its_signal() -> None:
    x = numbers("F", 21, 60)
    clean = transformed(x, 1, COMPLEX)
    x[4, 7], x[20, 0] = np.nan, np.inf
    found = transformed(x, 1, COMPLEX)
    assert np.isnan(found[4]).all() and not np.isfinite(found[20]).any()
    others = [k for k in range(21) if k not in (4, 20)]
    np.testing.assert_array_equal(found[others], clean[others])


def test_what_is_left_to_numpy() -> None:
    for length in (0, 1, 7, 2 * 7, 3 * 11, 1 << 16):
        assert core.fourier_plan(length, True) is None or length == 1 << 15
    x = numbers("F", 3, 8)  # too few signals
    assert transformed(x, 1, COMPLEX) is None
    assert transformed(numbers("F", 8, 8)[:, ::-1], 1, COMPLEX) is None
    assert transformed(numbers("f", 8, 8, 8), 1, OF_REAL) is None  # real signals not along the last dimension
    plan, x = core.fourier_plan(8, True), numbers("F", 9, 8)
    for out in (
        np.empty((8, 8), "F"),
        np.empty((9, 9), "F"),
        np.empty((9, 8), "D"),
        np.empty((9, 8), "f"),
        np.empty(72, "F"),
    ):
        assert core.fourier(plan, x, out, 1, COMPLEX, 1.0) is None
    assert core.fourier(plan, x, np.empty_like(x), 2, COMPLEX, 1.0) is None
    assert core.fourier(None, x, np.empty_like(x), 1, COMPLEX, 1.0) is None


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_operations(norm: str) -> None:
    x = numbers("d", 9, 12, 20)
    t = ut.tensor(x)
    agree(ut.fft.fftn(t, norm=norm).numpy(), np.fft.fftn(x, norm=norm))
    agree(ut.fft.rfft2(t, norm=norm).numpy(), np.fft.rfft2(x, norm=norm))
    agree(ut.fft.irfft2(ut.fft.rfft2(t, norm=norm), norm=norm).numpy(), x)
    agree(
        ut.fft.irfft(ut.tensor(numbers("D", 9, 8) * 0 + 1), n=14, norm=norm).numpy(),
        np.fft.irfft(np.ones((9, 8)), 14, norm=norm),
    )
