"""PyTorch's name for parameters in pieces: `from undertow.distributed.fsdp import fully_shard`; see sharding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.lazy_names import loaded_when_used

if TYPE_CHECKING:
    from undertow.distributed.sharding import fully_shard as fully_shard
else:
    __getattr__, __dir__ = loaded_when_used(__name__, names={"undertow.distributed.sharding": "fully_shard"})
