"""Pooling as programs call it: max_pool2d, avg_pool2d, adaptive_avg_pool2d, ... in one, two and three dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.sizes import as_int
from undertow.ops.declare import composite
from undertow.ops.declare.composite_order import rearranged
from undertow.ops.network.pool_kernels import (
    ADAPTIVE_AVG_POOLS,
    ADAPTIVE_MAX_POOLS,
    AVG_POOLS,
    MAX_POOLS,
    pooled_sizes,
)
from undertow.ops.network.sliding_windows import Sizes, per_dim
from undertow.ops.pointwise.abs_sign import abs as absolute
from undertow.ops.pointwise.abs_sign import sign
from undertow.ops.pointwise.activations import relu
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.pointwise.powers import pow as power
from undertow.ops.reduce.sums_and_products import mean
from undertow.ops.views.dimensions import squeeze, unsqueeze
from undertow.tensor import Tensor

# ---- checks


def _check_input(name: str, input: Array, dims: int, kinds: str = "biuf") -> Array:
    input = as_operand(name, "input", input)
    shape = input._array.shape
    if len(shape) not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got {list(input.shape)}: non-empty {dims + 1}D "
            f"or {dims + 2}D (batch mode) tensor expected for input"
        )
    if not all(shape[len(shape) - dims - 1 :]):
        raise RuntimeError(
            f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch size for input, but "
            f"got:{list(input.shape)}"
        )
    if dtypes.kind_of(input._array.dtype) not in kinds:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.SCALAR_NAMES[input.dtype]}'")
    return input


def _check_windows(name: str, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> None:
    if min(kernel) < 1:
        raise RuntimeError(f"kernel size should be greater than zero, but got {list(kernel)}")
    if min(stride) < 1:
        raise RuntimeError(f"stride should not be zero: got {list(stride)}")
    if min(dilation) < 1:
        letters = ("T", "H", "W")[-len(dilation) :]
        got = " ".join(f"dilation{axis}: {d}" for axis, d in zip(letters, dilation, strict=True))
        raise RuntimeError(f"dilation should be greater than zero, but got {got}")
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > (d * (k - 1) + 1) // 2:
            raise RuntimeError(
                f"{name}() padding should be at most half of kernel size, but got padding={p} and kernel_size={k}: pad "
                f"should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={d}"
            )


def check_output(shape: Sizes, counts: Sizes) -> None:
    if min(counts) < 1:
        channels, *sizes = shape[len(shape) - len(counts) - 1 :]
        given, found = ["x".join(map(str, (channels, *n))) for n in (sizes, counts)]
        raise RuntimeError(f"Given input size: ({given}). Calculated output size: ({found}). Output size is too small")


def windows(
    name: str,
    dims: int,
    input: Array,
    kernel: Any,
    stride: Any,
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> list[Sizes]:
    """Kernel size, stride, padding and dilation for each dimension, all checked."""
    shape = tuple(input._array.shape[-dims - 1 :])
    given = (kernel, stride, padding, dilation)
    find = _windows_once if all([type(value) in PLAIN for value in given]) else _windows_of
    return find(name, dims, shape, *given, bool(ceil_mode))


#: the types of arguments that are as good as their values
PLAIN = (int, tuple, type(None))


def _windows_of(
    name: str,
    dims: int,
    shape: Sizes,
    kernel: Any,
    stride: Any,
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> list[Sizes]:
    stride = kernel if stride is None or (isinstance(stride, Iterable) and not tuple(stride)) else stride
    given = (("kernel_size", kernel), ("stride", stride), ("padding", padding), ("dilation", dilation))
    sizes = [per_dim(argument, value, dims, name) for argument, value in given]
    _check_shapes(name, shape, sizes[0], sizes[1], sizes[2], sizes[3], ceil_mode)
    return sizes


_windows_once = functools.lru_cache(256)(_windows_of)


def _check_shapes(
    name: str, shape: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> None:
    """Whether the last dimensions of an input, with that of the channels before them, have room for such windows."""
    _check_windows(name, kernel, stride, padding, dilation)
    counts = pooled_sizes(shape[1:], kernel, stride, padding, dilation, ceil_mode)
    check_output(shape, counts)
    if max(dilation) > 1:
        for numbers in zip(shape[1:], counts, stride, padding, dilation, strict=True):
            _check_seen(name, *numbers)


def _check_seen(name: str, length: int, count: int, stride: int, padding: int, dilation: int) -> None:
    """Every window has an element. PyTorch lets some have none, and its backward pass writes where nothing is."""
    starts = [k * stride - padding for k in range(count) if k * stride < padding]
    if any([start % dilation >= length for start in starts]):
        raise RuntimeError(
            f"{name}: a window lies in the padding alone, for its dilation ({dilation}) steps over the input, of "
            f"length {length}. Use less dilation or padding."
        )


def _in_two(function: Callable[[Any], Any], input: Array) -> Any:
    """A function of two dimensions on an input with one, which gets another of size 1 in front of it."""
    out = function(unsqueeze(input, -2))
    return tuple([squeeze(o, -2) for o in out]) if isinstance(out, tuple) else squeeze(out, -2)


# ---- the largest


def max_pool(dims: int, input: Array, *arguments: Any) -> Any:
    name = f"max_pool{dims}d"
    kernel, stride, padding, dilation, ceil_mode, return_indices = arguments
    input = _check_input(name, input, dims)
    kernel, stride, padding, dilation = windows(name, dims, input, kernel, stride, padding, dilation, ceil_mode)
    if dims == 1:
        kernel, stride, padding, dilation = (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)
        out = _in_two(lambda x: MAX_POOLS[2](x, kernel, stride, padding, dilation, ceil_mode), input)
        if not return_indices and out[0]._edge is None:  # PyTorch then has a kernel of its own
            return rearranged(out[0], "rows", ())
    else:
        out = MAX_POOLS[dims](input, kernel, stride, padding, dilation, ceil_mode)
    return out if return_indices else out[0]


@composite
def max_pool1d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of every window along the last dimension; see max_pool2d.

    stride  how far the window moves; None: the window's size

    >>> import undertow as ut
    >>> ut.max_pool1d(ut.arange(6.0).reshape(1, 6), 2)
    tensor([[1., 3., 5.]])
    """
    return max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite
def max_pool2d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of every window over the last two dimensions; the gradient goes to the first of equals.

    stride          how far apart windows are: by default, side by side
    ceil_mode       also windows that the input fills only partly
    return_indices  the elements' flat positions as well

    >>> import undertow as ut
    >>> ut.max_pool2d(ut.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[5.0, 7.0], [13.0, 15.0]]]
    """
    return max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite
def max_pool3d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of every window over the last three dimensions; see max_pool2d.

    stride  how far the window moves; None: the window's size

    >>> import undertow as ut
    >>> ut.max_pool3d(ut.ones(1, 4, 4, 4), 2).shape
    undertow.Size([1, 2, 2, 2])
    """
    return max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


# ---- the mean


def avg_pool(dims: int, input: Array, *arguments: Any) -> Tensor:
    kernel, stride, padding, ceil_mode, count_include_pad, divisor_override = arguments
    name = f"avg_pool{dims}d"
    input = _check_input(name, input, dims)
    kernel, stride, padding, _ = windows(name, dims, input, kernel, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    rest = (ceil_mode, count_include_pad, divisor_override)
    if dims == 1:
        return _in_two(lambda x: AVG_POOLS[2](x, (1, *kernel), (1, *stride), (0, *padding), *rest), input)
    return AVG_POOLS[dims](input, kernel, stride, padding, *rest)


@composite
def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of every window along the last dimension; see avg_pool2d.

    count_include_pad  whether padding counts in the means
    stride             how far the window moves; None: the window's size

    >>> import undertow as ut
    >>> ut.avg_pool1d(ut.arange(6.0).reshape(1, 6), 2)
    tensor([[0.5000, 2.5000, 4.5000]])
    """
    return avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@composite(out=True)
def avg_pool2d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window over the last two dimensions.

    count_include_pad  zeros of the padding count as elements
    divisor_override   sums are divided by this number instead
    stride             how far the window moves; None: the window's size

    >>> import undertow as ut
    >>> ut.avg_pool2d(ut.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    return avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite(out=True)
def avg_pool3d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window over the last three dimensions; see avg_pool2d.

    count_include_pad  whether padding counts in the means
    divisor_override   what sums are divided by, in the place of the number of elements
    stride             how far the window moves; None: the window's size

    >>> import undertow as ut
    >>> ut.avg_pool3d(ut.ones(1, 4, 4, 4), 2).shape
    undertow.Size([1, 2, 2, 2])
    """
    return avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


# ---- so many windows


def _output_sizes(name: str, input: Array, output_size: int | Sequence[int | None], dims: int) -> Sizes:
    """The number of windows along each dimension: None means as many as there are elements."""
    given = tuple(output_size) if isinstance(output_size, Iterable) else (output_size,) * dims
    if len(given) != dims:
        raise RuntimeError(f"{name}: output_size must be {dims}, but got {len(given)}")
    there = input.shape[input.ndim - dims :]
    sizes = tuple([n if g is None else as_int(name, "output_size", g) for g, n in zip(given, there, strict=True)])
    if min(sizes) < 0:
        received = ", ".join(map(str, sizes))
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received {{{received}}}"
        )
    return sizes


def adaptive_avg_pool(dims: int, input: Array, output_size: int | Sequence[int | None]) -> Array:
    name = f"adaptive_avg_pool{dims}d"
    input = _check_input(name, input, dims, "fc")
    sizes = _output_sizes(name, input, output_size, dims)
    if dims == 1:
        return _in_two(lambda x: ADAPTIVE_AVG_POOLS[2](x, (1, *sizes)), input)
    if set(sizes) == {1}:
        return mean(input, tuple(range(-dims, 0)), True)
    return ADAPTIVE_AVG_POOLS[dims](input, sizes)


def adaptive_max_pool(dims: int, input: Array, output_size: int | Sequence[int | None], return_indices: bool) -> Any:
    name = f"adaptive_max_pool{dims}d"
    input = _check_input(name, input, dims, "f")
    sizes = _output_sizes(name, input, output_size, dims)
    if dims == 1:
        out = _in_two(lambda x: ADAPTIVE_MAX_POOLS[2](x, (1, *sizes)), input)
    else:
        out = ADAPTIVE_MAX_POOLS[dims](input, sizes)
    return out if return_indices else out[0]


@composite
def adaptive_avg_pool1d(input: Array, output_size: int | Sequence[int | None]) -> Tensor:
    """The means of `output_size` windows that cover the last dimension; see adaptive_avg_pool2d.

    >>> import undertow as ut
    >>> ut.adaptive_avg_pool1d(ut.arange(6.0).reshape(1, 6), 2)
    tensor([[1., 4.]])
    """
    return adaptive_avg_pool(1, input, output_size)


@composite
def adaptive_avg_pool2d(input: Array, output_size: int | Sequence[int | None]) -> Tensor:
    """The means of so many windows (None: one for each element) as cover the last two dimensions.

    >>> import undertow as ut
    >>> ut.adaptive_avg_pool2d(ut.arange(16.0).reshape(1, 4, 4), (2, 1)).tolist()
    [[[3.5], [11.5]]]
    """
    return adaptive_avg_pool(2, input, output_size)


@composite
def adaptive_avg_pool3d(input: Array, output_size: int | Sequence[int | None]) -> Tensor:
    """The means of windows that cover the last three dimensions; see adaptive_avg_pool2d.

    >>> import undertow as ut
    >>> ut.adaptive_avg_pool3d(ut.ones(1, 4, 4, 4), 2).shape
    undertow.Size([1, 2, 2, 2])
    """
    return adaptive_avg_pool(3, input, output_size)


@composite
def adaptive_max_pool1d(input: Array, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """The largest elements of `output_size` windows that cover the last dimension.

    >>> import undertow as ut
    >>> ut.adaptive_max_pool1d(ut.arange(6.0).reshape(1, 6), 2)[0]
    tensor([2., 5.])
    """
    return adaptive_max_pool(1, input, output_size, return_indices)


@composite
def adaptive_max_pool2d(input: Array, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """The largest elements of windows that cover the last two dimensions; see adaptive_avg_pool2d.

    >>> import undertow as ut
    >>> ut.adaptive_max_pool2d(ut.ones(1, 1, 4, 4), 2).shape
    undertow.Size([1, 1, 2, 2])
    """
    return adaptive_max_pool(2, input, output_size, return_indices)


@composite
def adaptive_max_pool3d(input: Array, output_size: int | Sequence[int | None], return_indices: bool = False) -> Any:
    """The largest elements of windows that cover the last three dimensions; see adaptive_avg_pool2d.

    >>> import undertow as ut
    >>> ut.adaptive_max_pool3d(ut.ones(1, 4, 4, 4), 2).shape
    undertow.Size([1, 2, 2, 2])
    """
    return adaptive_max_pool(3, input, output_size, return_indices)


# ---- norms of windows


def _lp_pool(dims: int, input: Array, norm_type: float, kernel: Any, stride: Any, ceil_mode: bool) -> Tensor:
    count = math.prod(per_dim("kernel_size", kernel, dims, "pooling"))
    sums = avg_pool(dims, power(input, norm_type), kernel, stride, 0, ceil_mode, True, None)
    return power(mul(mul(sign(sums), relu(absolute(sums))), count), 1.0 / norm_type)


@composite
def lp_pool1d(
    input: Array,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of every window along the last dimension (of their powers' signed sum, as in PyTorch).

    norm_type  of which norm
    stride     how far the window moves; None: the window's size

    >>> import undertow as ut
    >>> ut.lp_pool1d(ut.ones(1, 4), 2.0, 2)
    tensor([[1.4142, 1.4142]])
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@composite
def lp_pool2d(
    input: Array,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of every window over the last two dimensions.

    norm_type  of which norm
    stride     how far the window moves; None: the window's size

    >>> import undertow as ut
    >>> ut.lp_pool2d(ut.ones(1, 1, 4, 4), 2.0, 2).shape
    undertow.Size([1, 1, 2, 2])
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@composite
def lp_pool3d(
    input: Array,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of every window over the last three dimensions.

    norm_type  of which norm
    stride     how far the window moves; None: the window's size

    >>> import undertow as ut
    >>> ut.lp_pool3d(ut.ones(1, 4, 4, 4), 2.0, 2).shape
    undertow.Size([1, 2, 2, 2])
    """
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
