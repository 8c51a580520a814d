"""Distances of all pairs and their gradients in the core are those of array functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from undertow.backend import cpu, kernels
from undertow.compiled import core
from undertow.ops.reduce import distances

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

threads = each_with(1, 3)


def points(*shape: int, dtype: str) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_the_same_as_by_array_functions(p: float, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for lead, rows, columns, dims in (((), 3, 4, 2), ((2, 3), 5, 7, 1), ((), 40, 513, 3), ((3,), 1, 300, 33)):
        x, y = points(*lead, rows, dims, dtype=dtype), points(*lead, columns, dims, dtype=dtype)
        y[..., 0, :] = x[..., 0, :]  # nothing comes from what lies on a point
        out = core.distances(x, y, p)
        g = points(*lead, rows, columns, dtype=dtype)
        found = core.distances_gradient(g, x, y, out, p)
        with monkeypatch.context() as patch:
            for name in ("distances", "distances_gradient"):
                patch.setattr(kernels, name, lambda *arguments: None)
            expected = distances._direct(cpu, x, y, p)
            with np.errstate(invalid="ignore"):
                gradient = distances._direct_gradient(cpu, g, x, y, expected, p)
        tolerance = 1e-5 if dtype == "f" else 1e-13
        np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(found, gradient, rtol=0, atol=tolerance * columns**0.5)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_undefined_and_large_numbers(p: float) -> None:
    x, y = np.array([[0.0, np.nan], [3.0, 4.0]], "f"), np.array([[0.0, 0.0], [1e-30, 0.0]], "f")
    out = core.distances(x, y, p)
    assert np.isnan(out[0]).all() and out[1, 0] == (7 if p == 1 else 5)
    g = np.full((2, 2), 1e30, "f")
    found = core.distances_gradient(g, x, y, out, p)
    assert np.isnan(found[0, 1]) and np.isfinite(found[1]).all()
    # the inverse of this distance is large, and so is g: their product is too large
    near = np.array([[2e-22, 0.0]], "f")
    found = core.distances_gradient(g[:1, :1].copy(), near, y[:1], core.distances(near, y[:1], p), p)
    np.testing.assert_allclose(found, [[1e30, 0]], rtol=0.3)


def test_what_is_left_to_array_functions() -> None:
    x, y = points(3, 2, dtype="f"), points(4, 2, dtype="f")
    out = core.distances(x, y, 2.0)
    for arguments in ((x, y, 3.0), (x, y, 2), (x, y[:, :1].copy(), 2.0), (x, y.astype("d"), 2.0), (x[::2], y, 2.0),
                      (x, y[None], 2.0), (x[:0], y, 2.0), (x[0], y[0], 2.0), (x, None, 2.0)):  # fmt: skip
        assert core.distances(*arguments) is None
    assert core.distances(np.stack([x, x]), np.stack([y, y, y]), 2.0) is None
    for g, given in ((out.T, out), (out, out[:2]), (None, out), (out, None), (out.astype("d"), out)):
        assert core.distances_gradient(g, x, y, given, 2.0) is None


def test_a_gradient_that_is_to_be_differentiated_is_made_of_operations() -> None:
    x, y = (ut.tensor(points(n, 2, dtype="d"), requires_grad=True) for n in (3, 4))
    for p in (1.0, 2.0, 3.0):
        assert ut.autograd.gradgradcheck(lambda x, y, p=p: ut.cdist(x, y, p), (x, y))
