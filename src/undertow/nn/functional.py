"""The functions behind the layers, under the names and with the arguments of torch.nn.functional.

Most are operations as they are; here are those that take their arguments in another order, or `inplace`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.graph.user_lines import warn_user
from undertow.modes import no_grad
from undertow.nn.grouped_mm import grouped_mm as grouped_mm
from undertow.nn.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from undertow.nn.old_reduction_arguments import takes_old_arguments
from undertow.ops.arguments.operands import as_tensors
from undertow.ops.declare.composite_order import rearranged as _rearranged
from undertow.ops.inplace.forms import in_place
from undertow.ops.inplace.out_argument import public_function
from undertow.ops.network import im2col
from undertow.ops.network.attention import multi_head_attention_forward as multi_head_attention_forward
from undertow.ops.network.attention import scaled_dot_product_attention as scaled_dot_product_attention
from undertow.ops.network.ctc import ctc_loss as ctc_loss
from undertow.ops.network.dropout import alpha_dropout as alpha_dropout
from undertow.ops.network.dropout import check_probability as _check_probability
from undertow.ops.network.dropout import dropout1d as dropout1d
from undertow.ops.network.dropout import dropout2d as dropout2d
from undertow.ops.network.dropout import dropout3d as dropout3d
from undertow.ops.network.dropout import factors_for as _factors_for
from undertow.ops.network.dropout import feature_alpha_dropout as feature_alpha_dropout
from undertow.ops.network.fractional_pool import fractional_max_pool2d as fractional_max_pool2d
from undertow.ops.network.fractional_pool import (
    fractional_max_pool2d_with_indices as fractional_max_pool2d_with_indices,
)
from undertow.ops.network.fractional_pool import fractional_max_pool3d as fractional_max_pool3d
from undertow.ops.network.fractional_pool import (
    fractional_max_pool3d_with_indices as fractional_max_pool3d_with_indices,
)
from undertow.ops.network.margin_losses import multi_margin_loss, multilabel_margin_loss
from undertow.ops.network.margin_losses import (
    triplet_margin_with_distance_loss as triplet_margin_with_distance_loss,
)
from undertow.tensor.torch_function import gates as _gates
from undertow.torch_names import missing as _absent

if TYPE_CHECKING:
    from undertow.tensor import Tensor

    def __getattr__(name: str) -> Any: ...  # the operations below


#: operations whose own arguments are those of torch.nn.functional
OPERATIONS = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
affine_grid avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear channel_shuffle conv1d conv2d conv3d conv_transpose1d
conv_transpose2d conv_transpose3d cosine_similarity embedding_bag gaussian_nll_loss gelu glu grid_sample group_norm
hardshrink instance_norm interpolate layer_norm linear logsigmoid lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool2d
max_pool3d normalize one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu rms_norm sigmoid softplus
softshrink softsign tanh tanhshrink
""".split()

#: and those that also take how a loss was reduced in older programs
LOSSES = """
binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss kl_div
margin_ranking_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
triplet_margin_loss
""".split()

globals().update({name: public_function(name) for name in OPERATIONS})
globals().update({name: takes_old_arguments(public_function(name)) for name in LOSSES})
multi_margin_loss, multilabel_margin_loss = map(takes_old_arguments, (multi_margin_loss, multilabel_margin_loss))


# ---- activations that may work in place


def activation(name: str, parameters: int) -> Callable[..., Any]:
    """An activation function whose argument `inplace` comes after so many parameters."""
    function = getattr(ops, name)
    changing = in_place(name, function)

    def call(input: Tensor, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if len(args) > parameters:
            args, inplace = args[:-1], args[-1]
        return changing(input, *args, **kwargs) if inplace else function(input, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    given = ", 0.0, 9.0" if name == "threshold" else ""
    call.__doc__ = (
        f"`{name}`, in place if told so.\n\nExample: `ut.nn.functional.{name}(ut.tensor([-1.0, 2.0]){given})`"
    )
    return call


#: activation -> how many parameters it has
PARAMETERS = {"celu": 1, "elu": 1, "hardsigmoid": 0, "hardswish": 0, "hardtanh": 2, "leaky_relu": 1, "mish": 0,
              "relu": 0, "relu6": 0, "selu": 0, "silu": 0, "threshold": 2}  # fmt: skip
globals().update({name: activation(name, count) for name, count in PARAMETERS.items()})
globals().update({f"{name}_": in_place(name, getattr(ops, name)) for name in
                  ("celu", "elu", "hardtanh", "leaky_relu", "relu", "selu", "threshold")})  # fmt: skip


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Every element 0 with probability p, else over 1 - p; the input itself if not training.

    >>> import undertow as ut
    >>> ut.nn.functional.dropout(ut.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """
    if not inplace:
        return ops.dropout(input, p, training)
    _check_probability(p)
    return input.mul_(_factors_for(input, input.shape, p)) if training and p > 0 else input


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper] when training, and their mean otherwise.

    >>> import undertow as ut
    >>> ut.nn.functional.rrelu(ut.tensor([-1.0, 2.0]))
    tensor([-0.2292,  2.0000])
    """
    for name, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu: {name} bound must be finite, got {bound}")
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, got {lower} and {upper}")
    if not training:
        return globals()["leaky_relu"](input, (lower + upper) / 2, inplace=inplace)
    with no_grad():
        slopes = ops.rand_like(input) * (upper - lower) + lower
        factors = ops.where(input >= 0, 1.0, slopes)
    return input.mul_(factors) if inplace else input * factors


def rrelu_(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    """`rrelu` in place.

    >>> import undertow as ut
    >>> ut.nn.functional.rrelu_(ut.tensor([-1.0, 2.0]))
    tensor([-0.2292,  2.0000])
    """
    return rrelu(input, lower, upper, training, True)


# ---- softmax


def softmax_dim(name: str, dim: int | None, ndim: int) -> int:
    if dim is not None:
        return dim
    warn_user(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument."
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """exp(input) over its sum along `dim`.

    >>> import undertow as ut
    >>> ut.nn.functional.softmax(ut.tensor([-1.0, 2.0]), dim=0)
    tensor([0.0474, 0.9526])
    """
    return ops.softmax(input, softmax_dim("softmax", dim, input.ndim), dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """softmax(-input).

    >>> import undertow as ut
    >>> ut.nn.functional.softmin(ut.tensor([-1.0, 2.0]), dim=0)
    tensor([0.9526, 0.0474])
    """
    return ops.softmax(-input, softmax_dim("softmin", dim, input.ndim), dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """The logarithm of softmax, without overflow.

    >>> import undertow as ut
    >>> ut.nn.functional.log_softmax(ut.tensor([-1.0, 2.0]), dim=0)
    tensor([-3.0486, -0.0486])
    """
    return ops.log_softmax(input, softmax_dim("log_softmax", dim, input.ndim), dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution.

    hard    one-hot values, with the gradient of the soft ones
    logits  logarithms of probabilities, of any shape, up to a constant
    tau     the temperature: the lower, the nearer to one-hot
    eps     accepted, without effect

    >>> import undertow as ut
    >>> ut.nn.functional.gumbel_softmax(ut.zeros(2, 3), hard=True).sum(1)
    tensor([1., 1.])
    """
    with no_grad():
        noise = -ops.log(ops.empty_like(logits).exponential_())
    soft = ops.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    with no_grad():
        index = ops.argmax(soft, dim, True)
        chosen = ops.scatter(ops.zeros_like(logits), dim, index, 1.0)
    return chosen - soft.detach() + soft


# ---- losses of numbers, with weights


def weighted(losses: Tensor, weight: Tensor, reduction: str) -> Tensor:
    if losses.shape != weight.shape:
        raise ValueError("Weights and input must have the same size.")
    losses = losses * weight
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    total = ops.sum(losses)
    return total if reduction == "sum" else total / ops.sum(weight)


@takes_old_arguments
def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The squared difference.

    >>> import undertow as ut
    >>> ut.nn.functional.mse_loss(ut.tensor([1.0, 3.0]), ut.zeros(2))
    tensor(5.)
    """
    if weight is None:
        return ops.mse_loss(input, target, reduction=reduction)
    return weighted(ops.mse_loss(input, target, reduction="none"), weight, reduction)


@takes_old_arguments
def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The absolute difference.

    >>> import undertow as ut
    >>> ut.nn.functional.l1_loss(ut.tensor([1.0, 3.0]), ut.zeros(2))
    tensor(2.)
    """
    if weight is None:
        return ops.l1_loss(input, target, reduction=reduction)
    return weighted(ops.l1_loss(input, target, reduction="none"), weight, reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Half the square of small differences, and linear beyond delta.

    >>> import undertow as ut
    >>> ut.nn.functional.huber_loss(ut.tensor([0.5, 3.0]), ut.zeros(2), reduction="none")
    tensor([0.1250, 2.5000])
    """
    if weight is None:
        return ops.huber_loss(input, target, reduction=reduction, delta=delta)
    return weighted(ops.huber_loss(input, target, reduction="none", delta=delta), weight, reduction)


# ---- convolution


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution of (time, examples, channels) with a weight of (size, channels in, channels out).

    input  (time, examples, channels)
    bias   (channels of the result)
    pad    how much is added at both ends of the time

    >>> import undertow as ut
    >>> ut.nn.functional.conv_tbc(ut.ones(4, 1, 2), ut.ones(3, 2, 1), ut.zeros(1)).shape
    undertow.Size([2, 1, 1])
    """
    turned = ops.permute(input, (1, 2, 0)), ops.permute(weight, (2, 1, 0))
    return ops.permute(ops.conv1d(*turned, bias, padding=pad), (2, 0, 1))


# ---- embeddings


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` that the indices name.

    padding_idx  a row that gets no gradient
    max_norm     rows that are used and longer than this are shortened to it, in place

    >>> import undertow as ut
    >>> ut.nn.functional.embedding(ut.tensor([1, 0]), ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    weight, input = as_tensors("embedding", weight=weight, indices=input)
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got {weight.ndim}-D")
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    if max_norm is not None:
        shorten_rows(weight, input, max_norm, norm_type)
    padding_idx = -1 if padding_idx is None else padding_idx % rows
    return ops.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def shorten_rows(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        used = ops.unique(ops.reshape(indices, (-1,))).long()
        rows = ops.index_select(weight, 0, used)
        norms = ops.norm(rows, norm_type, 1, True)
        factors = ops.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        weight.index_copy_(0, used, rows * factors)


# ---- images


def unfold(
    input: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The windows of images, each as a column.

    >>> import undertow as ut
    >>> ut.nn.functional.unfold(ut.arange(16.0).reshape(1, 1, 4, 4), 2).shape
    undertow.Size([1, 4, 9])
    """
    return im2col.im2col(input, kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: int | Sequence[int | None],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """Images as the sum of their windows, given as columns.

    >>> import undertow as ut
    >>> ut.nn.functional.fold(ut.ones(1, 4, 4), (3, 3), 2)
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    return im2col.col2im(input, output_size, kernel_size, dilation, padding, stride)


def upsample(
    input: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """`interpolate`, under its older name.

    >>> import undertow as ut
    >>> ut.nn.functional.upsample(ut.arange(16.0).reshape(1, 1, 4, 4), scale_factor=2).shape
    undertow.Size([1, 1, 8, 8])
    """
    return ops.interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: int | Sequence[int] | None = None, scale_factor: Any = None) -> Any:
    """`interpolate` with the nearest element.

    input         (N, C, H, W)
    size          the size of the result
    scale_factor  how much larger the result is, instead

    >>> import undertow as ut
    >>> ut.nn.functional.upsample_nearest(ut.arange(16.0).reshape(1, 1, 4, 4), scale_factor=2).shape
    undertow.Size([1, 1, 8, 8])
    """
    return ops.interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Any, size: int | Sequence[int] | None = None, scale_factor: Any = None) -> Any:
    """`interpolate` with mode bilinear and aligned corners.

    input         (N, C, H, W)
    size          the size of the result
    scale_factor  how much larger the result is, instead

    >>> import undertow as ut
    >>> ut.nn.functional.upsample_bilinear(ut.arange(16.0).reshape(1, 1, 4, 4), scale_factor=2).shape
    undertow.Size([1, 1, 8, 8])
    """
    return ops.interpolate(input, size, scale_factor, "bilinear", True)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Every element over a power of the mean square of `size` neighbouring channels.

    >>> import undertow as ut
    >>> ut.nn.functional.local_response_norm(ut.ones(1, 2, 2), 2)
    tensor([[[1.0000, 1.0000],
             [0.9999, 0.9999]]])
    """
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    squares = ops.reshape(input * input, (input.shape[0], 1, input.shape[1], -1))
    padded = ops.pad(squares, (0, 0, size // 2, (size - 1) // 2))
    means = ops.reshape(ops.avg_pool2d(padded, (size, 1), 1), input.shape)
    return input / (means * alpha + k) ** beta


def with_indices(name: str) -> Callable[..., Any]:
    """`max_pool2d_with_indices` and its kin."""
    function = getattr(ops, name)

    def call(*args: Any, return_indices: bool = True, **kwargs: Any) -> Any:
        return function(*args, return_indices=True, **kwargs)

    call.__name__ = call.__qualname__ = f"{name}_with_indices"
    image = f"ut.arange({4 ** int(name[-2])}.0).reshape(1, 1{', 4' * int(name[-2])})"
    call.__doc__ = (
        f"The values of `{name}` and the places they come from.\n\n"
        f"*args, **kwargs  the arguments of `{name}`\n\n"
        f"Example: `ut.nn.functional.{name}_with_indices({image}, 2)[1].shape`"
    )
    return call


POOLS = [f"{kind}max_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3)]
globals().update({f"{name}_with_indices": with_indices(name) for name in POOLS})


def max_unpool(input: Tensor, indices: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Zeros of these last sizes, with the values of `input` at the places that max_pool found."""
    if input.shape != indices.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices "
            f"tensor with shape: {list(indices.shape)}"
        )
    lead = tuple(input.shape[: input.ndim - len(sizes)])
    count = 1
    for n in sizes:
        count *= n
    flat, places = ops.reshape(input, (*lead, -1)), ops.reshape(indices, (*lead, -1))
    empty = ops.new_zeros(input, (*lead, count))
    try:
        whole = ops.reshape(ops.scatter(empty, len(lead), places, flat), (*lead, *sizes))
    except RuntimeError as error:
        if "out of bounds" not in str(error):
            raise
        raise RuntimeError(f"Found an invalid max index: the output has sizes {sizes}; {error}") from None
    return _rearranged(whole, "images", [input._array]) if len(sizes) + 2 == input.ndim == 4 else whole


def unpool_of(dims: int) -> Callable[..., Any]:
    def call(
        input: Tensor,
        indices: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | str | Sequence[int] = 0,
        output_size: Any = None,
    ) -> Any:
        kernel, pad = (v if isinstance(v, tuple | list) else (v,) * dims for v in (kernel_size, padding))
        step = kernel if stride is None else stride if isinstance(stride, tuple | list) else (stride,) * dims
        here = input.shape[input.ndim - dims :]
        sizes = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(here, step, pad, kernel, strict=True))
        if output_size is not None:
            wanted = tuple(output_size)[-dims:]
            if any(not n - s < w < n + s for n, s, w in zip(sizes, step, wanted, strict=True)):
                raise ValueError(f"invalid output_size {wanted}: it must be within one stride of {sizes}")
            sizes = wanted
        return max_unpool(input, indices, sizes)

    call.__name__ = call.__qualname__ = f"max_unpool{dims}d"
    one = f"1, 1{', 1' * dims}"
    call.__doc__ = (
        f"The partial inverse of max_pool{dims}d: maxima back at their places, zeros elsewhere.\n\n"
        "indices  where the maxima were: what max_pool returns with `return_indices=True`\n\n"
        f"Example: `ut.nn.functional.max_unpool{dims}d(ut.ones({one}), ut.ones({one}, dtype=ut.int64), 2)`"
    )
    return call


max_unpool1d, max_unpool2d, max_unpool3d = unpool_of(1), unpool_of(2), unpool_of(3)

globals().update(
    _gates(
        globals(),
        but="activation with_indices unpool_of warn_user takes_old_arguments as_tensors in_place public_function "
        "_rearranged _gates __getattr__ _check_probability _factors_for",
    )
)

if not TYPE_CHECKING:
    __getattr__ = _absent.getter("nn.functional")
