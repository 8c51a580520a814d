"""Dimensions as users name them: negative, in tuples, or None for all of them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin

#: one dimension, several, or None for all
Dims = int | Iterable[int] | None


def wrap_dim(dim: int, ndim: int) -> int:
    """`dim` counted from the front; a 0-d array accepts 0 and -1, as PyTorch does."""
    try:
        dim = operator.index(dim)
    except TypeError:
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}") from None
    size = ndim or 1
    if not -size <= dim < size:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {dim})")
    return dim + size if dim < 0 else dim


def wrap_dims(dims: Dims, ndim: int) -> tuple[int, ...]:
    """One, several or all (None) dimensions, counted from the front, each at most once."""
    if dims is None:
        return tuple(range(ndim))
    if type(dims) is int or not isinstance(dims, Iterable):
        return (wrap_dim(dims, ndim),)
    wrapped = tuple([wrap_dim(d, ndim) for d in dims])
    if len(set(wrapped)) != len(wrapped):
        repeated = next(d for k, d in enumerate(wrapped) if d in wrapped[:k])
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return wrapped


def axes(dims: Dims, ndim: int) -> tuple[int, ...]:
    """`wrap_dims` as NumPy takes it: a 0-d array has no axis to name."""
    wrapped = wrap_dims(dims, ndim)
    return wrapped if ndim else ()


def reduced_axes(dims: Dims, ndim: int) -> tuple[int, ...]:
    """The axes to reduce: as `axes`, but an empty tuple means all of them, as in PyTorch."""
    return axes(dims, ndim) or tuple(range(ndim))


def kept_shape(shape: tuple[int, ...], dims: Dims) -> tuple[int, ...]:
    """`shape` after a reduction that keeps its dimensions."""
    gone = reduced_axes(dims, len(shape))
    return tuple([1 if d in gone else n for d, n in enumerate(shape)])


@twin
def restore(xp: Namespace, reduced: Array, shape: tuple[int, ...], dims: Any, keepdim: bool) -> Array:
    """The result of a reduction with its dimensions put back, so that it broadcasts to `shape`."""
    if keepdim or len(reduced.shape) == 0:
        return reduced
    return xp.reshape(reduced, kept_shape(shape, dims))


def numpy_spelling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of `dim` and `keepdim` be called with `axis` and `keepdims` as well.

    A list of dimensions becomes a tuple: nodes keep it until the backward pass, and the caller may change a list.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if "axis" in kwargs:
                kwargs["dim"] = kwargs.pop("axis")
            if "keepdims" in kwargs:
                kwargs["keepdim"] = kwargs.pop("keepdims")
            if type(kwargs.get("dim")) is list:
                kwargs["dim"] = tuple(kwargs["dim"])
        if list in map(type, args):
            args = tuple([tuple(a) if type(a) is list else a for a in args])
        return function(*args, **kwargs)

    return call
