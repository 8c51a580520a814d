"""Linear layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.nn import functional, init
from undertow.nn.module import Module
from undertow.nn.parameter import Parameter

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor

#: the functions are in functional's table, which is filled at import
F: Any = functional

#: called directly: a function of the package costs an attribute less
linear: Any = F.linear


class Identity(Module):
    """Gives its input back; any arguments are accepted and ignored.

    Shapes: any; the result has that of the input.

    *args, **kwargs  accepted, without effect

    >>> import undertow as ut
    >>> ut.nn.Identity()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-1.0000,  0.2500,  2.0000])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


def fresh(*shape: int, device: Device | str | int | None = None, dtype: DType | None = None) -> Parameter:
    """A parameter that is about to be initialised."""
    return Parameter(ops.empty(shape, device=device, dtype=dtype))


class Linear(Module):
    """input @ weight^T + bias.

    in_features   features of the input, its last dimension
    out_features  features of the result, its last dimension
    bias          whether something learned is added

    Shapes: (..., in_features) to (..., out_features).

    >>> import undertow as ut
    >>> ut.nn.Linear(3, 2)(ut.ones(5, 3)).shape
    undertow.Size([5, 2])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = fresh(out_features, in_features, device=device, dtype=dtype)
        self.register_parameter("bias", fresh(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform within 1 / sqrt(in_features)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """input1^T @ weight[k] @ input2 + bias[k] for every output feature k.

    in1_features  features of the first input
    in2_features  features of the second input
    out_features  features of the result, its last dimension
    bias          whether something learned is added

    Shapes: (..., in1_features) and (..., in2_features) to (..., out_features).

    >>> import undertow as ut
    >>> ut.nn.Bilinear(2, 3, 4)(ut.ones(5, 2), ut.ones(5, 3)).shape
    undertow.Size([5, 4])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = fresh(out_features, in1_features, in2_features, device=device, dtype=dtype)
        self.register_parameter("bias", fresh(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform within 1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
