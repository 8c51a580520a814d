"""Fourier transforms: by kernels, by CuPy on a GPU of the machine, otherwise on the host; and triangular systems."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.cuda.conftest import REAL
from undertow.backend import namespace_of
from undertow.backend.cuda import tail

HAS_CUPY = REAL and importlib.util.find_spec("cupy") is not None


def same(function: Callable[..., Any], *arrays: Any) -> None:
    """A function's results and gradients on both devices; where there is CuPy, without a detour by the host."""
    found = []
    for device in ("cpu", "cuda"):
        leaves = [ut.tensor(a, device=device, requires_grad=True) for a in arrays]
        out = function(*leaves)
        grads = ut.autograd.grad(out.abs().square().sum(), leaves)
        found.append([t.detach().cpu().numpy() for t in (out, *grads)])
    for here, there in zip(*found, strict=True):
        assert here.shape == there.shape and here.dtype == there.dtype
        np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-8)
    assert not HAS_CUPY or not tail.counts


@pytest.fixture(autouse=True)
def count_anew() -> None:
    ut.ones(1, device="cuda")
    tail.counts.clear()


def matrices(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + 3 * np.eye(shape[-2], shape[-1])


def test_fourier_transforms() -> None:
    x = np.random.default_rng(0).normal(size=(3, 8))
    same(ut.fft.fft, x)
    same(lambda x: ut.fft.irfft(ut.fft.rfft(x) * 2, 8), x)
    same(ut.fft.fft2, x)
    same(lambda x: ut.fft.ifft(x, norm="ortho"), x + 1j * x[::-1])


def test_empty_matrices_go_to_the_host() -> None:
    assert ut.linalg.inv(ut.zeros(0, 0, device="cuda")).shape == (0, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_short_fourier_transforms_are_kernels(dtype: Any) -> None:
    rng, xp = np.random.default_rng(0), namespace_of("cuda")
    tail.counts.clear()
    for n in (1, 2, 7, 64, 255, 1024):
        for shape, axis in (((n,), 0), ((3, n), -1), ((2, n, 3), 1)):
            x = (rng.normal(size=(*shape, 2)) @ [1, 1j if np.dtype(dtype).kind == "c" else 1]).astype(dtype)
            there = xp.asarray(x)
            for norm in ("backward", "ortho", "forward"):
                pairs = [(f, None) for f in (np.fft.fft, np.fft.ifft, np.fft.rfft)[: 2 if x.dtype.kind == "c" else 3]]
                pairs += [(np.fft.irfft, k) for k in (2 * n - 2, 2 * n - 1) if 0 < k <= 1024]
                for function, length in pairs:
                    wanted = function(x, length, axis, norm)
                    found = function(there, length, axis, norm).to_host()
                    assert found.dtype == wanted.dtype and found.shape == wanted.shape
                    limit = 1e-6 if wanted.dtype.itemsize <= 4 or wanted.dtype == np.complex64 else 1e-14
                    assert np.abs(found - wanted).max() <= limit * np.abs(wanted).max()
    assert not tail.counts
    assert np.fft.fft(xp.asarray(np.ones(1025, np.complex64))).to_host()[0] == 1025
    np.testing.assert_allclose(np.fft.fft(there, 5, 1).to_host(), np.fft.fft(x, 5, 1), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("unitriangular", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems_are_kernels(upper: bool, unitriangular: bool, dtype: Any) -> None:
    tolerance = 1e-4 if dtype == np.float32 else 1e-10
    for n, lead, columns in ((1, (), 1), (5, (3,), 2), (70, (2, 2), 3)):
        a = (matrices(*lead, n, n) / n + np.eye(n)).astype(dtype)
        b = matrices(*lead, n, columns, seed=1).astype(dtype)
        if a.dtype.kind == "c":
            a, b = a * (1 + 0.5j), b * (0.5 - 1j)
        found = []
        for place in ("cpu", "cuda"):
            leaves = [ut.tensor(x, device=place, requires_grad=True) for x in (a, b)]
            out = ut.linalg.solve_triangular(leaves[0], leaves[1], upper=upper, unitriangular=unitriangular)
            grads = ut.autograd.grad(out.abs().square().sum(), leaves)
            found.append([t.detach().cpu().numpy() for t in (out, *grads)])
        for here, there in zip(*found, strict=True):
            np.testing.assert_allclose(there, here, rtol=tolerance, atol=tolerance * np.abs(here).max())
    assert not tail.counts
    singular = ut.tensor([[0.0, 1.0], [1.0, 0.0]], device="cuda")
    assert ut.linalg.solve_triangular(singular, ut.ones(2, 1, device="cuda"), upper=False).isinf().any()
