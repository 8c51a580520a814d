"""The package `functorch`, which PyTorch brings with it: function transforms under their former names."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from undertow.autograd.vmap import vmap as vmap
from undertow.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
)
from undertow.nn import Module

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functional_call", "functionalize",
    "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "make_functional",
    "make_functional_with_buffers", "make_fx", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


class FunctionalModule(Module):
    """A model as a function of its parameters and its inputs."""

    def __init__(self, stateless_model: Any, param_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model, self.param_names = stateless_model, tuple(param_names)

    def forward(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        return functional_call(self.stateless_model, dict(zip(self.param_names, params, strict=True)), args, kwargs)


class FunctionalModuleWithBuffers(Module):
    """A model as a function of its parameters, its buffers and its inputs."""

    def __init__(self, stateless_model: Any, param_names: Sequence[str], buffer_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    def forward(self, params: Any, buffers: Any, *args: Any, **kwargs: Any) -> Any:
        names = (*self.param_names, *self.buffer_names)
        return functional_call(self.stateless_model, dict(zip(names, [*params, *buffers], strict=True)), args, kwargs)


def make_functional(model: Any, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, tuple[Any, ...]]:
    """A function of parameters and inputs, and the parameters."""
    values = tuple([p.detach() if disable_autograd_tracking else p for p in model.parameters()])
    return FunctionalModule(copy.deepcopy(model), [name for name, _ in model.named_parameters()]), values


def make_functional_with_buffers(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """A function of parameters, buffers and inputs, with the parameters and the buffers."""
    names = [name for name, _ in model.named_parameters()]
    of_buffers = [name for name, _ in model.named_buffers()]
    values = tuple([p.detach() if disable_autograd_tracking else p for p in model.parameters()])
    return FunctionalModuleWithBuffers(copy.deepcopy(model), names, of_buffers), values, tuple(model.buffers())


def combine_state_for_ensemble(models: Sequence[Any]) -> tuple[FunctionalModuleWithBuffers, Any, Any]:
    """Models of one kind as a function, with their parameters and buffers stacked, for `vmap`."""
    params, buffers = stack_module_state(list(models))
    function, _, _ = make_functional_with_buffers(models[0])
    return function, tuple(params.values()), tuple(buffers.values())


def make_fx(f: Any, **options: Any) -> Any:
    """`torch.fx.experimental.proxy_tensor.make_fx`, which is loaded when it is used."""
    from .top_level.fx.experimental import proxy_tensor

    return proxy_tensor.make_fx(f, **options)
