"""Convolution and its transpose as programs call them: conv1d, conv2d, conv3d, conv_transpose1d, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.network.conv_kernels import convolve_kernel, convolve_transposed_kernel
from undertow.ops.network.sliding_windows import Sizes, by_x, per_dim, window_counts
from undertow.ops.shape.padding import constant_pad_nd
from undertow.ops.views.dimensions import squeeze, unsqueeze
from undertow.tensor import Tensor

# ---- checks


def _check_numbers(stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    if min(stride) < 1:
        raise RuntimeError(f"non-positive stride is not supported: got {list(stride)}")
    if min(padding) < 0:
        raise RuntimeError(f"negative padding is not supported: got {list(padding)}")
    if min(dilation) < 1:
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")
    if groups < 1:
        raise RuntimeError(f"non-positive groups is not supported: got {groups}")


def _check_channels(input: Array, weight: Array, bias: Array | None, groups: int, transposed: bool) -> None:
    shape = list(weight.shape)
    start = f"Given transposed={1 if transposed else 0}" if transposed else f"Given groups={groups}"
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
            f"size [{shape}] instead"
        )
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    if input.shape[1] != channels:
        raise RuntimeError(
            f"{start}, weight of size {shape}, expected input{list(input.shape)} to have {channels} channels, but got "
            f"{input.shape[1]} channels instead"
        )
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and tuple(bias.shape) != (outputs,):
        start = "Given transposed=1, weight" if transposed else "Given weight"
        raise RuntimeError(
            f"{start} of size {shape}, expected bias to be 1-dimensional with {outputs} elements, but got bias of size "
            f"{list(bias.shape)} instead"
        )
    for other in (weight, bias):
        if other is not None and other.dtype != input.dtype:
            names = [dtypes.SCALAR_NAMES[x.dtype] for x in (input, other)]
            raise RuntimeError(f"expected scalar type {names[0]} but found {names[1]}")


def _check_counts(input: Array, kernel: Sizes, padding: Sizes, dilation: Sizes, counts: Sizes) -> None:
    if min(counts, default=1) < 1:
        sizes = [n + 2 * p for n, p in zip(input.shape[2:], padding, strict=True)]
        covered = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
        raise RuntimeError(
            f"Calculated padded input size per channel: ({by_x(sizes)}). Kernel size: ({by_x(covered)}). Kernel size "
            "can't be greater than actual input size"
        )


def _transposed_sizes(
    input: Array, kernel: Sizes, stride: Sizes, padding: Sizes, output_padding: Sizes, dilation: Sizes
) -> Sizes:
    axes = ("depth", "height", "width")[-len(kernel) :]
    if any(o >= max(s, d) for o, s, d in zip(output_padding, stride, dilation, strict=True)):
        numbers = [("output_padding", output_padding), ("stride", stride), ("dilation", dilation)]
        got = " ".join(f"{n}_{axis}: {v}" for n, values in numbers for axis, v in zip(axes, values, strict=True))
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got {got}")
    if min(output_padding) < 0:
        raise RuntimeError(f"negative output_padding is not supported: got {list(output_padding)}")
    out = tuple(
        [
            (n - 1) * s - 2 * p + d * (k - 1) + o + 1
            for n, k, s, p, o, d in zip(input.shape[2:], kernel, stride, padding, output_padding, dilation, strict=True)
        ]
    )
    if min(out, default=1) < 1:
        raise RuntimeError(
            f"Given input size per channel: ({by_x(input.shape[2:])}). Calculated output size per channel: "
            f"({by_x(out)}). Output size is too small"
        )
    return out


# ---- public functions


@composite
def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool,
    output_padding: int | Sequence[int],
    groups: int,
) -> Tensor:
    """Convolution (or its transpose) over all dimensions behind examples and channels; see conv2d.

    weight      as `conv2d` and its kin take it, or as `conv_transpose2d` and its kin do
    bias        one number for each channel of the result, or None
    stride      how far the window moves, or the elements of the input are apart
    transposed  whether it is a transposed convolution

    >>> import undertow as ut
    >>> ut.convolution(ut.ones(1, 1, 4), ut.ones(1, 1, 2), None, 1, 0, 1, False, 0, 1)
    tensor([[[2., 2., 2.]]])
    """
    input, weight = as_operand("convolution", "input", input), as_operand("convolution", "weight", weight)
    bias = None if bias is None else as_operand("convolution", "bias", bias)
    dims = weight.ndim - 2
    names = ("stride", "padding", "dilation", "output_padding")
    given = (stride, padding, dilation, output_padding)
    stride, padding, dilation, output_padding = [per_dim(n, v, dims) for n, v in zip(names, given, strict=True)]
    if transposed:
        _check_numbers(stride, padding, dilation, groups)
        _check_channels(input, weight, bias, groups, transposed)
        sizes = _transposed_sizes(input, weight.shape[2:], stride, padding, output_padding, dilation)
        return convolve_transposed_kernel(input, weight, bias, sizes, stride, padding, dilation, groups)
    _check(input, weight, bias, stride, padding, dilation, groups)
    return convolve_kernel(input, weight, bias, stride, padding, dilation, groups)


#: shapes, dtypes and numbers of convolutions that have nothing wrong with them: models ask for the same ones every time
_known: set[Any] = set()
MOST_KNOWN = 4096


def _check(
    input: Array, weight: Array, bias: Array | None, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> None:
    """Refuse a convolution that is not possible."""
    of_bias = None if bias is None else (bias.shape, bias.dtype)
    facts = input.shape, input.dtype, weight.shape, weight.dtype, of_bias, stride, padding, dilation, groups
    if facts in _known:
        return
    _check_numbers(stride, padding, dilation, groups)
    _check_channels(input, weight, bias, groups, False)
    kernel = weight.shape[2:]
    _check_counts(input, kernel, padding, dilation, window_counts(input.shape[2:], kernel, stride, padding, dilation))
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known.add(facts)


def _same_padding(input: Array, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Any, Sizes]:
    """The padding that keeps sizes; where it is odd, one more goes behind the input beforehand."""
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(n % 2 for n in total):
        input = constant_pad_nd(input, tuple([m for n in reversed(total) for m in (0, n % 2)]))
    return input, tuple([n // 2 for n in total])


def batched(name: str, dims: int, input: Array) -> tuple[Any, bool]:
    """The input with a dimension of examples; whether it had one."""
    input = as_operand(name, "input", input)
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    return (input, True) if input.ndim == dims + 2 else (unsqueeze(input, 0), False)


def kernels(name: str, dims: int, weight: Array) -> Tensor:
    """The weight, if it has the dimensions of channels and of `dims` sizes."""
    weight = as_operand(name, "weight", weight)
    if weight.ndim < 3:
        raise RuntimeError(f"{name}: weight should have at least three dimensions, got {list(weight.shape)}")
    if weight.ndim != dims + 2:
        raise RuntimeError(
            f"{name}: expected {dims + 2}-dimensional weight, but got {weight.ndim}-dimensional weight of size "
            f"{list(weight.shape)}"
        )
    return weight


def conv(dims: int, *arguments: Any) -> Tensor:
    input, weight, bias, stride, padding, dilation, groups = arguments
    input, is_batch = batched(f"conv{dims}d", dims, input)
    weight = kernels(f"conv{dims}d", dims, weight)
    if isinstance(padding, str):
        stride, dilation = per_dim("stride", stride, dims), per_dim("dilation", dilation, dims)
        if padding not in ("same", "valid"):
            raise RuntimeError(f"Invalid padding string: '{padding}'. Use 'same', 'valid' or numbers.")
        kernel = weight.shape[2:]
        input, padding = _same_padding(input, kernel, stride, dilation) if padding == "same" else (input, 0)
    out = convolution(input, weight, bias, stride, padding, dilation, False, 0, groups)
    return out if is_batch else squeeze(out, 0)


def conv_transpose(dims: int, *arguments: Any) -> Tensor:
    input, weight, bias, stride, padding, output_padding, groups, dilation = arguments
    input, is_batch = batched(f"conv_transpose{dims}d", dims, input)
    weight = kernels(f"conv_transpose{dims}d", dims, weight)
    out = convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)
    return out if is_batch else squeeze(out, 0)


@composite
def conv1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (examples, channels, length) with weights (out channels, channels / groups, length).

    input   (N, C, L), or (C, L)
    weight  (K, C / groups, kernel)
    bias    (K), or None
    stride  how far the window moves

    >>> import undertow as ut
    >>> ut.conv1d(ut.ones(1, 1, 5), ut.ones(1, 1, 3))
    tensor([[[3., 3., 3.]]])
    """
    return conv(1, input, weight, bias, stride, padding, dilation, groups)


@composite
def conv2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (examples, channels, height, width) with weights (out channels, channels / groups, height, width).

    stride   how far apart windows are; dilation: how far apart the elements of a window are
    padding  numbers, "valid" for none, or "same" for what keeps the sizes
    groups   channels are divided into so many groups, each with weights of its own
    input    (N, C, H, W), or (C, H, W)
    weight   (K, C / groups, height, width)
    bias     (K), or None

    >>> import undertow as ut
    >>> ut.conv2d(ut.ones(1, 1, 3, 3), ut.ones(1, 1, 2, 2)).tolist()
    [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    return conv(2, input, weight, bias, stride, padding, dilation, groups)


@composite
def conv3d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over three dimensions; see conv2d.

    input   (N, C, D, H, W), or (C, D, H, W)
    weight  (K, C / groups, depth, height, width)
    bias    (K), or None
    stride  how far the window moves

    >>> import undertow as ut
    >>> ut.conv3d(ut.ones(1, 1, 4, 4, 4), ut.ones(2, 1, 3, 3, 3)).shape
    undertow.Size([1, 2, 2, 2, 2])
    """
    return conv(3, input, weight, bias, stride, padding, dilation, groups)


@composite
def conv_transpose1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The transpose of conv1d as a linear map; see conv_transpose2d.

    weight  (C, K / groups, kernel)
    bias    (K), or None
    stride  how far apart the elements of the input are in the result

    >>> import undertow as ut
    >>> ut.conv_transpose1d(ut.ones(1, 1, 3), ut.ones(1, 1, 2))
    tensor([[[1., 2., 2., 1.]]])
    """
    return conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite
def conv_transpose2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The transpose of conv2d as a linear map: from its outputs' sizes to its inputs', with the same weights.

    output_padding  which of the input sizes that conv2d maps to the same output size is meant
    weight          (C, K / groups, height, width)
    bias            (K), or None
    stride          how far apart the elements of the input are in the result

    >>> import undertow as ut
    >>> ut.conv_transpose2d(ut.ones(1, 1, 1, 1), ut.ones(1, 1, 2, 2)).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    return conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite
def conv_transpose3d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The transpose of conv3d as a linear map; see conv_transpose2d.

    weight  (C, K / groups, depth, height, width)
    bias    (K), or None
    stride  how far apart the elements of the input are in the result

    >>> import undertow as ut
    >>> ut.conv_transpose3d(ut.ones(1, 1, 2, 2, 2), ut.ones(1, 2, 3, 3, 3)).shape
    undertow.Size([1, 2, 4, 4, 4])
    """
    return conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
