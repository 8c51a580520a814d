"""`torch.testing`: random tensors for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import undertow

from . import _internal


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
) -> Any:
    """A tensor of uniform random values in [low, high); whole numbers for integer dtypes."""
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    dtype = np.dtype(dtype)
    values = _uniform(sizes, dtype, -9 if low is None else low, 9 if high is None else high)
    if exclude_zero:
        values[values == 0] = 1
    if noncontiguous and values.size > 1:
        values = np.repeat(values, 2, axis=-1)[..., ::2]
    return undertow.tensor(values, device=device).requires_grad_(requires_grad)


def _uniform(sizes: tuple[int, ...], dtype: Any, low: float, high: float) -> Any:
    def draw() -> Any:
        return low + (high - low) * undertow.rand(sizes, dtype=np.float64).numpy()

    if dtype.kind == "c":
        return (draw() + 1j * draw()).astype(dtype)
    return draw().astype(dtype) if dtype.kind == "f" else np.floor(draw()).astype(dtype)
