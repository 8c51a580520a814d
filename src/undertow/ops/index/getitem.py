"""`x[index]` as PyTorch means it: views for ints, slices, None, `...`; a copy for tensors, masks, lists."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.compiled import shortcut
from undertow.ops.declare import composite
from undertow.ops.index.index_tensors import Places, index_op
from undertow.ops.views.dimensions import alias, unsqueeze
from undertow.ops.views.slices import reversed_, select, slice_
from undertow.tensor import Tensor

INVALID = "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})"
WRONG_DTYPE = "tensors used as indices must be long, int, byte or bool tensors"


@composite(variants="")
@shortcut(select, slice_, unsqueeze, alias)
def getitem(input: Array, index: Any) -> Array:
    """`input[index]`.

    >>> import undertow as ut
    >>> x = ut.arange(6).reshape(2, 3)
    >>> x[1, 1:]
    tensor([4, 5])
    >>> x[:, [2, 0]]
    tensor([[2, 0],
            [5, 3]])
    """
    kind = type(index)
    if kind is int:
        shape = input._array.shape
        if not shape or not -shape[0] <= index < shape[0]:
            _check_select(input, 0, index, 0)
        return select(input, 0, index)
    if kind is slice:
        if index.step is not None and _is_backwards(index):
            return backwards(input, 0, index)
        start, stop, step = bounds(index)
        return slice_(input, 0, start, stop, step)
    if index is None:
        return unsqueeze(input, 0)
    if index is Ellipsis:
        return alias(input)
    result, indices, places = split(input, index)
    if indices:
        return index_op(len(indices))(result, *beside(result, indices), places)
    return alias(input) if result is input else result


def beside(input: Tensor, indices: Sequence[Tensor]) -> Sequence[Tensor]:
    """The index tensors, those of the CPU copied to the tensor's device: they may index a tensor of any."""
    xp = input._xp
    return indices if xp is cpu else [Tensor(xp.take_over(i._array), xp) if i._xp is cpu else i for i in indices]


def split(input: Array, index: Any) -> tuple[Any, Sequence[Tensor], Places]:
    """The basic part of an index, applied to the tensor as views; the index tensors; and where they stand."""
    if type(index) is Tensor and index._array.ndim and index._array.dtype.kind == "i" and input._array.ndim:
        return input, (index,), (0,)
    items = _as_items(index)
    rank = input._array.ndim
    taken = sum([1 if type(item) is int or type(item) is slice else dimensions_taken(item) for item in items])
    if taken > rank:
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    result, dim = input, 0
    indices: list[Tensor] = []
    places: list[int | None] = []
    whole = 0  # dimensions without index tensor since the last one
    for position, item in enumerate(items):
        result = seen_through(result, dim, item, position)
        kind = type(item)
        if kind is bool or isinstance(item, Tensor):
            item = Tensor(cpu.zeros(int(item), dtypes.int64), cpu) if kind is bool else item
            places += [None] * whole + [len(indices)]
            indices.append(item)
            dim += item.ndim if item.dtype.kind == "b" else 1
            whole = 0
        elif kind is not int:
            skipped = rank - taken if item is Ellipsis else 1
            if item is Ellipsis:
                taken = rank  # a second one stands for nothing
            dim += skipped
            whole += skipped
    return result, indices, tuple(places)


def seen_through(tensor: Array, dim: int, item: Any, position: int) -> Array:
    """The view of a tensor that one item of an index makes; index tensors make none."""
    kind = type(item)
    if kind is int:
        _check_select(tensor, dim, item, position)
        return select(tensor, dim, item)
    if kind is slice:
        return backwards(tensor, dim, item) if _is_backwards(item) else sliced(tensor, dim, *bounds(item))
    if item is None or kind is bool:  # a bool then takes the new dimension once, or not at all
        return unsqueeze(tensor, dim)
    return tensor


def sliced(tensor: Array, dim: int, start: int, stop: int, step: int) -> Array:
    """A slice, or the tensor itself where that would be all of it."""
    if start == 0 and step == 1 and stop >= tensor._array.shape[dim]:
        return tensor
    return slice_(tensor, dim, start, stop, step)


def _check_select(input: Array, dim: int, index: int, position: int) -> None:
    shape = input._array.shape
    if not shape and index == 0:
        raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number")
    size = shape[dim] if shape else 0
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension {position} with size {size}")


def bounds(item: slice) -> tuple[int, int, int]:
    """A slice's start, stop and step as integers, the stop of an open one beyond any size."""
    start, stop, step = item.start, item.stop, item.step
    if step is None and type(start) is int and type(stop) is int:
        return start, stop, 1
    try:
        start = 0 if start is None else operator.index(start)
        stop = sys.maxsize if stop is None else operator.index(stop)
        step = 1 if step is None else operator.index(step)
    except TypeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None
    if step == 0:
        raise ValueError("slice step cannot be zero")
    return start, stop, step


def _is_backwards(item: slice) -> bool:
    return hasattr(item.step, "__index__") and operator.index(item.step) < 0


def backwards(tensor: Array, dim: int, item: slice) -> Any:
    """A slice with a negative step, which PyTorch refuses: as in NumPy a view, of the reversed dimension."""
    shape = tensor._array.shape
    if not shape:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    start, stop, step = item.indices(shape[dim])
    count, first = len(range(start, stop, step)), shape[dim] - 1 - start
    if not count:
        return slice_(tensor, dim, 0, 0, 1)
    return sliced(reversed_(tensor, dim), dim, first, first - (count - 1) * step + 1, -step)


# ---- what users write as an index


def _as_items(index: Any) -> list[Any]:
    """The items of an index: ints, slices, None, `...`, bools, and int or bool tensors with dimensions."""
    items = index if type(index) is tuple or _is_several(index) else (index,)
    return [item if type(item) is int or type(item) is slice else _as_item(item) for item in items]


def _is_several(index: Any) -> bool:
    """Whether the index is a tuple, or a list that PyTorch takes for one."""
    if isinstance(index, tuple):
        return True
    if not isinstance(index, list) or len(index) >= 32 or not any(_is_structured(item) for item in index):
        return False
    warnings.warn(
        "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] for several "
        "indices, or x[np.array(seq)] for one index of several dimensions",
        UserWarning,
        stacklevel=4,
    )
    return True


def _is_structured(item: Any) -> bool:
    return item is None or item is Ellipsis or isinstance(item, (slice, Tensor, cpu.ndarray, Sequence))


def _as_item(item: Any) -> Any:
    if type(item) in (int, slice, bool) or item is None or item is Ellipsis:
        return item
    if isinstance(item, Tensor):
        return _checked_tensor(item)
    if isinstance(item, str):
        raise TypeError(INVALID.format("str"))
    if isinstance(item, (cpu.ndarray, Sequence)):
        return _checked_tensor(_index_tensor(item))
    try:
        return operator.index(item)
    except TypeError:
        raise IndexError(INVALID.format(type(item).__name__)) from None


def _index_tensor(data: Any) -> Tensor:
    """A list or an array as a tensor of its own, int64 or bool."""
    array = cpu.array(data)
    if array.size == 0 and not isinstance(data, cpu.ndarray):
        array = array.astype(dtypes.int64)
    if array.dtype.kind not in "biu":
        raise IndexError(WRONG_DTYPE + f"; a list or array of {array.dtype} is not")
    keep = array.dtype.kind == "b" or array.dtype == dtypes.uint8
    return Tensor(array if keep else array.astype(dtypes.int64, copy=False), cpu)


def _checked_tensor(index: Tensor) -> Array:
    """An index tensor; one of no dimensions as the int or bool it holds."""
    array = index._array
    if array.dtype == dtypes.uint8:
        return _checked_tensor(_mask_of_bytes(index))
    if array.dtype.kind not in "bi":
        raise IndexError(WRONG_DTYPE)
    # under vmap, each example has an index of its own
    return index if array.ndim or not isinstance(array, index._xp.ndarray) else array.item()


def _mask_of_bytes(index: Tensor) -> Tensor:
    if index._array.ndim:
        warnings.warn(
            "indexing with dtype uint8 is now deprecated, because it means a mask; please use a dtype bool instead, "
            "or int64 for positions.",
            UserWarning,
            stacklevel=6,
        )
    return Tensor(index._array != 0, index._xp)


def dimensions_taken(item: Any) -> int:
    """How many dimensions of the tensor an item is for."""
    if isinstance(item, Tensor) and item._array.dtype.kind == "b":
        return int(item._array.ndim)
    return 0 if item is None or item is Ellipsis or type(item) is bool else 1


# ---- with index tensors, as functions


@composite(variants="")
def index(input: Array, indices: Sequence[Array]) -> Array:
    """What `indices` (tensors, or None for a whole dimension) select."""
    tensors, places = _family_arguments(indices)
    if not tensors:
        raise IndexError("at least one index must be provided: None stands for a whole dimension")
    return index_op(len(tensors))(input, *tensors, places)


def _family_arguments(indices: Sequence[Array]) -> tuple[list[Tensor], Places]:
    """The index tensors among `indices`, and their places."""
    if isinstance(indices, Tensor) or not isinstance(indices, Sequence):
        raise TypeError(f"argument 'indices' must be tuple of Tensors, not {type(indices).__name__}")
    tensors: list[Tensor] = []
    places: list[int | None] = []
    for item in indices:
        places.append(None if item is None else len(tensors))
        if item is not None:
            tensors.append(_as_index(item))
    while places and places[-1] is None:
        places.pop()
    return tensors, tuple(places)


def _as_index(item: Array) -> Tensor:
    tensor = item if isinstance(item, Tensor) else _index_tensor(item)
    if tensor._array.dtype == dtypes.uint8:
        return _mask_of_bytes(tensor)
    if tensor._array.dtype.kind not in "bi":
        raise IndexError(WRONG_DTYPE)
    return tensor
