"""NumPy's Fourier transforms in terms of undertow's operations: more entries for numpy/functions.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.backend.interface import Array
from undertow.interop.numpy.functions import FUNCTIONS, ops


def one_dimension(name: str) -> None:
    def call(a: Array, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return getattr(ops, f"fft_{name}")(a, n, axis, norm)

    FUNCTIONS[getattr(np.fft, name)] = call


def several_dimensions(name: str, default: Any) -> None:
    def call(a: Array, s: Array | None = None, axes: Any = default, norm: Any = None) -> Any:
        return getattr(ops, f"fft_{name}")(a, s, axes, norm)

    FUNCTIONS[getattr(np.fft, name)] = call


def shift(name: str) -> None:
    def call(x: Array, axes: Any = None) -> Any:
        return getattr(ops, f"fft_{name}")(x, axes)

    FUNCTIONS[getattr(np.fft, name)] = call


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    one_dimension(_name)
for _name in ("fft", "ifft", "rfft", "irfft"):
    several_dimensions(f"{_name}n", None)
    several_dimensions(f"{_name}2", (-2, -1))
shift("fftshift")
shift("ifftshift")
