"""Images enlarged by whole numbers to the nearest: every element is repeated, and gradients are summed up."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow.ops.network import interpolate as functions

F = ut.nn.functional


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize(
    ("sizes", "times"), [((5,), (3,)), ((4, 6), (2, 2)), ((40, 6), (1, 5)), ((2, 3, 4), (2, 1, 3))]
)
def test_elements_are_repeated(
    sizes: tuple[int, ...], times: tuple[int, ...], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "_resized", None)  # which multiplies by a matrix, or adds rows
    values = np.random.default_rng(1).standard_normal((2, 3, *sizes))
    x = ut.tensor(values, requires_grad=True)
    expected = values
    for axis, count in enumerate(times, 2):
        expected = np.repeat(expected, count, axis)
    found = F.interpolate(x, size=expected.shape[2:], mode=mode)
    np.testing.assert_array_equal(found.detach().numpy(), expected)
    g = np.random.default_rng(2).standard_normal(expected.shape)
    found.backward(ut.tensor(g))
    for axis, count in reversed(list(enumerate(times, 2))):
        g = g.reshape(*g.shape[:axis], -1, count, *g.shape[axis + 1 :]).sum(axis + 1)
    np.testing.assert_allclose(x.grad.numpy(), g, rtol=1e-12)
    assert ut.autograd.gradcheck(lambda t: F.interpolate(t, size=expected.shape[2:], mode=mode), (x,))


def test_the_same_size_is_a_copy() -> None:
    x = ut.ones(1, 2, 3, 4)
    y = F.interpolate(x, size=(3, 4))
    y.zero_()
    assert x.sum().item() == 24


def test_channels_last_and_bytes() -> None:
    x = ut.arange(48, dtype=ut.float32).reshape(1, 3, 4, 4)
    enlarged = F.interpolate(x.to(memory_format=ut.channels_last), scale_factor=2)
    assert enlarged.is_contiguous(memory_format=ut.channels_last)
    assert enlarged.equal(F.interpolate(x, scale_factor=2))
    assert F.interpolate(x.to(ut.uint8), scale_factor=2).equal(F.interpolate(x, scale_factor=2).to(ut.uint8))


def test_what_is_not_repeated_evenly() -> None:
    """A scale that is no whole number may reach the same size by other elements."""
    assert functions.repeats("nearest", 4, 8, None) == 2
    assert functions.repeats("nearest", 4, 6, None) == 0
    assert functions.repeats("nearest", 8, 4, None) == 0
    x = ut.arange(5.0).reshape(1, 1, 5)
    np.testing.assert_array_equal(F.interpolate(x, scale_factor=2.1).numpy().ravel(), [0, 0, 0, 1, 1, 2, 2, 3, 3, 4])
