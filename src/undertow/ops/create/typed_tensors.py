"""PyTorch's old constructors, one for each dtype: FloatTensor, LongTensor, ..."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType
from undertow.ops.create.creation import as_tensor, empty
from undertow.tensor import Size, Tensor


class TensorType(type):
    """A class that makes tensors of one dtype, and counts them as its own."""

    dtype: Any

    def __call__(cls, *arguments: Any) -> Tensor:
        sizes = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], Size) else arguments
        if all(type(n) is int for n in sizes):
            return empty(*(sizes or (0,)), dtype=cls.dtype)
        if len(arguments) > 1 or isinstance(arguments[0], float | complex | bool):
            raise TypeError(
                f"new(): data must be a sequence (got {', '.join(type(a).__name__ for a in arguments)}): "
                f"{cls.__name__} takes sizes, or one sequence of numbers. Use undertow.tensor(data, dtype=...)."
            )
        if isinstance(arguments[0], Tensor) and arguments[0].dtype != cls.dtype:
            raise TypeError(
                f"expected {cls.dtype} (got {arguments[0].dtype}): use tensor.to({dtypes.public(cls.dtype)})"
            )
        return as_tensor(arguments[0], dtype=cls.dtype)

    def __instancecheck__(cls, value: Array) -> bool:
        return isinstance(value, Tensor) and value.dtype == cls.dtype


def tensor_type(name: str, dtype: DType) -> TensorType:
    about = f"Tensors of {dtype}: `{name}(2, 3)` of sizes, `{name}([1, 2])` of data. `undertow.tensor` says it better."
    about += "\n\n*arguments  the sizes, or the data"
    about += f"\n\nExample: `ut.{name}([1, 2])`"
    return TensorType(name, (), {"dtype": dtype, "__doc__": about, "__module__": "undertow"})


DoubleTensor = tensor_type("DoubleTensor", dtypes.float64)
FloatTensor = tensor_type("FloatTensor", dtypes.float32)
HalfTensor = tensor_type("HalfTensor", dtypes.float16)
LongTensor = tensor_type("LongTensor", dtypes.int64)
IntTensor = tensor_type("IntTensor", dtypes.int32)
ShortTensor = tensor_type("ShortTensor", dtypes.int16)
CharTensor = tensor_type("CharTensor", dtypes.int8)
ByteTensor = tensor_type("ByteTensor", dtypes.uint8)
BoolTensor = tensor_type("BoolTensor", dtypes.bool_)
