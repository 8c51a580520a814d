"""Evaluating an operation's batching rule: one call for a whole batch of examples.

A batched argument is a Tensor with one dimension more than the operation expects; `in_dims` says which one.
For an operation on a list of tensors, the list's entry in `in_dims` is a list as well. What
rules share is in batch_in_front.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from undertow.ops.arguments.dims import wrap_dims
from undertow.ops.arguments.operands import result_type_of
from undertow.ops.declare import Op
from undertow.ops.declare.rules import ELEMENTWISE, LOOP, REDUCTION, Rule
from undertow.ops.declare.rules.batch_in_front import batch_size, each, expanded, in_front, loop, operation, padded
from undertow.tensor import Tensor


def apply_named(op: Op, values: dict[str, Any], dims: dict[str, Any]) -> tuple[Any, Any]:
    """The output(s) for the whole batch, and their batch dimension (a tuple for several outputs).

    values  all arguments by name, in the order of the signature
    dims    for each of them, the number of its batch dimension, or None
    """
    if batch_size(values.values(), dims.values()) is None:
        out = op.function(**values)
        return out, (None,) * len(out) if isinstance(out, tuple) else None
    out, out_dim = _rule(op)(op, values, dims)
    if isinstance(out, list | tuple):
        return tuple(out), tuple(out_dim) if isinstance(out_dim, list | tuple) else (out_dim,) * len(out)
    return out, out_dim


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


def _own_rule(op: Op, values: dict[str, Any], dims: dict[str, Any]) -> tuple[Any, Any]:
    result: tuple[Any, Any] = op.batch(_by_position(op, values), list(values.values()), list(dims.values()))
    return result


def _loop(op: Op, values: dict[str, Any], dims: dict[str, Any]) -> tuple[Any, Any]:
    return loop(_by_position(op, values), list(values.values()), list(dims.values()))


def _by_position(op: Op, values: dict[str, Any]) -> Callable[..., Any]:
    """The operation as a function of all its arguments in the order of `values`."""
    return lambda *args: op.function(**dict(zip(values, args, strict=True)))


# ---- elementwise


def _elementwise(op: Op, values: dict[str, Any], dims: dict[str, Any]) -> tuple[Any, int]:
    """Batch dimensions in front, ranks padded behind them, so that broadcasting aligns the rest."""
    rank = max(v._array.ndim - (dims[n] is not None) for n, v in values.items() if isinstance(v, Tensor))
    aligned = {n: v if dims[n] is None else padded(in_front(v, dims[n]), rank) for n, v in values.items()}
    if op.promote:
        aligned = _promoted(op, values, dims, aligned)
    return op.function(**aligned), 0


def _promoted(op: Op, values: dict[str, Any], dims: dict[str, Any], aligned: dict[str, Any]) -> dict[str, Any]:
    """A batch of 0-d tensors still promotes as 0-d tensors do: cast beforehand where that matters."""
    operands = {n: values[n] for n in op.edges if isinstance(values[n], Tensor)}
    if len({t._array.dtype for t in operands.values()}) < 2:
        return aligned
    examples = [t if dims[n] is None else _example_of(t, dims[n]) for n, t in operands.items()]
    numbers = [values[n] for n in op.edges if n not in operands and values[n] is not None]
    dtype = result_type_of((*examples, *numbers))
    cast = {n: operation("to_dtype")(aligned[n], dtype) for n in operands if dims[n] is not None}
    return {**aligned, **cast}


def _example_of(tensor: Tensor, dim: int) -> Tensor:
    """A stand-in with the dtype and the number of dimensions of one example."""
    return Tensor(tensor._xp.empty((1,) * (tensor._array.ndim - 1), tensor._array.dtype), tensor._xp)


# ---- reductions


def _reduction(op: Op, values: dict[str, Any], dims: dict[str, Any]) -> tuple[Any, Any]:
    """`dim` counts from behind the batch dimension; None stands for all dimensions but that one."""
    if "dim" not in op.params:
        raise TypeError(f"{op.name}: batch=REDUCTION needs a parameter `dim` to shift")
    size = batch_size(values.values(), dims.values())
    moved = {n: expanded(v, dims[n], size) if isinstance(v, Tensor) else v for n, v in values.items()}
    rank = moved[op.inputs[0]]._array.ndim - 1
    dim = values["dim"]
    if isinstance(dim, Iterable) and not tuple(dim):
        return _loop(op, values, dims)  # operations differ on what no dimensions mean
    if rank == 0 or dim is None:
        return _reduce_all(op, moved, rank, size)
    shifted = tuple(d + 1 for d in wrap_dims(dim, rank))
    return op.function(**{**moved, "dim": shifted if isinstance(dim, Iterable) else shifted[0]}), 0


def _reduce_all(op: Op, values: dict[str, Any], rank: int, size: int | Sequence[int]) -> tuple[Any, Any]:
    """Over all dimensions of every example: flatten each to one dimension, then put the kept ones back."""
    dim = values["dim"]
    if rank == 0:
        wrap_dims(dim, 0)
    flat = {n: _flattened(v) if isinstance(v, Tensor) else v for n, v in values.items()}
    out = op.function(**{**flat, "dim": (1,) if isinstance(dim, Iterable) else 1})
    shape = (size, *[1] * (rank if values.get("keepdim", False) else 0))
    return each(out, lambda o: operation("reshape")(o, shape)), 0


def _flattened(tensor: Tensor) -> Tensor:
    size, *rest = tensor._array.shape
    return operation("reshape")(tensor, (size, math.prod(rest)))
