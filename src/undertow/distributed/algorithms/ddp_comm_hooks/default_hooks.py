"""Sending gradients as they are, or in half of the bytes. `state` is the group, None for all processes."""

from __future__ import annotations

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
