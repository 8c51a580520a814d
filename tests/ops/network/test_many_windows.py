"""Adaptive pooling and interpolation with many windows or elements: in time and memory that grow with their sum."""

from __future__ import annotations

import tracemalloc
from types import ModuleType
from typing import Any

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


#: mode -> sizes before and after, of which all but the first are too many for a matrix
RESIZED = {
    "nearest": [(9, 20), (90, 400), (400, 90)],
    "nearest-exact": [(9, 20), (90, 400), (400, 90)],
    "linear": [(9, 20), (200, 401), (900, 77)],
    "bicubic": [(9, 20), (450, 601), (600, 440)],
    "bilinear antialias": [(9, 20), (450, 601), (900, 77)],
    "bicubic antialias": [(9, 20), (450, 601), (900, 300)],
}


@pytest.mark.torch
@pytest.mark.parametrize("options", [{}, {"align_corners": True}], ids=["edges", "corners"])
@pytest.mark.parametrize("mode", RESIZED)
def test_other_sizes_and_their_gradients_are_pytorchs(torch: ModuleType, mode: str, options: dict[str, bool]) -> None:
    if options and "nearest" in mode:
        options = {}
    rng = np.random.default_rng(0)
    flat = mode in ("nearest", "nearest-exact", "linear")
    for before, after in RESIZED[mode]:
        values, weights = (rng.normal(size=(2, 3, n) if flat else (1, 2, n, 2)) for n in (before, after))
        found = []
        for lib in (ut, torch):
            x = lib.tensor(values, requires_grad=True)
            size: Any = after if flat else (after, 2)
            given = {"mode": mode.split()[0], "antialias": "antialias" in mode, **options}
            y = lib.nn.functional.interpolate(x, size=size, **given)
            y.backward(lib.tensor(weights))
            found.append((y.detach().numpy(), x.grad.numpy()))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-9, 1e-9)


def test_a_long_signal_in_another_size_takes_no_matrix() -> None:
    x = ut.ones(1, 1, 100_000, requires_grad=True)
    tracemalloc.start()
    try:
        ut.nn.functional.interpolate(x, scale_factor=2, mode="linear").sum().backward()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert x.grad.sum().item() == pytest.approx(200_000) and peak < 100e6


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
