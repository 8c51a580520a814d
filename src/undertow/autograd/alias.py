"""New tensor objects for old data: to differentiate with respect to, whatever transformations are active.

Note [Gradients inside vmap]: a graph is recorded on tensors with all examples, and the gradient of a tensor that is the
same for all examples is a sum over them. So a tensor to differentiate with respect to, inside of vmap, is first given
an example of its own in each place of the batch.
"""

from __future__ import annotations

from collections.abc import Callable

from undertow.autograd.batched_tensor import BatchedTensor
from undertow.autograd.forward.tangents import set_tangent, tangent_of
from undertow.autograd.interceptors.stack import Transforms, active, stands_for, under
from undertow.autograd.tensor_attributes import detached, get_requires_grad
from undertow.ops import REGISTRY
from undertow.tensor import LEAF, Tensor


def differentiable_alias(tensor: Tensor, connected: bool = True) -> Tensor:
    """An alias that requires grad, with the tensor's tangents.

    connected  gradients flow on to the tensor, if it requires grad
    """
    return on_memory(spread(tensor), lambda t: _alias(t, connected))


def spread(tensor: Tensor) -> Tensor:
    """The tensor as a batch of every active vmap. See Note [Gradients inside vmap]."""
    for level in active().vmaps:
        if not level.holds(tensor):
            tensor = level.spread(tensor)
    return tensor


def on_memory(tensor: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """What a function makes of the tensor with all examples, as a batch again."""
    if type(tensor) is BatchedTensor:
        return BatchedTensor(on_memory(tensor._value, function), tensor._dim, tensor._level)
    return function(tensor)


def _alias(tensor: Tensor, connected: bool) -> Tensor:
    duals = active().duals
    if connected and get_requires_grad(tensor):
        below = Transforms(duals, ()) if duals else None
        return under(below, REGISTRY["view_as"].function, tensor, tensor)
    # an inference tensor has no counter to share, and could not be saved
    is_inference = tensor._extra is not None and tensor._extra.inference
    alias = Tensor(tensor._array, tensor._xp) if is_inference else detached(tensor)
    alias._edge = LEAF
    stands_for(alias, tensor)
    for level in duals:
        tangent = tangent_of(tensor, level)
        if tangent is not None:
            set_tangent(alias, level, tangent)
    return alias
