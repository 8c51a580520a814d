"""Batching of operations that name dimensions or sizes: batch in front, everything else one further.

`shifted(dims=(1,), sizes=(2,))` reads: the second argument holds dimensions (one or several), the third the
sizes of a whole example. The first argument is the tensor. `along` is for several tensors and one dimension, as of
gather, scatter and index_add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.declare.rules.batch_in_front import Batch, batch_size, example_rank, expanded, in_front, loop
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


def shifted(dims: tuple[int, ...] = (), sizes: tuple[int, ...] = (), least: int = 0) -> Batch:
    """A batching rule for an operation on one tensor.

    least   examples of fewer dimensions are called one by one: only the operation knows what to do with them
    """

    def batch(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
        ndim = example_rank(args[0], in_dims[0])
        if ndim < max(least, 1 if dims else 0):
            return loop(call, args, in_dims)
        input = in_front(args[0], in_dims[0])
        others = list(args)
        for place in dims:
            others[place] = shift(args[place], ndim)
        for place in sizes:
            others[place] = (input.shape[0], *args[place])
        return call(input, *others[1:]), 0

    return batch


def shift(dims: Any, ndim: int) -> Any:
    """Dimensions of an example as dimensions of the batch."""
    if isinstance(dims, Iterable):
        return tuple([wrap_dim(d, ndim) + 1 for d in dims])
    return None if dims is None else wrap_dim(dims, ndim) + 1


def along(dim: int, sizes: int | None = None, shared: int | None = None) -> Batch:
    """A batching rule that puts the batch in front of every tensor; the parameters count arguments.

    dim     the dimension of an example that the operation works along
    sizes   the sizes of the example it makes, if it is told them
    shared  an index vector that all examples use; if it is batched, they go one by one
    """

    def batch(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
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
