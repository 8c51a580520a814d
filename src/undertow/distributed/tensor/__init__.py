"""PyTorch's words for how tensors lie on several processes; DTensor itself is not here (see distributed/sharding)."""

from undertow.distributed.tensor.placement_types import Partial as Partial
from undertow.distributed.tensor.placement_types import Placement as Placement
from undertow.distributed.tensor.placement_types import Replicate as Replicate
from undertow.distributed.tensor.placement_types import Shard as Shard
from undertow.torch_names.missing import getter

__getattr__ = getter("distributed.tensor")
