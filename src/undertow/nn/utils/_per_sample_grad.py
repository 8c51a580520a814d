"""Gradients of the loss of each example, where the whole batch goes through a model at once.

`call_for_per_sample_grads(model)(batch)` computes what `model(batch)` does, with parameters that are asked about each
operation that takes them (`__torch_function__`). An operation that treats examples independently is watched: when its
output's gradient arrives, the gradients of its parameters are computed for each example, by `vmap`, and are left in
`parameter.grad_sample`. Any other operation on a parameter is refused, as it is in PyTorch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from undertow import pytree
from undertow.autograd.function import Function
from undertow.autograd.vmap import vmap
from undertow.func import functional_call, vjp
from undertow.nn import functional
from undertow.nn.module import Module
from undertow.tensor import Tensor
from undertow.tensor.subclasses import make_subclass

#: the functions are in its table, which is filled at import
F: Any = functional

#: operations of which each example has its own part of the output
INDEPENDENT = frozenset(
    [
        F.linear,
        F.conv1d,
        F.conv2d,
        F.conv3d,
        F.embedding,
        F.layer_norm,
        F.group_norm,
        F.instance_norm,
    ]
)


class ExpandedWeight(Tensor):
    """A parameter of which each example has a gradient of its own."""

    orig_weight: Tensor
    batch_size: int
    loss_reduction: str

    def __new__(cls, orig_weight: Tensor, batch_size: int, loss_reduction: str) -> Any:
        made: Any = make_subclass(cls, orig_weight.detach(), True)
        made.orig_weight, made.batch_size, made.loss_reduction = orig_weight, batch_size, loss_reduction
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func not in INDEPENDENT:
            known = ", ".join(sorted([function.__name__ for function in INDEPENDENT]))
            raise RuntimeError(
                f"Expanded Weights encountered but cannot handle function {func.__name__}: gradients for each example "
                f"are known of the parameters of {known}. undertow.vmap of undertow.func.grad finds those of others."
            )
        return Operation(func, args, kwargs or {}).run()

    def add(self, gradients: Tensor) -> None:
        """Add to the gradients of the examples that were found where the parameter was used before."""
        scaled = gradients * self.batch_size if self.loss_reduction == "mean" else gradients
        before = getattr(self.orig_weight, "grad_sample", None)
        self.orig_weight.grad_sample = scaled if before is None else before + scaled


class Operation:
    """One operation on parameters."""

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func = func
        self.arguments = inspect.signature(func).bind(*args, **kwargs).arguments
        self.expanded = {name: value for name, value in self.arguments.items() if type(value) is ExpandedWeight}

    def run(self) -> Any:
        batch, expected = self.arguments["input"], {weight.batch_size for weight in self.expanded.values()}
        if "input" in self.expanded or batch.shape[:1] != (*expected,):
            raise RuntimeError(
                f"Expected ExpandedWeights to have batch size matching input: the input of {self.func.__name__} has "
                f"shape {list(batch.shape)}, and there are {expected} examples."
            )
        weights = {name: weight.orig_weight for name, weight in self.expanded.items()}
        out = self.computed(**{name: weight.detach() for name, weight in weights.items()})
        return Watched.apply(out, self, *weights.values())

    def computed(self, **changed: Any) -> Any:
        return self.func(**{**self.arguments, **changed})

    def leave_gradients(self, gradient: Tensor) -> None:
        """Compute the parameters' gradients for each example, of the gradient of the output."""
        constant = {}
        if self.func is F.instance_norm and self.arguments.get("use_input_stats", True):
            constant = {
                "running_mean": None,
                "running_var": None,
            }  # they are written to, and the output has none of them

        def of_one(example: Tensor, its_gradient: Tensor) -> Any:
            def once(*weights: Any) -> Any:
                return self.computed(
                    input=example.unsqueeze(0), **dict(zip(self.expanded, weights, strict=True)), **constant
                )

            return vjp(once, *weights)[1](its_gradient.unsqueeze(0))

        weights = [weight.orig_weight.detach() for weight in self.expanded.values()]
        found = vmap(of_one)(self.arguments["input"].detach(), gradient)
        for weight, gradients in zip(self.expanded.values(), found, strict=True):
            weight.add(gradients)


class Watched(Function):
    """The output of an operation, which hears of its gradient."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, operation: Operation, *weights: Tensor) -> Tensor:
        ctx.operation, ctx.count = operation, len(weights)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.operation.leave_gradients(gradient.detach())
        return gradient, None, *[None] * ctx.count


def call_for_per_sample_grads(
    module: Module, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True
) -> Callable[..., Any]:
    """The module's forward, after which a backward pass leaves `grad_sample` on each parameter: a gradient for each
    example of the batch, in front.

    batch_size      how many examples there are; None: what the tensors among the arguments have in their first
                    dimension (in the second, unless `batch_first`)
    loss_reduction  whether the loss is the "sum" of what the examples lose, or the "mean", whose gradients are then
                    multiplied by the size of the batch

    >>> import undertow as ut
    >>> from undertow.nn.utils._per_sample_grad import call_for_per_sample_grads
    >>> model = ut.nn.Linear(4, 3)
    >>> call_for_per_sample_grads(model)(ut.ones(5, 4)).sum().backward()
    >>> model.weight.grad_sample.shape, model.weight.grad
    (undertow.Size([5, 3, 4]), None)
    """
    check(module, batch_size, loss_reduction)

    @functools.wraps(module.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        size = sole_batch_size((args, kwargs), batch_first) if batch_size is None else batch_size
        params = {
            name: ExpandedWeight(param, size, loss_reduction) if param.requires_grad else param
            for name, param in module.named_parameters()
        }
        return functional_call(module, params, args, kwargs)

    return forward


def check(module: Any, batch_size: Any, loss_reduction: str) -> None:
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    if not isinstance(module, Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if batch_size is not None and not isinstance(batch_size, int):
        raise RuntimeError(f"Batch size passed must be None or an integer, got {type(batch_size).__name__}")
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    if any([getattr(param, "grad_sample", None) is not None for param in module.parameters()]):
        raise RuntimeError(
            "Current Expanded Weights accumulates the gradients, which will be incorrect for multiple calls without "
            "clearing gradients: set grad_sample of each parameter to None first."
        )


def sole_batch_size(arguments: Any, batch_first: bool) -> int:
    tensors = [leaf for leaf in pytree.flatten(arguments)[0] if isinstance(leaf, Tensor)]
    sizes = {int(tensor.shape[0 if batch_first else 1]) for tensor in tensors}
    if not sizes:
        raise RuntimeError(
            "Unable to find a tensor in the passed args and kwargs, whose first dimension would be the batch size: "
            "specify batch_size explicitly"
        )
    if len(sizes) > 1:
        raise RuntimeError(
            "When computing batch size, found at least one input with batch size "
            f"{min(sizes)} and one with batch size {max(sizes)}. Please specify it explicitly using the batch size "
            "kwarg in call_for_per_sample_grads"
        )
    return sizes.pop()
