"""Filling parameters with their first values. Each function changes its tensor in place and returns it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend import dtypes
from undertow.graph.user_lines import warn_user
from undertow.modes import no_grad
from undertow.torch_names import missing as _absent

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.ops.random.generator import Generator
    from undertow.tensor import Tensor

#: factors that keep the variance from layer to layer, by the activation behind it
GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance of what goes through an activation.

    param  of leaky_relu: the slope below 0; 0.01 by default

    >>> import undertow as ut
    >>> ut.nn.init.calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity == "leaky_relu":
        if param is None:
            param = 0.01
        elif isinstance(param, bool) or not isinstance(param, int | float):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2 / (1 + param**2))
    if nonlinearity not in GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return GAINS[nonlinearity]


# ---- plain fillings


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform on [a, b).

    >>> import undertow as ut
    >>> bool((ut.nn.init.uniform_(ut.empty(100), 2.0, 3.0) >= 2).all())
    True
    """
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with this mean and standard deviation.

    mean, std  mean and standard deviation

    >>> import undertow as ut
    >>> ut.nn.init.normal_(ut.empty(2, 3), std=0.1).shape
    undertow.Size([2, 3])
    """
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal, drawn again outside [a, b].

    mean, std  mean and standard deviation

    >>> import undertow as ut
    >>> bool((ut.nn.init.trunc_normal_(ut.empty(100), a=-1.0, b=1.0).abs() <= 1).all())
    True
    """
    if tensor.is_meta:
        return tensor  # it has no values that could lie inside
    if mean < a - 2 * std or mean > b + 2 * std:
        warn_user("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution may be incorrect.")
    low, high = (0.5 * (1 + math.erf((x - mean) / std / math.sqrt(2))) for x in (a, b))
    with no_grad():
        if high - low > COMMON:
            return _drawn_until_inside(tensor, mean, std, a, b, generator)
        return _drawn_until_likely(tensor, mean, std, a, b, generator)


#: of normal numbers: where more than this part lies inside the bounds, those outside are drawn again
COMMON = 0.3


def _drawn_until_inside(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    low, high = (tensor.new_tensor(x).item() for x in (a, b))
    found = tensor.normal_(mean, std, generator=generator)
    while (outside := (found < low) | (found > high)).any():
        found = ops.where(outside, ops.empty_like(found).normal_(mean, std, generator=generator), found)
    return tensor if found is tensor else tensor.copy_(found)


def _drawn_until_likely(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Uniform numbers, each kept with a probability proportional to its density."""
    highest = ((max(a, min(mean, b)) - mean) / std) ** 2
    waiting = ops.ones_like(tensor, dtype=dtypes.bool_)
    while waiting.any():
        tried = ops.empty_like(tensor).uniform_(a, b, generator=generator)
        tensor.copy_(ops.where(waiting, tried, tensor))
        density = ((tried - mean) / std) ** 2 * -0.5 + 0.5 * highest
        waiting = waiting & (ops.empty_like(tensor).uniform_(generator=generator).log_() > density)
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere.

    val  the number

    >>> import undertow as ut
    >>> ut.nn.init.constant_(ut.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones.

    >>> import undertow as ut
    >>> ut.nn.init.ones_(ut.empty(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Array) -> Tensor:
    """Zeros.

    >>> import undertow as ut
    >>> ut.nn.init.zeros_(ut.empty(2))
    tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix.

    >>> import undertow as ut
    >>> ut.nn.init.eye_(ut.empty(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        return tensor.copy_(ops.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution that passes its inputs on.

    >>> import undertow as ut
    >>> ut.nn.init.dirac_(ut.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]])
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    sizes = tensor.shape
    if sizes[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    of_group = sizes[0] // groups
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(of_group, sizes[1])):
                tensor[(group * of_group + channel, channel, *[n // 2 for n in sizes[2:]])] = 1.0
        return tensor


# ---- by the numbers of inputs and outputs


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs each output has, and how many outputs each input."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


_calculate_fan_in_and_fan_out = fans


def correct_fan(tensor: Tensor, mode: str) -> int:
    """How many inputs each output has (mode "fan_in"), or how many outputs each input ("fan_out").

    >>> import undertow as ut
    >>> ut.nn.init.correct_fan(ut.empty(2, 3), "fan_in")
    3
    """
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return fans(tensor)[mode == "fan_out"]


_calculate_correct_fan = correct_fan


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform with variance gain^2 * 2 / (inputs + outputs).

    >>> import undertow as ut
    >>> bool((ut.nn.init.xavier_uniform_(ut.empty(3, 3)).abs() <= 1).all())
    True
    """
    bound = gain * math.sqrt(6 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with variance gain^2 * 2 / (inputs + outputs).

    >>> import undertow as ut
    >>> ut.nn.init.xavier_normal_(ut.empty(2, 3)).shape
    undertow.Size([2, 3])
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(fans(tensor))), generator)


def kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def is_empty(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warn_user("Initializing zero-element tensors is a no-op")
    return 0 in tensor.shape


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform with variance gain^2 / inputs (or outputs); `a` is the slope of leaky_relu.

    mode  "fan_in" keeps the variance of what goes forward, "fan_out" that of gradients

    >>> import undertow as ut
    >>> bool((ut.nn.init.kaiming_uniform_(ut.empty(2, 6)).abs() <= 1).all())
    True
    """
    if is_empty(tensor):
        return tensor
    bound = math.sqrt(3) * kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal with variance gain^2 / inputs (or outputs); `a` is the slope of leaky_relu.

    mode  "fan_in" keeps the variance of what goes forward, "fan_out" that of gradients

    >>> import undertow as ut
    >>> ut.nn.init.kaiming_normal_(ut.empty(2, 3)).shape
    undertow.Size([2, 3])
    """
    if is_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Rows (or columns, if there are fewer) of length `gain`, at right angles to each other.

    >>> import undertow as ut
    >>> w = ut.nn.init.orthogonal_(ut.empty(3, 3))
    >>> ut.allclose(w @ w.T, ut.eye(3), atol=1e-5)
    True
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with no_grad():
        drawn = normal_(ops.empty(rows, columns, dtype=tensor.dtype, device=tensor.device), generator=generator)
        q, r = ops.qr(ops.t(drawn) if rows < columns else drawn)
        q = q * ops.sign(ops.diagonal(r))
        return tensor.copy_(ops.reshape(ops.t(q) if rows < columns else q, tensor.shape)).mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normal, with this part of every column zero.

    sparsity  the share of the zeros in each column
    std       the standard deviation of the others

    >>> import undertow as ut
    >>> (ut.nn.init.sparse_(ut.empty(10, 2), sparsity=0.5) == 0).sum(0)
    tensor([5, 5])
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[ops.randperm(rows, generator=generator)[:zeros], column] = 0.0
        return tensor


# ---- by the names without an underscore, which PyTorch has given up but still has


def _deprecated(name: str) -> Callable[..., Tensor]:
    fill = globals()[f"{name}_"]

    @wraps(fill)
    def warned(*args: Any, **kwargs: Any) -> Tensor:
        warn_user(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning)
        return fill(*args, **kwargs)

    return warned


for _name in (
    "uniform normal constant eye dirac xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal sparse"
).split():
    globals()[_name] = _deprecated(_name)

# ---- by the names of what PyTorch's functions call, which programs with rules of their own import

_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_

if not TYPE_CHECKING:
    __getattr__ = _absent.getter("nn.init")
