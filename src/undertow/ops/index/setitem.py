"""Writing to a part of a tensor: `x[index] = value`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.compiled import shortcut
from undertow.modes import Interceptor, current
from undertow.ops.arguments.operands import NUMBERS, as_operand
from undertow.ops.declare import composite
from undertow.ops.index.basic_setitem import assign, basic_key, shows_all
from undertow.ops.index.getitem import _family_arguments, beside, split
from undertow.ops.index.index_arrays import set_at
from undertow.ops.index.index_select import cast_number, check_real
from undertow.ops.index.index_tensors import check_values, key_of, write_op
from undertow.ops.inplace.checks import check_in_place, unlock
from undertow.ops.inplace.forms import in_place
from undertow.ops.inplace.methods import copy_
from undertow.ops.inplace.overlap import are_arrays, refuse_overlap
from undertow.ops.views.dimensions import broadcast_to
from undertow.ops.views.reshape import reshape
from undertow.tensor import Tensor, counter_of
from undertow.tensor.tensor import requires_grad


@shortcut()
def setitem(self: Tensor, index: Any, value: Array) -> None:
    """`self[index] = value`: a tensor, a number or an array, broadcast to what the index selects."""
    state = current()
    if isinstance(state.intercept, Interceptor) and not state.transforms:
        name = "copy_" if basic_key(index) else "index_put_"
        state.intercept.watched(name, _changed_by_setitem, (self, index, value), {})
        return
    if assign(self, index, value):
        return
    value = _assigned_value(self, value)
    if index is False:
        return
    view, indices, places = split(self, None if index is True else index)
    indices = beside(view, indices)
    if len(indices) == 1 and indices[0]._array.dtype == dtypes.bool_ and value._array.size == 1:
        value, indices = _one_number(view, value), [_apart(view, indices[0])]
    else:
        value = _read_before(view, value, indices)
    if not _is_recorded(view, value):
        _write_directly(view, key_of([i._array for i in indices], places), value)
    elif indices:
        put_in_place(view, indices, places, _without_leading_ones(value))
    else:
        target = self if shows_all(view._array, self._array) else view
        copy_(target, _fitted(value, tuple(target.shape)))


def _changed_by_setitem(self: Tensor, index: Any, value: Array) -> Tensor:
    setitem(self, index, value)
    return self


def delitem(self: Tensor, index: Array) -> None:
    """`del self[index]`, which is refused."""
    raise TypeError("Tensor does not support deleting items: take the ones to keep, by index_select or a mask")


def _assigned_value(self: Tensor, value: Array) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, NUMBERS):
        return Tensor(cast_number("setitem", value, self._array.dtype), cpu)
    if isinstance(value, (cpu.generic, cpu.ndarray)):
        return Tensor(cpu.asarray(value).astype(self._array.dtype), cpu)
    raise TypeError(f"can't assign a {type(value).__name__} to a tensor of {self.dtype}: make a tensor of it first")


def _read_before(view: Tensor, value: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """The value, unless it would be read while it is written. One that is repeated, as in `x[:] = x[0]`, is copied."""
    if not indices and value._array.size != view._array.size:
        return _apart(view, value)
    refuse_overlap(view, [value, *indices], "any" if indices else "part", "__setitem__")
    return value


def _one_number(view: Tensor, value: Tensor) -> Tensor:
    """The only element of `value`: where a mask says what is filled, it need not have the tensor's dtype."""
    check_real("masked_fill_", value._array, view._array.dtype)
    value = reshape(value, ()) if value._array.ndim else value
    return _apart(view, value.to(view._array.dtype))


def _apart(view: Tensor, read: Tensor) -> Tensor:
    """What can be read while the view is written to, though it may be that tensor, as in `x[x] = False`."""
    shared = are_arrays(view, read) and view._xp.may_share_memory(view._array, read._array)
    return read.clone() if shared else read


def _fitted(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not value._array.ndim or tuple(value.shape) == shape:
        return value
    return broadcast_to(_without_leading_ones(value), shape)


def _without_leading_ones(value: Tensor) -> Tensor:
    shape = value._array.shape
    extra = next((k for k, n in enumerate(shape) if n != 1), len(shape))
    return reshape(value, shape[extra:]) if extra else value


def _is_recorded(view: Tensor, value: Tensor) -> bool:
    state = current()
    if not dtypes.is_differentiable(view._array.dtype):
        return state.intercept is not None
    return state.intercept is not None or (state.grad_enabled and (requires_grad(view) or requires_grad(value)))


put_in_place = in_place(
    "index_put",
    lambda before, indices, places, value: write_op(len(indices))(before, value, *indices, places, False),
)


def _write_directly(tensor: Tensor, key: tuple[Any, ...], value: Tensor) -> None:
    """Write into the tensor's memory, when there is nothing to record, and count a version."""
    name = "index_put_" if key else "copy_"
    check_in_place(tensor, name)
    unlock(tensor)
    target = tensor._array
    values = (_without_leading_ones(value) if key else _fitted(value, target.shape))._array
    if key:
        check_values(tensor._xp, target, values, key)
    if not target.flags.writeable:
        raise RuntimeError(
            f"unsupported operation: {name} would write to memory that several elements share (an expanded tensor) or "
            "that is read-only. Please clone() the tensor before performing the operation."
        )
    if tensor._xp.may_share_memory(target, values):
        values = values.copy()
    if key:
        set_at(tensor._xp, target, key, values)
    else:
        tensor._xp.copyto(target, values, casting="unsafe")
    counter_of(tensor).bump("__setitem__")


@composite(variants="function method in_place in_place_function", overlap="any")
def index_put(input: Array, indices: Sequence[Any], values: Array, accumulate: bool = False) -> Array:
    """A copy of `input` with `values` at the places that `indices` (tensors, masks, or None) select.

    With `accumulate` they are added, as often as a place is selected; without, the last of several writes
    remains, and only that one has a gradient.

    >>> import undertow as ut
    >>> x = ut.zeros(3)
    >>> ut.index_put(x, (ut.tensor([0, 0, 2]),), ut.tensor([1.0, 2.0, 3.0]), accumulate=True)
    tensor([3., 0., 3.])
    """
    tensors, places = _family_arguments(indices)
    if not tensors:
        raise RuntimeError("index_put: at least one index must be a tensor: None stands for a whole dimension")
    if isinstance(values, NUMBERS):
        raise TypeError(f"index_put(): argument 'values' (position 2) must be Tensor, not {type(values).__name__}")
    return write_op(len(tensors))(input, as_operand("index_put", "values", values), *tensors, places, accumulate)
