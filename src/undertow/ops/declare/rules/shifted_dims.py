"""Batching of operations that name dimensions or sizes: batch in front, everything else one further.

`shifted(dims=(1,), sizes=(2,))` reads: the second argument holds dimensions (one or several), the third the
sizes of a whole example. The first argument is the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.declare.rules.batch_in_front import Batch, example_rank, in_front, loop


def shifted(dims: tuple[int, ...] = (), sizes: tuple[int, ...] = (), least: int = 0) -> Batch:
    """A batching rule for an operation on one tensor.

    least   examples of fewer dimensions are called one by one: only the operation knows what to do with them
    """

    def batch(call: Callable[..., Any], args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, int]:
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
