"""Making a gradient fit the tensor it is for: the one place where broadcasting and dtypes are undone."""

from __future__ import annotations

from typing import Any

from undertow.errors import InvalidGradientError
from undertow.graph.node import Node


def expected(node: Node, nr: int) -> tuple[Any, Any]:
    """Shape and dtype of the gradient that `node` takes at input `nr`."""
    return (node.shape[nr], node.dtype[nr]) if node.multiple_outputs else (node.shape, node.dtype)


def is_expandable_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether an array of `shape` broadcasts to `target`."""
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def conform(producer: Node, index: int, grad: Any, shape: tuple[int, ...], dtype: Any, xp: Any) -> Any:
    """`grad`, summed down to `shape` and cast to `dtype`; InvalidGradientError if it cannot be.

    Works on arrays and, when xp is the recorded namespace, on tensors.
    """
    if tuple(grad.shape) != tuple(shape):
        if not is_expandable_to(shape, tuple(grad.shape)):
            problem = "got {} but expected shape compatible with {}"
            raise InvalidGradientError(producer.name(), index, problem, list(grad.shape), list(shape))
        grad = xp.sum_to(grad, shape)
    if grad.dtype != dtype:
        if grad.dtype.kind == "c" and dtype.kind != "c":
            grad = xp.real(grad)
        if grad.dtype != dtype:
            grad = xp.astype(grad, dtype)
    return grad
