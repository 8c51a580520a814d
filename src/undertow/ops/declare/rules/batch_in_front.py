"""The batch dimension in front: what batching rules do with it.

A batched argument is a Tensor with one dimension more than the operation expects, and its entry in `in_dims` says which
one; the entry of any other argument is None. For a list of tensors, the entry is a list as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from undertow.backend.interface import Array
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.declare import REGISTRY
from undertow.tensor import Tensor

#: for each argument of a call the number of its batch dimension, or None; for a list of tensors, a list of those
InDims: TypeAlias = Sequence[Any]
#: a batching rule: rule(call, args, in_dims), with call(*args) the operation, gives the outputs and their dimensions
Batch = Callable[[Any, Sequence[Any], Sequence[Any]], tuple[Any, Any]]


def operation(name: str) -> Any:
    """The function of an operation that may be declared later."""
    return REGISTRY[name].function


def batch_size(args: Iterable[Any], in_dims: Iterable[Any]) -> Any:
    """How many examples there are; None if nothing is batched."""
    for value, dim in zip(args, in_dims, strict=True):
        if isinstance(dim, list | tuple):
            size = batch_size(value, dim)
        else:
            size = None if dim is None else int(value._array.shape[dim])
        if size is not None:
            return size
    return None


def example_rank(tensor: Array, dim: int | None) -> int:
    return int(tensor.ndim) - (dim is not None)


def in_front(tensor: Array, dim: int) -> Array:
    """The tensor with its batch dimension moved to the front."""
    dim = wrap_dim(dim, tensor._array.ndim)
    return tensor if dim == 0 else operation("movedim")(tensor, dim, 0)


def expanded(tensor: Array, dim: int | None, size: int) -> Array:
    """The tensor with a batch dimension in front, also if it is the same for every example."""
    if dim is not None:
        return in_front(tensor, dim)
    return operation("broadcast_to")(tensor, (size, *tensor._array.shape))


def padded(tensor: Array, rank: int) -> Array:
    """A batch (in front) of examples with fewer dimensions, as examples of `rank` dimensions."""
    shape = tensor._array.shape[1:]
    for _ in range(rank - len(shape)):
        tensor = operation("unsqueeze")(tensor, 1)
    return tensor


def batch_stacks(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """The batch dimension joins the leading ones; ranks are padded behind it so that these stay aligned."""
    rank = max(x.ndim - (dim is not None) for x, dim in zip(args, in_dims, strict=True))
    return call(
        *[x if dim is None else padded(in_front(x, dim), rank) for x, dim in zip(args, in_dims, strict=True)]
    ), 0


def each(out: Array, change: Callable[[Any], Any]) -> Any:
    """One output or several, each changed."""
    return tuple([change(o) for o in out]) if isinstance(out, tuple | list) else change(out)


# ---- one by one


def loop(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """One call per example; outputs stacked in front."""
    size, pairs = batch_size(args, in_dims), list(zip(args, in_dims, strict=True))
    if size == 0:
        return each(call(*[_ones(a, d) for a, d in pairs]), _none_of), 0
    rows = [call(*[_example(a, d, k) for a, d in pairs]) for k in range(size)]
    stack = operation("stack")
    if not isinstance(rows[0], tuple | list):
        return stack(rows), 0
    return tuple([stack(column) for column in zip(*rows, strict=True)]), 0


def _example(value: Any, dim: Any, k: int) -> Any:
    if isinstance(dim, list | tuple):
        return [_example(v, d, k) for v, d in zip(value, dim, strict=True)]
    return value if dim is None else operation("select")(value, dim, k)


def _none_of(out: Tensor) -> Tensor:
    """A batch of no examples, each like `out`."""
    return Tensor(out._xp.empty((0, *out._array.shape), out._array.dtype), out._xp)


def _ones(value: Array, dim: Any) -> Any:
    """An example to learn the shape of the outputs from, where there is none."""
    if isinstance(dim, list | tuple):
        return [_ones(v, d) for v, d in zip(value, dim, strict=True)]
    if dim is None:
        return value
    shape = list(value._array.shape)
    del shape[dim]
    return Tensor(value._xp.ones(shape, value._array.dtype), value._xp)
