"""Where PyTorch has the sampler of several processes."""

from undertow.data.distributed_sampler import DistributedSampler

__all__ = ["DistributedSampler"]
