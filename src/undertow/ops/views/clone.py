"""Copies: clone, contiguous, and the same numbers in another dtype."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType
from undertow.backend.large_arrays import copied
from undertow.compiled import shortcut
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import adapter, composite, primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.tensor.memory_formats import contiguous_format, copy_laid_out, is_laid_out, made_in_order, preserve_format

clone = primitive(
    "clone",
    forward=lambda xp, input, *, memory_format=None: (
        copied(input) if memory_format is None and 0 not in input.strides else copy_laid_out(input, memory_format)
    ),
    vjp={"input": lambda xp, g: g},
    jvp=LINEAR,
    batch=ELEMENTWISE,
    half_precision="as_is",
    variants="function method foreach",
    order="as_computed",
)


@composite(variants="method")
@shortcut()
def contiguous(input: Array, memory_format: Any = contiguous_format) -> Array:
    """The tensor itself if its elements lie in row-major order (or in that of the format), else a copy that does.

    >>> import undertow as ut
    >>> ut.ones(2, 3).T.contiguous().stride()
    (2, 1)
    """
    input = as_operand("contiguous", "input", input)
    if is_laid_out(input._array, memory_format):
        return input
    if memory_format is preserve_format:
        raise RuntimeError(
            "preserve memory format is unsupported by the contiguous operator: it keeps the order. Use clone()."
        )
    return clone(input, memory_format=memory_format)


_to_copy = primitive(
    "_to_copy",
    forward=lambda xp, input, dtype: (
        xp.astype(input, dtype)
        if 0 not in input.strides
        else made_in_order(input, "K", lambda source, order: xp.astype(source.copy(order=order), dtype))
    ),
    vjp={"input": lambda xp, g: g},
    jvp=LINEAR,
    batch=ELEMENTWISE,
    half_precision="as_is",
    check_output=True,
    order="as_computed",
)


@composite(variants="")
def to_dtype(input: Array, dtype: DType) -> Array:
    """The tensor in another dtype; the tensor itself if it has that dtype."""
    dtype = dtypes.dtype(dtype)
    if input.dtype != dtype:
        return _to_copy(input, dtype)
    return as_operand("to_dtype", "input", input)


adapter("astype")(to_dtype)
