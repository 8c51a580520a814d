"""Which results of an operation change with which of its operands, as far as a derivative can tell."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from undertow.autograd.batched_tensor import BatchedTensor
from undertow.backend import dtypes
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op


def is_continuous(value: Any) -> bool:
    return type(value) in (Tensor, BatchedTensor) and dtypes.is_differentiable(value._array.dtype)


def has_slope(op: Op, out: Tensor) -> bool:
    return is_continuous(out) and not (op.name == "sgn" and dtypes.is_floating(out._array.dtype))


def is_flat(op: Op) -> bool:
    """Whether the result has no slope: integers, booleans, whole parts, signs, random numbers."""
    if op.kind == "composite":
        return False
    return op.kind == "nondifferentiable" or op.piecewise_constant or op.random is not None


@functools.cache
def slopes_of(op: Op) -> tuple[list[int], set[int]]:
    """The places of the arguments that an operation has a derivative for, and of the results that have none."""
    if is_flat(op):
        return [], set()
    without = {nr for nr, name in enumerate(op.outputs or ()) if name in op.nondifferentiable}
    return [k for k, name in enumerate(op.ordered) if name in op.edges], without
