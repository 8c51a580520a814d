"""Sums of many complex numbers, which are two sums of real ones."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut


@pytest.mark.parametrize("dtype", [ut.complex64, ut.complex128])
@pytest.mark.parametrize("shape", [(0,), (), (3,), (33,), (7, 11, 13), (70_001,)])
def test_sums(shape: tuple[int, ...], dtype: ut.dtype) -> None:
    z = ut.randn(shape, dtype=dtype)
    for view in (z, z.movedim(0, -1) if z.dim() else z, z[::2] if z.dim() else z):
        found, expected = view.sum(), np.sum(view.numpy(), dtype=np.complex128)
        assert found.dtype == dtype and found.shape == ()
        np.testing.assert_allclose(found.item(), expected, rtol=1e-5, atol=1e-3 if dtype == ut.complex64 else 1e-10)


def test_gradient() -> None:
    z = ut.randn(50, 2, dtype=ut.complex64, requires_grad=True)
    z.sum().abs().backward()
    expected = (z.sum() / z.sum().abs()).detach().expand(50, 2)
    ut.testing.assert_close(z.grad, expected)
