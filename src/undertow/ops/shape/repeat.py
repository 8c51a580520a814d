"""The same elements again and again: repeat, tile, repeat_interleave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from numbers import Integral
from typing import TYPE_CHECKING, Any

from undertow.backend.cpu import read_once
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.sizes import ints
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.ops.index.index_select import index_select
from undertow.ops.shape.meshgrid_and_combinations import index_tensor
from undertow.ops.views.clone import clone
from undertow.ops.views.dimensions import expand, unsqueeze
from undertow.ops.views.reshape import flatten, reshape
from undertow.tensor.memory_formats import contiguous_format

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


def _repeat_array(xp: Namespace, input: Array, repeats: tuple[int, ...]) -> Array:
    if len(repeats) < input.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: got "
            f"{len(repeats)} repeats for {input.ndim} dimensions"
        )
    if any(n < 0 for n in repeats):
        raise RuntimeError(f"Trying to create tensor with negative dimension: repeats {list(repeats)}")
    return xp.asarray(xp.tile(input, repeats), order="C")


def _repeat_gradient(xp: Namespace, g: Array, input_shape: tuple[int, ...], repeats: tuple[int, ...]) -> Array:
    shape = (1,) * (len(repeats) - len(input_shape)) + tuple(input_shape)
    apart = [n for pair in zip(repeats, shape, strict=True) for n in pair]
    summed = [n for size in shape for n in (1, size)]
    return xp.reshape(xp.sum_to(xp.reshape(g, tuple(apart)), tuple(summed)), tuple(input_shape))


def _batch_repeat(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    batch, *shape = input.shape
    padded = reshape(input, (batch, *[1] * (len(args[1]) - len(shape)), *shape))
    return call(padded, (1, *args[1])), 0


_repeat = primitive("_repeat", forward=_repeat_array, vjp={"input": _repeat_gradient}, jvp=LINEAR, batch=_batch_repeat)


@composite(variants="method")
def repeat(input: Array, *sizes: Any, repeats: Sequence[int] | None = None) -> Array:
    """The tensor repeated along each dimension, new ones in front: `repeat(x, 2, 1)`; `np.tile`.

    *sizes   how often along each dimension; also as one list
    repeats  the same by name

    >>> import undertow as ut
    >>> ut.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    return _repeat(input, ints(sizes, repeats))


@composite(variants="function method")
def tile(input: Array, *sizes: Any, dims: Sequence[int] | None = None) -> Array:
    """`repeat` with ones filled in for dimensions in front that are not mentioned.

    *sizes  how often along each dimension; also as one list
    dims    the same by name

    >>> import undertow as ut
    >>> ut.tile(ut.tensor([1.0, 2.0, 3.0]), (2,))
    tensor([1., 2., 3., 1., 2., 3.])
    """
    repeats = ints(sizes, dims)
    return _repeat(input, (1,) * (input.ndim - len(repeats)) + repeats)


@composite(variants="function method")
@example_by_example
def repeat_interleave(
    input: Array,
    repeats: Array | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
    axis: Any = None,
) -> Array:
    """Every element repeated in place: 1, 2 becomes 1, 1, 2, 2. `repeats` is a number, or one per element.

    Given only numbers, the index of each, as often as it says.

    >>> import undertow as ut
    >>> ut.repeat_interleave(ut.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    dim = axis if dim is None else dim
    input = as_operand("repeat_interleave", "input", input)
    if repeats is None:
        return index_tensor(input, _repeated_indices(input, prod(input.shape)))
    if dim is None:
        input, dim = flatten(input), 0
    dim = wrap_dim(dim, input.ndim)
    if isinstance(repeats, Integral):
        return interleave(input, int(repeats), dim)
    repeats = as_operand("repeat_interleave", "repeats", repeats)
    index = _repeated_indices(repeats, input.shape[dim] if input.ndim else 1)
    return index_select(input, dim, index_tensor(input, index))


def interleave(input: Array, repeats: int, dim: int) -> Array:
    if repeats < 0:
        raise RuntimeError(f"Repeats must be non-negative, got {repeats}")
    sizes = [*input.shape[: dim + 1], repeats, *input.shape[dim + 1 :]]
    wide = clone(expand(unsqueeze(input, dim + 1), sizes), memory_format=contiguous_format)
    return flatten(wide, dim, dim + 1)


def _repeated_indices(repeats: Array, length: int) -> Array:
    counts = read_once(repeats._array)
    if counts.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if counts.dtype.kind not in "iu":
        raise NotImplementedError(f"repeat_interleave: repeats must be integers, not {counts.dtype}")
    if (counts < 0).any():
        raise RuntimeError("repeats can not be negative")
    if counts.size != 1 and counts.size != length:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts.size} "
            f"and input.size(dim) = {length}"
        )
    return repeats._xp.repeat(repeats._xp.arange(length), counts)
