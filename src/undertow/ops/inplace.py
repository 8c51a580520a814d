"""In-place forms: `add_`, `mul_`, `copy_`, ... made from the out-of-place operations.

An in-place operation records what the out-of-place one would, writes the result into the tensor's memory, counts one
more version, and moves the tensor (or, through CopySlices, the base it is a view of) to the new history. Everything
that can be refused is refused before the first byte changes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.graph.accumulate import gradient_edge
from undertow.graph.history import rebase_history as rebase_history
from undertow.graph.history import refusal
from undertow.modes import current
from undertow.ops.declare import primitive
from undertow.ops.operands import as_operand
from undertow.ops.rules import ELEMENTWISE, LINEAR
from undertow.ops.rules.batching import batch_size, expanded, in_front, padded
from undertow.tensor import LEAF, Tensor, counter_of, current_edge
from undertow.tensor.metadata import DEFAULT


def batch_overwrite(call: Any, args: Any, in_dims: Any) -> tuple[Any, int]:
    """The result has the input's shape, so the input must have the batch, whichever argument brought it."""
    (input, other), size = args, batch_size(args, in_dims)
    input = expanded(input, in_dims[0], size)
    if in_dims[1] is not None:
        other = padded(in_front(other, in_dims[1]), input.ndim - 1)
    return call(input, other), 0


copy = primitive(
    "copy",
    forward=lambda xp, input, src: xp.broadcast_to(src, input.shape).astype(input.dtype),
    vjp={"input": lambda xp, g: xp.zeros_like(g), "src": lambda xp, g: g},
    jvp={"src": lambda xp, t, input_shape: xp.broadcast_to(t, input_shape)},
    batch=batch_overwrite,
    node="CopyBackwards",
)

zero = primitive(
    "zero",
    forward=lambda xp, input: xp.zeros_like(input),
    vjp={"input": lambda xp, g: xp.zeros_like(g)},
    jvp=LINEAR,
    batch=ELEMENTWISE,
)

fill = primitive(
    "fill",
    forward=lambda xp, input, value: xp.broadcast_to(xp.asarray(value), input.shape).astype(input.dtype),
    vjp={"input": lambda xp, g: xp.zeros_like(g), "value": lambda xp, g: g},
    jvp={"value": lambda xp, t, input_shape: xp.broadcast_to(t, input_shape)},
    batch=batch_overwrite,
    node="FillBackward1",
    number="value",
    number_node="FillBackward0",
)


def check_in_place(tensor: Tensor, name: str) -> None:
    """Refuse an in-place change that autograd could not follow."""
    state = current()
    extra = tensor._extra
    if extra is not None and extra.inference and not state.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a "
            "normal tensor before doing inplace update."
        )
    if not state.grad_enabled:
        return
    view = None if extra is None else extra.view
    if view is not None and view.creation is not DEFAULT and (tensor._edge is not None or view.base._edge is not None):
        raise RuntimeError(refusal(tensor, "is being"))
    edge = current_edge(tensor)
    if view is not None and view.base._edge is LEAF:
        raise RuntimeError(
            f"a view of a leaf Variable that requires grad is being used in an in-place operation. ({name}: change a "
            "clone() of it, or do the change under no_grad.)"
        )
    if edge is LEAF:
        raise RuntimeError(
            f"a leaf Variable that requires grad is being used in an in-place operation. ({name}: change a clone() of "
            "it, or do the change under no_grad.)"
        )


def write_array(tensor: Tensor, array: Any, name: str) -> None:
    """Write `array` into the tensor's memory and count a version."""
    target = tensor._array
    if array.shape != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(array.shape)}: {name} "
            "cannot enlarge the tensor it changes"
        )
    if array.dtype is not target.dtype and dtypes.CATEGORY[array.dtype.kind] > dtypes.CATEGORY[target.dtype.kind]:
        raise RuntimeError(
            f"result type {dtypes.SCALAR_NAMES[array.dtype]} can't be cast to the desired output type "
            f"{dtypes.SCALAR_NAMES[target.dtype]}: {name} keeps the dtype of the tensor it changes"
        )
    if not target.flags.writeable:
        raise RuntimeError(
            f"unsupported operation: {name} would write to memory that several elements share (an expanded tensor) or "
            "that is read-only. Please clone() the tensor before performing the operation."
        )
    tensor._xp.copyto(target, array, casting="unsafe")
    counter_of(tensor).bump()


def in_place(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The in-place form of an out-of-place operation."""
    shown = name + "_"

    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_in_place(self, shown)
        edge = current_edge(self)
        # the operation may save its input: let it save this twin, which gets data of its own in that case
        before = Tensor(self._array, self._xp, gradient_edge(self) if edge is LEAF else edge)
        result = function(before, *args, **kwargs)
        wrapped = is_view(self) and result._edge is not None and result._edge[0].next_edges[0] is not before._edge
        if wrapped:
            # CopySlices applies one node to the slice; several are wrapped as a copy of their result
            result = copy(before, result)
        if sys.getrefcount(before) > 2:
            before._array = self._array.copy()
        write_array(self, result._array, shown)
        if result._edge is not None:
            rebase_history(self, result._edge)
        return self

    change.__name__ = change.__qualname__ = shown
    change.__doc__ = f"`{name}`, written into the tensor itself."
    change.__module__ = "undertow"
    return change


def is_view(tensor: Tensor) -> bool:
    return tensor._extra is not None and tensor._extra.view is not None


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Copy the values of `src`, broadcast and cast, into the tensor."""
    src = as_operand("copy_", "src", src)
    return _copy_in_place(self, src)


def copy_into_new(source: Tensor) -> Tensor:
    """A recorded copy into a fresh tensor, which is how a gradient that has a graph becomes a `.grad`."""
    return copy(Tensor(source._xp.empty_like(source._array), source._xp), source)  # type: ignore[no-any-return]


_copy_in_place = in_place("copy", copy)
zero_ = in_place("zero", zero)
fill_ = in_place("fill", fill)

