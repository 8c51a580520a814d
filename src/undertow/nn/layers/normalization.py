"""Normalisation layers: zero mean and unit variance, by batch, instance, layer or group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.graph.user_lines import warn_user
from undertow.nn import functional as F
from undertow.nn import init
from undertow.nn.layers.linear import fresh
from undertow.nn.layers.shared_arguments import SharedArguments
from undertow.nn.module import Module

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor


def changeable(out: Tensor, weight: Tensor | None) -> Tensor:
    """A result that may be changed in place: without a scale it is what its own node has saved."""
    return ops.clone(out) if weight is None else out


class ChannelNorm(Module):
    """What BatchNorm and InstanceNorm have in common: a scale and shift, and running statistics, of every channel."""

    _version = 2
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: DType,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        new = lambda: fresh(num_features, device=device, dtype=dtype)
        self.register_parameter("weight", new() if affine else None)
        self.register_parameter("bias", new() if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", new().detach() if tracked else None)
        self.register_buffer("running_var", new().detach() if tracked else None)
        count = ops.zeros((), dtype=dtypes.int64, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, no statistics."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        """State of before version 2 has no count of batches."""
        key = prefix + "num_batches_tracked"
        if (local_metadata.get("version") or 0) < 2 and self.track_running_stats and key not in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def check_dims(input: Tensor, *allowed: int) -> None:
    if input.dim() not in allowed:
        expected = " or ".join(f"{n}D" for n in allowed)
        raise ValueError(f"expected {expected} input (got {input.dim()}D input)")


class BatchNorm(SharedArguments, ChannelNorm):
    """What BatchNorm1d, BatchNorm2d and BatchNorm3d have in common.

    num_features         channels of the input
    eps                  added before a division, against zeros
    momentum             how far the running statistics move with each batch; None: their plain mean over all batches
    affine               whether channels are scaled and shifted by what is learned
    track_running_stats  False: the batch's own statistics are used in evaluation mode, too
    bias                 whether something learned is added

    Shapes: (N, num_features, sizes), of BatchNorm1d also (N, num_features); the result has that of the input.
    """

    allowed_dims: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        check_dims(input, *self.allowed_dims)
        if input.shape[1] != self.num_features and (self.affine or self.track_running_stats):
            raise RuntimeError(
                f"running_mean should contain {input.shape[1]} elements not {self.num_features}: the input has "
                f"{input.shape[1]} channels, the layer was made for {self.num_features}"
            )
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / float(self.num_batches_tracked)
        by_batch = self.training or self.running_mean is None
        tracked = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if tracked else (None, None)
        out = ops.batch_norm(input, mean, var, self.weight, self.bias, by_batch, momentum, self.eps)
        return changeable(out, self.weight)


class BatchNorm1d(BatchNorm):
    """Every feature of (examples, features) or channel of (examples, channels, length) by its mean and variance.

    >>> import undertow as ut
    >>> norm = ut.nn.BatchNorm1d(2)
    >>> norm(ut.tensor([[1.0, 2.0], [3.0, 6.0]])).round(decimals=2).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    allowed_dims = (2, 3)


class BatchNorm2d(BatchNorm):
    """Every channel of (examples, channels, height, width) by its mean and variance.

    >>> import undertow as ut
    >>> ut.nn.BatchNorm2d(4)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 8, 8])
    """

    allowed_dims = (4,)


class BatchNorm3d(BatchNorm):
    """Every channel of (examples, channels, depth, height, width) by its mean and variance.

    >>> import undertow as ut
    >>> ut.nn.BatchNorm3d(4)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 8, 8, 8])
    """

    allowed_dims = (5,)


class InstanceNorm(SharedArguments, ChannelNorm):
    """What InstanceNorm1d, InstanceNorm2d and InstanceNorm3d have in common.

    num_features         channels of the input
    eps                  added before a division, against zeros
    momentum             the weight of a batch in the running statistics; None: their plain mean
    affine               whether channels are scaled and shifted by what is learned
    track_running_stats  whether running statistics are kept, for `eval`
    bias                 whether something learned is added

    Shapes: (N, num_features, sizes) or (num_features, sizes); the result has that of the input.
    """

    dims: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        check_dims(input, self.dims + 1, self.dims + 2)
        channel = input.dim() - self.dims - 1
        if input.shape[channel] != self.num_features:
            self._refuse(channel, input.shape[channel])
        if input.dim() == self.dims + 1:
            return ops.squeeze(self._normalized(ops.unsqueeze(input, 0)), 0)
        return self._normalized(input)

    def _refuse(self, dim: int, size: int) -> None:
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got: {size}."
            )
        warn_user(
            f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing in "
            "num_features, which is not used because affine=False"
        )

    def _normalized(self, input: Tensor) -> Tensor:
        by_input = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        out = ops.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, by_input, momentum, self.eps
        )
        return changeable(out, self.weight)


class InstanceNorm1d(InstanceNorm):
    """Every channel of every example of (examples, channels, length) by its mean and variance.

    >>> import undertow as ut
    >>> ut.nn.InstanceNorm1d(4)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 8])
    """

    dims = 1


class InstanceNorm2d(InstanceNorm):
    """Every channel of every example of (examples, channels, height, width) by its mean and variance.

    >>> import undertow as ut
    >>> ut.nn.InstanceNorm2d(4)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 8, 8])
    """

    dims = 2


class InstanceNorm3d(InstanceNorm):
    """Every channel of every example of (examples, channels, depth, height, width) by its mean and variance.

    >>> import undertow as ut
    >>> ut.nn.InstanceNorm3d(4)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 8, 8, 8])
    """

    dims = 3


def as_sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class LayerNorm(Module):
    """The last dimensions, which are `normalized_shape`, by their mean and variance.

    normalized_shape    the last dimensions, over which mean and variance are taken
    eps                 added before a division, against zeros
    elementwise_affine  whether elements are scaled and shifted by what is learned
    bias                whether something learned is added

    >>> import undertow as ut
    >>> ut.nn.LayerNorm(8)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 8])
    """

    weight: Any
    bias: Any

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = as_sizes(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        new = lambda: fresh(*self.normalized_shape, device=device, dtype=dtype)
        self.register_parameter("weight", new() if elementwise_affine else None)
        self.register_parameter("bias", new() if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """The last dimensions, which are `normalized_shape`, over their root mean square.

    elementwise_affine  whether every element is multiplied by a learned weight
    eps                 None: the smallest number that 1 can be told from, of the input's dtype

    Shapes: (..., *normalized_shape); the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.RMSNorm(8)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 8])
    """

    weight: Any

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = as_sizes(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        new = lambda: fresh(*self.normalized_shape, device=device, dtype=dtype)
        self.register_parameter("weight", new() if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return ops.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Groups of channels of every example by their mean and variance.

    num_groups    channels are divided into so many groups
    num_channels  channels of the input
    eps           added before a division, against zeros
    affine        whether channels are scaled and shifted by what is learned
    bias          whether something learned is added

    Shapes: (N, num_channels, ...); the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.GroupNorm(2, 4)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 8, 8])
    """

    weight: Any
    bias: Any

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        new = lambda: fresh(num_channels, device=device, dtype=dtype)
        self.register_parameter("weight", new() if affine else None)
        self.register_parameter("bias", new() if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return changeable(ops.group_norm(input, self.num_groups, self.weight, self.bias, self.eps), self.weight)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Every element over a power of the mean square of `size` neighbouring channels.

    size   how many channels count
    alpha  multiplies the mean of squares
    beta   the exponent
    k      added to the sum of squares

    Shapes: (N, C, ...); the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.LocalResponseNorm(2)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 8, 8])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
