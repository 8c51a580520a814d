"""Methods that change which memory a tensor is: `set_`, `resize_`."""

from __future__ import annotations

import math
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.errors import NotDifferentiableError
from undertow.graph.accumulate import gradient_edge, keep_former
from undertow.graph.end_nodes import Error
from undertow.graph.history import set_edge
from undertow.graph.node import OutputEdge
from undertow.modes import current
from undertow.ops.arguments.sizes import ints
from undertow.ops.inplace.checks import check_in_place
from undertow.ops.inplace.views import count_change
from undertow.ops.views.as_strided import as_strided, geometry_of
from undertow.ops.views.by_memory import by_memory
from undertow.tensor import LEAF, Tensor, counter_of, extra_of
from undertow.tensor.memory import Storage, memory_of
from undertow.tensor.memory_formats import contiguous_format, format_of, in_format, memory_format, preserve_format
from undertow.tensor.tensor import requires_grad
from undertow.tensor.views import is_view


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
    if self._edge is LEAF:
        keep_former(self, "resize_")
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
    if format is preserve_format:
        raise RuntimeError("Unsupported memory format preserve_format: resize_ must be told in which order to read")
    return in_format(memory[:count], size, contiguous_format if format is None else format)


def _check_overflow(size: tuple[int, ...], count: int, itemsize: int) -> None:
    if count >= 2**63:
        raise RuntimeError(f"numel: integer multiplication overflow: no memory has {list(size)} elements")
    if math.prod([max(n, 1) for n in size[1:]]) >= 2**63:
        raise RuntimeError(f"Stride calculation overflowed: no memory has a row of {list(size[1:])} elements")
    if count * itemsize >= 2**63:
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(size)}: no memory has that many bytes"
        )


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
    """`resize_` to the sizes of another tensor; with `preserve_format`, to its memory format, too.

    the_template  the tensor whose sizes count
    """
    if memory_format is preserve_format:
        memory_format = format_of(the_template._array)
    return resize_(self, tuple(the_template.shape), memory_format=memory_format)


METHODS: dict[str, Any] = {"resize_": resize_, "resize_as_": resize_as_, "set_": set_}
