"""The typed classes of old: `torch.FloatTensor` and its like, as constructors and for isinstance."""

from __future__ import annotations

from typing import Any

import numpy as np

import undertow

DTYPES = {
    "BoolTensor": "bool",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "ShortTensor": "int16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "HalfTensor": "float16",
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
}


class TypedTensor(type):
    """The class of those classes: it makes undertow tensors and recognises them by dtype."""

    dtype: Any

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, undertow.Tensor) and value.dtype == cls.dtype

    def __call__(cls, *args: Any) -> Any:
        if len(args) == 1 and not isinstance(args[0], int):
            return undertow.tensor(args[0], dtype=cls.dtype)
        return undertow.empty(args or (0,), dtype=cls.dtype)


def typed_tensors() -> dict[str, TypedTensor]:
    return {name: TypedTensor(name, (), {"dtype": np.dtype(kind)}) for name, kind in DTYPES.items()}
