"""Sizes as users give them: `f(2, 3)` or `f((2, 3))`, with -1 for a size to be worked out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from undertow.tensor.size import Size

if TYPE_CHECKING:
    from undertow.backend.interface import Array


def ints(values: tuple[Any, ...], keyword: Iterable[Any] | None = None) -> tuple[int, ...]:
    """The integers of `f(*values)`, where one sequence may stand for all, or of `f(name=keyword)`."""
    if keyword is None and values and all([type(n) is int for n in values]):
        return values
    if keyword is not None:
        if values:
            raise TypeError("got the same argument by position and by name")
        values = (keyword,)
    if len(values) == 1 and isinstance(values[0], Iterable) and not hasattr(values[0], "__index__"):
        values = tuple(values[0])
    if len(values) == 1 and getattr(values[0], "ndim", 0) == 1:
        values = tuple(values[0])
    return tuple([index(n) for n in values])


def as_int(function: str, argument: str, value: Array) -> int:
    """An argument that must be an integer, of 64 bits."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{function}(): argument '{argument}' must be int, not {type(value).__name__}")
    number = index(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"Overflow when unpacking long long: {function}() has no use for {argument}={number}")
    return number


def infer_sizes(sizes: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """`sizes` for `numel` elements, with -1 worked out."""
    if min(sizes, default=0) >= 0:
        if math.prod(sizes) != numel:
            raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {numel}")
        return sizes
    wrong = [k for k, n in enumerate(sizes) if n < -1]
    if wrong:
        raise RuntimeError(f"invalid shape dimension {sizes[wrong[0]]} at index {wrong[0]} of shape {list(sizes)}")
    if sizes.count(-1) > 1:
        raise RuntimeError(f"only one dimension can be inferred, but shape {list(sizes)} has several -1")
    known = -math.prod(sizes)
    if known == 0 and numel == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified "
            "dimension size -1 can be any value and is ambiguous"
        )
    if known == 0 or numel % known:
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {numel}")
    return tuple([numel // known if n == -1 else n for n in sizes])


def broadcast_problem(shapes: Sequence[tuple[int, ...]]) -> str | None:
    """At which dimension, counted from the last, the shapes do not broadcast, in PyTorch's words; None if they do."""
    ndim = max([len(s) for s in shapes], default=0)
    for back in range(1, ndim + 1):
        size = 1
        for shape in shapes:
            n = shape[-back] if back <= len(shape) else 1
            if n != size and n != 1 and size != 1:
                place = f"non-singleton dimension {ndim - back}"
                return f"The size of tensor a ({size}) must match the size of tensor b ({n}) at {place}"
            size = n if size == 1 else size
    return None


def common_shape(*shapes: Any) -> Size:
    """The shape that tensors of all these shapes broadcast to; an integer stands for a shape of one dimension.

    >>> import undertow as ut
    >>> ut.broadcast_shapes((2, 1), (3,), 3)
    undertow.Size([2, 3])
    """
    given = [_checked_shape(shape) for shape in shapes]
    if any([n < 0 for shape in given for n in shape]):
        raise ValueError(
            f"Attempting to broadcast a dimension with negative length! broadcast_shapes was given {given}"
        )
    for k, shape in enumerate(given):
        problem = broadcast_problem(given[: k + 1])
        if problem is not None:
            raise RuntimeError(
                f"{problem}: argument {k} of broadcast_shapes is {shape}, but expected shape should be broadcastable "
                f"to {list(broadcast_shapes(given[:k]))}"
            )
    return Size(broadcast_shapes(given))


def _checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return ints((shape,))
    except TypeError:
        raise RuntimeError(
            f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {shape}"
        ) from None


def broadcast_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all of `shapes` broadcast to."""
    problem = broadcast_problem(shapes)
    if problem is not None:
        raise RuntimeError(problem)
    ndim = max([len(s) for s in shapes], default=0)
    filled = [(1,) * (ndim - len(s)) + tuple(s) for s in shapes]
    return tuple([next((n for n in sizes if n != 1), 1) for sizes in zip(*filled, strict=True)])
