"""Functions of layers at the top of PyTorch, where they take other arguments than in `nn.functional`.

>>> import undertow as ut
>>> ut.alpha_dropout(ut.ones(2), 0.5, False)
tensor([1., 1.])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow import ops
from undertow.autograd.anomaly import set_detect_anomaly
from undertow.nn import functional
from undertow.ops.network.dropout import drop_channels
from undertow.tensor import Tensor

F: Any = functional  # some of it is loaded when it is first used
MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
REDUCTIONS = ("none", "mean", "sum")


def alpha_dropout(input: Tensor, p: float, train: bool) -> Any:
    """`nn.functional.alpha_dropout`.

    p      the probability with which an element, or a channel, is dropped
    train  False: the input as it is

    >>> import undertow as ut
    >>> ut.alpha_dropout(ut.ones(2), 0.5, False)
    tensor([1., 1.])
    """
    return F.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Any:
    """`nn.functional.alpha_dropout`, written into the tensor itself.

    p  the probability with which an element, or a channel, is dropped

    >>> import undertow as ut
    >>> ut.alpha_dropout_(ut.ones(2), 0.5, False)
    tensor([1., 1.])
    """
    return F.alpha_dropout(input, p, train, inplace=True)


def feature_dropout(input: Tensor, p: float, train: bool) -> Any:
    """Whole channels 0 with probability p, else over 1 - p, as `nn.functional.dropout2d` does with images.

    >>> import undertow as ut
    >>> ut.feature_dropout(ut.ones(1, 2), 0.5, False)
    tensor([[1., 1.]])
    """
    return drop_channels(input, p, train, False, 2)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Any:
    """`feature_dropout`, written into the tensor itself.

    p  the probability with which an element, or a channel, is dropped

    >>> import undertow as ut
    >>> ut.feature_dropout_(ut.ones(1, 2), 0.5, False)
    tensor([[1., 1.]])
    """
    return drop_channels(input, p, train, True, 2)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Any:
    """`nn.functional.feature_alpha_dropout`, written into the tensor itself.

    p  the probability with which an element, or a channel, is dropped

    >>> import undertow as ut
    >>> ut.feature_alpha_dropout_(ut.ones(1, 2), 0.5, False)
    tensor([[1., 1.]])
    """
    return F.feature_alpha_dropout(input, p, train, inplace=True)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Any:
    """`nn.functional.feature_alpha_dropout`.

    p      the probability with which an element, or a channel, is dropped
    train  False: the input as it is

    >>> import undertow as ut
    >>> ut.feature_alpha_dropout(ut.ones(1, 2), 0.5, False)
    tensor([[1., 1.]])
    """
    return F.feature_alpha_dropout(input, p, train)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    """`nn.functional.rrelu`.

    lower, upper  the bounds between which a slope is drawn for each negative element; the mean of both if not
                  `training`

    >>> import undertow as ut
    >>> ut.rrelu(ut.tensor([-1.0, 1.0]), 0.25, 0.25)
    tensor([-0.2500,  1.0000])
    """
    if generator is not None:
        raise NotImplementedError("rrelu() takes no generator here: seed the default one by manual_seed()")
    return F.rrelu(input, lower, upper, training)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    """`nn.functional.ctc_loss`; reduction: 0 for none, 1 for the mean, 2 for the sum.

    log_probs      (T, N, C): logarithms of probabilities
    targets        (N, S), or all of them behind each other
    input_lengths, target_lengths  how long each is, (N)
    blank          the class that stands for no label
    zero_infinity  an infinite loss counts 0, and so does its gradient

    >>> import undertow as ut
    >>> ut.ctc_loss(ut.zeros(2, 1, 2).log_softmax(-1), ut.ones(1, 1, dtype=ut.int64), ut.tensor([2]), ut.tensor([1]))
    tensor(0.2877)
    """
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, REDUCTIONS[reduction], zero_infinity)


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """`nn.functional.grid_sample`, with its modes by their numbers.

    input, grid         as `nn.functional.grid_sample` takes them
    interpolation_mode  0: bilinear, 1: nearest, 2: bicubic
    padding_mode        0: zeros, 1: border, 2: reflection
    align_corners       whether -1 and 1 are the middles of the outermost points, or their outer edges

    >>> import undertow as ut
    >>> ut.grid_sampler(ut.ones(1, 1, 2, 2), ut.zeros(1, 1, 1, 2), 0, 0, False).shape
    undertow.Size([1, 1, 1, 1])
    """
    return F.grid_sample(input, grid, MODES[interpolation_mode], PADDINGS[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Any:
    """A tensor of anything, whose dimensions lie in memory in this order.

    size             the shape
    physical_layout  the dimensions, from the outermost in memory to the innermost
    **options        those of `empty`

    >>> import undertow as ut
    >>> ut.empty_permuted((2, 3), (1, 0)).stride()
    (1, 2)
    """
    if sorted(physical_layout) != list(range(len(size))):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(size)}, and physical_layout = {list(physical_layout)} is not an order of these dimensions"
        )
    laid = ops.empty([size[dim] for dim in physical_layout], **options)
    return laid.permute([list(physical_layout).index(dim) for dim in range(len(size))])


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Any:
    """The norms of the parts along a dimension, as `weight_norm` takes them.

    v    the tensor
    pow  of which norm

    >>> import undertow as ut
    >>> ut.norm_except_dim(ut.ones(2, 4), 2, 0)
    tensor([[2.],
            [2.]])
    """
    if dim == -1:
        return ops.linalg_vector_norm(v, pow)
    return ops.linalg_vector_norm(v, pow, [k for k in range(v.dim()) if k != dim % v.dim()], keepdim=True)


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """`autograd.set_detect_anomaly`, for good.

    check_nan  whether a NaN in a gradient is an error

    >>> import undertow as ut
    >>> ut.set_anomaly_enabled(False)
    >>> ut.is_anomaly_enabled()
    False
    """
    set_detect_anomaly(enabled, check_nan)


def is_distributed(input: Tensor) -> bool:
    """Whether the tensor is spread over several machines: none is.

    >>> import undertow as ut
    >>> ut.is_distributed(ut.ones(1))
    False
    """
    return False


def is_vulkan_available() -> bool:
    """Whether there is a device of this kind: there is not.

    >>> import undertow as ut
    >>> ut.is_vulkan_available()
    False
    """
    return False


has_lapack = has_spectral = True
has_mkl = has_openmp = False


def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    """`nn.functional.rrelu_`, which changes the tensor itself.

    lower, upper  the bounds between which a slope is drawn for each negative element; the mean of both if not
                  `training`

    >>> import undertow as ut
    >>> ut.rrelu_(ut.ones(2))
    tensor([1., 1.])
    """
    return F.rrelu_(input, lower, upper, training)
