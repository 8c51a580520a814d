"""Evaluating an operation's batching rule: one call for a whole batch of examples.

A batched argument is a Tensor with one dimension more than the operation expects; `in_dims` says which one.
For an operation on a list of tensors, the list's entry in `in_dims` is a list as well. What
rules share is in batch_in_front.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from undertow.ops.arguments.dims import wrap_dims
from undertow.ops.arguments.operands import common_dtype
from undertow.ops.declare import Op
from undertow.ops.declare.rules import ELEMENTWISE, LOOP, REDUCTION, Rule
from undertow.ops.declare.rules.batch_in_front import batch_size, each, expanded, in_front, loop, operation, padded
from undertow.tensor import Tensor
from undertow.tensor.memory_formats import memory_format


def apply_to_batch(op: Op, values: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
    """The output(s) for the whole batch, and their batch dimension (a tuple for several outputs).

    values  all arguments, in the order of the signature
    dims    for each of them, the number of its batch dimension, or None
    """
    if batch_size(values, dims) is None:
        out = op.by_position(*values)
        return out, (None,) * len(out) if isinstance(out, tuple) else None
    out, out_dim = _rule(op)(op, values, dims)
    if isinstance(out, list | tuple):
        return tuple(out), tuple(out_dim) if isinstance(out_dim, list | tuple) else (out_dim,) * len(out)
    return out, out_dim


@cache
def _rule(op: Op) -> Any:
    """The batching rule, as `rule(op, values, dims)`; without one, a loop is slow but never wrong."""
    if op.batch is None:
        return _loop
    if not isinstance(op.batch, Rule):
        return _own_rule
    known = {ELEMENTWISE: _elementwise, REDUCTION: _reduction, LOOP: _loop}
    if op.batch not in known:
        raise TypeError(f"{op.name}: batch={op.batch.name} is no batching rule")
    return known[op.batch]


def _own_rule(op: Op, values: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
    result: tuple[Any, Any] = op.batch(op.by_position, list(values), list(dims))
    return result


def _loop(op: Op, values: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
    return loop(op.by_position, values, dims)


# ---- elementwise


def _elementwise(op: Op, values: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, int]:
    """Batch dimensions in front, ranks padded behind them, so that broadcasting aligns the rest."""
    for format in [v for v in values if isinstance(v, memory_format) and v.dims is not None]:
        raise RuntimeError(
            f"vmap: {op.name} with memory_format={format.name} is not possible under vmap: the examples lie in one "
            "memory, whose order is not that of one example. Leave memory_format away, or ask for it of vmap's result."
        )
    pairs = list(zip(values, dims, strict=True))
    rank = max([v._array.ndim - (d is not None) for v, d in pairs if isinstance(v, Tensor)])
    aligned = [v if d is None else padded(in_front(v, d), rank) for v, d in pairs]
    if op.promote and len({v._array.dtype for v in values if isinstance(v, Tensor)}) > 1:
        aligned = _promoted(op, op.promote, values, dims, aligned)
    return op.by_position(*aligned), 0


def _promoted(op: Op, policy: str, values: Sequence[Any], dims: Sequence[Any], aligned: list[Any]) -> list[Any]:
    """A batch of 0-d tensors still promotes as 0-d tensors do: cast beforehand where that matters."""
    given = [(k, values[k]) for k, n in enumerate(op.ordered) if n in op.edges and values[k] is not None]
    operands = [k for k, v in given if isinstance(v, Tensor)]
    if len({values[k]._array.dtype for k in operands}) < 2:
        return aligned
    examples = [values[k] if dims[k] is None else _example_of(values[k], dims[k]) for k in operands]
    dtype = common_dtype((*examples, *[v for k, v in given if k not in operands]), policy)
    for k in operands:
        if dims[k] is not None:
            aligned[k] = operation("to_dtype")(aligned[k], dtype)
    return aligned


def _example_of(tensor: Tensor, dim: int) -> Tensor:
    """A stand-in with the dtype and the number of dimensions of one example."""
    return Tensor(tensor._xp.empty((1,) * (tensor._array.ndim - 1), tensor._array.dtype), tensor._xp)


# ---- reductions


def _reduction(op: Op, values: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
    """`dim` counts from behind the batch dimension; None stands for all dimensions but that one."""
    if "dim" not in op.params:
        raise TypeError(f"{op.name}: batch=REDUCTION needs a parameter `dim` to shift")
    size = batch_size(values, dims)
    moved = [expanded(v, d, size) if isinstance(v, Tensor) else v for v, d in zip(values, dims, strict=True)]
    rank = moved[op.ordered.index(op.inputs[0])]._array.ndim - 1
    place = op.ordered.index("dim")
    dim = values[place]
    if isinstance(dim, Iterable) and not tuple(dim):
        return _loop(op, values, dims)  # operations differ on what no dimensions mean
    if rank == 0 or dim is None:
        return _reduce_all(op, moved, rank, size)
    shifted = tuple([d + 1 for d in wrap_dims(dim, rank)])
    moved[place] = shifted if isinstance(dim, Iterable) else shifted[0]
    return op.by_position(*moved), 0


def _reduce_all(op: Op, values: list[Any], rank: int, size: int | Sequence[int]) -> tuple[Any, Any]:
    """Over all dimensions of every example: flatten each to one dimension, then put the kept ones back."""
    place = op.ordered.index("dim")
    dim = values[place]
    if rank == 0:
        wrap_dims(dim, 0)
    flat = [_flattened(v) if isinstance(v, Tensor) else v for v in values]
    flat[place] = (1,) if isinstance(dim, Iterable) else 1
    out = op.by_position(*flat)
    keepdim = "keepdim" in op.ordered and values[op.ordered.index("keepdim")]
    if rank == 1 and not keepdim:
        return out, 0
    shape = (size, *[1] * (rank if keepdim else 0))
    return each(out, lambda o: operation("reshape")(o, shape)), 0


def _flattened(tensor: Tensor) -> Tensor:
    size, *rest = tensor._array.shape
    if len(rest) == 1:
        return tensor
    return operation("reshape")(tensor, (size, math.prod(rest)))
