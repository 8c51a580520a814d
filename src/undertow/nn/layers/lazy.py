"""Layers that find out the size of their input when they are first called, and then are the ordinary ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.nn.layers import conv, linear, normalization
from undertow.nn.module.lazy_parameters import LazyModule, UninitializedBuffer, UninitializedParameter

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.nn.module import Module
    from undertow.tensor import Tensor


class LazyLinear(LazyModule, linear.Linear):
    """A Linear whose `in_features` is the last size of its first input.

    `out_features` and `bias` are those of `Linear`.

    >>> import undertow as ut
    >>> layer = ut.nn.LazyLinear(2)
    >>> layer(ut.ones(5, 3)).shape
    undertow.Size([5, 2])
    >>> layer
    Linear(in_features=3, out_features=2, bias=True)
    """

    cls_to_become = linear.Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Device | str | int | None = None, dtype: DType | None = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        self.begin()

    def initialize_parameters(self, input: Tensor) -> None:
        waiting = self.has_uninitialized_params()
        self.in_features = input.shape[-1]
        if waiting:
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()


class LazyConvolution(LazyModule, conv.Convolution):
    """What lazy convolutions have in common: `in_channels` is that of the first input."""

    def wait(self, out_channels: int, bias: bool, device: Device | str | int | None, dtype: DType) -> None:
        self.out_channels = out_channels
        self._check()
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        self.begin()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        waiting = self.has_uninitialized_params()
        self.in_channels = channels_of(self, input, self.dims)
        if not waiting:
            return
        self._check()
        outer, inner = self.out_channels, self.in_channels
        if self.transposed:
            outer, inner = inner, outer
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        weight.materialize((outer, inner // self.groups, *self.kernel_size))
        if bias is not None:
            bias.materialize((self.out_channels,))
        self.reset_parameters()


def channels_of(module: Module, input: Tensor, dims: int) -> int:
    if input.dim() not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {type(module).__name__}, but got "
            f"input of size: {input.shape}"
        )
    return int(input.shape[-dims - 1])


class LazyPlainConvolution(LazyConvolution, conv.PlainConvolution):
    """LazyConv1d, LazyConv2d and LazyConv3d."""

    def __init__(
        self,
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
        conv.PlainConvolution.__init__(self, 0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self.wait(out_channels, bias, device, dtype)


class LazyTransposedConvolution(LazyConvolution, conv.TransposedConvolution):
    """LazyConvTranspose1d, LazyConvTranspose2d and LazyConvTranspose3d."""

    def __init__(
        self,
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
        conv.TransposedConvolution.__init__(
            self, 0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode
        )
        self.wait(out_channels, bias, device, dtype)


class LazyChannelNorm(LazyModule, normalization.ChannelNorm):
    """What lazy norms have in common: `num_features` is the number of channels of the first input."""

    def wait(self, affine: bool, tracked: bool, bias: bool, device: Device | str | int | None, dtype: DType) -> None:
        self.affine, self.track_running_stats = affine, tracked
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if tracked:
            self.register_buffer("running_mean", UninitializedBuffer(device=device, dtype=dtype))
            self.register_buffer("running_var", UninitializedBuffer(device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", ops.zeros((), dtype=dtypes.int64, device=device))
        self.begin()

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features:
            normalization.ChannelNorm.reset_parameters(self)

    def initialize_parameters(self, input: Tensor) -> None:
        waiting = self.has_uninitialized_params()
        self.num_features = self.features_of(input)
        if waiting:
            for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
                if tensor is not None:
                    tensor.materialize((self.num_features,))
            self.reset_parameters()

    def features_of(self, input: Any) -> int:
        raise NotImplementedError("the place of the channels")


class LazyBatchNorm(LazyChannelNorm, normalization.BatchNorm):
    """LazyBatchNorm1d, LazyBatchNorm2d and LazyBatchNorm3d."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        normalization.BatchNorm.__init__(self, 0, eps, momentum, False, False)
        self.wait(affine, track_running_stats, bias, device, dtype)

    def features_of(self, input: Tensor) -> int:
        normalization.check_dims(input, *self.allowed_dims)
        return int(input.shape[1])


class LazyInstanceNorm(LazyChannelNorm, normalization.InstanceNorm):
    """LazyInstanceNorm1d, LazyInstanceNorm2d and LazyInstanceNorm3d."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        normalization.InstanceNorm.__init__(self, 0, eps, momentum, False, False)
        self.wait(affine, track_running_stats, bias, device, dtype)

    def features_of(self, input: Tensor) -> int:
        normalization.check_dims(input, self.dims + 1, self.dims + 2)
        return int(input.shape[-self.dims - 1])


class LazyConv1d(LazyPlainConvolution, conv.Conv1d):
    """A Conv1d whose `in_channels` is that of its first input.

    `out_channels`, `kernel_size`, `stride`, `padding`, `dilation`, `groups`, `bias` and `padding_mode` are those of
    `Conv1d`.

    >>> import undertow as ut
    >>> ut.nn.LazyConv1d(6, 3)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 6, 6])
    """

    cls_to_become = conv.Conv1d


class LazyConv2d(LazyPlainConvolution, conv.Conv2d):
    """A Conv2d whose `in_channels` is that of its first input.

    `out_channels`, `kernel_size`, `stride`, `padding`, `dilation`, `groups`, `bias` and `padding_mode` are those of
    `Conv2d`.

    >>> import undertow as ut
    >>> ut.nn.LazyConv2d(6, 3)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 6, 6, 6])
    """

    cls_to_become = conv.Conv2d


class LazyConv3d(LazyPlainConvolution, conv.Conv3d):
    """A Conv3d whose `in_channels` is that of its first input.

    `out_channels`, `kernel_size`, `stride`, `padding`, `dilation`, `groups`, `bias` and `padding_mode` are those of
    `Conv3d`.

    >>> import undertow as ut
    >>> ut.nn.LazyConv3d(6, 3)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 6, 6, 6, 6])
    """

    cls_to_become = conv.Conv3d


class LazyConvTranspose1d(LazyTransposedConvolution, conv.ConvTranspose1d):
    """A ConvTranspose1d whose `in_channels` is that of its first input.

    `out_channels`, `kernel_size`, `stride`, `padding`, `dilation`, `groups`, `bias` and `padding_mode` are those of
    `ConvTranspose1d`.

    >>> import undertow as ut
    >>> ut.nn.LazyConvTranspose1d(6, 3)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 6, 10])
    """

    cls_to_become = conv.ConvTranspose1d


class LazyConvTranspose2d(LazyTransposedConvolution, conv.ConvTranspose2d):
    """A ConvTranspose2d whose `in_channels` is that of its first input.

    `out_channels`, `kernel_size`, `stride`, `padding`, `dilation`, `groups`, `bias` and `padding_mode` are those of
    `ConvTranspose2d`.

    >>> import undertow as ut
    >>> ut.nn.LazyConvTranspose2d(6, 3)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 6, 10, 10])
    """

    cls_to_become = conv.ConvTranspose2d


class LazyConvTranspose3d(LazyTransposedConvolution, conv.ConvTranspose3d):
    """A ConvTranspose3d whose `in_channels` is that of its first input.

    `out_channels`, `kernel_size`, `stride`, `padding`, `dilation`, `groups`, `bias` and `padding_mode` are those of
    `ConvTranspose3d`.

    >>> import undertow as ut
    >>> ut.nn.LazyConvTranspose3d(6, 3)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 6, 10, 10, 10])
    """

    cls_to_become = conv.ConvTranspose3d


class LazyBatchNorm1d(LazyBatchNorm, normalization.BatchNorm1d):
    """A BatchNorm1d whose `num_features` is that of its first input.

    `eps`, `momentum`, `affine`, `track_running_stats` and `bias` are those of `BatchNorm1d`.

    >>> import undertow as ut
    >>> ut.nn.LazyBatchNorm1d()(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 8])
    """

    cls_to_become = normalization.BatchNorm1d


class LazyBatchNorm2d(LazyBatchNorm, normalization.BatchNorm2d):
    """A BatchNorm2d whose `num_features` is that of its first input.

    `eps`, `momentum`, `affine`, `track_running_stats` and `bias` are those of `BatchNorm2d`.

    >>> import undertow as ut
    >>> ut.nn.LazyBatchNorm2d()(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 8, 8])
    """

    cls_to_become = normalization.BatchNorm2d


class LazyBatchNorm3d(LazyBatchNorm, normalization.BatchNorm3d):
    """A BatchNorm3d whose `num_features` is that of its first input.

    `eps`, `momentum`, `affine`, `track_running_stats` and `bias` are those of `BatchNorm3d`.

    >>> import undertow as ut
    >>> ut.nn.LazyBatchNorm3d()(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 8, 8, 8])
    """

    cls_to_become = normalization.BatchNorm3d


class LazyInstanceNorm1d(LazyInstanceNorm, normalization.InstanceNorm1d):
    """An InstanceNorm1d whose `num_features` is that of its first input.

    eps                  added before a division, against zeros
    momentum             the weight of a batch in the running statistics; None: their plain mean
    affine               whether channels are scaled and shifted by what is learned
    track_running_stats  whether running statistics are kept, for `eval`
    bias                 whether something learned is added

    >>> import undertow as ut
    >>> ut.nn.LazyInstanceNorm1d()(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 8])
    """

    cls_to_become = normalization.InstanceNorm1d


class LazyInstanceNorm2d(LazyInstanceNorm, normalization.InstanceNorm2d):
    """An InstanceNorm2d whose `num_features` is that of its first input.

    eps                  added before a division, against zeros
    momentum             the weight of a batch in the running statistics; None: their plain mean
    affine               whether channels are scaled and shifted by what is learned
    track_running_stats  whether running statistics are kept, for `eval`
    bias                 whether something learned is added

    >>> import undertow as ut
    >>> ut.nn.LazyInstanceNorm2d()(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 8, 8])
    """

    cls_to_become = normalization.InstanceNorm2d


class LazyInstanceNorm3d(LazyInstanceNorm, normalization.InstanceNorm3d):
    """An InstanceNorm3d whose `num_features` is that of its first input.

    eps                  added before a division, against zeros
    momentum             the weight of a batch in the running statistics; None: their plain mean
    affine               whether channels are scaled and shifted by what is learned
    track_running_stats  whether running statistics are kept, for `eval`
    bias                 whether something learned is added

    >>> import undertow as ut
    >>> ut.nn.LazyInstanceNorm3d()(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 8, 8, 8])
    """

    cls_to_become = normalization.InstanceNorm3d
