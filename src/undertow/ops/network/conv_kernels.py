"""Convolution in any number of dimensions, and its transpose.

Three kernels are each other's derivatives, because each is one factor's part of the same sum over
x[n, c, stride * l + dilation * k - padding] * w[o, c, k] * y[n, o, l]:

    _convolve             x, w -> y
    _convolve_transposed  y, w -> x
    _convolve_weight      x, y -> w

The compiled core has all three. In NumPy, with few channels, the windows are copied into a matrix for one product (per
group and example); with many, there is a product for each place of the window, without the copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import BILINEAR
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded
from undertow.ops.network.sliding_windows import (
    Sizes,
    add_windows,
    offsets,
    padded,
    shifted_slices,
    sliding,
    uncovered,
    window_counts,
)

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

#: from so many channels (of a group) on, products per place are faster, and so is the kernel for weights
MANY = 32


# ---- kernels


def _is_product(kernel: Sizes, stride: Sizes, padding: Sizes) -> bool:
    """Whether windows are single elements, all of them: then a product of matrices needs no copies."""
    return max(kernel, default=1) == 1 and max(stride, default=1) == 1 and not any(padding)


def whole(xp: Namespace, *arrays: Any) -> list[Array]:
    """The arrays as kernels want them: contiguous."""
    return [x if x is None else xp.ascontiguousarray(x) for x in arrays]


def convolve(
    xp: Namespace,
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    groups: int = 1,
) -> Array:
    found = None
    if not _is_product(weight.shape[2:], stride, padding):
        found = kernels.convolve(xp, *whole(xp, input, weight, bias), stride, padding, dilation, groups)
    return _convolve_by_products(xp, input, weight, bias, stride, padding, dilation, groups) if found is None else found


def convolve_transposed(
    xp: Namespace,
    input: Array,
    weight: Array,
    bias: Array | None = None,
    output_size: Sizes = (),
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    groups: int = 1,
) -> Array:
    rest = (output_size, stride, padding, dilation, groups)
    found = None
    if not _is_product(weight.shape[2:], stride, padding):
        found = kernels.convolve_transposed(xp, *whole(xp, input, weight, bias), *rest)
    return _convolve_transposed_by_products(xp, input, weight, bias, *rest) if found is None else found


def convolve_weight(
    xp: Namespace,
    input: Array,
    other: Array,
    kernel_size: Sizes,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    groups: int = 1,
) -> Array:
    rest = (kernel_size, stride, padding, dilation, groups)
    found = None
    if not _is_product(kernel_size, stride, padding) or input.shape[1] // groups >= MANY:
        found = kernels.convolve_weight(xp, *whole(xp, input, other), *rest)
    return _convolve_weight_by_products(xp, input, other, *rest) if found is None else found


# ---- the same in NumPy


def _grouped(x: Array, groups: int, channel: int) -> Array:
    """The channels in groups: one more dimension."""
    return x.reshape(*x.shape[:channel], groups, x.shape[channel] // groups, *x.shape[channel + 1 :])


def flat(x: Array, lead: int) -> Array:
    """Everything behind the first `lead` dimensions in one."""
    return x.reshape(*x.shape[:lead], math.prod(x.shape[lead:]))


def _windows_as_columns(xp: Namespace, x: Array, kernel: Sizes, counts: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    """A matrix for each example and group: a column for each window, with its channels and places below each other."""
    windows = sliding(xp, x, kernel, counts, stride, dilation)
    return windows.reshape(*x.shape[:2], x.shape[2] * math.prod(kernel), math.prod(counts))


def _convolve_by_products(
    xp: Namespace,
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    kernel = weight.shape[2:]
    counts = window_counts(input.shape[2:], kernel, stride, padding, dilation)
    x = _grouped(padded(xp, input, padding), groups, 1)
    w = _grouped(weight, groups, 0)
    if x.shape[2] < MANY or math.prod(kernel) == 1:
        out = xp.matmul(flat(w, 2), _windows_as_columns(xp, x, kernel, counts, stride, dilation))
    else:
        out = 0
        for offset in offsets(kernel):
            shifted = flat(x[shifted_slices(offset, counts, stride, dilation)], 3)
            out = out + xp.matmul(xp.ascontiguousarray(w[(..., *offset)]), shifted)
    out = out.reshape(input.shape[0], weight.shape[0], *counts)
    if bias is not None:
        out += bias.reshape(-1, *[1] * len(kernel))
    return out


def _convolve_transposed_by_products(
    xp: Namespace,
    input: Array,
    weight: Array,
    bias: Array | None,
    output_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    kernel, counts = weight.shape[2:], input.shape[2:]
    y = flat(_grouped(input, groups, 1), 3)
    w = _grouped(weight, groups, 0)
    channels = weight.shape[1] * groups
    shape = (input.shape[0], channels, *kernel, *counts)
    if w.shape[2] < MANY or math.prod(kernel) == 1:
        columns = xp.matmul(xp.swapaxes(flat(w, 2), -1, -2), y).reshape(shape)
        out = add_windows(xp, columns, output_size, stride, padding, dilation)
    else:
        sizes = [n + 2 * p for n, p in zip(output_size, padding, strict=True)]
        out = xp.zeros((*shape[:2], *sizes), xp.result_type(input, weight))
        for offset in offsets(kernel):
            part = xp.matmul(xp.swapaxes(w[(..., *offset)], -1, -2), y)
            out[shifted_slices(offset, counts, stride, dilation)] += part.reshape(*shape[:2], *counts)
        out = uncovered(out, padding)
    return out if bias is None else out + bias.reshape(-1, *[1] * len(kernel))


def _convolve_weight_by_products(
    xp: Namespace,
    input: Array,
    other: Array,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    counts = other.shape[2:]
    x = _grouped(padded(xp, input, padding), groups, 1)
    y = flat(_grouped(other, groups, 1), 3)
    if x.shape[2] < MANY or math.prod(kernel_size) == 1:
        columns = _windows_as_columns(xp, x, kernel_size, counts, stride, dilation)
        out = xp.matmul(y, xp.swapaxes(columns, -1, -2)).sum(axis=0)
    else:
        parts = [flat(x[shifted_slices(o, counts, stride, dilation)], 3) for o in offsets(kernel_size)]
        out = xp.stack([xp.matmul(y, xp.swapaxes(part, -1, -2)).sum(axis=0) for part in parts], axis=-1)
    return out.reshape(other.shape[1], input.shape[1] // groups, *kernel_size)


# ---- batching: into the examples, or (where weights differ) into the groups


def _batch_convolution(bias: int | None) -> Any:
    """A rule for kernels whose first two arguments are tensors; `bias` tells the place of a third."""

    def batch(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
        size = batch_size(args, in_dims)
        if bias is not None and in_dims[1] is None and in_dims[bias] is None:
            input = expanded(args[0], in_dims[0], size)
            examples = input.shape[1]
            out = op(recorded.reshape(input, (size * examples, *input.shape[2:])), *args[1:])
            return recorded.reshape(out, (size, examples, *out.shape[1:])), 0
        moved = list(args)
        for k in range(2 if bias is None else 3):
            if args[k] is not None:
                moved[k] = _into_channels(expanded(args[k], in_dims[k], size), 0 if k and bias is not None else 1)
        moved[-1] = args[-1] * size
        out = op(*moved)
        channel = 0 if bias is None else 1
        shape = (*out.shape[:channel], size, out.shape[channel] // size, *out.shape[channel + 1 :])
        return recorded.reshape(out, shape), channel

    return batch


def _into_channels(x: Array, channel: int) -> Array:
    """A batch (in front) joined to the channels."""
    x = recorded.moveaxis(x, 0, channel)
    return recorded.reshape(x, (*x.shape[:channel], x.shape[channel] * x.shape[channel + 1], *x.shape[channel + 2 :]))


# ---- rules


def summed(xp: Namespace, g: Array) -> Array:
    return xp.sum(g, axis=(0, *range(2, g.ndim)))


def _spread(xp: Namespace, bias: Array, like: Array) -> Array:
    """A bias (or its tangent) in the shape of the output."""
    return xp.broadcast_to(xp.reshape(bias, (-1, *[1] * (like.ndim - 2))), tuple(like.shape))


def cropped(xp: Namespace, x: Array, sizes: Sequence[int]) -> Array:
    for dim, n in enumerate(sizes, 2):
        x = x if x.shape[dim] == n else xp.slice(x, dim, 0, n)
    return x


def _transposed_input_gradient(
    xp: Namespace,
    g: Array,
    weight: Array,
    input_shape: Any,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    # an output padding beyond the stride leaves room for further windows
    out = xp._convolve(g, xp.conj(weight), None, stride, padding, dilation, groups)
    return cropped(xp, out, input_shape[2:])


convolve_kernel = primitive(
    "_convolve",
    forward=convolve,
    vjp={
        "input": lambda xp, g, weight, input_shape, stride, padding, dilation, groups: xp._convolve_transposed(
            g, xp.conj(weight), None, input_shape[2:], stride, padding, dilation, groups
        ),
        "weight": lambda xp, g, input, weight_shape, stride, padding, dilation, groups: xp._convolve_weight(
            xp.conj(input), g, weight_shape[2:], stride, padding, dilation, groups
        ),
        "bias": lambda xp, g, bias_shape: summed(xp, g),
    },
    jvp={
        "input": lambda xp, t, weight, stride, padding, dilation, groups: xp._convolve(
            t, weight, None, stride, padding, dilation, groups
        ),
        "weight": lambda xp, t, input, stride, padding, dilation, groups: xp._convolve(
            input, t, None, stride, padding, dilation, groups
        ),
        "bias": lambda xp, t, out: _spread(xp, t, out),
    },
    batch=_batch_convolution(bias=2),
    optional=("bias",),
    node="ConvolutionBackward0",
    autocast="lower",
    order="convolution",
)

convolve_transposed_kernel = primitive(
    "_convolve_transposed",
    forward=convolve_transposed,
    vjp={
        "input": _transposed_input_gradient,
        "weight": lambda xp, g, input, weight_shape, stride, padding, dilation, groups: xp._convolve_weight(
            g, xp.conj(input), weight_shape[2:], stride, padding, dilation, groups
        ),
        "bias": lambda xp, g, bias_shape: summed(xp, g),
    },
    jvp={
        "input": lambda xp, t, weight, output_size, stride, padding, dilation, groups: xp._convolve_transposed(
            t, weight, None, output_size, stride, padding, dilation, groups
        ),
        "weight": lambda xp, t, input, output_size, stride, padding, dilation, groups: xp._convolve_transposed(
            input, t, None, output_size, stride, padding, dilation, groups
        ),
        "bias": lambda xp, t, out: _spread(xp, t, out),
    },
    batch=_batch_convolution(bias=2),
    optional=("bias",),
    node="ConvolutionBackward0",
    autocast="lower",
    order="images",
)


def _weight_other_gradient(
    xp: Namespace, g: Array, input: Array, other_shape: Any, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Array:
    return cropped(xp, xp._convolve(xp.conj(input), g, None, stride, padding, dilation, groups), other_shape[2:])


convolve_weight_kernel = primitive(
    "_convolve_weight",
    forward=convolve_weight,
    vjp={
        "input": lambda xp, g, input_shape, other, stride, padding, dilation, groups: xp._convolve_transposed(
            xp.conj(other), g, None, input_shape[2:], stride, padding, dilation, groups
        ),
        "other": _weight_other_gradient,
    },
    jvp=BILINEAR,
    batch=_batch_convolution(bias=None),
    node="ConvolutionBackwardBackward0",
    order="channels",
)
