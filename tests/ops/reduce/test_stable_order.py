"""Sorting, topk, kthvalue and medians of many elements: ties in order, NaN last, -0 equal to 0; as PyTorch has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut


def numbers(dtype: str, *shape: int) -> Any:
    """Many ties, and of floats all that is out of the ordinary."""
    rng = np.random.default_rng(len(shape))
    x = np.round(rng.standard_normal(shape) * 8).astype(dtype) if dtype != "f8" else rng.standard_normal(shape)
    if dtype.startswith("f"):
        flat = x.reshape(-1)
        for value in (np.nan, np.copysign(np.nan, -1), -0.0, 0.0, np.inf, -np.inf):
            flat[rng.integers(0, flat.size, 9)] = value
    return x


CASES = [(dtype, shape) for dtype in ("f4", "f8", "i4", "i8", "i2", "f2") for shape in [(1000,), (30, 50), (9, 40, 11)]]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("dtype", "shape"), CASES)
def test_sort(torch: Any, dtype: str, shape: tuple[int, ...], descending: bool) -> None:
    x = numbers(dtype, *shape)
    for dim in range(x.ndim):
        expected = torch.sort(torch.from_numpy(x), dim=dim, descending=descending, stable=True)
        found = ut.sort(ut.tensor(x), dim, descending, stable=True)
        np.testing.assert_array_equal(found.indices.numpy(), expected.indices.numpy())
        np.testing.assert_array_equal(found.values.numpy(), expected.values.numpy())


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("dtype", "shape"), CASES)
def test_the_first_few_are_those_of_a_sort(dtype: str, shape: tuple[int, ...], largest: bool) -> None:
    x = numbers(dtype, *shape)
    for dim in range(x.ndim):
        for k in {0, 1, 3, x.shape[dim] // 2, x.shape[dim]}:
            found, order = ut.topk(ut.tensor(x), k, dim, largest), ut.sort(ut.tensor(x), dim, largest)
            np.testing.assert_array_equal(found.indices.numpy(), order.indices.narrow(dim, 0, k).numpy())
            np.testing.assert_array_equal(found.values.numpy(), order.values.narrow(dim, 0, k).numpy())


@pytest.mark.parametrize(("dtype", "shape"), CASES)
def test_ranks(torch: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = numbers(dtype, *shape)
    for array in [x] if x.dtype.kind == "i" else [x, np.where(np.isnan(x), 1, x).astype(dtype)]:
        for name in ("median", "nanmedian"):
            ours, theirs = getattr(ut, name), getattr(torch, name)
            np.testing.assert_array_equal(ours(ut.tensor(array)).numpy(), theirs(torch.from_numpy(array)).numpy())
            for dim in range(x.ndim):
                values, indices = ours(ut.tensor(array), dim, True)
                np.testing.assert_array_equal(values.numpy(), theirs(torch.from_numpy(array), dim, True)[0].numpy())
                np.testing.assert_array_equal(np.take_along_axis(array, indices.numpy(), dim), values.numpy())
        values = ut.kthvalue(ut.tensor(array), 3, -1).values.numpy()
        np.testing.assert_array_equal(values, torch.kthvalue(torch.from_numpy(array), 3, -1).values.numpy())


def test_gradients_of_many() -> None:
    x = ut.tensor(numbers("f8", 30, 50), requires_grad=True)
    weights = ut.arange(1500.0, dtype=ut.float64).reshape(30, 50)
    for dim in range(2):
        values, indices = x.sort(dim)
        (grad,) = ut.autograd.grad(values, x, weights)
        expected = np.zeros((30, 50))
        np.put_along_axis(expected, indices.numpy(), weights.numpy(), dim)
        np.testing.assert_array_equal(grad.numpy(), expected)
