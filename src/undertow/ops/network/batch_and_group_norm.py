"""Normalisation of channels (dimension 1): of each over a batch, of groups of them, of each example's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.backend import cpu, kernels
from undertow.backend.interface import Array, Namespace
from undertow.modes import current, no_grad
from undertow.ops.arguments.operands import as_operand, require_kinds
from undertow.ops.declare import Joint, composite, primitive
from undertow.ops.declare.composite_order import rearranged
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded, in_front
from undertow.ops.inplace.forms import write_array
from undertow.ops.inplace.methods import copy_
from undertow.ops.network.layer_norm import as_given, scaled_and_shifted, tangential
from undertow.ops.pointwise.powers import sqrt
from undertow.ops.reduce.sums_and_products import mean
from undertow.ops.views.dimensions import movedim
from undertow.ops.views.reshape import reshape

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

# ---- in one step


class Layout(NamedTuple):
    """How a normalisation sees its input: the shape, the dimensions it goes over, those that share a weight."""

    shape: tuple[int, ...]
    dims: tuple[int, ...]
    affine_shape: tuple[int, ...]
    affine_dims: tuple[int, ...]

    def kept(self) -> tuple[int, ...]:
        """The shape of means."""
        return tuple(1 if d in self.dims else n for d, n in enumerate(self.shape))

    def are_rows(self) -> bool:
        """Whether these are many groups of many channels that have one element each."""
        return len(self.shape) == 4 and self.shape[3] == 1 and self.shape[2] > 16 and math.prod(self.shape) > 1 << 14


def layout(shape: Sequence[int], groups: int) -> Layout:
    """`groups` of channels for each example, or 0: the channels are taken over the batch."""
    examples, channels = shape[:2]
    length = math.prod(shape[2:])
    if not groups:
        return Layout((examples, channels, length), (0, 2), (channels, 1), (0, 2))
    each = channels // groups
    return Layout((examples, groups, each, length), (2, 3), (groups, each, 1), (0, 3))


def reshaped(xp: Namespace, x: Array | None, shape: tuple[int, ...]) -> Array | None:
    return None if x is None else xp.reshape(x, shape)


def _laid_out(xp: Namespace, x: Any) -> Any:
    """In the order of its dimensions, as the kernels read it: a copy costs less than the passes of array functions."""
    return xp.ascontiguousarray(x) if xp is cpu else x


def _channel_norm_forward(
    xp: Namespace, input: Array, weight: Array | None, bias: Array | None, groups: int, eps: float
) -> tuple[Array, Array, Array, Array]:
    """The result; mean, 1 / sqrt(variance + eps) and variance of every channel or group."""
    require_kinds("GroupNormKernelImpl" if groups else "batch_norm", input, "f")
    at = layout(input.shape, groups)
    # groups of channels of one element are rows, which array functions are quicker with
    found: Any = None
    if not at.are_rows():
        found = kernels.norm_channels(xp, _laid_out(xp, input), groups, weight, bias, eps)
    if found is not None:
        return found
    x = xp.reshape(input, at.shape)
    means = xp.mean(x, axis=at.dims, keepdims=True)
    centred = x - means
    variance = xp.mean(centred * centred, axis=at.dims, keepdims=True)
    rstd = 1 / xp.sqrt(variance + eps)
    weight, bias = (reshaped(xp, t, at.affine_shape) for t in (weight, bias))
    out = xp.reshape(scaled_and_shifted(centred * rstd, weight, bias), input.shape)
    flat = tuple(n for d, n in enumerate(at.shape) if d not in at.dims)
    return out, *(xp.reshape(t, flat) for t in (means, rstd, variance))


def _channel_norm_gradients(
    xp: Namespace,
    g: Array,
    needs: tuple[bool, bool, bool],
    input: Array,
    weight: Array | None,
    bias_shape: Any,
    mean: Array,
    rstd: Array,
    groups: int,
    eps: float,
) -> Sequence[Any]:
    at = layout(input.shape, groups)
    found: Any = None
    if not at.are_rows():
        x, g = _laid_out(xp, input), _laid_out(xp, g)
        found = kernels.norm_channels_gradient(xp, g, x, groups, mean, rstd, weight, needs)
    if found is not None:
        return found
    x, g = xp.reshape(input, at.shape), xp.reshape(g, at.shape)
    if xp is recorded:  # mean and rstd were saved as plain numbers, but depend on the input
        result, rstd = xp._standardize(x, at.dims, eps)
    else:
        rstd = xp.reshape(rstd, at.kept())
        result = (x - xp.reshape(mean, at.kept())) * rstd
    inner = None
    if needs[0]:
        scaled = g if weight is None else g * xp.reshape(weight, at.affine_shape)
        inner = xp.reshape(rstd * tangential(xp, scaled, result, at.dims), input.shape)
    channels = (input.shape[1],)
    of_weight = xp.reshape(xp.sum(g * result, axis=at.affine_dims), channels) if needs[1] else None
    return [inner, of_weight, xp.reshape(xp.sum(g, axis=at.affine_dims), channels) if needs[2] else None]


def _channel_norm_tangent(
    xp: Namespace, tangents: Any, input: Array, weight: Array | None, groups: int, eps: float
) -> Array:
    at, total = layout(input.shape, groups), None
    result, rstd = xp._standardize(xp.reshape(input, at.shape), at.dims, eps)
    if "input" in tangents:
        total = rstd * tangential(xp, xp.reshape(tangents["input"], at.shape), result, at.dims)
        total = total if weight is None else total * xp.reshape(weight, at.affine_shape)
    if "weight" in tangents:
        total = result * xp.reshape(tangents["weight"], at.affine_shape) + (0 if total is None else total)
    if "bias" in tangents:
        total = xp.reshape(tangents["bias"], at.affine_shape) + (0 * result if total is None else total)
    return xp.reshape(total, input.shape)


def _batch_channel_norm(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, Any]:
    """One input with the channels of all examples of the batch, one after the other."""
    input, weight, bias, groups, eps = args
    size = batch_size(args, in_dims)
    input = movedim(expanded(input, in_dims[0], size), 0, 1)
    examples, _, channels, *rest = input._array.shape
    weight, bias = [
        None if x is None else reshape(expanded(x, dim, size), (size * channels,))
        for x, dim in ((weight, in_dims[1]), (bias, in_dims[2]))
    ]
    out, *found = op(reshape(input, (examples, size * channels, *rest)), weight, bias, groups * size, eps)
    out = reshape(out, (examples, size, channels, *rest))
    if groups:
        return (in_front(out, 1), *[in_front(reshape(x, (examples, size, groups)), 1) for x in found]), 0
    return (in_front(out, 1), *[reshape(x, (size, channels)) for x in found]), 0


def _channel_norm(name: str, node: str) -> Any:
    return primitive(
        name,
        forward=_channel_norm_forward,
        vjp=Joint(("input", "weight", "bias"), _channel_norm_gradients),
        jvp=_channel_norm_tangent,
        batch=_batch_channel_norm,
        node=node,
        outputs=("result", "mean", "rstd", "variance"),
        nondifferentiable=("mean", "rstd", "variance"),
        exact=("mean", "rstd", "variance"),
        optional=("weight", "bias"),
        order="channels",
    )


over_batch = _channel_norm("_batch_norm", "NativeBatchNormBackward0")
over_groups = _channel_norm("_group_norm", "NativeGroupNormBackward0")

# ---- for users


@composite
def batch_norm(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit variance of every channel (dimension 1), over all other dimensions.

    training                   uses the statistics of `input`, and moves running_mean and running_var towards them by
                               `momentum`; otherwise these are used
    running_mean, running_var  (C): changed in place if `training`, used if not; or None
    weight, bias               (C): what channels are scaled by and what is added, or None
    eps                        added to the variance before its root is taken

    >>> import undertow as ut
    >>> ut.nn.functional.batch_norm(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), None, None, training=True)
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]])
    """
    input = as_operand("batch_norm", "input", input)
    if tuple(input.shape) == (0,):
        return recorded.clone(input)
    if input.ndim < 2:
        raise RuntimeError(f"batch_norm: expected an input with channels in dimension 1, got {input.ndim}D")
    if not (eps > 0 if training else eps >= 0):
        wanted = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {wanted}, but got {eps}")
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check_channels(input.shape[1], given)
    if not training:
        return _by_running(input, running_mean, running_var, weight, bias, eps)
    count = math.prod(input.shape) // max(input.shape[1], 1)
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(input.shape)}")
    if count == 0:  # no examples, no statistics
        return scaled_and_shifted(input * 1, _per_channel(weight, input.ndim), _per_channel(bias, input.ndim))
    out, means, _, variances = over_batch(input, weight, bias, 0, eps)
    _move("batch_norm", running_mean, means, momentum)
    _move("batch_norm", running_var, variances, momentum, count)
    return as_given(out, input)


def _check_channels(channels: int, given: dict[str, Any]) -> None:
    for name, x in given.items():
        if x is not None and math.prod(x.shape) != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {math.prod(x.shape)}")


def _per_channel(x: Array | None, ndim: int) -> Any:
    return None if x is None else recorded.reshape(x, (x.shape[0], *[1] * (ndim - 2)))


def _by_running(input: Array, running_mean: Any, running_var: Any, weight: Array, bias: Array, eps: float) -> Any:
    for name, x in (("running_mean", running_mean), ("running_var", running_var)):
        if x is None:
            raise RuntimeError(f"{name} must be defined in evaluation mode")
    mean, var, weight, bias = (_per_channel(x, input.ndim) for x in (running_mean, running_var, weight, bias))
    out = as_given(scaled_and_shifted((input - mean) / sqrt(var + eps), weight, bias), input)
    return rearranged(out, "channels", [input._array])


def _move(name: str, running: Array | None, now: Any, momentum: float, count: int | None = None) -> None:
    """Move running statistics; a variance of `count` numbers is taken as that of a sample."""
    if running is None:
        return
    with no_grad():
        now = now if count is None else now * (count / (count - 1) if count > 1 else math.nan)
        kept: Any = as_operand(name, "running_mean", running)
        moved = kept * (1 - momentum) + now * momentum
        if current().intercept is not None:
            copy_(kept, moved)  # under vmap, every example has statistics of its own
        else:
            write_array(kept, moved._array, name)


@composite
def instance_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit variance of every channel of every example, over the dimensions behind the channels.

    running_mean, running_var  (C), or None; changed in place if `use_input_stats`
    weight, bias               (C): what channels are scaled by and what is added, or None
    use_input_stats            statistics of the input; False: the running ones
    momentum                   the weight of a batch in the running statistics
    eps                        added to the variance before its root is taken

    >>> import undertow as ut
    >>> ut.nn.functional.instance_norm(ut.ones(1, 2, 4)).shape
    undertow.Size([1, 2, 4])
    """
    input = as_operand("instance_norm", "input", input)
    if input.ndim < 3:
        raise RuntimeError(f"instance_norm: expected an input of at least 3 dimensions, got {input.ndim}D")
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check_channels(input.shape[1], given)
    if not use_input_stats:
        return rearranged(_by_running(input, running_mean, running_var, weight, bias, eps), "rows", ())
    count = math.prod(input.shape[2:])
    if count == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {list(input.shape)}")
    if not input.shape[1]:
        return recorded.clone(input)
    out, means, _, variances = over_groups(input, weight, bias, input.shape[1], eps)
    with no_grad():
        _move("instance_norm", running_mean, None if running_mean is None else mean(means, 0), momentum)
        _move("instance_norm", running_var, None if running_var is None else mean(variances, 0), momentum, count)
    return rearranged(as_given(out, input), "rows", ())


@composite
def group_norm(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Zero mean and unit variance of groups of channels of every example.

    num_groups    how many groups of neighbouring channels
    weight, bias  (C): what channels are scaled by and what is added, or None
    eps           added to the variance before its root is taken

    >>> import undertow as ut
    >>> ut.group_norm(ut.ones(2, 4, 3), 2).shape
    undertow.Size([2, 4, 3])
    """
    input = as_operand("group_norm", "input", input)
    if input.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    shape = tuple(input.shape)
    if num_groups <= 0 or shape[1] % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(shape)} and num_groups={num_groups}"
        )
    if shape[0] * shape[1] // num_groups * math.prod(shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(shape)}")
    for name, x in (("weight", weight), ("bias", bias)):
        if x is not None and tuple(x.shape) != shape[1:2]:
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of "
                f"shape {list(x.shape)} and input of shape {list(shape)}"
            )
    return as_given(over_groups(input, weight, bias, num_groups, eps)[0], input)
