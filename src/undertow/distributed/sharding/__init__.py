"""Parameters that are divided among processes, and files of which each process writes its part."""

from undertow.distributed.sharding.fully_shard import fully_shard as fully_shard
from undertow.distributed.sharding.pieces import Piece as Piece
