"""The CPU backend: NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from undertow.backend.interface import ArrayNamespace, Device


class CpuNamespace(ArrayNamespace):
    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated names warn when they are merely looked at
            super().__init__(Device("cpu"), np)
        self.ndarray = np.ndarray
        self.conj = _conj
        self.sum_to = sum_to
        self.broadcast_to = broadcast_to


_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def _conj(x: Any) -> Any:
    # np.conj copies a real array; a real value is its own conjugate. The two identity tests answer in 50 ns.
    try:
        dtype = x.dtype
    except AttributeError:
        return x.conjugate() if type(x) is complex else x
    if dtype is _FLOAT32 or dtype is _FLOAT64:
        return x
    return np.conjugate(x) if dtype.kind == "c" else x


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """np.broadcast_to, which takes 2.5 us; one number, the gradient of every full sum, takes a third of that."""
    if x.ndim or type(shape) is not tuple or -1 in shape:  # np.ndarray would take -1 for 1
        return np.broadcast_to(x, shape)
    out: Any = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    out.setflags(write=False)
    return out


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Sum `x` down to `shape`, which broadcasts to x's: the transpose of broadcasting."""
    lead = x.ndim - len(shape)
    if lead > 0:
        x = np.add.reduce(x, axis=tuple(range(lead)))
    axes = tuple([i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1])
    if axes:
        x = np.add.reduce(x, axis=axes, keepdims=True)
    return np.asarray(x)


cpu = CpuNamespace()
