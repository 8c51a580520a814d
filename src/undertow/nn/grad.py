"""Gradients of convolutions, as functions of their own.

>>> import undertow as ut
>>> ut.nn.grad.conv1d_input((1, 1, 4), ut.ones(1, 1, 2), ut.ones(1, 1, 3)).tolist()
[[[1.0, 2.0, 2.0, 1.0]]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.autograd.backward import grad as gradients_of
from undertow.modes import enable_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


def gradient(
    convolution: Callable[..., Any], tensors: list[Array], place: int, grad_output: Tensor, options: Any
) -> Tensor:
    """The gradient of `convolution(*tensors)` with respect to the tensor at `place`."""
    with enable_grad():
        wanted = tensors[place] = ops.zeros_like(tensors[place]).requires_grad_()
        out = convolution(tensors[0], tensors[1], None, *options)
    (found,) = gradients_of([out], [wanted], [grad_output], create_graph=True)
    return found


def of_input(dims: int) -> Callable[..., Any]:
    convolution = getattr(ops, f"conv{dims}d")

    def conv_input(
        input_size: Sequence[int],
        weight: Tensor,
        grad_output: Tensor,
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Any:
        input = ops.new_zeros(weight, tuple(input_size))
        return gradient(convolution, [input, weight], 0, grad_output, (stride, padding, dilation, groups))

    return named(conv_input, f"conv{dims}d_input", "input")


def of_weight(dims: int) -> Callable[..., Any]:
    convolution = getattr(ops, f"conv{dims}d")

    def conv_weight(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Any:
        weight = ops.new_zeros(input, tuple(weight_size))
        return gradient(convolution, [input, weight], 1, grad_output, (stride, padding, dilation, groups))

    return named(conv_weight, f"conv{dims}d_weight", "weight")


def named(function: Callable[..., Any], name: str, of: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The gradient of {name.split('_')[0]} with respect to its {of}."
    return function


conv1d_input, conv2d_input, conv3d_input = of_input(1), of_input(2), of_input(3)
conv1d_weight, conv2d_weight, conv3d_weight = of_weight(1), of_weight(2), of_weight(3)
