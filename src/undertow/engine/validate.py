"""Making a gradient fit the tensor it is for: the one place where broadcasting and dtypes are undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend import DeviceArray, cpu, namespace_of_array
from undertow.backend.cpu import broadcasts_to
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.sparse.coo import AnySparse
from undertow.backend.sparse.kernels import sum_to
from undertow.errors import InvalidGradientError
from undertow.graph.node import Node, space_of
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.graph.edges import Edge


def expected(node: Node, nr: int) -> tuple[Any, Any]:
    """Shape and dtype of the gradient that `node` takes at input `nr`."""
    return (node._shapes[nr], node._dtypes[nr]) if node.multiple_outputs else (node.shape, node.dtype)


def conform(producer: Node, index: int, grad: Array, shape: tuple[int, ...], dtype: DType, xp: Namespace) -> Array:
    """`grad`, summed down to `shape` and cast to `dtype` (None: any will do); InvalidGradientError if it cannot be.

    Works on arrays and, when xp is the recorded namespace, on tensors.
    """
    if tuple(grad.shape) != tuple(shape):
        if shape and not broadcasts_to(shape, tuple(grad.shape)):
            problem = "got {} but expected shape compatible with {}"
            raise InvalidGradientError(producer.name(), index, problem, list(grad.shape), list(shape))
        grad = sum_to(grad.coo(), shape) if isinstance(grad, AnySparse) else xp.sum_to(grad, shape)
    if dtype is not None and grad.dtype != dtype:
        if grad.dtype.kind == "c" and dtype.kind != "c":
            grad = xp.real(grad)
        if grad.dtype != dtype:
            grad = xp.astype(grad, dtype)
    return grad


def space_of_gradient(grad: Array) -> Namespace:
    """The namespace of the device that a gradient is on: an array or, in a recorded pass, a Tensor."""
    return grad._xp if isinstance(grad, Tensor) else namespace_of_array(grad)


def conform_to_receiver(
    producer: Node, index: int, grad: Array, edge: Edge, recorded: Namespace | None
) -> Array | None:
    """A gradient in the shape and dtype, and on the device, that the receiver at the end of `edge` expects.

    recorded   the namespace of a recorded pass, whose gradients are Tensors; None otherwise
    """
    if grad is None:
        return None
    below, nr = edge[0], edge[1]
    space = space_of(below, nr)
    if recorded is None and not isinstance(grad, DeviceArray):
        grad = cpu.asarray(grad)
    here = space_of_gradient(grad)
    shape, dtype = expected(below, nr)
    if tuple(grad.shape) != tuple(shape) or grad.dtype != dtype:
        grad = conform(producer, index, grad, shape, dtype, recorded or here)
        grad = grad if recorded else here.asarray(grad)
    if here is space:
        return grad
    if grad.ndim:  # a single number goes anywhere, as in the forward pass
        problem = "expected device {1} but got {0}"
        raise InvalidGradientError(producer.name(), index, problem, here.device, space.device)
    return recorded._to_device(grad, dtype, here, space) if recorded else space.take_over(grad)
