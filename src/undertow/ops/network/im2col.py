"""Windows of images as the columns of matrices, and back: im2col and col2im (nn.functional's unfold and fold)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.network.sliding_windows import Sizes, add_windows, padded, per_dim, sliding, window_counts
from undertow.tensor import Tensor


def _columns_of(
    xp: Namespace, input: Array, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Array:
    *lead, channels, height, width = input.shape
    counts = window_counts((height, width), kernel_size, stride, padding, dilation)
    windows = sliding(xp, padded(xp, input, padding), kernel_size, counts, stride, dilation)
    return windows.reshape(*lead, channels * math.prod(kernel_size), math.prod(counts)).copy()


def _image_of(
    xp: Namespace, input: Array, output_size: Sizes, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Array:
    *lead, rows, _ = input.shape
    counts = window_counts(output_size, kernel_size, stride, padding, dilation)
    windows = input.reshape(*lead, rows // math.prod(kernel_size), *kernel_size, *counts)
    return add_windows(xp, windows, output_size, stride, padding, dilation)


im2col_kernel = primitive(
    "_im2col",
    forward=_columns_of,
    vjp={
        "input": lambda xp, g, input_shape, kernel_size, dilation, padding, stride: xp._col2im(
            g, input_shape[-2:], kernel_size, dilation, padding, stride
        )
    },
    jvp=LINEAR,
    batch=shifted(),
    node="Im2ColBackward0",
)

col2im_kernel = primitive(
    "_col2im",
    forward=_image_of,
    vjp={
        "input": lambda xp, g, kernel_size, dilation, padding, stride: xp._im2col(
            g, kernel_size, dilation, padding, stride
        )
    },
    jvp=LINEAR,
    batch=shifted(),
    node="Col2ImBackward0",
)


def _of_two(
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int],
    padding: int | str | Sequence[int],
    stride: int | Sequence[int],
) -> list[Sizes]:
    given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    sizes = {name: per_dim(name, value, 2, "image") for name, value in given.items()}
    for name, least in (("kernel_size", 1), ("dilation", 1), ("padding", 0), ("stride", 1)):
        if min(sizes[name]) < least:
            word = "non-negative" if least == 0 else "greater than zero"
            raise RuntimeError(f"{name} should be {word}, but got {sizes[name]}")
    return list(sizes.values())


@composite(variants="")
def im2col(
    input: Array,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The windows of images, each as a column: (examples, channels * places in a window, windows).

    >>> import undertow as ut
    >>> ut.ops.im2col(ut.arange(4.0).reshape(1, 1, 2, 2), (1, 2)).tolist()
    [[[0.0, 2.0], [1.0, 3.0]]]
    """
    input = as_operand("im2col", "input", input)
    sizes = _of_two(kernel_size, dilation, padding, stride)
    if input.ndim not in (3, 4) or not all(input.shape[-3:]):
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: {list(input.shape)}"
        )
    kernel, dilation, padding, stride = sizes
    counts = window_counts(input.shape[-2:], kernel, stride, padding, dilation)
    if min(counts) < 1:
        raise RuntimeError(
            f"Given input with spatial size {tuple(input.shape[-2:])}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, calculated shape of the array of sliding blocks as {counts}, but its components must "
            "be at least one."
        )
    return im2col_kernel(input, kernel, dilation, padding, stride)


@composite(variants="")
def col2im(
    input: Array,
    output_size: int | Sequence[int | None],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """Images as the sum of their windows, which are given as columns: the transpose of im2col."""
    input = as_operand("col2im", "input", input)
    kernel, dilation, padding, stride = _of_two(kernel_size, dilation, padding, stride)
    output_size = per_dim("output_size", output_size, 2, "image")
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size, but got: {list(input.shape)}"
        )
    row = input.ndim - 2
    if input.shape[row] % math.prod(kernel):
        raise RuntimeError(
            f"Expected size of input's dimension {row} to be divisible by the product of kernel_size, but got "
            f"input.size({row})={input.shape[row]} and kernel_size={kernel}."
        )
    counts = window_counts(output_size, kernel, stride, padding, dilation)
    if min(counts) < 1 or input.shape[-1] != math.prod(counts):
        raise RuntimeError(
            f"Given output_size={output_size}, kernel_size={kernel}, dilation={dilation}, padding={padding}, "
            f"stride={stride}, expected size of input's dimension {row + 1} to match the calculated number of sliding "
            f"blocks {counts[0]} * {counts[1]} = {math.prod(counts)}, but got input.size({row + 1})={input.shape[-1]}."
        )
    return col2im_kernel(input, output_size, kernel, dilation, padding, stride)
