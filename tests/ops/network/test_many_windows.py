"""Adaptive pooling into many windows, or of many elements: in time and memory that grow with their sum."""

from __future__ import annotations

import tracemalloc
from types import ModuleType

import numpy as np
import pytest

import undertow as ut
from undertow.ops.network import pool_kernels

SIZES = [(10, 7), (7, 10), (300, 200), (200, 300), (1000, 17), (17, 1000), (130, 129), (128, 128)]


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("elements", "windows"), SIZES)
def test_means_and_gradients_are_pytorchs(torch: ModuleType, elements: int, windows: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(2, 3, elements)).astype(dtype), rng.normal(size=(2, 3, windows)).astype(dtype)
    found = []
    for lib in (ut, torch):
        x = lib.tensor(values, requires_grad=True)
        y = lib.nn.functional.adaptive_avg_pool1d(x, windows)
        y.backward(lib.tensor(weights))
        found.append((y.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5 if dtype == "float32" else 1e-12, 1e-6)


def test_a_million_windows() -> None:
    x = ut.ones(1, 1, 10, requires_grad=True)
    tracemalloc.start()
    try:
        ut.nn.functional.adaptive_avg_pool1d(x, 1_000_000).sum().backward()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert x.grad.tolist() == [[[100_000.0] * 10]] and peak < 100e6


def test_little_is_kept() -> None:
    for windows in range(1, 600):
        ut.nn.functional.adaptive_avg_pool1d(ut.ones(1, 1, 4), windows)
    kept = pool_kernels._averaging.cache_info()
    assert kept.currsize <= kept.maxsize <= 256


@pytest.mark.parametrize("windows", [2.5, float("nan"), (2, 3.0)])
def test_numbers_of_windows_that_are_none(windows: object) -> None:
    dims = len(windows) if isinstance(windows, tuple) else 1
    with pytest.raises(TypeError, match=r"argument 'output_size' must be int, not float"):
        getattr(ut.nn.functional, f"adaptive_avg_pool{dims}d")(ut.ones(1, 1, *[4] * dims), windows)
