"""The gated linear unit: half of the elements decide how much of the others passes."""

from __future__ import annotations

from undertow.backend.interface import Array
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.pointwise.sigmoid_logit import sigmoid
from undertow.ops.views.slices import narrow


@composite
def glu(input: Array, dim: int = -1) -> Array:
    """The first half along `dim` times the sigmoid of the second half.

    >>> import undertow as ut
    >>> ut.glu(ut.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """
    input = as_operand("glu", "input", input)
    if input.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    axis = wrap_dim(dim, input.ndim)
    size = input.shape[axis]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {axis} is size {size}")
    first, second = narrow(input, axis, 0, size // 2), narrow(input, axis, size // 2, size // 2)
    return mul(first, sigmoid(second))
