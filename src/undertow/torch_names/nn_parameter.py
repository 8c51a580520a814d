"""PyTorch's module `nn.parameter`, which also has the parameters whose shape is not known yet."""

from undertow.nn.module.lazy_parameters import Uninitialized as UninitializedTensorMixin
from undertow.nn.module.lazy_parameters import UninitializedBuffer, UninitializedParameter, is_lazy
from undertow.nn.parameter import Buffer, Parameter

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]
