"""Functions that may look at the values of their tensors: under vmap they are then called once for each example.

On the meta device, where there are no values, they are run as a whole, with harmless ones, if no gradient is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow import pytree
from undertow.backend import namespace_of, namespace_of_array
from undertow.errors import NoValuesError
from undertow.modes import Interceptor, current, no_grad
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Namespace


def example_by_example(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let vmap loop over the examples where the function cannot compute them all at once."""

    @functools.wraps(function)
    def whole_or_in_turn(*args: Any, **kwargs: Any) -> Any:
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.in_turn(whole_or_in_turn, args, kwargs)
        try:
            return function(*args, **kwargs)
        except NoValuesError:
            leaves, spec = pytree.flatten((args, kwargs))
            if current().grad_enabled and any([isinstance(leaf, Tensor) and requires_grad(leaf) for leaf in leaves]):
                raise
            return _without_values(function, leaves, spec)

    return whole_or_in_turn


def _without_values(function: Callable[..., Any], leaves: list[Any], spec: Any) -> Any:
    """What a function of tensors on the meta device returns, but values."""
    found: list[Any] = []

    def on_arrays(xp: Namespace, *values: Any) -> list[Any]:
        tensors = [
            Tensor(value, namespace_of_array(value)) if isinstance(leaf, Tensor) else leaf
            for leaf, value in zip(leaves, values, strict=True)
        ]
        args, kwargs = spec.unflatten(tensors)
        with no_grad():
            results, result_spec = pytree.flatten(function(*args, **kwargs))
        found[:] = [results, result_spec]
        return [r._array for r in results if isinstance(r, Tensor)]

    space = namespace_of("meta")
    values = [leaf._array if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    made = iter(space.outcome_of(function.__name__, on_arrays, values))
    results, result_spec = found
    return result_spec.unflatten([Tensor(next(made), space) if isinstance(r, Tensor) else r for r in results])
