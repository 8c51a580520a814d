"""Single operations with the names and arguments that PyTorch's dispatcher has for them (`aten.convolution`)."""

from __future__ import annotations

import math
from typing import Any

from undertow.autograd.interceptors.op_mode import Operation
from undertow.ops.network.conv import convolution as convolve
from undertow.tensor import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer is a product of matrices there, of the rows of the input."""
    if weight.ndim != 2 or input.ndim < 2:
        return NotImplemented
    turned = weight.t()
    rows = input if input.ndim == 2 else input.reshape(math.prod(input.shape[:-1]), input.shape[-1])
    if bias is None or not (input.ndim == 2 or input.is_contiguous()):
        out = rows.mm(turned)
    else:
        out, bias = bias.addmm(rows, turned), None
    out = out if input.ndim == 2 else out.view(*input.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias


def convolution(op: Operation, args: tuple[Any, ...]) -> tuple[str, Any, tuple[Any, ...]]:
    """The nine arguments of `aten.convolution`; a transposed one is told the size of its result here."""
    input, weight, bias, *sizes = args
    dims = weight.ndim - 2
    is_transposed = len(sizes) > 3 and isinstance(sizes[3], tuple)
    output_size = sizes.pop(0) if is_transposed else ()
    stride, padding, dilation = sizes[:3]
    groups = sizes[3] if len(sizes) > 3 else 1
    more = [0] * dims
    if is_transposed:
        least = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        sizes_without = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in least]
        more = [out - size for out, size in zip(output_size, sizes_without, strict=True)]
    given = (input, weight, bias, list(stride), list(padding), list(dilation), is_transposed, more, groups)
    return "convolution", convolve, given


class WithSizes:
    """An operation whose sizes are lists in PyTorch's graphs."""

    def __init__(self, op: Operation) -> None:
        self.op = op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*[tuple(a) if isinstance(a, list) else a for a in args], **kwargs)


def with_sizes(op: Operation, args: tuple[Any, ...]) -> tuple[str, Any, tuple[Any, ...]]:
    return str(op), WithSizes(op), tuple([list(a) if isinstance(a, tuple) else a for a in args])


DECOMPOSITIONS = {"linear": linear}
ATEN = {
    "convolution": convolution,
    **dict.fromkeys(("view", "_unsafe_view", "expand", "permute", "sum", "mean"), with_sizes),
}


def as_in_torch(op: Operation, args: tuple[Any, ...]) -> tuple[str, Any, tuple[Any, ...]]:
    """PyTorch's name of an operation, what to call for it, and the arguments that it has there."""
    return ATEN[str(op)](op, args) if str(op) in ATEN else (str(op), op, args)
