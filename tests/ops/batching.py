"""Batching rules, called as tests like to call them: with arguments by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from undertow.ops.declare import Op
from undertow.ops.declare.rules.apply_batching import apply_to_batch


def apply_batch(
    op: Op, args: Sequence[Any], in_dims: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> tuple[Any, Any]:
    """The output(s) for the whole batch, and their batch dimension (a tuple for several outputs).

    args      in the order of the operation's signature
    in_dims   for each of args, the number of its batch dimension, or None
    kwargs    further arguments, not batched
    """
    values = op.bind(tuple(args), dict(kwargs or {}))
    return apply_to_batch(op, values, [*in_dims, *[None] * (len(values) - len(in_dims))])
