"""One model in several processes, each with its part of the examples: `nn.parallel.DistributedDataParallel`."""

from undertow.distributed.data_parallel.buckets import GradBucket as GradBucket
from undertow.distributed.data_parallel.ddp import DistributedDataParallel as DistributedDataParallel
