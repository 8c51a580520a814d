"""SyncBatchNorm: batch normalization by the statistics of the whole batch, of which each process has a part."""

from __future__ import annotations

from typing import Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.distributed.nn.functional import AllGather
from undertow.distributed.process_group import ProcessGroup, is_initialized, resolve
from undertow.modes import no_grad
from undertow.nn.layers.normalization import BatchNorm
from undertow.nn.module import Module
from undertow.tensor import Tensor


class SyncBatchNorm(BatchNorm):
    """Every channel by its mean and variance over the examples of all processes.

    num_features                      channels of the input
    eps, affine, track_running_stats  as in BatchNorm1d
    process_group                     the processes; all if None
    momentum                          as in BatchNorm1d

    One exchange forward and one back: means, sums of squares and counts of all are joined in each process.

    >>> import undertow as ut
    >>> norm = ut.nn.SyncBatchNorm.convert_sync_batchnorm(ut.nn.BatchNorm1d(2))
    >>> type(norm).__name__
    'SyncBatchNorm'
    """

    allowed_dims = (2, 3, 4, 5)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training or self.running_mean is None) or not is_initialized():
            return super().forward(input)
        group = resolve(self.process_group, "SyncBatchNorm")
        if group is None or group.size() == 1:
            return super().forward(input)
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        mean, var, count = statistics_of_all(input, group)
        self._track(mean.detach(), var.detach(), count)
        shape = (1, -1, *[1] * (input.dim() - 2))
        out = (input - mean.reshape(shape)) * ops.rsqrt(var.reshape(shape) + self.eps)
        if self.weight is not None:
            out = out * self.weight.reshape(shape)
        if self.bias is not None:
            out = out + self.bias.reshape(shape)
        return out.to(input.dtype)

    def _track(self, mean: Tensor, var: Tensor, count: float) -> None:
        if not self.training or not self.track_running_stats:
            return
        with no_grad():
            self.num_batches_tracked.add_(1)
            momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            unbiased = var * (count / max(count - 1, 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with a SyncBatchNorm in the place of each BatchNorm, which has its parameters and statistics.

        process_group  the processes that take part; all if None
        """
        found = module
        if isinstance(module, BatchNorm) and not isinstance(module, SyncBatchNorm):
            found = converted(module, process_group)
        for name, child in list(module.named_children()):
            setattr(found, name, cls.convert_sync_batchnorm(child, process_group))
        return found


def converted(norm: BatchNorm, process_group: Any) -> SyncBatchNorm:
    made = SyncBatchNorm(
        norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats, process_group
    )
    if norm.affine:
        made.weight, made.bias = norm.weight, norm.bias
    made.running_mean, made.running_var = norm.running_mean, norm.running_var
    made.num_batches_tracked = norm.num_batches_tracked
    made.training = norm.training
    return made


def statistics_of_all(input: Tensor, group: ProcessGroup) -> tuple[Tensor, Tensor, float]:
    """Mean and biased variance of each channel over all processes, and how many numbers that are.

    Joined from each process's own mean and sum of squares about it, so that nothing cancels.
    """
    dims = [d for d in range(input.dim()) if d != 1]
    count = input.numel() // input.shape[1] if input.shape[1] else 0
    channels = input.to("float32") if input.dtype.itemsize < 4 else input
    mean = channels.sum(dims) / max(count, 1)
    squares = ((channels - mean.reshape(1, -1, *[1] * (input.dim() - 2))) ** 2).sum(dims)
    mine = ops.cat([mean, squares, mean.new_full((1,), float(count))])
    everybodys: Any = AllGather.apply(mine, group)
    size = input.shape[1]
    means, sums, counts = everybodys[:, :size], everybodys[:, size : 2 * size], everybodys[:, -1:].detach()
    total = float(counts.sum())
    if total <= 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(input.shape)}: there is one "
            "number per channel in all processes together"
        )
    whole = (means * counts).sum(0) / total
    return whole, (sums + counts * (means - whole) ** 2).sum(0) / total, total
