"""add_ and sub_ with alpha, of large arrays: one pass, the same numbers and the same warnings as by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

rng = np.random.default_rng(5)


def changed(name: str, x: Any, y: Any, alpha: Any) -> Any:
    tensor = ut.tensor(x)
    assert getattr(tensor, name)(ut.tensor(y), alpha=alpha) is tensor
    assert tensor._version == 1
    return tensor.numpy()


@pytest.mark.parametrize("name", ["add_", "sub_"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [3, 1024, 1025, 5000])
def test_values(size: int, dtype: Any, name: str) -> None:
    x, y = rng.normal(size=size).astype(dtype), rng.normal(size=size).astype(dtype)
    scaled = y * dtype(0.3)
    np.testing.assert_array_equal(changed(name, x, y, 0.3), x + scaled if name == "add_" else x - scaled)


def test_with_itself_and_with_what_overlaps() -> None:
    x = rng.normal(size=4000)
    tensor = ut.tensor(x)
    tensor.sub_(tensor, alpha=0.25)
    np.testing.assert_array_equal(tensor.numpy(), x - x * 0.25)
    tensor = ut.tensor(x)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        tensor[1:].sub_(tensor[:-1], alpha=0.25)
    np.testing.assert_array_equal(tensor.numpy(), x)


def test_operands_of_other_kinds() -> None:
    x, y = rng.normal(size=(50, 60)), rng.normal(size=(60, 50))
    np.testing.assert_array_equal(changed("sub_", x, y.T, 0.5), x - y.T * 0.5)
    np.testing.assert_array_equal(changed("sub_", x, y[:, 0], 0.5), x - y[:, 0] * 0.5)
    np.testing.assert_array_equal(changed("add_", x, y.T.astype("f"), 2), x + y.T.astype("f") * 2)
    whole = np.arange(3000)
    np.testing.assert_array_equal(changed("add_", whole, whole, 2), whole * 3)
    with pytest.raises(RuntimeError, match="alpha must not be a floating point number"):
        ut.tensor(whole).add_(ut.tensor(whole), alpha=0.5)


def test_what_is_not_finite() -> None:
    x, y = np.ones(3000), np.ones(3000)
    x[2000], y[2000] = np.inf, np.inf
    with np.errstate(invalid="raise"):
        found = changed("sub_", x, y, 0.5)
    assert np.isnan(found[2000])
    assert (np.delete(found, 2000) == 0.5).all()


def test_recorded() -> None:
    x, y = ut.ones(2000, requires_grad=True), ut.full((2000,), 3.0, requires_grad=True)
    z = x * 1.0
    z.sub_(y, alpha=0.5)
    z.sum().backward()
    assert x.grad.unique().tolist() == [1.0]
    assert y.grad.unique().tolist() == [-0.5]
    assert z.unique().tolist() == [-0.5]


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", ["add_", "sub_"])
def test_very_large_arrays(name: str, dtype: str) -> None:
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal(200_003).astype(dtype), rng.standard_normal(200_003).astype(dtype)
    expected = x + y * 0.3 if name == "add_" else x - y * 0.3
    tensor = ut.tensor(x)
    getattr(tensor, name)(ut.tensor(y), alpha=0.3)
    np.testing.assert_array_equal(tensor.numpy(), expected)
    getattr(tensor, name)(ut.tensor(np.full_like(x, np.finfo(dtype).max)), alpha=3.0)
    assert tensor.isinf().all()
