"""Factorisations and Fourier transforms: by CuPy on a GPU of the machine, otherwise on the host; right both ways."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.cuda.conftest import REAL
from undertow.backend.cuda import by_cupy, tail

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
    assert not HAS_CUPY or not by_cupy.FUNCTIONS["linalg"].union(by_cupy.FUNCTIONS["fft"]) & set(tail.counts)


@pytest.fixture(autouse=True)
def count_anew() -> None:
    ut.ones(1, device="cuda")
    tail.counts.clear()


def matrices(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + 3 * np.eye(shape[-2], shape[-1])


def test_factorisations() -> None:
    a, b = matrices(4, 4), matrices(4, 2, seed=1)
    stack = matrices(3, 4, 4, seed=2)
    for x in (a, stack):
        same(ut.linalg.inv, x)
        same(ut.linalg.det, x)
        same(lambda x: ut.linalg.cholesky(x @ x.mT), x)
        same(lambda x: ut.linalg.eigh(x @ x.mT)[0], x)
        same(lambda x: ut.linalg.svd(x)[1], x)
        same(lambda x: ut.linalg.qr(x)[1].abs(), x)
    same(ut.linalg.solve, a, b)
    same(ut.linalg.solve, stack, matrices(3, 4, 2, seed=3))


def test_what_has_no_factorisation_is_told() -> None:
    for matrix in (ut.zeros(3, 3), ut.zeros(2, 3, 3)):
        with pytest.raises(ut.linalg.LinAlgError):
            ut.linalg.inv(matrix.to("cuda"))
        with pytest.raises(ut.linalg.LinAlgError):
            ut.linalg.cholesky((matrix - 1).to("cuda"))


def test_fourier_transforms() -> None:
    x = np.random.default_rng(0).normal(size=(3, 8))
    same(ut.fft.fft, x)
    same(lambda x: ut.fft.irfft(ut.fft.rfft(x) * 2, 8), x)
    same(ut.fft.fft2, x)
    same(lambda x: ut.fft.ifft(x, norm="ortho"), x + 1j * x[::-1])


def test_what_cupy_does_not_take_goes_to_the_host() -> None:
    assert ut.linalg.inv(ut.zeros(0, 0, device="cuda")).shape == (0, 0)
