"""The limits of dtypes, as PyTorch shows them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType


@cache
def _float_limits(dtype: DType) -> dict[str, Any]:
    found: Any = dtypes.float_limits(dtype)
    tiny, resolution = float(found.tiny), 10.0 ** -int(found.precision)
    return {"bits": int(found.bits), "eps": float(found.eps), "max": float(found.max), "min": float(found.min),
            "tiny": tiny, "smallest_normal": tiny, "resolution": resolution,
            "dtype": str(dtypes.real_of(dtype))}  # fmt: skip


@cache
def _integer_limits(dtype: DType) -> dict[str, Any]:
    found = np.iinfo(dtype)
    return {"bits": int(found.bits), "min": int(found.min), "max": int(found.max), "dtype": str(dtype)}


class finfo:
    """The limits of a floating-point dtype (of its parts, if it is complex): Python floats.

    type  a dtype; None: the default one

    >>> import undertow as ut
    >>> ut.finfo(ut.float16).max, ut.finfo(ut.float32).bits
    (65504.0, 32)
    """

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str

    def __init__(self, type: DType | None = None) -> None:
        dtype = dtypes.default_dtype() if type is None else dtypes.of_limits(type)
        if not dtypes.is_differentiable(dtype):
            raise TypeError(
                f"undertow.finfo() requires a floating point input type. Use undertow.iinfo to handle '{dtype}'"
            )
        self.__dict__.update(_float_limits(dtype))

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """The limits of an integer dtype.

    type  an integer dtype

    >>> import undertow as ut
    >>> ut.iinfo(ut.int8).min, ut.iinfo(ut.int8).max
    (-128, 127)
    """

    bits: int
    min: int
    max: int
    dtype: str

    def __init__(self, type: Any) -> None:
        dtype = dtypes.as_dtype(type, "iinfo")
        if dtype.kind not in "iu":
            raise TypeError(f"undertow.iinfo() requires an integer input type. Use undertow.finfo to handle '{dtype}'")
        self.__dict__.update(_integer_limits(dtype))

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def is_finite(array: Array) -> bool:
    """Whether there is neither an infinity nor nan in an array."""
    return not dtypes.is_differentiable(array.dtype) or bool((abs(array) < float("inf")).all())
