"""The limits of dtypes, as PyTorch shows them."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType


class finfo:
    """The limits of a floating-point dtype (of its parts, if it is complex): Python floats.

    >>> import undertow as ut
    >>> ut.finfo(ut.float16).max, ut.finfo(ut.float32).bits
    (65504.0, 32)
    """

    def __init__(self, type: DType | None = None) -> None:
        dtype = dtypes.default_dtype() if type is None else dtypes.of_limits(type)
        if not dtypes.is_differentiable(dtype):
            raise TypeError(
                f"undertow.finfo() requires a floating point input type. Use undertow.iinfo to handle '{dtype}'"
            )
        found: Any = dtypes.float_limits(dtype)
        self.bits = int(found.bits)
        self.eps, self.max, self.min = float(found.eps), float(found.max), float(found.min)
        self.tiny = self.smallest_normal = float(found.tiny)
        self.resolution = 10.0 ** -int(found.precision)
        self.dtype = str(dtypes.real_of(dtype))

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """The limits of an integer dtype.

    >>> import undertow as ut
    >>> ut.iinfo(ut.int8).min, ut.iinfo(ut.int8).max
    (-128, 127)
    """

    def __init__(self, type: Any) -> None:
        dtype = dtypes.as_dtype(type, "iinfo")
        if dtype.kind not in "iu":
            raise TypeError(f"undertow.iinfo() requires an integer input type. Use undertow.finfo to handle '{dtype}'")
        found = np.iinfo(dtype)
        self.bits, self.min, self.max, self.dtype = int(found.bits), int(found.min), int(found.max), str(dtype)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def is_finite(array: Array) -> bool:
    """Whether there is neither an infinity nor nan in an array."""
    return not dtypes.is_differentiable(array.dtype) or bool((abs(array) < float("inf")).all())
