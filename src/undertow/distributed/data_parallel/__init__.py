"""One model in several processes, each with its part of the examples: `nn.parallel.DistributedDataParallel`."""

from undertow.distributed.data_parallel.buckets import GradBucket as GradBucket
from undertow.distributed.data_parallel.ddp import DistributedDataParallel as DistributedDataParallel
from undertow.distributed.data_parallel.sync_batch_norm import SyncBatchNorm as SyncBatchNorm
from undertow.distributed.data_parallel.zero_redundancy import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer
