"""Repeating a tensor's elements, moving them about, building and cutting out diagonals. Never a view."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from undertow.ops.arguments.dims import wrap_dim, wrap_dims
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.sizes import ints
from undertow.ops.declare import adapter, composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.ops.declare.rules.shifted_dims import shift, shifted
from undertow.ops.index.index_select import index_select
from undertow.ops.shape.joining import index_tensor
from undertow.ops.views.dimensions import expand, unsqueeze
from undertow.ops.views.reshape import clone, flatten, ravel, reshape
from undertow.ops.views.slices import diagonal_array
from undertow.tensor.facts import contiguous_format

# ---- repeating


def repeat_array(xp: Any, input: Any, repeats: tuple[int, ...]) -> Any:
    if len(repeats) < input.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: got "
            f"{len(repeats)} repeats for {input.ndim} dimensions"
        )
    if any(n < 0 for n in repeats):
        raise RuntimeError(f"Trying to create tensor with negative dimension: repeats {list(repeats)}")
    return xp.asarray(xp.tile(input, repeats), order="C")


def repeat_gradient(xp: Any, g: Any, input_shape: tuple[int, ...], repeats: tuple[int, ...]) -> Any:
    shape = (1,) * (len(repeats) - len(input_shape)) + tuple(input_shape)
    apart = [n for pair in zip(repeats, shape, strict=True) for n in pair]
    summed = [n for size in shape for n in (1, size)]
    return xp.reshape(xp.sum_to(xp.reshape(g, tuple(apart)), tuple(summed)), tuple(input_shape))


def batch_repeat(call: Any, args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    batch, *shape = input.shape
    padded = reshape(input, (batch, *[1] * (len(args[1]) - len(shape)), *shape))
    return call(padded, (1, *args[1])), 0


_repeat = primitive("_repeat", forward=repeat_array, vjp={"input": repeat_gradient}, jvp=LINEAR, batch=batch_repeat)


@composite(variants="method")
def repeat(input: Any, *sizes: Any, repeats: Sequence[int] | None = None) -> Any:
    """The tensor repeated along each dimension, new ones in front: `repeat(x, 2, 1)`; `np.tile`."""
    return _repeat(input, ints(sizes, repeats))


@composite(variants="function method")
def tile(input: Any, *sizes: Any, dims: Sequence[int] | None = None) -> Any:
    """`repeat` with ones filled in for dimensions in front that are not mentioned."""
    repeats = ints(sizes, dims)
    return _repeat(input, (1,) * (input.ndim - len(repeats)) + repeats)


@composite(variants="function method")
def repeat_interleave(
    input: Any,
    repeats: Any = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
    axis: Any = None,
) -> Any:
    """Every element repeated in place: 1, 2 becomes 1, 1, 2, 2. `repeats` is a number, or one per element.

    Given only numbers, the index of each, as often as it says.
    """
    dim = axis if dim is None else dim
    input = as_operand("repeat_interleave", "input", input)
    if repeats is None:
        return index_tensor(input, repeated_indices(input, prod(input.shape)))
    if dim is None:
        input, dim = flatten(input), 0
    dim = wrap_dim(dim, input.ndim)
    if isinstance(repeats, int):
        return interleave(input, repeats, dim)
    repeats = as_operand("repeat_interleave", "repeats", repeats)
    index = repeated_indices(repeats, input.shape[dim] if input.ndim else 1)
    return index_select(input, dim, index_tensor(input, index))


def interleave(input: Any, repeats: int, dim: int) -> Any:
    if repeats < 0:
        raise RuntimeError(f"Repeats must be non-negative, got {repeats}")
    sizes = [*input.shape[: dim + 1], repeats, *input.shape[dim + 1 :]]
    wide = clone(expand(unsqueeze(input, dim + 1), sizes), contiguous_format)
    return flatten(wide, dim, dim + 1)


def repeated_indices(repeats: Any, length: int) -> Any:
    counts = repeats._array
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


# ---- moving


def flip_array(xp: Any, input: Any, dims: tuple[int, ...]) -> Any:
    dims = wrap_dims(dims, input.ndim)
    return xp.flip(input, dims if input.ndim else ()).copy()


_flip = primitive(
    "_flip",
    forward=lambda xp, input, dims: flip_array(xp, input, dims),
    vjp={"input": lambda xp, g, dims: xp.flip(g, dims) if g.ndim else g},
    jvp=LINEAR,
    batch=shifted(dims=(1,)),
)


@composite(variants="function method")
def flip(input: Any, *order: Any, dims: Sequence[int] | None = None) -> Any:
    """The tensor with the elements of some dimensions in reverse order."""
    if not order and dims is None:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    return _flip(input, ints(order, dims))


def backwards(input: Any) -> Any:
    """`reversed(tensor)`: the first dimension in reverse order."""
    return _flip(input, (0,)) if input.ndim else input


@composite(variants="function method")
def fliplr(input: Any) -> Any:
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return _flip(input, (1,))


@composite(variants="function method")
def flipud(input: Any) -> Any:
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return _flip(input, (0,))


def roll_array(xp: Any, input: Any, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    if not input.ndim:
        return input.copy()
    return xp.asarray(xp.roll(input, shifts, dims) if dims else xp.roll(input, shifts[0]), order="C")


def batch_roll(call: Any, args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    if args[2] and input.ndim > 1:
        return call(input, args[1], shift(args[2], input.ndim - 1)), 0
    flat = reshape(input, (input.shape[0], prod(input.shape[1:])))
    return reshape(call(flat, args[1], (1,)), tuple(input.shape)), 0


_roll = primitive(
    "_roll",
    forward=roll_array,
    vjp={"input": lambda xp, g, shifts, dims: xp.roll(g, tuple([-s for s in shifts]), dims or None)},
    jvp=LINEAR,
    batch=batch_roll,
)


@composite(variants="function method")
def roll(input: Any, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None, *, axis: Any = None) -> Any:
    """The tensor with its elements shifted along dimensions, those pushed out coming in at the other end.

    Without `dims` it is shifted as one long vector.
    """
    dims = axis if dims is None else dims
    shifts, dims = ints((shifts,)), () if dims is None else ints((dims,))
    if not shifts:
        raise RuntimeError("`shifts` required")
    if len(shifts) != len(dims) and (dims or len(shifts) > 1):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    return _roll(input, shifts, tuple([wrap_dim(d, input.ndim) for d in dims]))


_rot90 = primitive(
    "_rot90",
    forward=lambda xp, input, k, dims: xp.rot90(input, k, dims).copy(),
    vjp={"input": lambda xp, g, k, dims: xp.rot90(g, -k, dims)},
    jvp=LINEAR,
    batch=shifted(dims=(2,)),
)


@composite(variants="function method")
def rot90(input: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """The tensor turned by `k` quarters in the plane of two dimensions, from the first towards the second."""
    dims = ints((dims,))
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    if wrap_dim(dims[0], input.ndim) == wrap_dim(dims[1], input.ndim):
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    return _rot90(input, k, dims)


adapter("flip")(lambda x, axis=None: _flip(x, wrap_dims(axis, x.ndim)))
adapter("roll")(lambda x, shift, axis=None: roll(x, shift, axis))
adapter("rot90")(rot90)


# ---- triangles and diagonals


def triangle(name: str, **options: Any) -> Any:
    def forward(xp: Any, input: Any, diagonal: int = 0) -> Any:
        if input.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return xp.asarray(getattr(xp, name)(input, diagonal), order="C")

    return primitive(
        name,
        forward=forward,
        vjp={"input": lambda xp, g, diagonal: getattr(xp, name)(g, diagonal)},
        jvp=LINEAR,
        batch=shifted(least=2),
        **options,
    )


tril = triangle("tril", variants="function method in_place", same_in_numpy=True)
triu = triangle("triu", variants="function method in_place", same_in_numpy=True)


def embed_diagonal(xp: Any, input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    ndim = input.ndim + 1
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    shape = list(input.shape[:-1])
    for dim in sorted((first, second)):
        shape.insert(dim, input.shape[-1] + abs(offset))
    out = xp.zeros(shape, input.dtype)
    diagonal_array(xp, out, offset, first, second)[...] = input
    return out


def batch_embed(call: Any, args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    return call(input, args[1], *[wrap_dim(d, input.ndim) + 1 for d in args[2:]]), 0


diag_embed = primitive(
    "diag_embed",
    forward=embed_diagonal,
    vjp={"input": lambda xp, g, offset, dim1, dim2: xp.diagonal(g, offset, dim1, dim2)},
    jvp=LINEAR,
    batch=batch_embed,
    variants="function method",
)

diagonal_copy = primitive(
    "diagonal_copy",
    forward=lambda xp, input, offset=0, dim1=0, dim2=1: diagonal_array(xp, input, offset, dim1, dim2).copy(),
    vjp={
        "input": lambda xp, g, input_shape, offset, dim1, dim2: xp.diagonal_backward(g, input_shape, offset, dim1, dim2)
    },
    jvp=LINEAR,
    batch=shifted(dims=(2, 3)),
    node="DiagonalBackward0_copy",
)


@composite(variants="function method", out=True)
def diag(input: Any, diagonal: int = 0) -> Any:
    """A matrix with the given vector on a diagonal; of a matrix, a copy of that diagonal."""
    if input.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return diag_embed(input, diagonal) if input.ndim == 1 else diagonal_copy(input, diagonal)


@composite(variants="function method")
def diagflat(input: Any, offset: int = 0) -> Any:
    """A matrix with all elements of the tensor on a diagonal."""
    return diag(ravel(input), offset)
