"""The order in memory of what composites return (docs/memory-order.md), where their last operation has another."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from undertow.backend.interface import Array
from undertow.backend.memory_order import arranged
from undertow.modes import current
from undertow.tensor import Tensor


def in_declared_order(function: Callable[..., Any], order: str) -> Callable[..., Any]:
    """The function, with its results in the order that `order` names, one word for all or one for each."""
    words = order.split()

    @functools.wraps(function)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        operands = list(arrays_among((*args, *kwargs.values())))
        if not isinstance(result, tuple):
            return rearranged(result, words[0], operands)
        each = [words[min(nr, len(words) - 1)] for nr in range(len(result))]
        parts = [rearranged(part, word, operands) for part, word in zip(result, each, strict=True)]
        return parts_as(result, parts)

    return ordered


def parts_as(result: tuple[Any, ...], parts: list[Any]) -> Any:
    """The parts in a tuple like that of the results; that itself, if they are its own."""
    return result if all([a is b for a, b in zip(result, parts, strict=True)]) else type(result)(parts)


def arrays_among(arguments: Sequence[Any]) -> Iterator[Array]:
    for value in arguments:
        if isinstance(value, Tensor) and isinstance(value._array, value._xp.ndarray):
            yield value._array


def rearranged(result: Any, order: str, operands: Sequence[Array]) -> Any:
    """A result just computed, whose edge is known to nobody else; or a tensor with that edge, and another array.

    It may be the view that some transposition took of the last result: that is seen by nobody either.
    """
    if type(result) is not Tensor or type(result._array) is not result._xp.ndarray:
        return result
    array = arranged(order, operands, result._array)
    return result if array is result._array else moved(result, array)


def moved(result: Tensor, array: Array) -> Tensor:
    """A result just computed, with its elements in another array.

    Where something looks on, it stays as it is: forward mode keeps tangents with it, or with what it is a view of.
    """
    if current().intercept is not None or (result._extra is not None and result._extra.rare is not None):
        return result
    tensor = Tensor(array, result._xp, result._edge)
    if result._edge is None:
        tensor._extra = current().extra
    return tensor
