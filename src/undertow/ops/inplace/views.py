"""In-place view operations (`transpose_`, `squeeze_`, ...), which change how a tensor looks at its memory, and the two
that change which memory it is: `set_`, `resize_`.

An in-place view operation is recorded whether or not grad mode is on: the elements stay where they are, so the tensor's
history must say how they are looked at now. On a view it adds a step to the view's replay; on a base it makes the
replays of existing views useless, and those find their elements by their places in memory instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.errors import NotDifferentiableError
from undertow.graph.accumulate import gradient_edge, keep_former
from undertow.graph.end_nodes import Error
from undertow.graph.history import set_edge
from undertow.graph.node import OutputEdge
from undertow.modes import Interceptor, current, in_state
from undertow.ops.arguments.sizes import ints
from undertow.ops.declare import REGISTRY
from undertow.ops.inplace.forms import check_in_place, described
from undertow.ops.pointwise.complex import _view_as_complex, pairs_of_parts, view_as_real
from undertow.ops.views.as_strided import Geometry, _as_strided, as_strided, geometry_of, layout_of
from undertow.tensor import LEAF, Tensor, counter_of, current_edge, extra_of
from undertow.tensor.extra import DEFAULT
from undertow.tensor.facts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    is_laid_out,
    memory_format,
    preserve_format,
)
from undertow.tensor.memory import Storage, memory_of
from undertow.tensor.tensor import requires_grad
from undertow.tensor.version_counter import NO_COUNTER
from undertow.tensor.views import Replay, current_replay

# ---- another look at the same memory


def in_place_view(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The in-place form of a view operation."""
    shown = name + "_"

    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.in_place_view(change, function, self, args, kwargs)
        check_in_place(self, shown)
        if is_view(self):
            _change_view(self, shown, function, args, kwargs)
        else:
            _change_base(self, shown, function, args, kwargs)
        return self

    return described(change, name, shown)


def _change_base(
    self: Tensor, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    leaf = self._edge is LEAF
    before = Tensor(self._array, self._xp, None if leaf else self._edge)
    result = run(function, True, before, args, kwargs)
    version = count_change(self, name)
    if leaf and geometry_changed(self._array, result._array):
        keep_former(self, name)
    self._array = result._array
    if not leaf:
        set_edge(self, result._edge)
    if version:
        extra_of(self).reshaped_at = version


def _change_view(
    self: Tensor, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    view: Any = self._extra.view  # type: ignore[union-attr]
    followed = view.creation is DEFAULT and self._edge is not LEAF
    recorded = followed and current_edge(self) is not None
    result = run(function, followed, self, args, kwargs)
    version = count_change(self, name)
    self._array = result._array
    view.replay = result._extra.view.replay  # type: ignore[union-attr]
    if recorded:  # without a history the version stays behind: the base may be made to require grad later
        view.version = version
        set_edge(self, result._edge)


def run(function: Callable[..., Any], recorded: bool, tensor: Tensor, args: Any, kwargs: Any) -> Tensor:
    return in_state(current().replace(grad_enabled=recorded, inference=False), function, tensor, *args, **kwargs)


def is_view(tensor: Tensor) -> bool:
    return tensor._extra is not None and tensor._extra.view is not None


def count_change(tensor: Tensor, name: str) -> int:
    """Count a version; its number (0 for inference tensors, which have none)."""
    counter = counter_of(tensor)
    counter.bump(name)
    return 0 if counter is NO_COUNTER else counter.value


def geometry_changed(old: Array, new: Array) -> bool:
    """Whether an array shows its memory in another way than the other does."""
    return bool(old.shape != new.shape or old.strides != new.strides)


METHODS: dict[str, Any] = {
    name + "_": in_place_view(name, REGISTRY[name].function)
    for name in ("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
}


# ---- by memory


def by_memory(tensor: Tensor) -> Replay:
    """One as_strided step; between complex numbers and their parts, on those."""
    xp, base = tensor._xp, tensor._extra.view.base  # type: ignore[union-attr]
    mine, memory = tensor._array, base._array
    if mine.dtype == memory.dtype:
        return _strided_step(xp, None, mine, memory)
    if memory.dtype.kind == "c":
        return _strided_step(xp, Replay(None, view_as_real, (), None), mine, pairs_of_parts(xp, memory))
    return Replay(_strided_step(xp, None, pairs_of_parts(xp, mine), memory), _view_as_complex, (), None)


def _strided_step(xp: Namespace, before: Replay | None, mine: Array, memory: Array) -> Replay:
    """The step that finds the elements of `mine` in the memory that `memory` shows."""
    found, source = geometry_of(xp, mine), geometry_of(xp, memory)
    if not found.lies_in(source, xp):
        return Replay(None, _refuse_lost, (), None)
    return Replay(before, _as_strided, (found.shape, found.strides, found.offset, source), None)


def _refuse_lost(base: Tensor) -> Tensor:
    """In place of the replay of a view that shows more than its base does by now."""
    raise RuntimeError(
        "this view shows memory that its base, since an in-place view operation (as_strided_), no longer shows: the "
        "history of those elements cannot be found again. Take the view of a clone(), or use as_strided."
    )


def layout_for(replay: Replay, base: Tensor) -> Geometry | None:
    """How the base lies in memory, if the replay depends on that."""
    return layout_of(base) if replay.sees_memory() else None


# ---- other memory


def set_(
    self: Tensor, source: Tensor | Storage | None = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Let the tensor be what `source` is: its memory, sizes, strides and dtype. Without a source: no elements.

    The source may be a storage, all elements of which the tensor then shows, unless there is a size.

    With a size, the tensor shows the source's memory from `storage_offset` on, with that size and stride (row-major
    if there is none).

    Memory is shared from then on, but not the version counter: a change through one of the two is not noticed by
    graphs that saved the other.

    >>> import undertow as ut
    >>> ut.zeros(1).set_(ut.ones(2))
    tensor([1., 1.])
    """
    if isinstance(source, Storage):
        source = all_of(source, self._array.dtype)
    if source is not None and not isinstance(source, Tensor):
        raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}")
    check_in_place(self, "set_", source is not None and requires_grad(source))
    if source is None:
        source = Tensor(self._xp.empty(0, self._array.dtype), self._xp)
    if source._array.dtype != self._array.dtype:
        raise RuntimeError(
            f"Could not set tensor of type {source._array.dtype} to a tensor of type {self._array.dtype}. "
            "Convert the source first."
        )
    array = source._array if size is None else _laid_out(source, tuple(size), stride, storage_offset)
    recorded = current().grad_enabled and (requires_grad(self) or requires_grad(source))
    counter_of(self).bump("set_")
    extra = extra_of(self)
    if extra.view is not None:
        extra.counter, extra.view = counter_of(self), None
    if self._edge is LEAF:
        keep_former(self, None if array.shape == self._array.shape else "set_")
    self._array, self._xp = array, source._xp
    if recorded:
        set_edge(self, _undefined_history(self, source))
    return self


def all_of(storage: Storage, dtype: DType) -> Tensor:
    """All elements of a storage; bytes are read as `dtype`."""
    elements = storage.elements
    if elements.dtype == dtypes.uint8:
        elements = elements[: elements.size - elements.size % dtype.itemsize].view(dtype)
    if elements.dtype != dtype:
        raise RuntimeError(
            f"Expected a Storage of type {dtype} or an UntypedStorage, but got a Storage of type {elements.dtype}"
        )
    return Tensor(elements, storage.xp)


def _laid_out(source: Tensor, size: tuple[int, ...], stride: Any, storage_offset: int) -> Array:
    """The source's memory under another size and stride."""
    if stride is None:
        stride = [math.prod(size[k + 1 :]) for k in range(len(size))]
    unrecorded = Tensor(source._array, source._xp)
    return as_strided(unrecorded, size, tuple(stride), storage_offset)._array


def _undefined_history(tensor: Tensor, source: Tensor) -> Array:
    error = NotDifferentiableError("set_", "Use copy_, which copies the values and has a derivative.")
    array = tensor._array
    edges = tuple([gradient_edge(t) for t in (tensor, source)])
    return OutputEdge((Error(error, edges, [array.shape], [array.dtype]), 0))


def resize_(self: Tensor, *sizes: Any, memory_format: memory_format | None = None) -> Tensor:
    """Give the tensor other sizes, in place: its elements in memory order, and zeros where there are too few.

    `memory_format` says in which order the new sizes go through the memory. Counts as a change only if it changes
    anything. Tensors of which a gradient is asked cannot be resized.

    >>> import undertow as ut
    >>> ut.arange(4).resize_(2).shape
    undertow.Size([2])
    """
    size = ints(sizes)
    if requires_grad(self) and not current().inference:
        raise RuntimeError(
            "cannot resize variables that require grad: use reshape, or pad, or resize a detach() of the tensor"
        )
    if any(n < 0 for n in size):
        raise RuntimeError(f"resize_: sizes must not be negative, got {list(size)}")
    if size == self._array.shape and memory_format is None:
        return self
    array = _resized(self._xp, self._array, size, memory_format, is_view(self))
    if array.shape == self._array.shape and array.strides == self._array.strides:
        return self
    check_in_place(self, "resize_")
    version = count_change(self, "resize_")
    self._array = array  # a smaller one shows the memory that was there
    extra = extra_of(self)
    if extra.view is not None:
        extra.view.replay, extra.view.version = by_memory(self), version
    elif version:
        extra.reshaped_at = version
    return self


def _resized(xp: Namespace, array: Array, size: tuple[int, ...], format: memory_format | None, shared: bool) -> Array:
    """The first elements of the array's memory under other sizes; a larger copy of it if they do not suffice."""
    count = math.prod(size)
    _check_overflow(size, count, array.itemsize)
    start = geometry_of(xp, array).offset
    memory = memory_of(xp, array)[start:]
    if count > memory.size:
        if shared:
            raise RuntimeError(
                f"resize_: a view cannot get {count} elements, since the memory that it shares with its base has only "
                f"{memory.size} from its first element on. Resize a clone() of the view."
            )
        larger = xp.zeros(count, array.dtype)
        larger[: memory.size] = memory
        memory = larger
    return _in_format(memory[:count], size, contiguous_format if format is None else format)


def _check_overflow(size: tuple[int, ...], count: int, itemsize: int) -> None:
    if count >= 2**63:
        raise RuntimeError(f"numel: integer multiplication overflow: no memory has {list(size)} elements")
    if math.prod([max(n, 1) for n in size[1:]]) >= 2**63:
        raise RuntimeError(f"Stride calculation overflowed: no memory has a row of {list(size[1:])} elements")
    if count * itemsize >= 2**63:
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(size)}: no memory has that many bytes"
        )


def _in_format(memory: Any, size: tuple[int, ...], format: memory_format) -> Any:
    """Consecutive elements under the given sizes, the dimensions nested as the format has them."""
    if format is preserve_format:
        raise RuntimeError("Unsupported memory format preserve_format: resize_ must be told in which order to read")
    if format.dims is None:
        return memory.reshape(size)
    if len(size) != len(format.dims):
        raise RuntimeError(f"required rank {len(format.dims)} tensor to use {format.name} format, got {list(size)}")
    nested = memory.reshape([size[d] for d in format.dims])
    return nested.transpose(sorted(range(len(size)), key=format.dims.__getitem__))


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
    """`resize_` to the sizes of another tensor; with `preserve_format`, to its memory format, too."""
    if memory_format is preserve_format:
        memory_format = next((f for f in CHANNELS_LAST if is_laid_out(the_template._array, f)), contiguous_format)
    return resize_(self, tuple(the_template.shape), memory_format=memory_format)


CHANNELS_LAST = (channels_last, channels_last_3d)


# ---- the same view of another tensor


def view_func(self: Tensor, new_base: Tensor) -> Tensor | None:
    """The same view of another tensor; None if this is no view, or the tensor does not lie in memory as its base does.

    >>> import undertow as ut
    >>> row = ut.zeros(2, 3)[1]
    >>> row._view_func(ut.ones(2, 3))
    tensor([1., 1., 1.])
    """
    if not is_view(self):
        return None
    base = self._extra.view.base  # type: ignore[union-attr]
    if geometry_of(base._xp, base._array) != geometry_of(new_base._xp, new_base._array):
        return None
    return current_replay(self)(new_base)


METHODS |= {"_view_func": view_func, "resize_": resize_, "resize_as_": resize_as_, "set_": set_}
