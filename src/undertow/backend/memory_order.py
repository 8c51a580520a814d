"""In which order the elements of a result lie in memory: PyTorch's rules (docs/memory-order.md).

An order is a list of dimensions, from the outermost to the innermost: [0, 1, 2] is row after row. Dimensions of size 1
have no place in memory, so wherever they stand in such a list is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.backend.large_arrays import copied

Strides = Sequence[int]


def nesting(shape: Sequence[int], operands: Sequence[Strides]) -> list[int]:
    """The order of an elementwise result: that of the first operand in which two dimensions can be compared.

    `operands` are their strides, as long as the shape, 0 where a dimension is broadcast or expanded. Such a dimension
    is compared with none; without any comparison the order of the dimensions stays. (PyTorch sorts by insertion, and
    swaps what may not be neighbours: where comparisons are missing, that decides.)
    """
    dims = [dim for dim in range(len(shape)) if shape[dim] != 1]
    inner_first = dims[::-1]
    for place in range(1, len(dims)):
        here = place
        for other in range(place - 1, -1, -1):
            found = compare(shape, operands, inner_first[other], inner_first[here])
            if found < 0:
                break
            if found:
                inner_first[other], inner_first[here] = inner_first[here], inner_first[other]
                here = other
    if inner_first == dims[::-1]:
        return list(range(len(shape)))
    return [*[dim for dim in range(len(shape)) if shape[dim] == 1], *inner_first[::-1]]


def compare(shape: Sequence[int], operands: Sequence[Strides], first: int, second: int) -> int:
    """1 if `first` belongs outside of `second`, -1 if inside, 0 if no operand says."""
    for strides in operands:
        a, b = abs(strides[first]), abs(strides[second])
        if a and b:
            if a != b:
                return 1 if a > b else -1
            if shape[first] > shape[second]:
                return 1
    return 0


def strides_within(array: Array, shape: Sequence[int]) -> list[int]:
    """The strides of an array that is broadcast to a shape, 0 along new and repeated dimensions."""
    lead = [0] * (len(shape) - array.ndim)
    return [*lead, *[0 if n == 1 else stride for n, stride in zip(array.shape, array.strides, strict=True)]]


def shown_strides(array: Array) -> tuple[int, ...]:
    """NumPy gives stride 0 to dimensions of size 1 that it adds; PyTorch what the next one spans."""
    if 0 not in array.strides:
        return tuple(array.strides)
    strides, span = [], int(array.itemsize)
    for n, stride in zip(array.shape[::-1], array.strides[::-1], strict=True):
        step = span if stride == 0 and (n == 1 or not array.size) else stride
        strides.append(step)
        span = max(n, 1) * step
    return tuple(strides[::-1])


def is_channels_last(array: Array, least_ndim: int = 4) -> bool:
    """Whether images or volumes lie pixel after pixel, each with all its channels; gaps do not matter.

    With `least_ndim` 3 signals may, too.
    """
    if not least_ndim <= array.ndim <= 5 or not array.size:
        return False
    strides = shown_strides(array)
    least = 0
    for dim in (1, *range(array.ndim - 1, 1, -1), 0):
        if strides[dim] < least or strides[1] <= 0 or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(array.shape[dim], 1)
    return True


# ---- the orders that declarations name; each takes the operands and the result's shape


def rows(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    return list(range(len(shape)))


def of_operands(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    """That of elementwise operations."""
    return nesting(shape, [strides_within(array, shape) for array in operands if array.ndim <= len(shape)])


def of_first(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    """As the first operand lies, if the result has its shape; otherwise by rows."""
    return of_operands([a for a in operands[:1] if a.shape == tuple(shape)], shape)


def of_second(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    """That of an elementwise operation that takes its second operand first."""
    return of_operands([*operands[1:2], *operands[:1], *operands[2:]], shape)


def images(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    """As `convolution`, of signals and images alone; volumes by rows."""
    return convolution(operands, shape) if len(shape) < 5 else rows(operands, shape)


def volumes(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    """As `channels`, of volumes; of a single one, too, which then has the channels in dimension 0."""
    whole, single = operands[0], (1, 2, 3, 0)
    if len(shape) == 4 == whole.ndim:
        last = whole.transpose(single).flags.c_contiguous and not whole.flags.c_contiguous
        return list(single) if last else rows(operands, shape)
    return channels(operands, shape)


def convolution(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    """As `channels`, of signals, too; but of volumes in single precision alone."""
    return channels(operands if len(shape) < 5 or operands[0].dtype == dtypes.float32 else (), shape, 3)


def channels(operands: Sequence[Array], shape: Sequence[int], least_ndim: int = 4) -> list[int]:
    """Channels last if those of an operand are, the images or the weights; otherwise by rows."""
    if any([array.ndim == len(shape) and is_channels_last(array, least_ndim) for array in operands]):
        return [0, *range(2, len(shape)), 1]
    return rows(operands, shape)


def columns(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    """Matrices by columns, one after the other, as LAPACK returns them."""
    dims = rows(operands, shape)
    return [*dims[:-2], dims[-1], dims[-2]] if len(dims) > 1 else dims


def attention(operands: Sequence[Array], shape: Sequence[int]) -> list[int]:
    """As the queries lie, where the numbers of each query, key and value, equally many, lie together; else by rows."""
    together = [a.ndim == 4 and a.strides[-1] == a.itemsize and a.shape[-1] == shape[-1] for a in operands]
    return nesting(shape, [operands[0].strides]) if all(together) else rows(operands, shape)


Order = Callable[[Sequence[Array], Sequence[int]], list[int]]
ORDERS: dict[str, Order] = {
    "rows": rows,
    "operands": of_operands,
    "first": of_first,
    "channels": channels,
    "columns": columns,
    "second": of_second,
    "images": images,
    "volumes": volumes,
    "convolution": convolution,
    "attention": attention,
}


# ---- keeping them


def arranged(order: str, operands: Sequence[Array], out: Array) -> Array:
    """The result of an operation on `operands`, in the order that its declaration names: itself, or a copy."""
    if order == "as_computed":
        return out
    if (
        out.flags.c_contiguous
        and order != "columns"
        and (order == "rows" or all([a.flags.c_contiguous for a in operands]))
    ):
        return out
    if any([out is a for a in operands]):
        return out  # nothing was computed
    return laid_out(out, ORDERS[order](operands, out.shape))


def copy_with_gaps(xp: Namespace, array: Array) -> Array:
    """A copy whose elements lie as far apart as those of the array, where they have memory of their own."""
    steps = sorted([(stride, n) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1])
    reach, span = 0, int(array.itemsize)
    for stride, n in steps:
        if stride < span:
            return laid_out(copied(array), of_first([array], array.shape))
        reach += (n - 1) * stride
        span = reach + array.itemsize
    if not array.size or span == array.nbytes:
        return copied(array)
    memory = xp.zeros(span // array.itemsize, array.dtype)
    out = xp.lib.stride_tricks.as_strided(memory, array.shape, array.strides)
    xp.copyto(out, array)
    return out


def laid_out(array: Array, dims: Sequence[int]) -> Array:
    """The array, or a copy of it, whose elements lie in that order, without gaps."""
    turned = array.transpose(dims)
    if turned.flags.c_contiguous:
        return array
    return copied(turned, "C").transpose(inverse(dims))


def inverse(dims: Sequence[int]) -> list[int]:
    """The permutation that undoes another."""
    return sorted(range(len(dims)), key=dims.__getitem__)
