"""Short-time transforms: there and back, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut


@pytest.mark.parametrize("window", [None, "hann"])
@pytest.mark.parametrize("hop", [None, 2, 3])
def test_stft_and_back(window: str | None, hop: int | None) -> None:
    x = ut.randn(2, 40, dtype=ut.float64)
    weights = None if window is None else ut.hann_window(8, dtype=ut.float64)
    spectrum = ut.stft(x, 8, hop, window=weights, return_complex=True)
    back = ut.istft(spectrum, 8, hop, window=weights, length=40)
    kept = 40 if hop != 3 else 39  # what the last stretch covers
    np.testing.assert_allclose(back.numpy()[:, :kept], x.numpy()[:, :kept], atol=1e-10)


def test_stft_refuses() -> None:
    with pytest.raises(RuntimeError, match="requires the return_complex parameter"):
        ut.stft(ut.ones(20), 8)
    with pytest.raises(RuntimeError, match="expected a 1D or 2D tensor"):
        ut.stft(ut.ones(1, 1, 20), 8, return_complex=True)
    with pytest.raises(RuntimeError, match="expected 0 < n_fft"):
        ut.stft(ut.ones(4), 8, center=False, return_complex=True)
    with pytest.raises(RuntimeError, match="requires a complex-valued input"):
        ut.istft(ut.ones(5, 3), 8)
