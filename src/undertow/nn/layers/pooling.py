"""Pooling: the largest element or the mean of every window, in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.nn import functional
from undertow.nn.layers.conv import each_dim
from undertow.nn.layers.shared_arguments import SharedArguments
from undertow.nn.module import Module

if TYPE_CHECKING:
    from undertow.tensor import Tensor

#: the functions are in functional's table, which is filled at import
F: Any = functional


class MaxPool(SharedArguments, Module):
    """What MaxPool1d, MaxPool2d and MaxPool3d have in common.

    kernel_size     the size of the window: a number, or one for each dimension
    stride          how far the window moves
    padding         how much is added at both ends of each dimension
    dilation        the distance of the window's elements
    return_indices  whether places are returned, too
    ceil_mode       whether a last, incomplete window counts

    Shapes: (N, C, sizes) or (C, sizes). Each size becomes (size + 2 padding - dilation (kernel_size - 1) - 1) /
    stride + 1, rounded down.
    """

    function: Any

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self.function(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(MaxPool):
    """The largest element of every window of (examples, channels, length).

    >>> import undertow as ut
    >>> ut.nn.MaxPool1d(2)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 4])
    """

    function = staticmethod(ops.max_pool1d)


class MaxPool2d(MaxPool):
    """The largest element of every window of (examples, channels, height, width).

    >>> import undertow as ut
    >>> ut.nn.MaxPool2d(2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 4, 4])
    """

    function = staticmethod(ops.max_pool2d)


class MaxPool3d(MaxPool):
    """The largest element of every window of (examples, channels, depth, height, width).

    >>> import undertow as ut
    >>> ut.nn.MaxPool3d(2)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 4, 4, 4])
    """

    function = staticmethod(ops.max_pool3d)


class MaxUnpool(SharedArguments, Module):
    """What MaxUnpool1d, MaxUnpool2d and MaxUnpool3d have in common.

    kernel_size  the size of the window: a number, or one for each dimension
    stride       how far the window moves
    padding      how much is added at both ends of each dimension

    Shapes: (N, C, sizes) or (C, sizes), indices alike. Each size becomes (size - 1) stride - 2 padding +
    kernel_size, or what output_size says.
    """

    function: Any
    dims: int

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | str | Sequence[int] = 0,
    ) -> None:
        super().__init__()
        self.kernel_size = each_dim(kernel_size, self.dims)
        self.stride = self.kernel_size if stride is None else each_dim(stride, self.dims)
        self.padding = each_dim(padding, self.dims)

    def forward(self, input: Tensor, indices: Tensor, output_size: int | Sequence[int | None] | None = None) -> Tensor:
        return self.function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(MaxUnpool):
    """The partial inverse of MaxPool1d.

    >>> import undertow as ut
    >>> ut.nn.MaxUnpool1d(2)(*ut.nn.MaxPool1d(2, return_indices=True)(ut.ones(2, 4, 8))).shape
    undertow.Size([2, 4, 8])
    """

    dims, function = 1, staticmethod(F.max_unpool1d)


class MaxUnpool2d(MaxUnpool):
    """The partial inverse of MaxPool2d.

    >>> import undertow as ut
    >>> ut.nn.MaxUnpool2d(2)(*ut.nn.MaxPool2d(2, return_indices=True)(ut.ones(2, 4, 8, 8))).shape
    undertow.Size([2, 4, 8, 8])
    """

    dims, function = 2, staticmethod(F.max_unpool2d)


class MaxUnpool3d(MaxUnpool):
    """The partial inverse of MaxPool3d.

    >>> import undertow as ut
    >>> ut.nn.MaxUnpool3d(2)(*ut.nn.MaxPool3d(2, return_indices=True)(ut.ones(2, 4, 8, 8, 8))).shape
    undertow.Size([2, 4, 8, 8, 8])
    """

    dims, function = 3, staticmethod(F.max_unpool3d)


class AnyAvgPool(Module):
    """What AvgPool1d, AvgPool2d and AvgPool3d have in common."""

    kernel_size: Any
    stride: Any
    padding: Any

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(AnyAvgPool):
    """The mean of every window of (examples, channels, length).

    kernel_size        the size of the window: a number, or one for each dimension
    stride             how far the window moves
    padding            how much is added at both ends of each dimension
    ceil_mode          whether a last, incomplete window counts
    count_include_pad  whether padding counts in the mean

    Shapes: (N, C, L) or (C, L). L becomes (L + 2 padding - kernel_size) / stride + 1, rounded down.

    >>> import undertow as ut
    >>> ut.nn.AvgPool1d(2)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 4])
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | str | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = each_dim(kernel_size, 1)
        self.stride = each_dim(kernel_size if stride is None else stride, 1)
        self.padding = each_dim(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool(SharedArguments, AnyAvgPool):
    """What AvgPool2d and AvgPool3d have in common.

    kernel_size        the size of the window: a number, or one for each dimension
    stride             how far the window moves
    padding            how much is added at both ends of each dimension
    ceil_mode          whether a last, incomplete window counts
    count_include_pad  whether padding counts in the mean
    divisor_override   what sums are divided by, if not by their number

    Shapes: (N, C, sizes) or (C, sizes). Each size becomes (size + 2 padding - kernel_size) / stride + 1, rounded
    down.
    """

    function: Any

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | str | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self.function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(AvgPool):
    """The mean of every window of (examples, channels, height, width).

    >>> import undertow as ut
    >>> ut.nn.AvgPool2d(2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 4, 4])
    """

    function: Any = staticmethod(F.avg_pool2d)


class AvgPool3d(AvgPool):
    """The mean of every window of (examples, channels, depth, height, width).

    >>> import undertow as ut
    >>> ut.nn.AvgPool3d(2)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 4, 4, 4])
    """

    function: Any = staticmethod(F.avg_pool3d)


class LPPool(SharedArguments, Module):
    """What LPPool1d, LPPool2d and LPPool3d have in common.

    norm_type    the exponent of the norm
    kernel_size  the size of the window: a number, or one for each dimension
    stride       how far the window moves
    ceil_mode    whether a last, incomplete window counts

    Shapes: (N, C, sizes) or (C, sizes). Each size becomes (size - kernel_size) / stride + 1, rounded down.
    """

    function: Any

    def __init__(
        self,
        norm_type: float,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(LPPool):
    """The p-norm of every window of (examples, channels, length).

    >>> import undertow as ut
    >>> ut.nn.LPPool1d(2, 2)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 4])
    """

    function = staticmethod(ops.lp_pool1d)


class LPPool2d(LPPool):
    """The p-norm of every window of (examples, channels, height, width).

    >>> import undertow as ut
    >>> ut.nn.LPPool2d(2, 2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 4, 4])
    """

    function = staticmethod(ops.lp_pool2d)


class LPPool3d(LPPool):
    """The p-norm of every window of (examples, channels, depth, height, width).

    >>> import undertow as ut
    >>> ut.nn.LPPool3d(2, 2)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 4, 4, 4])
    """

    function = staticmethod(ops.lp_pool3d)


class AdaptivePool(Module):
    """Pooling into a given number of windows (None: one for each element)."""

    function: Any

    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool(AdaptivePool):
    """What AdaptiveAvgPool1d, AdaptiveAvgPool2d and AdaptiveAvgPool3d have in common."""


class AdaptiveAvgPool1d(AdaptiveAvgPool):
    """The means of `output_size` windows along the length.

    output_size  sizes of the result

    Shapes: (N, C, L) or (C, L); the sizes become output_size.

    >>> import undertow as ut
    >>> ut.nn.AdaptiveAvgPool1d(2)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 2])
    """

    function = staticmethod(ops.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(AdaptiveAvgPool):
    """The means of `output_size` windows over height and width.

    output_size  sizes of the result

    Shapes: (N, C, H, W) or (C, H, W); the sizes become output_size.

    >>> import undertow as ut
    >>> ut.nn.AdaptiveAvgPool2d(2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 2, 2])
    """

    function = staticmethod(ops.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(AdaptiveAvgPool):
    """The means of `output_size` windows over depth, height and width.

    output_size  sizes of the result

    Shapes: (N, C, D, H, W) or (C, D, H, W); the sizes become output_size.

    >>> import undertow as ut
    >>> ut.nn.AdaptiveAvgPool3d(2)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 2, 2, 2])
    """

    function = staticmethod(ops.adaptive_avg_pool3d)


class AdaptiveMaxPool(AdaptivePool):
    """Adaptive pooling that can also give the places of the maxima."""

    def __init__(self, output_size: int | Sequence[int | None], return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self.function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(AdaptiveMaxPool):
    """The largest elements of `output_size` windows along the length.

    output_size     sizes of the result
    return_indices  whether places are returned, too

    Shapes: (N, C, L) or (C, L); the sizes become output_size.

    >>> import undertow as ut
    >>> ut.nn.AdaptiveMaxPool1d(2)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 2])
    """

    function = staticmethod(ops.adaptive_max_pool1d)


class AdaptiveMaxPool2d(AdaptiveMaxPool):
    """The largest elements of `output_size` windows over height and width.

    output_size     sizes of the result
    return_indices  whether places are returned, too

    Shapes: (N, C, H, W) or (C, H, W); the sizes become output_size.

    >>> import undertow as ut
    >>> ut.nn.AdaptiveMaxPool2d(2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 2, 2])
    """

    function = staticmethod(ops.adaptive_max_pool2d)


class AdaptiveMaxPool3d(AdaptiveMaxPool):
    """The largest elements of `output_size` windows over depth, height and width.

    output_size     sizes of the result
    return_indices  whether places are returned, too

    Shapes: (N, C, D, H, W) or (C, D, H, W); the sizes become output_size.

    >>> import undertow as ut
    >>> ut.nn.AdaptiveMaxPool3d(2)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 2, 2, 2])
    """

    function = staticmethod(ops.adaptive_max_pool3d)
