"""A copy of a tensor with one part replaced: select_scatter, slice_scatter, diagonal_scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.ops.declare import primitive
from undertow.ops.parts import diagonal_array, select_array, slice_array
from undertow.ops.rules import LINEAR
from undertow.ops.rules.along import batch_size, example_rank, in_front
from undertow.ops.rules.shifted import Batch, shift


def overwritten(xp: Any, part: Callable[..., Any], input: Any, src: Any, *where: Any) -> Any:
    """A copy of `input` whose part `part(xp, copy, *where)` is `src`."""
    out = input.copy(order="C")
    target = part(xp, out, *where)
    if target.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(target.shape)}"
        )
    target[...] = src
    return out


def batch_part(*dims: int) -> Batch:
    """Batching for (input, src, ...), the batch in front of both; `dims` counts the arguments to shift."""

    def batch(call: Any, args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, int]:
        size, rank = batch_size(args, in_dims), example_rank(args[0], in_dims[0])
        others = [shift(a, rank) if k in dims else a for k, a in enumerate(args)]
        return call(in_front(args[0], in_dims[0], size), in_front(args[1], in_dims[1], size), *others[2:]), 0

    return batch


select_scatter = primitive(
    "select_scatter",
    forward=lambda xp, input, src, dim, index: overwritten(xp, select_array, input, src, dim, index),
    vjp={
        "input": lambda xp, g, src_shape, dim, index: xp.select_scatter(g, xp.zeros_for(g, src_shape), dim, index),
        "src": lambda xp, g, dim, index: xp.select_at(g, dim, index),
    },
    jvp=LINEAR,
    batch=batch_part(2),
)

slice_scatter = primitive(
    "slice_scatter",
    forward=lambda xp, input, src, dim=0, start=None, end=None, step=1: overwritten(
        xp, slice_array, input, src, dim, start, end, step
    ),
    vjp={
        "input": lambda xp, g, src_shape, dim, start, end, step: xp.slice_scatter(
            g, xp.zeros_for(g, src_shape), dim, start, end, step
        ),
        "src": lambda xp, g, dim, start, end, step: xp.slice(g, dim, start, end, step),
    },
    jvp=LINEAR,
    batch=batch_part(2),
)

diagonal_scatter = primitive(
    "diagonal_scatter",
    forward=lambda xp, input, src, offset=0, dim1=0, dim2=1: overwritten(
        xp, diagonal_array, input, src, offset, dim1, dim2
    ),
    vjp={
        "input": lambda xp, g, src_shape, offset, dim1, dim2: xp.diagonal_scatter(
            g, xp.zeros_for(g, src_shape), offset, dim1, dim2
        ),
        "src": lambda xp, g, offset, dim1, dim2: xp.diagonal(g, offset, dim1, dim2),
    },
    jvp=LINEAR,
    batch=batch_part(3, 4),
)
