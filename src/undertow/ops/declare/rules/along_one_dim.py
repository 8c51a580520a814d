"""Batching of operations on several tensors along one dimension: gather, scatter, index_add, ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.declare.rules.batch_in_front import Batch, batch_size, example_rank, expanded, loop
from undertow.tensor import Tensor


def along(dim: int, sizes: int | None = None, shared: int | None = None) -> Batch:
    """A batching rule that puts the batch in front of every tensor; the parameters count arguments.

    dim     the dimension of an example that the operation works along
    sizes   the sizes of the example it makes, if it is told them
    shared  an index vector that all examples use; if it is batched, they go one by one
    """

    def batch(call: Callable[..., Any], args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, int]:
        rank = example_rank(args[0], in_dims[0]) if sizes is None else len(args[sizes])
        if rank == 0 or (shared is not None and in_dims[shared] is not None):
            return loop(call, args, in_dims)
        size = batch_size(args, in_dims)
        others = [k != shared and isinstance(a, Tensor) for k, a in enumerate(args)]
        moved = [expanded(a, d, size) if batched else a for a, d, batched in zip(args, in_dims, others, strict=True)]
        moved[dim] = wrap_dim(args[dim], rank) + 1
        if sizes is not None:
            moved[sizes] = (size, *args[sizes])
        return call(*moved), 0

    return batch
