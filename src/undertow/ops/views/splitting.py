"""One tensor as several: views, and copies of parts that may be changed in place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.backend.memory_order import copy_with_gaps
from undertow.compiled import shortcut, twin
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import type_name
from undertow.ops.arguments.sizes import ints
from undertow.ops.declare import adapter, composite, primitive
from undertow.ops.declare import view as declare_view
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.views.dimensions import EVERYTHING, at
from undertow.ops.views.slices import slice_
from undertow.tensor import Tensor


def _resized(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


# ---- one by one


@twin
def unbind_array(xp: Namespace, input: Array, dim: int = 0) -> tuple[Array, ...]:
    if not input.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = wrap_dim(dim, input.ndim)
    return tuple([input[at(dim, k)] for k in range(input.shape[dim])])


def _stack_gradients(xp: Namespace, g: list[Any], input_shape: tuple[int, ...], dim: int) -> Array:
    known = next(part for part in g if part is not None)
    return xp.stack([xp._zeros_for(known, known.shape) if part is None else part for part in g], dim)


unbind = declare_view(
    "unbind",
    forward=unbind_array,
    vjp={"input": _stack_gradients},
    batch=shifted(dims=(1,)),
    outputs="list",
    variants="function method",
)


# ---- along a dimension


@twin
def cut_evenly(xp: Namespace, input: Array, split_size: int, dim: int = 0) -> tuple[Array, ...]:
    if not input.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap_dim(dim, input.ndim)
    length = input.shape[dim]
    if split_size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={split_size}")
    if split_size == 0 and length:
        raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {length}")
    lead = (EVERYTHING,) * dim
    starts = range(0, length or 1, split_size or 1)
    return tuple([input[(*lead, slice(start, start + split_size))] for start in starts])


def _checked_sizes(input: Array, sizes: Sequence[int], dim: int) -> Sequence[int]:
    if not input.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap_dim(dim, input.ndim)
    if any(n < 0 for n in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(sizes)}"
        )
    if sum(sizes) != input.shape[dim]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {input.shape[dim]} (input tensor's "
            f"size at dimension {dim}), but got split_sizes={list(sizes)}"
        )
    return sizes


def cut(input: Array, sizes: Sequence[int], dim: int) -> tuple[Any, ...]:
    lead = (EVERYTHING,) * wrap_dim(dim, input.ndim)
    parts, start = [], 0
    for size in sizes:
        parts.append(input[(*lead, slice(start, start + size))])
        start += size
    return tuple(parts)


def _join_gradients(xp: Namespace, g: list[Any], input_shape: tuple[int, ...], sizes: Sequence[int], dim: int) -> Array:
    known = next(part for part in g if part is not None)
    dim = wrap_dim(dim, len(input_shape))
    whole = [
        xp._zeros_for(known, _resized(input_shape, dim, n)) if part is None else part
        for part, n in zip(g, sizes, strict=True)
    ]
    return xp.concatenate(whole, dim)


def _even_split_gradient(xp: Namespace, g: list[Any], input_shape: tuple[int, ...], split_size: int, dim: int) -> Array:
    length = input_shape[dim]
    sizes = [min(split_size, length - k * split_size) for k in range(len(g))]
    return _join_gradients(xp, g, input_shape, sizes, dim)


_split = declare_view(
    "_split",
    forward=cut_evenly,
    vjp={"input": _even_split_gradient},
    batch=shifted(dims=(2,)),
    outputs="list",
)

_split_with_sizes = declare_view(
    "_split_with_sizes",
    forward=lambda xp, input, split_sizes, dim=0: cut(input, _checked_sizes(input, split_sizes, dim), dim),
    vjp={"input": lambda xp, g, input_shape, split_sizes, dim: _join_gradients(xp, g, input_shape, split_sizes, dim)},
    batch=shifted(dims=(2,)),
    outputs="list",
)

# PyTorch's unsafe forms share memory and trust the caller. Here the parts are those of a copy: as usable, and safe.
unsafe_split = primitive(
    "unsafe_split",
    forward=lambda xp, input, split_size, dim=0: cut_evenly(xp, copy_with_gaps(xp, input), split_size, dim),
    vjp={"input": _even_split_gradient},
    jvp=LINEAR,
    batch=shifted(dims=(2,)),
    outputs="list",
    variants="function method",
    order="as_computed",
)

_unsafe_split_with_sizes = primitive(
    "_unsafe_split_with_sizes",
    forward=lambda xp, input, split_sizes, dim=0: cut(
        copy_with_gaps(xp, input), _checked_sizes(input, split_sizes, dim), dim
    ),
    vjp={"input": lambda xp, g, input_shape, split_sizes, dim: _join_gradients(xp, g, input_shape, split_sizes, dim)},
    jvp=LINEAR,
    batch=shifted(dims=(2,)),
    outputs="list",
    order="as_computed",
)


@composite(variants="function method")
@shortcut(_split, _split_with_sizes)
def split(
    input: Array | None = None,
    split_size_or_sections: int | Sequence[int] | None = None,
    dim: int = 0,
    *,
    split_size: int | Sequence[int] | None = None,
    axis: int | None = None,
    tensor: Array | None = None,
) -> tuple[Any, ...]:
    """Views of the tensor along `dim`: of one size (the last perhaps smaller), or of the sizes listed.

    split_size_or_sections  a size, or a list of sizes whose sum is that of `dim`
    split_size              its older name, by which a size is given

    >>> import undertow as ut
    >>> [tuple(part.shape) for part in ut.split(ut.zeros(5), 2)]
    [(2,), (2,), (1,)]
    """
    dim = dim if axis is None else axis
    size = split_size_or_sections if split_size is None else split_size  # the name that PyTorch's method has for it
    input = tensor if input is None else input  # and that of its function
    if input is None:
        raise TypeError("split() missing 1 required positional argument: 'tensor'")
    if size is None:
        raise TypeError("split() missing 1 required positional argument: 'split_size_or_sections'")
    if isinstance(size, (list, tuple)):
        return _split_with_sizes(input, ints((size,)), dim)
    return _split(input, size, dim)


@composite(variants="function method")
def split_with_sizes(input: Array, split_sizes: Sequence[int], dim: int = 0) -> tuple[Any, ...]:
    """Parts of the given sizes along `dim`, in the same memory.

    split_sizes  the sizes, whose sum is that of `dim`

    >>> import undertow as ut
    >>> ut.split_with_sizes(ut.tensor([1.0, 2.0, 3.0]), (1, 2))
    (tensor([1.]), tensor([2., 3.]))
    """
    return _split_with_sizes(input, ints((split_sizes,)), dim)


@composite(variants="function method")
def unsafe_split_with_sizes(input: Array, split_sizes: Sequence[int], dim: int = 0) -> tuple[Any, ...]:
    """`split_with_sizes`, but each part has memory of its own.

    split_sizes  the sizes, whose sum is that of `dim`

    >>> import undertow as ut
    >>> ut.unsafe_split_with_sizes(ut.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    return _unsafe_split_with_sizes(input, ints((split_sizes,)), dim)


@composite(variants="function method")
@shortcut(_split)
def chunk(input: Array, chunks: int, dim: int = 0, *, axis: int | None = None) -> tuple[Any, ...]:
    """Views of the tensor: at most `chunks` of equal length along `dim`, the last perhaps shorter.

    input  the tensor that is cut

    >>> import undertow as ut
    >>> ut.chunk(ut.tensor([1.0, 2.0, 3.0]), 2)
    (tensor([1., 2.]), tensor([3.]))
    """
    return _chunk_by(_split, _split_with_sizes, input, chunks, dim if axis is None else axis)


@composite(variants="function method")
def unsafe_chunk(input: Array, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    """`chunk`, but each part has memory of its own.

    chunks  the greatest number of parts

    >>> import undertow as ut
    >>> ut.unsafe_chunk(ut.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return _chunk_by(unsafe_split, _unsafe_split_with_sizes, input, chunks, dim)


def _chunk_by(
    evenly: Callable[..., Any], with_sizes: Callable[..., Any], input: Array, chunks: int, dim: int
) -> tuple[Any, ...]:
    if not input.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    length = input.shape[wrap_dim(dim, input.ndim)]
    if not length:
        return with_sizes(input, (0,) * chunks, dim)
    return evenly(input, -(-length // chunks), dim)


def by_each_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take `indices_or_sections` also by the names that it has in PyTorch's two signatures."""

    @functools.wraps(function)
    def taking(*args: Any, **kwargs: Any) -> Any:
        for name in ("indices", "sections", "tensor_indices_or_sections"):
            if name in kwargs:
                kwargs["indices_or_sections"] = kwargs.pop(name)
        return function(*args, **kwargs)

    return taking


@composite(variants="function method")
@by_each_name
def tensor_split(
    input: Array, indices_or_sections: int | Sequence[int], dim: int = 0, *, axis: int | None = None
) -> tuple[Any, ...]:
    """Views of the tensor, cut along `dim` before the given indices, or into so many nearly equal parts.

    indices_or_sections  a number of parts, or a list of the indices before which to cut

    >>> import undertow as ut
    >>> ut.tensor_split(ut.tensor([1.0, 2.0, 3.0]), 2)
    (tensor([1., 2.]), tensor([3.]))
    """
    dim = dim if axis is None else axis
    if not input.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    dim = wrap_dim(dim, input.ndim)
    bounds = _cutting_points(indices_or_sections, input.shape[dim])
    return tuple([slice_(input, dim, start, end, 1) for start, end in pairwise(bounds)])


def _cutting_points(indices_or_sections: Any, length: int) -> list[Any]:
    """Where the parts begin, and None for the end."""
    if isinstance(indices_or_sections, Tensor):
        if indices_or_sections.dtype != dtypes.int64:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                f"{type_name(indices_or_sections)}"
            )
        if indices_or_sections.ndim > 1:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, "
                f"but got a tensor with {indices_or_sections.ndim} dims"
            )
        indices_or_sections = indices_or_sections._array.tolist()
    if isinstance(indices_or_sections, Sequence):
        return [0, *indices_or_sections, None]
    if isinstance(indices_or_sections, float):
        raise TypeError(f"tensor_split(): the number of sections must be an int, but got {indices_or_sections}")
    sections = int(indices_or_sections)
    if sections <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
    small, larger = divmod(length, sections)
    return [k * small + min(k, larger) for k in range(sections)] + [None]


def _split_at(input: Array, indices_or_sections: Any, dim: int, name: str, least: int) -> tuple[Any, ...]:
    if input.ndim < least:
        raise RuntimeError(
            f"undertow.{name} requires a tensor with at least {least} dimension, but got a tensor with "
            f"{input.ndim} dimensions!"
        )
    if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or input.shape[dim] % indices_or_sections):
        raise RuntimeError(
            f"undertow.{name} attempted to split along dimension {dim}, but the size of the dimension "
            f"{input.shape[dim]} is not divisible by the split_size {indices_or_sections}!"
        )
    return tensor_split(input, indices_or_sections, dim)


@composite(variants="function method")
@by_each_name
def hsplit(input: Array, indices_or_sections: int | Sequence[int]) -> tuple[Any, ...]:
    """`tensor_split` along columns (dimension 1; 0 for a vector), into equal parts.

    indices_or_sections  a number of parts, or a list of the indices before which to cut

    >>> import undertow as ut
    >>> ut.hsplit(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), 2)
    (tensor([[1.],
            [3.]]), tensor([[2.],
            [4.]]))
    """
    return _split_at(input, indices_or_sections, 0 if input.ndim == 1 else 1, "hsplit", 1)


@composite(variants="function method")
@by_each_name
def vsplit(input: Array, indices_or_sections: int | Sequence[int]) -> tuple[Any, ...]:
    """`tensor_split` along rows (dimension 0), into equal parts.

    indices_or_sections  a number of parts, or a list of the indices before which to cut

    >>> import undertow as ut
    >>> ut.vsplit(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), 2)
    (tensor([[1., 2.]]), tensor([[3., 4.]]))
    """
    return _split_at(input, indices_or_sections, 0, "vsplit", 2)


@composite(variants="function method")
@by_each_name
def dsplit(input: Array, indices_or_sections: int | Sequence[int]) -> tuple[Any, ...]:
    """`tensor_split` along depth (dimension 2), into equal parts.

    indices_or_sections  a number of parts, or a list of the indices before which to cut

    >>> import undertow as ut
    >>> ut.dsplit(ut.ones(1, 1, 2), 2)
    (tensor([[[1.]]]), tensor([[[1.]]]))
    """
    return _split_at(input, indices_or_sections, 2, "dsplit", 3)


adapter("split")(tensor_split)
