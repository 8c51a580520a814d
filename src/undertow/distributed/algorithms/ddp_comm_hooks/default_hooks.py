"""Sending gradients as they are, or in half of the bytes. `state` is the group, None for all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.distributed.collectives import all_reduce
from undertow.distributed.data_parallel.buckets import GradBucket
from undertow.distributed.process_group import world
from undertow.distributed.work import Future
from undertow.tensor import Tensor


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The mean over all processes, as without a hook."""
    group = world() if process_group is None else process_group
    buffer = bucket.buffer()
    buffer.div_(group.size())
    work: Any = all_reduce(buffer, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def compressed(process_group: Any, bucket: GradBucket, dtype: DType) -> Future:
    """The mean, of gradients that are sent in another dtype."""
    group = world() if process_group is None else process_group
    buffer = bucket.buffer()
    small = (buffer / group.size()).to(dtype)
    work: Any = all_reduce(small, group=group, async_op=True)

    def widened(future: Future) -> Tensor:
        return buffer.copy_(future.value()[0])

    return work.get_future().then(widened)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The mean of gradients that are sent as float16."""
    return compressed(process_group, bucket, dtypes.float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The mean of gradients that are sent as bfloat16."""
    return compressed(process_group, bucket, dtypes.bfloat16())


class Narrow(GradBucket):
    """A bucket whose gradients a hook sees in another dtype."""

    def __init__(self, bucket: GradBucket, dtype: DType) -> None:
        super().__init__(bucket._bucket, bucket.is_last())
        self.narrow = bucket.buffer().to(dtype)

    def buffer(self) -> Tensor:
        return self.narrow

    def set_buffer(self, buffer: Tensor) -> None:
        self.narrow = buffer

    def gradients(self) -> list[Tensor]:
        tensors = self.parameters()
        parts = self.narrow.split([t.numel() for t in tensors])
        return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def narrowed(hook: Callable[[Any, GradBucket], Future], dtype: DType) -> Callable[[Any, GradBucket], Future]:
    def hook_of_narrow(state: Any, bucket: GradBucket) -> Future:
        buffer = bucket.buffer()

        def widened(future: Future) -> Tensor:
            found = future.value()
            return buffer.copy_(found[0] if isinstance(found, list | tuple) else found)

        return hook(state, Narrow(bucket, dtype)).then(widened)

    return hook_of_narrow


def fp16_compress_wrapper(hook: Callable[[Any, GradBucket], Future]) -> Callable[[Any, GradBucket], Future]:
    """A hook that lets another one see, and send, gradients in float16.

    Example: `model.register_comm_hook(state, default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook))`
    """
    return narrowed(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Future]) -> Callable[[Any, GradBucket], Future]:
    """A hook that lets another one see, and send, gradients in bfloat16.

    Example: `model.register_comm_hook(state, default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook))`
    """
    return narrowed(hook, dtypes.bfloat16())
