"""`x[index]`, with PyTorch's meaning: views for integers, slices, None and `...`, a copy for tensors, masks and lists."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.modes import current
from undertow.ops.declare import composite
from undertow.ops.index_family import Places, check_values, index_op, key_of, write_op
from undertow.ops.inplace import check_in_place, copy_, in_place
from undertow.ops.operands import NUMBERS, as_operand
from undertow.ops.parts import select, slice_
from undertow.ops.positions import set_at
from undertow.ops.reshaping import reshape
from undertow.ops.views import alias, broadcast_to, unsqueeze
from undertow.tensor import Tensor, counter_of, current_edge

INVALID = "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})"
WRONG_DTYPE = "tensors used as indices must be long, int, byte or bool tensors"


@composite
def getitem(input: Any, index: Any) -> Any:
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
        check_select(input, 0, index, 0)
        return select(input, 0, index)
    if kind is slice:
        start, stop, step = bounds(index)
        return slice_(input, 0, start, stop, step)
    if index is None:
        return unsqueeze(input, 0)
    if index is Ellipsis:
        return alias(input)
    result, indices, places = split(input, index)
    if indices:
        return index_op(len(indices))(result, *indices, places)
    return alias(input) if result is input else result


def split(input: Any, index: Any) -> tuple[Any, list[Tensor], Places]:
    """The basic part of an index applied to the tensor as views; then the index tensors, and where they stand."""
    items = as_items(index)
    rank = input.ndim
    taken = sum([dimensions_taken(item) for item in items])
    if taken > rank:
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    walk = Walk(input)
    for position, item in enumerate(items):
        if item is Ellipsis:
            walk.skip(rank - taken)
        else:
            walk.step(item, position)
    return walk.result, walk.indices, tuple(walk.places)


class Walk:
    """Going through the items of an index, dimension by dimension.

    result   the tensor seen through the views so far
    dim      the dimension of it that the next item is for
    places   for every dimension up to there, the number of its index tensor or None; ends with an index tensor
    """

    def __init__(self, input: Any) -> None:
        self.result = input
        self.dim = 0
        self.indices: list[Tensor] = []
        self.places: list[int | None] = []
        self.whole = 0  # dimensions without index since the last index tensor

    def step(self, item: Any, position: int) -> None:
        kind = type(item)
        if kind is int:
            check_select(self.result, self.dim, item, position)
            self.result = select(self.result, self.dim, item)
        elif kind is slice:
            self.slice(*bounds(item))
        elif item is None:
            self.result = unsqueeze(self.result, self.dim)
            self.skip(1)
        elif kind is bool:
            # a dimension of size one, taken once or not at all
            self.result = unsqueeze(self.result, self.dim)
            self.record(Tensor(cpu.zeros(int(item), dtypes.int64), cpu), 1)
        else:
            self.record(item, item.ndim if item.dtype.kind == "b" else 1)

    def slice(self, start: int, stop: int, step: int) -> None:
        if start != 0 or step != 1 or stop < self.result.shape[self.dim]:
            self.result = slice_(self.result, self.dim, start, stop, step)
        self.skip(1)

    def skip(self, dims: int) -> None:
        self.dim += dims
        self.whole += dims

    def record(self, index: Tensor, dims: int) -> None:
        self.places += [None] * self.whole + [len(self.indices)]
        self.indices.append(index)
        self.dim += dims
        self.whole = 0


def check_select(input: Any, dim: int, index: int, position: int) -> None:
    shape = input._array.shape
    if not shape and index == 0:
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number"
        )
    size = shape[dim] if shape else 0
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension {position} with size {size}")


def bounds(item: slice) -> tuple[int, int, int]:
    """A slice's start, stop and step as integers, the stop of an open one beyond any size."""
    start, stop, step = item.start, item.stop, item.step
    try:
        start = 0 if start is None else operator.index(start)
        stop = sys.maxsize if stop is None else operator.index(stop)
        step = 1 if step is None else operator.index(step)
    except TypeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None
    if step <= 0:
        raise ValueError(
            "step must be greater than zero: flip the dimension first to go backwards" if step else
            "slice step cannot be zero"
        )  # fmt: skip
    return start, stop, step


# ---- what users write as an index


def as_items(index: Any) -> list[Any]:
    """The items of an index: ints, slices, None, `...`, bools, and int or bool tensors of at least one dimension."""
    return [as_item(item) for item in (index if is_several(index) else (index,))]


def is_several(index: Any) -> bool:
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


def as_item(item: Any) -> Any:
    if type(item) in (int, slice, bool) or item is None or item is Ellipsis:
        return item
    if isinstance(item, Tensor):
        return checked_tensor(item)
    if isinstance(item, str):
        raise TypeError(INVALID.format("str"))
    if isinstance(item, (cpu.ndarray, Sequence)):
        return checked_tensor(index_tensor(item))
    try:
        return operator.index(item)
    except TypeError:
        raise IndexError(INVALID.format(type(item).__name__)) from None


def index_tensor(data: Any) -> Tensor:
    """A list or an array as a tensor of its own, int64 or bool."""
    array = cpu.array(data)
    if array.size == 0 and not isinstance(data, cpu.ndarray):
        array = array.astype(dtypes.int64)
    if array.dtype.kind not in "biu":
        raise IndexError(WRONG_DTYPE + f"; a list or array of {array.dtype} is not")
    keep = array.dtype.kind == "b" or array.dtype == dtypes.uint8
    return Tensor(array if keep else array.astype(dtypes.int64, copy=False), cpu)


def checked_tensor(index: Tensor) -> Any:
    """An index tensor; one of no dimensions as the int or bool it holds."""
    array = index._array
    if array.dtype == dtypes.uint8:
        return checked_tensor(mask_of_bytes(index))
    if array.dtype.kind not in "bi":
        raise IndexError(WRONG_DTYPE)
    return index if array.ndim else array.item()


def mask_of_bytes(index: Tensor) -> Tensor:
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
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    return int(item.ndim) if isinstance(item, Tensor) and item.dtype.kind == "b" else 1


# ---- writing


@composite
def index(input: Any, indices: Sequence[Any]) -> Any:
    """What `indices` (tensors, or None for a whole dimension) select."""
    tensors, places = family_arguments(indices)
    return index_op(len(tensors))(input, *tensors, places)


@composite
def index_put(input: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """A copy of `input` with `values` at the places that `indices` (tensors, masks, or None) select.

    With `accumulate` they are added, as often as a place is selected; without, the last of several writes remains,
    and only that one has a gradient.

    >>> import undertow as ut
    >>> x = ut.zeros(3)
    >>> ut.index_put(x, (ut.tensor([0, 0, 2]),), ut.tensor([1.0, 2.0, 3.0]), accumulate=True)
    tensor([3., 0., 3.])
    """
    tensors, places = family_arguments(indices)
    if isinstance(values, NUMBERS):
        raise TypeError(f"index_put(): argument 'values' (position 2) must be Tensor, not {type(values).__name__}")
    return write_op(len(tensors))(input, as_operand("index_put", "values", values), *tensors, places, accumulate)


def family_arguments(indices: Sequence[Any]) -> tuple[list[Tensor], Places]:
    """The index tensors among `indices`, and their places."""
    if isinstance(indices, Tensor) or not isinstance(indices, Sequence):
        raise TypeError(f"argument 'indices' must be tuple of Tensors, not {type(indices).__name__}")
    tensors: list[Tensor] = []
    places: list[int | None] = []
    for item in indices:
        places.append(None if item is None else len(tensors))
        if item is not None:
            tensors.append(as_index(item))
    while places and places[-1] is None:
        places.pop()
    if not places:
        raise IndexError("at least one of the indices must be a tensor: None stands for a whole dimension")
    return tensors, tuple(places)


def as_index(item: Any) -> Tensor:
    tensor = item if isinstance(item, Tensor) else index_tensor(item)
    if tensor._array.dtype == dtypes.uint8:
        return mask_of_bytes(tensor)
    if tensor._array.dtype.kind not in "bi":
        raise IndexError(WRONG_DTYPE)
    return tensor


# ---- in place


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`: a tensor, a number or an array, broadcast to what the index selects."""
    value = assigned_value(self, value)
    if index is False:
        return
    view, indices, places = split(self, index)
    if not indices:
        copy_(view, fitted(value, tuple(view.shape)))
    elif is_recorded(view, value):
        put_in_place(view, indices, places, without_leading_ones(value))
    else:
        write_positions(view, key_of([i._array for i in indices], places), without_leading_ones(value)._array)


def assigned_value(self: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (*NUMBERS, cpu.generic, cpu.ndarray)):
        return Tensor(cpu.asarray(value).astype(self._array.dtype), cpu)
    raise TypeError(f"can't assign a {type(value).__name__} to a tensor of {self.dtype}: make a tensor of it first")


def fitted(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not value.ndim or tuple(value.shape) == shape:
        return value
    return broadcast_to(without_leading_ones(value), shape)  # type: ignore[no-any-return]


def without_leading_ones(value: Tensor) -> Tensor:
    shape = tuple(value.shape)
    extra = next((k for k, n in enumerate(shape) if n != 1), len(shape))
    return reshape(value, shape[extra:]) if extra else value


def is_recorded(view: Tensor, value: Tensor) -> bool:
    state = current()
    return state.intercept is not None or (
        state.grad_enabled and (current_edge(view) is not None or value._edge is not None)
    )


put_in_place = in_place(
    "index_put", lambda before, indices, places, value: write_op(len(indices))(before, value, *indices, places, False)
)


def write_positions(tensor: Tensor, key: tuple[Any, ...], values: Any) -> None:
    """Write straight into the tensor's memory, when there is nothing to record, and count a version."""
    check_in_place(tensor, "index_put_")
    target = tensor._array
    check_values(tensor._xp, target, values, key)
    if not target.flags.writeable:
        raise RuntimeError(
            "unsupported operation: index_put_ would write to memory that several elements share (an expanded tensor) "
            "or that is read-only. Please clone() the tensor before performing the operation."
        )
    set_at(tensor._xp, target, key, values)
    counter_of(tensor).bump()
