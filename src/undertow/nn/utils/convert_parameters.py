"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """The parameters one after the other, as a vector that is a function of them.

    >>> import undertow as ut
    >>> ut.nn.utils.parameters_to_vector(ut.nn.Linear(2, 3).parameters()).shape
    undertow.Size([9])
    """
    return ops.cat([ops.reshape(parameter, (-1,)) for parameter in parameters], 0)


def vector_to_parameters(vec: Array, parameters: Iterable[Any]) -> None:
    """Let each parameter show its part of the vector.

    vec         as many elements as all parameters have
    parameters  an iterable of tensors

    >>> import undertow as ut
    >>> linear = ut.nn.Linear(1, 1)
    >>> ut.nn.utils.vector_to_parameters(ut.tensor([3.0, 4.0]), linear.parameters())
    >>> linear.bias
    Parameter containing:
    tensor([4.], requires_grad=True)
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected Tensor, but got: {type(vec).__name__}")
    vector: Any = vec
    start = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = ops.reshape(vector[start : start + count], parameter.shape).data
        start += count
