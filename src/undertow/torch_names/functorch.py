"""The package `functorch`, which PyTorch brings with it: function transforms under their former names."""

from __future__ import annotations

from typing import Any

from undertow.autograd.vmap import vmap as vmap
from undertow.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
)

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "make_functional",
    "make_functional_with_buffers", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def make_functional(model: Any, disable_autograd_tracking: bool = False) -> Any:
    """A function of parameters and inputs, and the parameters."""
    names = [name for name, _ in model.named_parameters()]
    values = tuple([p.detach() if disable_autograd_tracking else p for p in model.parameters()])
    return lambda params, *args, **kwargs: functional_call(
        model, dict(zip(names, params, strict=True)), args, kwargs
    ), values


def make_functional_with_buffers(model: Any, disable_autograd_tracking: bool = False) -> Any:
    """A function of parameters, buffers and inputs, with the parameters and the buffers."""
    names = [name for name, _ in model.named_parameters()]
    of_buffers = [name for name, _ in model.named_buffers()]
    values = tuple([p.detach() if disable_autograd_tracking else p for p in model.parameters()])

    def function(params: Any, buffers: Any, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip([*names, *of_buffers], [*params, *buffers], strict=True))
        return functional_call(model, given, args, kwargs)

    return function, values, tuple(model.buffers())
