"""Memory formats: the order in which a tensor's elements lie in memory, as an argument and as a fact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend.interface import Array
from undertow.backend.large_arrays import copied
from undertow.backend.memory_order import inverse, is_channels_last, nesting, shown_strides
from undertow.backend.public_dtypes import PREFIX


class memory_format:
    """The order in which a tensor's elements lie in memory: an argument of `clone`, `contiguous`, `empty_like`, ...

    name   its full name
    order  NumPy's letter for it
    dims   the dimensions from the outermost to the innermost in memory, where that is not their own order

    >>> import undertow as ut
    >>> ut.channels_last
    undertow.channels_last
    """

    __slots__ = ("dims", "name", "order")

    def __init__(self, name: str, order: str, dims: tuple[int, ...] | None = None) -> None:
        self.name = name
        self.order = order  # NumPy's letter for it
        self.dims = dims  # the dimensions from the outermost to the innermost, where that is not their own order

    def __repr__(self) -> str:
        return f"{PREFIX[0]}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format", "C")
preserve_format = memory_format("preserve_format", "K")
channels_last = memory_format("channels_last", "C", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", "C", (0, 2, 3, 4, 1))


def as_memory_format(format: memory_format | None) -> memory_format:
    """The format; None keeps the order there is."""
    if format is None:
        return preserve_format
    if not isinstance(format, memory_format):
        raise TypeError(
            "memory_format must be one of undertow.contiguous_format, preserve_format, channels_last and "
            f"channels_last_3d, got {format!r}"
        )
    return format


def is_laid_out(array: Array, format: memory_format | None) -> bool:
    """Whether the array's elements lie in the order of the format, without gaps."""
    format = as_memory_format(format)
    if format.dims is None:
        return bool(array.flags.c_contiguous)
    return array.ndim == len(format.dims) and lies_in(array, format.dims)


def lies_in(array: Array, dims: Sequence[int]) -> bool:
    """Whether the elements lie without gaps, the dimensions nested from the outermost to the innermost."""
    span = array.itemsize
    for dim in reversed(dims):
        if array.shape[dim] != 1 and array.strides[dim] != span:
            return not array.size
        span *= array.shape[dim]
    return True


def format_of(array: Array) -> memory_format:
    """The format that the array's strides are taken for. Where two would do, it is rows; gaps do not matter."""
    if not is_channels_last(array):
        return contiguous_format
    return channels_last if array.ndim == 4 else channels_last_3d


def has_strides_of(array: Array, format: memory_format) -> bool:
    """Whether the strides are those of new memory of this format, also along dimensions of size 1."""
    span, strides = array.itemsize, [0] * array.ndim
    for dim in reversed(dims_of(format, array.ndim)):
        strides[dim], span = span, span * max(array.shape[dim], 1)
    return shown_strides(array) == tuple(strides)


def dims_of(format: memory_format, ndim: int) -> tuple[int, ...]:
    """The dimensions of a tensor of this format, from the outermost to the innermost."""
    if format.dims is None:
        return tuple(range(ndim))
    if ndim != len(format.dims):
        raise RuntimeError(
            f"required rank {len(format.dims)} tensor to use {format.name} format; this one has {ndim} dimensions"
        )
    return format.dims


def in_format(memory: Array, shape: Sequence[int], format: memory_format) -> Array:
    """Consecutive elements under a shape, the dimensions nested as the format has them."""
    dims = dims_of(format, len(shape))
    return memory.reshape([shape[dim] for dim in dims]).transpose(inverse(dims))


def copy_laid_out(array: Array, format: memory_format | None) -> Array:
    """A copy of the array whose elements lie in the order of the format."""
    format = as_memory_format(format)
    if format.dims is None:
        return made_in_order(array, format.order, copied)
    dims = dims_of(format, array.ndim)
    return copied(array.transpose(dims), "C").transpose(inverse(dims))


def made_in_order(array: Array, order: str, make: Callable[[Any, str], Any]) -> Array:
    """`make(array, order)`, but for order "K" (as it is) an expanded dimension is nested where it stands.

    NumPy nests dimensions of stride 0 innermost; then a copy of an expanded tensor is contiguous in none of its views.
    """
    if order != "K" or 0 not in array.strides:
        return make(array, order)
    dims = nesting(array.shape, [array.strides])
    return make(array.transpose(dims), "C").transpose(inverse(dims))
