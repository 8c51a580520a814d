"""Transforms in single precision give what NumPy's functions give, also without the private ufuncs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow.backend import cpu
from undertow.ops.fourier.along_one_dim import UNSCALED, transformed


def signal(name: str, *shape: int) -> Any:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype("f4")
    return x if name == "rfft" else (x + 1j * rng.standard_normal(shape)).astype("c8")


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("name", UNSCALED)
@pytest.mark.parametrize("shape", [(8,), (3, 9), (4, 5, 6), (2, 2)])
def test_as_numpy(name: str, shape: tuple[int, ...], private: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not private:
        monkeypatch.delattr(np.fft, "_pocketfft_umath", raising=False)
    x = signal(name, *shape)
    for axis in range(-x.ndim, x.ndim):
        for size in [None, 2 * x.shape[axis] - 1] if name == "irfft" else [None]:
            found = transformed(cpu, name, x, axis, UNSCALED[name], size)
            expected = getattr(np.fft, name)(x, size, axis=axis, norm=UNSCALED[name])
            assert (found.dtype, found.shape, found.strides) == (expected.dtype, expected.shape, expected.strides)
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_real_signals_as_complex_ones() -> None:
    x = signal("rfft", 3, 8)
    np.testing.assert_allclose(transformed(cpu, "fft", x, 1, "backward"), np.fft.fft(x), atol=1e-5)
