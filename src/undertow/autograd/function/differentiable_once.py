"""Functions that cannot be differentiated once more: their results are joined to a node that says so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from undertow.errors import AutogradError
from undertow.graph.accumulate import gradient_edge
from undertow.graph.end_nodes import Error
from undertow.graph.node import OutputEdge
from undertow.modes import current, in_state
from undertow.tensor import LEAF, Tensor, current_edge, without_history


class DelayedError:
    """A function that returns its arguments, joined to a node that raises when it is differentiated."""

    def __init__(self, message: str | bytes, num_inputs: int) -> None:
        self.message = message.decode() if isinstance(message, bytes) else message
        self.num_inputs = num_inputs

    def __call__(self, *args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, Tensor)]
        node = Error(
            AutogradError(self.message),
            tuple([gradient_edge(a) if isinstance(a, Tensor) else None for a in args]),
            [t._array.shape for t in tensors],
            [t._array.dtype for t in tensors],
        )
        numbers = iter(range(len(tensors)))
        results = [
            Tensor(a._array, a._xp, OutputEdge((node, next(numbers)))) if isinstance(a, Tensor) else a for a in args
        ]
        return results[0] if len(results) == 1 else results


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `backward` that is not itself differentiable: a second derivative raises instead of being wrong.

    function  the `backward`

    >>> import undertow as ut
    >>> class Square(ut.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...
    ...     @staticmethod
    ...     @ut.autograd.function.once_differentiable
    ...     def backward(ctx, g):
    ...         return 2 * g * ctx.saved_tensors[0]
    >>> x = ut.tensor([3.0], requires_grad=True)
    >>> Square.apply(x).backward()
    >>> x.grad
    tensor([6.])
    """

    @functools.wraps(function)
    def wrapper(ctx: Any, *args: Any) -> Any:
        outer = current()
        outputs = in_state(outer.with_grad(False), function, ctx, *args)
        if not outer.grad_enabled or not any(isinstance(a, Tensor) and current_edge(a) is not None for a in args):
            return outputs
        single = not isinstance(outputs, tuple)
        found = (outputs,) if single else outputs
        error = DelayedError("trying to differentiate twice a function that was marked with @once_differentiable",
                             len(found))  # fmt: skip
        joined = error(*[_as_leaf(o) for o in found])
        return joined if single else tuple(joined if isinstance(joined, list) else [joined])

    wrapper._differentiable_once = True  # type: ignore[attr-defined]
    return wrapper


def _as_leaf(value: Tensor | None) -> Tensor | None:
    """A value's alias that requires grad, so that the error node has an edge for it."""
    if not isinstance(value, Tensor):
        return value
    alias = without_history(value)
    alias._edge = LEAF
    return alias
