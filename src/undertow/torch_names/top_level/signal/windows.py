"""Windows for the analysis of signals.

>>> import undertow as ut
>>> ut.signal.windows.hann(5)
tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from undertow import ops
from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.tensor import Tensor
from undertow.tensor.layouts import strided


def _positions(m: int, sym: bool, dtype: DType, layout: Any, low: float, high: float) -> Any:
    """`m` places from low to high; without symmetry the last one is left out, as the first of the next period."""
    if m < 0:
        raise ValueError(f"requires non-negative window length, got M={m}")
    wanted = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if wanted not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"Windows are of float32 or float64 dtypes, got: {wanted}. Convert them afterwards, by to().")
    if layout not in (None, strided):
        raise ValueError(f"Windows are implemented for strided tensors only, got: {layout}")
    if m == 0:
        return ops.zeros(0, dtype=wanted)
    steps = (m - 1 if sym else m) or 1
    return ops.arange(m, dtype=wanted) * ((high - low) / steps) + low if m > 1 else None


def _finish(window: Any, dtype: DType, requires_grad: bool) -> Tensor:
    if window is None:  # of one place
        window = ops.ones(1, dtype=dtypes.default_dtype() if dtype is None else dtype)
    return window.requires_grad_(requires_grad)


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: DType = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A sum of cosines with these weights.

    >>> import undertow as ut
    >>> ut.signal.windows.general_cosine(5, a=[0.5, 0.5])
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    weights = list(a)
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    t = _positions(M, sym, dtype, layout, 0.0, 2 * math.pi)
    if t is not None and M:
        t = sum([(-1) ** k * weight * ops.cos(k * t) for k, weight in enumerate(weights)])
    return _finish(t, dtype, requires_grad)


def general_hamming(M: int, *, alpha: float = 0.54, **options: Any) -> Tensor:
    """A raised cosine, `alpha` above and 1 - `alpha` times the cosine.

    **options  `sym`, `dtype`, `device` and `requires_grad`

    >>> import undertow as ut
    >>> ut.signal.windows.general_hamming(5)
    tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    """
    return general_cosine(M, a=[alpha, 1.0 - alpha], **options)


def hamming(M: int, **options: Any) -> Tensor:
    """A raised cosine with a small step at both ends (alpha = 0.54).

    **options  `sym`, `dtype`, `device` and `requires_grad`

    >>> import undertow as ut
    >>> ut.signal.windows.hamming(5)
    tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    """
    return general_hamming(M, **options)


def hann(M: int, **options: Any) -> Tensor:
    """A raised cosine that begins and ends at 0 (alpha = 0.5).

    **options  `sym`, `dtype`, `device` and `requires_grad`

    >>> import undertow as ut
    >>> ut.signal.windows.hann(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return general_hamming(M, alpha=0.5, **options)


def blackman(M: int, **options: Any) -> Tensor:
    """A sum of three cosines, with low side lobes.

    **options  `sym`, `dtype`, `device` and `requires_grad`

    >>> import undertow as ut
    >>> ut.signal.windows.blackman(5)
    tensor([-1.4901e-08,  3.4000e-01,  1.0000e+00,  3.4000e-01, -1.4901e-08])
    """
    return general_cosine(M, a=[0.42, 0.5, 0.08], **options)


def nuttall(M: int, **options: Any) -> Tensor:
    """A sum of four cosines, with very low side lobes.

    **options  `sym`, `dtype`, `device` and `requires_grad`

    >>> import undertow as ut
    >>> ut.signal.windows.nuttall(5)
    tensor([3.6280e-04, 2.2698e-01, 1.0000e+00, 2.2698e-01, 3.6280e-04])
    """
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], **options)


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: DType = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle, from 0 up to 1 and down again.

    >>> import undertow as ut
    >>> ut.signal.windows.bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    t = _positions(M, sym, dtype, layout, -1.0, 1.0)
    return _finish(t if t is None or not M else 1 - ops.abs(t), dtype, requires_grad)


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: DType = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Half a period of the sine.

    >>> import undertow as ut
    >>> ut.signal.windows.cosine(5)
    tensor([0.3090, 0.8090, 1.0000, 0.8090, 0.3090])
    """
    steps = M if sym else M + 1
    t = _positions(M, True, dtype, layout, 0.5, M - 0.5)
    return _finish(t if t is None or not M else ops.sin(t * (math.pi / steps)), dtype, requires_grad)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: DType = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-|n - center| / tau).

    >>> import undertow as ut
    >>> ut.signal.windows.exponential(5)
    tensor([0.1353, 0.3679, 1.0000, 0.3679, 0.1353])
    """
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    middle = (M - 1 if sym else M) / 2 if center is None else center
    t = _positions(M, True, dtype, layout, -middle, M - 1 - middle)
    return _finish(t if t is None or not M else ops.exp(-ops.abs(t) / tau), dtype, requires_grad)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: DType = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A normal density with standard deviation `std`, 1 in the middle.

    >>> import undertow as ut
    >>> ut.signal.windows.gaussian(5, std=1.0)
    tensor([0.1353, 0.6065, 1.0000, 0.6065, 0.1353])
    """
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    middle = (M - 1 if sym else M) / 2
    t = _positions(M, True, dtype, layout, -middle, M - 1 - middle)
    return _finish(t if t is None or not M else ops.exp(-((t / (std * math.sqrt(2))) ** 2)), dtype, requires_grad)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: DType = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A ratio of Bessel functions; `beta` trades width for side lobes.

    >>> import undertow as ut
    >>> ut.signal.windows.kaiser(5)
    tensor([5.2773e-05, 2.1567e-01, 1.0000e+00, 2.1567e-01, 5.2773e-05])
    """
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    t = _positions(M, sym, dtype, layout, -1.0, 1.0)
    if t is not None and M:
        root = ops.sqrt(ops.clamp(1 - t * t, min=0.0))
        t = ops.i0(beta * root) / ops.i0(ops.tensor(beta, dtype=t.dtype))
    return _finish(t, dtype, requires_grad)


__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip
