"""Kernels that choose: elements along a dimension, silu and leaky_relu, as NumPy computes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cpu, kernels
from undertow.compiled import core
from undertow.ops.index import gather_scatter
from undertow.ops.pointwise import activations

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")


def normal(seed: int, *shape: int, dtype: Any = "f") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def by_numpy(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *arguments: Any) -> Any:
    with monkeypatch.context() as changed:
        changed.setattr(kernels, "core", None)
        return getattr(function, "__wrapped__", function)(cpu, *arguments)


# ------------------------------------------------------------------ along a dimension


@pytest.mark.parametrize("seed", range(40))
def test_gather_and_scatter_add(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(seed)
    shape = [choose.choice([1, 2, 3, 7]) for _ in range(choose.choice([1, 2, 3, 4]))]
    dim, dtype = choose.randrange(len(shape)), choose.choice("fd")
    index_shape = [choose.choice([1, 4, 9]) if d == dim else n for d, n in enumerate(shape)]
    index = np.random.default_rng(seed).integers(0, shape[dim], index_shape)
    x, src = normal(1, *shape, dtype=dtype), normal(2, *index_shape, dtype=dtype)
    found = core.gather(x, dim, index)
    np.testing.assert_array_equal(found, np.take_along_axis(x, index, dim))
    assert found.dtype == dtype
    expected = by_numpy(monkeypatch, gather_scatter.scatter_add_array, x, dim, index, src)
    out = x.copy()
    assert core.scatter_add(out, dim, index, src) is True
    np.testing.assert_allclose(out, expected, rtol=0, atol=3e-6 if dtype == "f" else 1e-14)


def test_what_gather_and_scatter_add_refuse() -> None:
    x, index = normal(1, 3, 4), np.zeros((3, 4), np.int64)
    assert core.gather(x, 1, index) is not None
    outside = index.copy()
    outside[2, 3] = 4
    fixed = x.copy()
    fixed.flags.writeable = False
    for wrong in [
        (x, 2, index), (x, -1, index), (x, 1, index[0]), (x, 1, index[:2].copy()), (x, 1, index.astype(np.int32)),
        (x, 1, outside), (x, 1, outside - 5), (x.T, 1, index.T), (x.astype(int), 1, index), (x, 1, index[:, ::2]),
    ]:  # fmt: skip
        assert core.gather(*wrong) is None
        assert core.scatter_add(*wrong, normal(2, *wrong[2].shape)) is None
    assert core.scatter_add(fixed, 1, index, x) is None
    assert core.scatter_add(x, 1, index, x.astype("d")) is None
    assert core.scatter_add(x, 1, index, normal(1, 3, 5)) is None


def test_gather_and_scatter_add_of_larger_arrays() -> None:
    """An index may have fewer elements than the array along every dimension."""
    x, index = normal(1, 5, 6, dtype="d"), np.array([[1, 0], [2, 4]])
    assert ut.gather(ut.tensor(x), 0, ut.tensor(index)).tolist() == np.take_along_axis(x[:, :2], index, 0).tolist()
    expected = x.copy()
    np.add.at(expected, (index, [[0, 1], [0, 1]]), x[:2, :2])
    np.testing.assert_allclose(ut.tensor(x).scatter_add(0, ut.tensor(index), ut.tensor(x)).numpy(), expected)
    with pytest.raises(RuntimeError, match="index 6 is out of bounds for dimension 1 with size 6"):
        ut.gather(ut.tensor(x), 1, ut.full((5, 6), 6))


# ------------------------------------------------------------------ activations


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("reach", [1e-3, 1.0, 20.0, 80.0])
def test_silu(reach: float, dtype: str) -> None:
    x = np.linspace(-reach, reach, 5001).astype(dtype)
    wide = x.astype(np.longdouble)
    p = 1 / (1 + np.exp(-wide))
    unit = np.finfo(dtype).eps
    slack = 0 if np.finfo(np.longdouble).eps < np.finfo("d").eps else 20  # where that is double again
    assert (np.abs(core.silu_values(x) - wide * p) <= (2.5 + slack) * unit * np.abs(wide * p)).all()
    slope = p + wide * p * (1 - p)
    assert np.abs(core.silu_slopes(np.ones_like(x), x) - slope).max() <= (5 + slack) * unit


def test_silu_of_special_numbers() -> None:
    for dtype in "fd":
        x = np.array([np.nan, np.inf, 0.0, -0.0, 1e30, -1e30], dtype)
        np.testing.assert_array_equal(core.silu_values(x), np.array([np.nan, np.inf, 0, 0, 1e30, 0], dtype))


@pytest.mark.parametrize("dtype", ["f", "d", "e"])
@pytest.mark.parametrize("slope", [0.01, 0.0, 1.0, 2.0, -0.5])
def test_leaky_relu(slope: float, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, g = normal(1, 7, 300, dtype=dtype), normal(2, 7, 300, dtype=dtype)
    x[0, :4] = [np.nan, np.inf, -np.inf if slope else -1, 0]
    g[1, :2] = [np.nan, np.inf]
    with np.errstate(invalid="ignore"):
        for function, arguments in ((activations.leaky, (x, slope)), (activations.leaky_gradient, (g, x, slope))):
            found, expected = function(cpu, *arguments), by_numpy(monkeypatch, function, *arguments)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["silu", "leaky_relu"])
def test_derivatives_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def derivatives() -> list[Any]:
        x = ut.tensor(normal(3, 40, 50, dtype="d"), requires_grad=True)
        out = getattr(ut.nn.functional, name)(x)
        (first,) = ut.autograd.grad((out * out).sum(), x, create_graph=True)
        (second,) = ut.autograd.grad((first * first).sum(), x)
        (plain,) = ut.autograd.grad(getattr(ut.nn.functional, name)(x.T).sum(), x)
        return [t.detach().numpy() for t in (out, first, second, plain)]

    with_core = derivatives()
    monkeypatch.setattr(kernels, "core", None)
    for mine, theirs in zip(with_core, derivatives(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-13)
