"""Every way to take one element of each of several vectors, or several of one."""

from __future__ import annotations

from itertools import combinations as combinations_of
from itertools import combinations_with_replacement
from math import prod
from typing import Any

from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.index.index_select import index_select
from undertow.ops.shape.joining import stack
from undertow.ops.views.dimensions import expand
from undertow.ops.views.reshape import flatten, view
from undertow.tensor import Tensor


@composite
def meshgrid(*tensors: Array, indexing: str = "ij") -> tuple[Any, ...]:
    """Coordinates as grids, one for each vector given; "xy" swaps the first two dimensions.

    *tensors  vectors, or 0-d tensors; also one list of them
    indexing  "ij": the first vector along the first dimension; "xy": along the second, as plots have it

    >>> import undertow as ut
    >>> [t.shape for t in ut.meshgrid(ut.ones(2), ut.ones(3), indexing="ij")]
    [undertow.Size([2, 3]), undertow.Size([2, 3])]
    """
    tensors = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    for t in tensors:
        if t.ndim > 1:
            raise RuntimeError(f"meshgrid: Expected 0D or 1D tensor in the tensor list but got sizes {list(t.shape)}")
        if t.dtype != tensors[0].dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    if indexing == "xy" and len(tensors) > 1:
        second, first, *others = meshgrid(tensors[1], tensors[0], *tensors[2:])
        return (first, second, *others)
    sizes = tuple([prod(t.shape) for t in tensors])
    places = [[1] * k + [-1] + [1] * (len(sizes) - k - 1) for k in range(len(sizes))]
    return tuple([expand(view(t, place), sizes) for t, place in zip(tensors, places, strict=True)])


@composite
def cartesian_prod(*tensors: Array) -> Array:
    """Every way to take one element of each vector, one per row.

    *tensors  vectors

    >>> import undertow as ut
    >>> ut.cartesian_prod(ut.tensor([1, 2]), ut.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    tensors = tuple([as_operand("cartesian_prod", "tensors", t) for t in tensors])
    for t in tensors:
        _check_vector(t)
    return tensors[0] if len(tensors) == 1 else stack([flatten(g) for g in meshgrid(*tensors)], 1)


@composite
def combinations(input: Array, r: int = 2, with_replacement: bool = False) -> Array:
    """Every way to take `r` elements of a vector, in order, one per row.

    with_replacement  whether an element may be taken again

    >>> import undertow as ut
    >>> ut.combinations(ut.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    input = as_operand("combinations", "input", input)
    _check_vector(input)
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    take = index_select
    choose = combinations_with_replacement if with_replacement else combinations_of
    if r == 0:
        return take(input, 0, index_tensor(input, []))
    rows = list(choose(range(input.shape[0]), r))
    return stack([take(input, 0, index_tensor(input, [row[k] for row in rows])) for k in range(r)], 1)


def _check_vector(tensor: Array) -> None:
    if tensor.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(tensor.shape)}")


def index_tensor(like: Array, values: Any) -> Tensor:
    return Tensor(like._xp.asarray(values, dtype="int64"), like._xp)
