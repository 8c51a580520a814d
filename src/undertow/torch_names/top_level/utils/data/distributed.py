"""Where PyTorch has the sampler of several processes."""

from undertow.data.samplers import DistributedSampler

__all__ = ["DistributedSampler"]
