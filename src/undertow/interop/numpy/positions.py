"""Functions that only move elements: NumPy computes where each comes from, and the tensors' elements follow.

NumPy's own function is called on arrays of numbers 0, 1, 2, ..., one for each element of the tensors; what it returns
says which element stands where. So every such function has its gradient without a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend.interface import Array
from undertow.interop.numpy.functions import FUNCTIONS, counterpart, ops, tensors, unwrapped
from undertow.ops.inplace.methods import copy_
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.arguments.dims import Dims


def moved(function: Callable[..., Any], sources: Any, *args: Any, **kwargs: Any) -> Any:
    """`function(*sources, *args, **kwargs)` for a function that gives back elements of its sources."""
    sources = tensors(sources)
    numbered, start = [], 0
    for source in sources:
        numbered.append(start + np.arange(source._array.size).reshape(source._array.shape))
        start += source._array.size
    everything = ops.cat([ops.reshape(s, (-1,)) for s in sources]) if len(sources) > 1 else sources[0]
    return pick(everything, function(*numbered, *args, **kwargs))


def pick(everything: Tensor, places: Any) -> Any:
    """The elements at these places; a tuple or list for a tuple or list of places."""
    if isinstance(places, (tuple, list)):
        return type(places)([pick(everything, p) for p in places])
    return ops.take(everything, Tensor(np.asarray(places, np.int64), everything._xp))


def mover(function: Callable[..., Any]) -> None:
    """Its first argument is the tensor; the rest says what to do."""

    def call(a: Array, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = tuple(map(unwrapped, args)), {name: unwrapped(v) for name, v in kwargs.items()}
        return moved(function, [a], *args, **kwargs)

    FUNCTIONS[function] = call


for _function in (np.delete, np.resize, np.rollaxis, np.unstack, np.lib.stride_tricks.sliding_window_view):
    mover(_function)


@counterpart(np.append)
def append(arr: Array, values: Array, axis: Dims = None) -> Array:
    return moved(np.append, (arr, values), axis=axis)


@counterpart(np.insert)
def insert(arr: Array, obj: Any, values: Array, axis: Any = None) -> Array:
    return moved(lambda a, v: np.insert(a, unwrapped(obj), v, axis), (arr, values))


@counterpart(np.compress)
def compress(condition: Any, a: Array, axis: Any = None) -> Array:
    return moved(lambda numbers: np.compress(unwrapped(condition), numbers, axis), [a])


@counterpart(np.extract)
def extract(condition: Array, arr: Array) -> Array:
    return moved(lambda numbers: np.extract(unwrapped(condition), numbers), [arr])


@counterpart(np.choose)
def choose(a: Any, choices: Any, *, mode: Any = "raise") -> Array:
    choices = ops.unbind(choices, 0) if isinstance(choices, Tensor) else choices
    return moved(lambda *numbers: np.choose(unwrapped(a), numbers, mode=mode), choices)


@counterpart(np.block)
def block(arrays: Any) -> Array:
    found = list(leaves_of(arrays))
    return moved(lambda *numbers: np.block(with_leaves(arrays, iter(numbers))), found)


def leaves_of(nested: Any) -> Iterator[Any]:
    """What stands in nested lists, in order."""
    if isinstance(nested, list):
        for part in nested:
            yield from leaves_of(part)
    else:
        yield nested


def with_leaves(nested: Any, leaves: Iterator[Any]) -> Any:
    """The same nested lists around other leaves."""
    return [with_leaves(part, leaves) for part in nested] if isinstance(nested, list) else next(leaves)


@counterpart(np.broadcast_arrays)
def broadcast_arrays(*args: Any) -> tuple[Array, Array]:
    return tuple(ops.broadcast_tensors(*tensors(args)))


@counterpart(np.partition)
def partition(a: Array, kth: Any, axis: Any = -1, kind: Any = "introselect") -> Array:
    order = np.argpartition(unwrapped(a), kth, axis, kind)
    return pick(a, order) if axis is None else ops.take_along_dim(a, Tensor(order, a._xp), axis)


@counterpart(np.sort_complex)
def sort_complex(a: Array) -> Array:
    order = Tensor(np.argsort(unwrapped(a), axis=-1), a._xp)
    found = ops.take_along_dim(a, order, -1)
    return found if found._array.dtype.kind == "c" else ops.to_dtype(found, np.dtype(complex))


@counterpart(np.trim_zeros)
def trim_zeros(filt: Array, trim: str = "fb", axis: Dims = None) -> Array:
    places = np.nonzero(unwrapped(filt))[0] if axis is None and filt._array.ndim == 1 else None
    if places is None:
        raise ops.Missing("trim_zeros of more than one dimension")
    first = places[0] if "f" in trim.lower() and places.size else 0
    last = places[-1] + 1 if "b" in trim.lower() and places.size else filt._array.size
    return filt[int(first) : int(last) if places.size else int(first)]


# ---- sets


@counterpart(np.unique)
def unique(
    ar: Array, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None,
    *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    _, index, inverse, counts = np.unique(unwrapped(ar), True, True, True, axis, equal_nan=equal_nan)
    values = pick(ar, index) if axis is None else ops.index_select(ar, axis, Tensor(index, ar._xp))
    extras = [(return_index, index), (return_inverse, inverse), (return_counts, counts)]
    wanted = [Tensor(np.asarray(found), ar._xp) for asked, found in extras if asked]
    return (values, *wanted) if wanted else values


@counterpart(np.unique_values)
def unique_values(x: Array) -> Array:
    return unique(x, equal_nan=False)


@counterpart(np.unique_counts)
def unique_counts(x: Array) -> Array:
    return type(np.unique_counts(unwrapped(x)))(*unique(x, return_counts=True, equal_nan=False))


@counterpart(np.unique_inverse)
def unique_inverse(x: Array) -> Array:
    return type(np.unique_inverse(unwrapped(x)))(*unique(x, return_inverse=True, equal_nan=False))


@counterpart(np.unique_all)
def unique_all(x: Array) -> Array:
    return type(np.unique_all(unwrapped(x)))(*unique(x, True, True, True, equal_nan=False))


@counterpart(np.union1d)
def union1d(ar1: Array, ar2: Array) -> Array:
    return unique(append(ar1, ar2))


@counterpart(np.intersect1d)
def intersect1d(ar1: Array, ar2: Array, assume_unique: bool = False, return_indices: bool = False) -> Any:
    first, second = tensors((ar1, ar2))
    _, index, other = np.intersect1d(unwrapped(first), unwrapped(second), assume_unique, return_indices=True)
    values = pick(first, index)
    return (values, Tensor(index, first._xp), Tensor(other, first._xp)) if return_indices else values


@counterpart(np.setdiff1d)
def setdiff1d(ar1: Array, ar2: Array, assume_unique: bool = False) -> Array:
    first, second = tensors((ar1, ar2))
    values = ops.reshape(first, (-1,)) if assume_unique else unique(first)
    return pick(values, np.nonzero(~np.isin(unwrapped(values), unwrapped(second)))[0])


@counterpart(np.setxor1d)
def setxor1d(ar1: Array, ar2: Array, assume_unique: bool = False) -> Array:
    parts = tensors((ar1, ar2))
    both = append(*(parts if assume_unique else [unique(p) for p in parts]))
    _, index, counts = np.unique(unwrapped(both), return_index=True, return_counts=True)
    return pick(both, index[counts == 1])


# ---- writing into the first argument

#: function -> the place of the argument with the new values
MUTATING = {np.copyto: 1, np.fill_diagonal: 1, np.put: 2, np.place: 2, np.putmask: 2, np.put_along_axis: 2}


def rewrite(function: Callable[..., Any], target: Tensor, *args: Any, **kwargs: Any) -> None:
    """Change a tensor in place as the NumPy function would, recorded."""
    place = MUTATING[function] - 1
    if len(args) <= place:
        raise ops.Missing(f"{function.__name__} with its values given by name")
    values = args[place]
    if isinstance(values, Tensor) and not np.can_cast(values._array.dtype, target._array.dtype, "same_kind"):
        raise TypeError(f"Cannot cast from {values._array.dtype} to {target._array.dtype} by the rule 'same_kind'")
    rest, kwargs = list(map(unwrapped, args)), {name: unwrapped(v) for name, v in kwargs.items()}

    def change(numbers: Array, new: Array) -> Any:
        function(numbers, *rest[:place], new, *rest[place + 1 :], **kwargs)
        return numbers

    copy_(target, moved(change, (target, values)))
