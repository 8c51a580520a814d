"""Activation functions as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.graph.user_lines import warn_user
from undertow.nn import functional as F
from undertow.nn import init
from undertow.nn.layers.linear import fresh
from undertow.nn.module import Module
from undertow.ops.inplace.out_argument import function_with_out
from undertow.tensor.torch_function import python_function

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor

#: the functions are in functional's table, which is filled at import
call: Any = F


class Plain(Module):
    """An activation without arguments."""

    def extra_repr(self) -> str:
        return ""


class MaybeInPlace(Module):
    """An activation without arguments but `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


def inplace_note(inplace: bool) -> str:
    return ", inplace=True" if inplace else ""


# ---- straight lines


class ReLU(MaybeInPlace):
    """max(x, 0).

    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.ReLU()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([0.0000, 0.2500, 2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return relu_(input) if self.inplace else relu(input)


#: what `functional.relu` computes if nothing is to be changed in place, and classes that are asked are told that name
relu: Any = function_with_out(ops.REGISTRY["relu"])
python_function(relu).public, relu_ = call.relu, call.relu_  # type: ignore[union-attr]


class LeakyReLU(Module):
    """x above 0, negative_slope * x below.

    negative_slope  what negative elements are multiplied by
    inplace         whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.LeakyReLU(0.1)(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.1000,  0.2500,  2.0000])
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return call.leaky_relu(input, self.negative_slope, inplace=self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{inplace_note(self.inplace)}"


class RReLU(Module):
    """LeakyReLU with random slopes when training.

    lower    the least slope
    upper    the greatest slope
    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.RReLU().eval()(ut.tensor([-1.0, 2.0]))
    tensor([-0.2292,  2.0000])
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{inplace_note(self.inplace)}"


class PReLU(Module):
    """LeakyReLU with a slope, or one for each channel, that is learned.

    num_parameters  one for all channels, or one for each
    init            the slope to start with

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.PReLU()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.2500,  0.2500,  2.0000], grad_fn=<PreluKernelBackward0>)
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = fresh(num_parameters, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all slopes to `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return call.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Threshold(Module):
    """x above the threshold, else `value`.

    threshold  elements above it stay
    value      what the others become
    inplace    whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Threshold(0.5, 0.0)(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([0., 0., 2.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return call.threshold(input, self.threshold, self.value, inplace=self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{inplace_note(self.inplace)}"


def renamed(which: str, old: float | None, new: float) -> float:
    """A bound that an older program gives by its old name."""
    if old is None:
        return new
    warn_user(f"keyword argument `{which}_value` is deprecated and renamed to `{which}_val`", FutureWarning)
    return old


class Hardtanh(Module):
    """x, cut off at min_val and max_val.

    min_val               the least result
    max_val               the greatest result
    inplace               whether the input itself is changed
    min_value, max_value  older names of min_val and max_val

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Hardtanh()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-1.0000,  0.2500,  1.0000])
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        min_val, max_val = renamed("min", min_value, min_val), renamed("max", max_value, max_val)
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace
        if not max_val > min_val:
            raise AssertionError(f"max_val must be larger than min_val, got {max_val} and {min_val}")

    def forward(self, input: Tensor) -> Tensor:
        return call.hardtanh(input, self.min_val, self.max_val, inplace=self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{inplace_note(self.inplace)}"


class ReLU6(Hardtanh):
    """min(max(x, 0), 6).

    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.ReLU6()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([0.0000, 0.2500, 2.0000])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return call.relu6(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Hardsigmoid(MaybeInPlace):
    """Straight lines near the sigmoid.

    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Hardsigmoid()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([0.3333, 0.5417, 0.8333])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.hardsigmoid(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardswish(MaybeInPlace):
    """x * Hardsigmoid(x).

    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Hardswish()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.3333,  0.1354,  1.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.hardswish(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        return ""


class Shrink(Module):
    """An activation that makes small values zero."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(Shrink):
    """0 within lambd of 0, else x.

    lambd  the distance from 0

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Hardshrink()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-1.,  0.,  2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.hardshrink(input, self.lambd)


class Softshrink(Shrink):
    """0 within lambd of 0, else x moved towards 0 by lambd.

    lambd  the distance from 0

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Softshrink()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.5000,  0.0000,  1.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.softshrink(input, self.lambd)


class Tanhshrink(Plain):
    """x - tanh(x).

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Tanhshrink()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.2384,  0.0051,  1.0360])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.tanhshrink(input)


# ---- exponentials


class Sigmoid(Plain):
    """1 / (1 + exp(-x)).

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Sigmoid()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([0.2689, 0.5622, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.sigmoid(input)


class Tanh(Plain):
    """tanh(x).

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Tanh()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.7616,  0.2449,  0.9640])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.tanh(input)


class LogSigmoid(Plain):
    """log(sigmoid(x)).

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.LogSigmoid()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-1.3133, -0.5759, -0.1269])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.logsigmoid(input)


class Softsign(Plain):
    """x / (1 + |x|).

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Softsign()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.5000,  0.2000,  0.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.softsign(input)


class Exponential(Module):
    """What ELU and CELU have in common."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{inplace_note(self.inplace)}"


class ELU(Exponential):
    """x above 0, alpha * (exp(x) - 1) below.

    alpha    scales what is below 0
    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.ELU()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.6321,  0.2500,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.elu(input, self.alpha, inplace=self.inplace)


class CELU(Exponential):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    alpha    scales what is below 0
    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.CELU()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.6321,  0.2500,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.celu(input, self.alpha, inplace=self.inplace)


class SELU(MaybeInPlace):
    """ELU, scaled so that mean 0 and variance 1 stay.

    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.SELU()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-1.1113,  0.2627,  2.1014])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.selu(input, inplace=self.inplace)


class GELU(Module):
    """x times the probability that a normal variable is below x.

    approximate  'none' or 'tanh'

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.GELU()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.1587,  0.1497,  1.9545])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return call.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(MaybeInPlace):
    """x * sigmoid(x).

    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.SiLU()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.2689,  0.1405,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.silu(input, inplace=self.inplace)


class Mish(MaybeInPlace):
    """x * tanh(softplus(x)).

    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Mish()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.3034,  0.1696,  1.9440])
    """

    def forward(self, input: Tensor) -> Tensor:
        return call.mish(input, inplace=self.inplace)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.

    beta       how sharp the bend is
    threshold  beyond it the function is the input itself

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Softplus()(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([0.3133, 0.8259, 2.1269])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return call.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GLU(Module):
    """The first half along `dim` times the sigmoid of the second half.

    dim  the dimension that is halved

    Shapes: any; the size along `dim` is even, and the result has half of it.

    >>> import undertow as ut
    >>> ut.nn.GLU()(ut.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return call.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


# ---- along a dimension


class AlongDim(Module):
    """An activation along one dimension."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(AlongDim):
    """exp(x) over its sum along `dim`.

    dim  the dimension

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Softmax(dim=0)(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([0.0407, 0.1420, 0.8173])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class Softmin(AlongDim):
    """softmax(-x).

    dim  the dimension

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Softmin(dim=0)(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([0.7483, 0.2144, 0.0373])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(AlongDim):
    """log(softmax(x)).

    dim  the dimension

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.LogSoftmax(dim=0)(ut.tensor([-1.0, 0.25, 2.0]))
    tensor([-3.2018, -1.9518, -0.2018])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmax2d(Plain):
    """Softmax over the channels of every place of an image.

    Shapes: (N, C, H, W) or (C, H, W); the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Softmax2d()(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 8, 8])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return ops.softmax(input, -3)
