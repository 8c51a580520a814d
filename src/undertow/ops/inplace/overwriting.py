"""Overwriting a tensor with others' values, as operations of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend.cpu import broadcasts_to
from undertow.backend.interface import Array, Namespace
from undertow.ops.declare import primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded, in_front, padded

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


def batch_overwrite(call: Callable[..., Any], args: Any, in_dims: InDims) -> tuple[Any, int]:
    """The result has the input's shape, so the input must have the batch, whichever argument brought it."""
    (input, other), size = args, batch_size(args, in_dims)
    input = expanded(input, in_dims[0], size)
    if in_dims[1] is not None:
        other = padded(in_front(other, in_dims[1]), input.ndim - 1)
    return call(input, other), 0


def overwritten(xp: Namespace, input: Array, src: Array) -> Array:
    if not broadcasts_to(src.shape, input.shape):
        raise RuntimeError(
            f"output with shape {list(input.shape)} doesn't match the broadcast shape of the values, "
            f"{list(src.shape)}: the sizes, counted from the last one, must match or be 1"
        )
    return xp.broadcast_to(src, input.shape).astype(input.dtype)


def filled(xp: Namespace, input: Array, value: Array) -> Array:
    value = xp.asarray(value)
    if value.ndim:
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions. Use copy_."
        )
    return xp.broadcast_to(value, input.shape).astype(input.dtype)


copy = primitive(
    "copy",
    forward=overwritten,
    vjp={"input": lambda xp, g: xp.zeros_like(g), "src": lambda xp, g: g},
    jvp={"src": lambda xp, t, input_shape: xp.broadcast_to(t, input_shape)},
    batch=batch_overwrite,
    node="CopyBackwards",
    variants="",
    overlap="part",
    order="first",
)
copy.op.node_class.is_internal = True


zero = primitive(
    "zero",
    forward=lambda xp, input: xp.zeros_like(input),
    vjp={"input": lambda xp, g: xp.zeros_like(g)},
    jvp=LINEAR,
    batch=ELEMENTWISE,
    variants="in_place_function",
)


def batch_fill(call: Callable[..., Any], args: Any, in_dims: InDims) -> tuple[Any, int]:
    """A number for each example is an array to copy from."""
    return batch_overwrite(call if in_dims[1] is None else copy, args, in_dims)


fill = primitive(
    "fill",
    forward=filled,
    vjp={"input": lambda xp, g: xp.zeros_like(g), "value": lambda xp, g: g},
    jvp={"value": lambda xp, t, input_shape: xp.broadcast_to(t, input_shape)},
    batch=batch_fill,
    node="FillBackward1",
    number="value",
    number_node="FillBackward0",
    number_edge=False,
    variants="function in_place_function",
    order="first",
)
