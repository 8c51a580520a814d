"""PyTorch's names for dtypes, and two attributes that NumPy's lack, for tests that are given those."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = {
    "bool": "bool",
    "uint8": "uint8",
    "int8": "int8",
    "int16": "int16",
    "short": "int16",
    "int32": "int32",
    "int": "int32",
    "int64": "int64",
    "long": "int64",
    "float16": "float16",
    "half": "float16",
    "float32": "float32",
    "float": "float32",
    "float64": "float64",
    "double": "float64",
    "complex64": "complex64",
    "cfloat": "complex64",
    "complex128": "complex128",
    "cdouble": "complex128",
}

#: what a test may ask a dtype that NumPy's cannot answer
ADDED = ("is_floating_point", "is_complex")


class DType:
    """A NumPy dtype (which NumPy accepts in its place) that also answers `is_floating_point`."""

    def __init__(self, dtype: Any):
        self.dtype = np.dtype(dtype)

    @property
    def is_floating_point(self) -> bool:
        return self.dtype.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.dtype.kind == "c"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dtype, name)

    def __eq__(self, other: object) -> bool:
        return self.dtype == getattr(other, "dtype", other)

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"torch.{self.dtype.name}"


def dtype_name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype))
