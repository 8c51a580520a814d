"""A tensor in another dtype, or on another device: what `to` and `as_tensor` are made of."""

from __future__ import annotations

from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.declare import primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.views.clone import _to_copy
from undertow.tensor import Tensor


def moved(xp: Namespace, input: Array, dtype: DType, source: Array, target: Array) -> Array:
    copy = target.take_over(input)
    return copy if copy.dtype == dtype else copy.astype(dtype)


_to_device = primitive(
    "_to_device",
    forward=moved,
    vjp={"input": lambda xp, g, source, target: xp._to_device(g, g.dtype, target, source)},
    jvp=LINEAR,
    batch=ELEMENTWISE,
    node="ToCopyBackward0",
    moves_to="target",
    check_output=True,
    order="as_computed",
)


def convert(input: Tensor, dtype: DType | None, xp: Namespace) -> Tensor:
    """The tensor in another dtype (None: its own) on another device, recorded; itself if nothing changes."""
    if xp is not input._xp:
        return _to_device(input, dtype or input._array.dtype, input._xp, xp)
    if dtype is None or dtype is input._array.dtype:
        return input
    return input if dtype == input._array.dtype else _to_copy(input, dtype)
