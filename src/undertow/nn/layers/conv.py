"""Convolutions and their transposes, in one, two and three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.nn import init
from undertow.nn.layers.linear import fresh
from undertow.nn.layers.shared_arguments import SharedArguments
from undertow.nn.module import Module
from undertow.nn.parameter import Parameter

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor

#: padding_mode -> the mode of `pad`
PADDING_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def each_dim(value: Any, dims: int) -> tuple[int, ...]:
    """One number for all dimensions, or one for each."""
    return tuple(value) if isinstance(value, tuple | list) else (value,) * dims


class Convolution(Module):
    """What all convolutions have in common."""

    dims: int
    transposed = False
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        padding: int | str | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: DType,
        output_padding: int | Sequence[int] = 0,
    ) -> None:
        super().__init__()
        dims = self.dims
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = each_dim(kernel_size, dims), each_dim(stride, dims)
        self.padding: Any = padding if isinstance(padding, str) else each_dim(padding, dims)
        self.dilation, self.output_padding = each_dim(dilation, dims), each_dim(output_padding, dims)
        self.padding_mode = padding_mode
        self._check()
        outer, inner = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = fresh(outer, inner // groups, *self.kernel_size, device=device, dtype=dtype)
        self.register_parameter("bias", fresh(out_channels, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def _check(self) -> None:
        if self.groups <= 0:
            raise ValueError("groups must be a positive integer")
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        if self.out_channels % self.groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(
                    f"Invalid padding string {self.padding!r}, should be one of {{'same', 'valid'}}, or a number"
                )
            if self.padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {sorted(PADDING_MODES)}, but got padding_mode='{self.padding_mode}'"
            )

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform within 1 / sqrt(number of inputs)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def extra_repr(self) -> str:
        zeros, ones = (0,) * self.dims, (1,) * self.dims
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, usual in (("padding", zeros), ("dilation", ones), ("output_padding", zeros), ("groups", 1)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        text += "" if self.bias is not None else ", bias=False"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")


class PlainConvolution(SharedArguments, Convolution):
    """Conv1d, Conv2d and Conv3d.

    in_channels   channels of the input
    out_channels  channels of the result
    kernel_size   the size of the window: a number, or one for each dimension
    stride        how far the window moves
    padding       how much is added at both ends of each dimension
    dilation      the distance of the window's elements
    groups        channels are divided into so many groups, each with weights of its own
    bias          whether something learned is added
    padding_mode  'zeros', 'reflect', 'replicate' or 'circular'

    Shapes: (N, in_channels, sizes) or without N, to out_channels. Each size becomes
    (size + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded down.
    """

    function: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input, padding = ops.pad(input, self._both_sides(), PADDING_MODES[self.padding_mode]), 0
        return self.function(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _both_sides(self) -> list[int]:
        """How much to add before and behind, the last dimension first."""
        if not isinstance(self.padding, str):
            return [p for p in reversed(self.padding) for _ in range(2)]
        totals = [d * (k - 1) * (self.padding == "same") for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        return [side for total in reversed(totals) for side in (total // 2, total - total // 2)]


class Conv1d(PlainConvolution):
    """Convolution of (examples, channels, length).

    >>> import undertow as ut
    >>> ut.nn.Conv1d(4, 6, 3)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 6, 6])
    """

    dims = 1
    function = staticmethod(ops.conv1d)


class Conv2d(PlainConvolution):
    """Convolution of (examples, channels, height, width).

    >>> import undertow as ut
    >>> ut.nn.Conv2d(3, 8, 3, padding=1)(ut.ones(2, 3, 5, 5)).shape
    undertow.Size([2, 8, 5, 5])
    """

    dims = 2
    function = staticmethod(ops.conv2d)


class Conv3d(PlainConvolution):
    """Convolution of (examples, channels, depth, height, width).

    >>> import undertow as ut
    >>> ut.nn.Conv3d(4, 6, 3)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 6, 6, 6, 6])
    """

    dims = 3
    function = staticmethod(ops.conv3d)


class TransposedConvolution(SharedArguments, Convolution):
    """ConvTranspose1d, ConvTranspose2d and ConvTranspose3d.

    in_channels     channels of the input
    out_channels    channels of the result
    kernel_size     the size of the window: a number, or one for each dimension
    stride          how far the window moves
    padding         how much is added at both ends of each dimension
    output_padding  added to one end of the result
    groups          channels are divided into so many groups, each with weights of its own
    bias            whether something learned is added
    dilation        the distance of the window's elements
    padding_mode    'zeros', and no other

    Shapes: (N, in_channels, sizes) or without N, to out_channels. Each size becomes
    (size - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1.
    """

    transposed = True
    function: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
            output_padding,
        )

    def forward(self, input: Tensor, output_size: int | Sequence[int | None] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._extra_for(input, output_size)
        return self.function(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _extra_for(self, input: Any, output_size: Any) -> list[int]:
        """The output_padding that gives the size asked for."""
        wanted = list(output_size)[-self.dims :]
        if len(output_size) not in (self.dims, input.dim()):
            raise ValueError(
                f"{type(self).__name__}: for {input.dim()}D input, output_size must have {self.dims} or "
                f"{input.dim()} elements (got {len(output_size)})"
            )
        kernels = zip(self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        here = input.shape[input.dim() - self.dims :]
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, (s, p, d, k) in zip(here, kernels, strict=True)]
        most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
        if any(not a <= n <= b for a, n, b in zip(least, wanted, most, strict=True)):
            raise ValueError(
                f"requested an output size of {wanted}, but valid sizes range from {least} to {most} (for an input of "
                f"{list(here)})"
            )
        return [n - a for n, a in zip(wanted, least, strict=True)]


class ConvTranspose1d(TransposedConvolution):
    """The transpose of Conv1d as a linear map.

    >>> import undertow as ut
    >>> ut.nn.ConvTranspose1d(4, 6, 3, stride=2)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 6, 17])
    """

    dims = 1
    function = staticmethod(ops.conv_transpose1d)


class ConvTranspose2d(TransposedConvolution):
    """The transpose of Conv2d as a linear map.

    >>> import undertow as ut
    >>> ut.nn.ConvTranspose2d(4, 6, 3, stride=2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 6, 17, 17])
    """

    dims = 2
    function = staticmethod(ops.conv_transpose2d)


class ConvTranspose3d(TransposedConvolution):
    """The transpose of Conv3d as a linear map.

    >>> import undertow as ut
    >>> ut.nn.ConvTranspose3d(4, 6, 3, stride=2)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 6, 17, 17, 17])
    """

    dims = 3
    function = staticmethod(ops.conv_transpose3d)
