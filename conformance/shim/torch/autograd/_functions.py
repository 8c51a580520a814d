"""`torch.autograd._functions.Resize`, a Function the tests use as a tool."""

from __future__ import annotations

from typing import Any

from .function import Function


class Resize(Function):
    """The elements of a contiguous tensor in another shape."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, sizes: Any) -> Any:
        ctx.input_sizes = tensor.size()
        return tensor.detach().contiguous().view(*sizes)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.contiguous().view(ctx.input_sizes), None
