"""Layers that move elements about: flattening, padding, resizing, folding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.nn import functional as F
from undertow.nn.layers.conv import each_dim
from undertow.nn.module import Module

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class Flatten(Module):
    """Dimensions start_dim to end_dim as one.

    start_dim  the first dimension to be joined
    end_dim    the last one

    Shapes: any with these dimensions.

    >>> import undertow as ut
    >>> ut.nn.Flatten()(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 256])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return ops.flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several.

    dim               the dimension that becomes several
    unflattened_size  the sizes it becomes

    Shapes: any with these dimensions.

    >>> import undertow as ut
    >>> ut.nn.Unflatten(1, (2, 2))(ut.ones(3, 4)).shape
    undertow.Size([3, 2, 2])
    """

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(unflattened_size, tuple | list) or not all(isinstance(n, int) for n in unflattened_size):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found type {type(unflattened_size).__name__}"
            )
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return ops.unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Fold(Module):
    """Images as the sum of their windows, given as columns.

    output_size  height and width of the images
    kernel_size  the size of the window: a number, or one for each dimension
    dilation     the distance of the window's elements
    padding      how much is added at both ends of each dimension
    stride       how far the window moves

    >>> import undertow as ut
    >>> ut.nn.Fold((4, 4), 2)(ut.ones(1, 12, 9)).shape
    undertow.Size([1, 3, 4, 4])
    """

    def __init__(
        self,
        output_size: int | Sequence[int | None],
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """The windows of images, each as a column.

    kernel_size  the size of the window: a number, or one for each dimension
    dilation     the distance of the window's elements
    padding      how much is added at both ends of each dimension
    stride       how far the window moves

    >>> import undertow as ut
    >>> ut.nn.Unfold(2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 16, 49])
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class PixelShuffle(Module):
    """Channels into places: an image `upscale_factor` times as large.

    upscale_factor  how much larger images become

    Shapes: (..., C r^2, H, W) to (..., C, H r, W r), where r is upscale_factor.

    >>> import undertow as ut
    >>> ut.nn.PixelShuffle(2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 1, 16, 16])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return ops.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Places into channels: an image `downscale_factor` times as small.

    downscale_factor  how much smaller images become

    Shapes: (..., C, H r, W r) to (..., C r^2, H, W), where r is downscale_factor.

    >>> import undertow as ut
    >>> ut.nn.PixelUnshuffle(2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 16, 4, 4])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return ops.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Channels dealt out to groups and put together again.

    groups  how many groups of channels take turns

    Shapes: (N, C, ...); the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.ChannelShuffle(2)(ut.arange(4.0).reshape(1, 4, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return ops.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Upsample(Module):
    """Images of another size: `size`, or `scale_factor` times their own.

    size                    the size of the result
    scale_factor            how much larger the result is
    mode                    'nearest', 'linear', 'bilinear', 'bicubic', 'trilinear' or 'area'
    align_corners           whether the outermost points of both lie on each other
    recompute_scale_factor  compute the factor anew from the sizes, which are whole numbers

    Shapes: (N, C, L), (N, C, H, W) or (N, C, D, H, W); the last sizes become size, or scale_factor times their own.

    >>> import undertow as ut
    >>> ut.nn.Upsample(scale_factor=2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 16, 16])
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = None if scale_factor is None else float(scale_factor)
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return ops.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        size = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with the nearest element.

    size          the size of the result
    scale_factor  how much larger the result is

    Shapes: (N, C, H, W); the last sizes become size, or scale_factor times their own.

    >>> import undertow as ut
    >>> ut.nn.UpsamplingNearest2d(scale_factor=2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 16, 16])
    """

    def __init__(self, size: int | Sequence[int] | None = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode bilinear and aligned corners.

    size          the size of the result
    scale_factor  how much larger the result is

    Shapes: (N, C, H, W); the last sizes become size, or scale_factor times their own.

    >>> import undertow as ut
    >>> ut.nn.UpsamplingBilinear2d(scale_factor=2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 16, 16])
    """

    def __init__(self, size: int | Sequence[int] | None = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


# ---- padding


class Padding(Module):
    """What all padding layers have in common: how much to add before and behind, the last dimension first."""

    dims: int
    mode: str

    def __init__(self, padding: int | str | Sequence[int]) -> None:
        super().__init__()
        self.padding = each_dim(padding, 2 * self.dims)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return str(self.padding)


class ConstantPadding(Padding):
    """Padding with one value."""

    mode = "constant"

    def __init__(self, padding: int | str | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ReflectionPadding(Padding):
    """Padding by reflection."""

    mode = "reflect"


class ReplicationPadding(Padding):
    """Padding with the border's own elements."""

    mode = "replicate"


class CircularPadding(Padding):
    """Padding with what is at the other end."""

    mode = "circular"


class ZeroPadding:
    """Padding with zeros: what makes a ZeroPad of the ConstantPad in as many dimensions."""

    padding: Any

    def __init__(self, padding: int | str | Sequence[int]) -> None:
        super().__init__(padding, 0.0)  # type: ignore[call-arg]

    def extra_repr(self) -> str:
        return str(self.padding)


KINDS_OF_PADDING = {
    "ConstantPad": "Padding with one value",
    "ZeroPad": "Padding with zeros",
    "ReflectionPad": "Padding by reflection: what lies inside of the border, in reverse, without the border itself",
    "ReplicationPad": "Padding with the border's own elements, again and again",
    "CircularPad": "Padding with what is at the other end",
}


BASES_OF_PADDING: dict[str, type[Padding]] = {
    "ConstantPad": ConstantPadding,
    "ReflectionPad": ReflectionPadding,
    "ReplicationPad": ReplicationPadding,
    "CircularPad": CircularPadding,
}


def padding_layers() -> dict[str, type]:
    """ConstantPad1d, ..., ZeroPad3d: each kind of padding in one, two and three dimensions."""
    made: dict[str, type] = {}
    for dims in (1, 2, 3):
        for kind, base in BASES_OF_PADDING.items():
            made[f"{kind}{dims}d"] = padding_layer(kind, dims, (base,))
        constant = made[f"ConstantPad{dims}d"]
        made[f"ZeroPad{dims}d"] = padding_layer("ZeroPad", dims, (ZeroPadding, constant))
    return made


def padding_layer(kind: str, dims: int, bases: tuple[type, ...]) -> type:
    value = ", 9.0" if kind == "ConstantPad" else ""
    doc = (
        f"{KINDS_OF_PADDING[kind]}, on both sides of the last {'dimension' if dims == 1 else f'{dims} dimensions'}.\n\n"
        f"padding  how much: one number, or {2 * dims}: before and behind, the last dimension first\n"
        f"{'value    what is added' if value else ''}\n\n"
        f"Shapes: (N, C{', L' * dims}) or (C{', L' * dims}); L grows by what is added.\n\n"
        f"Example: `ut.nn.{kind}{dims}d(1{value})(ut.ones(1{', 2' * dims})).shape`"
    )
    return type(f"{kind}{dims}d", bases, {"dims": dims, "__module__": __name__, "__doc__": doc})


globals().update(padding_layers())
