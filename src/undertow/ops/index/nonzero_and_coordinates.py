"""Coordinates of elements: of those that are not zero, of a triangle, of flat positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, namespace_of
from undertow.backend.interface import Array, DType
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import adapter, composite, nondifferentiable
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device

# ---- where the true elements are


_nonzero = nondifferentiable(
    "_nonzero",
    forward=lambda xp, input: xp.argwhere(input).astype(dtypes.int64, copy=False),
    inputs=("input",),
    order="columns",
)


@composite(variants="function method", out=True)
def nonzero(input: Array, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero: one row each, or one vector for each dimension.

    as_tuple  one vector for each dimension, instead of rows

    >>> import undertow as ut
    >>> ut.nonzero(ut.tensor([0.0, 3.0, 5.0]))
    tensor([[1],
            [2]])
    """
    if not as_tuple:
        return _nonzero(input)
    input = input if input.ndim else input.reshape(1)
    return tuple([Tensor(i, input._xp) for i in _nonzero(input)._array.T])


@adapter("nonzero")
def _nonzero_as_tuple(input: Array) -> tuple[Array, Array]:
    return nonzero(input, as_tuple=True)


@composite(variants="function method")
def argwhere(input: Array) -> Array:
    """The indices of the elements that are not zero, one row each.

    >>> import undertow as ut
    >>> ut.argwhere(ut.tensor([[1.0, 2.0], [3.0, 4.0]]) > 2)
    tensor([[1, 0],
            [1, 1]])
    """
    return _nonzero(input)


# ---- indices without a tensor


def _triangle(
    row: int, col: int, dtype: DType, device: Device | str | int | None, chosen: Callable[..., Any]
) -> Tensor:
    for name, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{name} must be non-negative, got{n}")
    xp, found = namespace_of(device), cpu.argwhere(chosen(cpu.ones((row, col), bool))).T
    return Tensor(xp.asarray(cpu.ascontiguousarray(found).astype(dtype or dtypes.int64)), xp)


@composite
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Device | str | int | None = None
) -> Array:
    """The indices (rows, then columns) of the lower triangle of a matrix.

    row, col  the sizes of the matrix
    offset    which diagonal is the border: above the main one if positive, below it if negative

    >>> import undertow as ut
    >>> ut.tril_indices(2, 3)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _triangle(row, col, dtype, device, lambda ones: cpu.tril(ones, offset))


@composite
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Device | str | int | None = None
) -> Array:
    """The indices (rows, then columns) of the upper triangle of a matrix.

    row, col  the sizes of the matrix
    offset    which diagonal is the border: above the main one if positive, below it if negative

    >>> import undertow as ut
    >>> ut.triu_indices(2, 2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return _triangle(row, col, dtype, device, lambda ones: cpu.triu(ones, offset))


@composite
@example_by_example
def unravel_index(indices: Array, shape: int | Sequence[int]) -> tuple[Any, ...]:
    """Flat positions as one index tensor for each dimension of `shape`.

    indices  int64, of any shape

    >>> import undertow as ut
    >>> ut.unravel_index(ut.tensor([1, 5]), (2, 3))
    (tensor([0, 1]), tensor([1, 2]))
    """
    indices = as_operand("unravel_index", "indices", indices)
    xp, array = indices._xp, indices._array
    if array.dtype.kind not in "iu":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {array.dtype}")
    return tuple([Tensor(xp.asarray(i), xp) for i in xp.unravel_index(array, sizes_of(shape))])


def sizes_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes that unravel_index was given."""
    if isinstance(shape, Tensor) or not isinstance(shape, int | Sequence):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    for n in sizes:
        if not isinstance(n, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    return sizes


@composite(variants="function method")
@example_by_example
def nonzero_static(input: Array, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` rows of `nonzero`, filled up where there are fewer.

    >>> import undertow as ut
    >>> ut.nonzero_static(ut.tensor([0, 5]), size=2)
    tensor([[ 1],
            [-1]])
    """
    input = as_operand("nonzero_static", "input", input)
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = input._xp.argwhere(input._array)[:size]
    out = input._xp.full((size, input.ndim), fill_value, dtypes.int64)
    out[: len(found)] = found
    return Tensor(out, input._xp)
