"""Module and Parameter, with full backward hooks made of identity Functions around a module."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import undertow

from .._undertow import late
from ..utils.weak import WeakTensorKeyDictionary

_parameters = WeakTensorKeyDictionary()


class _ParameterType(type):
    """A parameter is a plain leaf tensor that has been declared one."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, undertow.Tensor) and value in _parameters

    def __call__(cls, data: Any, requires_grad: bool = True) -> Any:
        parameter = data.detach().requires_grad_(requires_grad)
        _parameters[parameter] = True
        return parameter


class Parameter(metaclass=_ParameterType):
    pass


class Module:
    def __init__(self) -> None:
        self._parameters: dict[str, Any] = {}
        self._modules: dict[str, Module] = {}
        self._backward_hooks: dict[int, Callable[..., Any]] = {}
        self._hook_number = itertools.count()
        self.training = True

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module):
            self._modules[name] = value
        elif isinstance(value, undertow.Tensor) and (isinstance(value, Parameter) or name in self._parameters):
            self._parameters[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for members in ("_parameters", "_modules"):
            found = self.__dict__.get(members, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._backward_hooks:
            return self.forward(*args, **kwargs)
        watch = _BackwardWatch(self, list(self._backward_hooks.values()))
        return watch.around_output(self.forward(*watch.around_input(args), **kwargs))

    def modules(self) -> Iterator[Module]:
        yield self
        for child in self._modules.values():
            yield from child.modules()

    def children(self) -> Iterator[Module]:
        yield from self._modules.values()

    def parameters(self) -> Iterator[Any]:
        for module in self.modules():
            yield from module._parameters.values()

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, parameter in self._parameters.items():
            yield prefix + name, parameter
        for name, child in self._modules.items():
            yield from child.named_parameters(f"{prefix}{name}.")

    def zero_grad(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None

    def train(self, mode: bool = True) -> Module:
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def apply_to_tensors(self, change: Callable[[Any], Any]) -> Module:
        """Replace every parameter (as a parameter again) and every buffer of all modules."""
        for module in self.modules():
            for name, parameter in module._parameters.items():
                module._parameters[name] = Parameter(change(parameter), parameter.requires_grad)
            for name, value in list(vars(module).items()):
                if isinstance(value, undertow.Tensor):
                    object.__setattr__(module, name, change(value))
        return self

    def double(self) -> Module:
        return self.apply_to_tensors(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)

    def to(self, *args: Any, **kwargs: Any) -> Module:
        return self.apply_to_tensors(lambda tensor: tensor.to(*args, **kwargs))

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> Any:
        number = next(self._hook_number)
        self._backward_hooks[number] = hook
        return _Handle(self._backward_hooks, number)


class _Handle:
    def __init__(self, hooks: dict[int, Any], number: int):
        self._hooks = hooks
        self._number = number

    def remove(self) -> None:
        self._hooks.pop(self._number, None)


class BackwardHookFunction(late("autograd.Function")):
    """The identity: a node at which a module's gradients can be seen."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.mark_non_differentiable(*(tensor for tensor in tensors if not tensor.requires_grad))
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads


class _BackwardWatch:
    """One call of a module: remembers the gradient of its output until that of its input arrives."""

    def __init__(self, module: Module, hooks: list[Callable[..., Any]]):
        self.module = module
        self.hooks = hooks
        self.grad_outputs: Any = None
        self.inputs: int = 0
        self.watches_input = False

    def around_input(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inputs = len(args)
        args, positions, node = _pass_through(args)
        if node is not None:
            self.watches_input = True
            node.register_hook(lambda grads, _: self._on_input(positions, grads))
        return args

    def around_output(self, result: Any) -> Any:
        outputs = result if isinstance(result, tuple) else (result,)
        count = len(outputs)
        outputs, positions, node = _pass_through(outputs)
        if node is not None:
            node.register_prehook(lambda grads: self._on_output(positions, count, grads))
        return outputs if isinstance(result, tuple) else outputs[0]

    def _on_output(self, positions: list[int], count: int, grads: tuple[Any, ...]) -> None:
        self.grad_outputs = _spread(positions, grads, count)
        if not self.watches_input:
            self._call((None,) * self.inputs)

    def _on_input(self, positions: list[int], grads: tuple[Any, ...]) -> Any:
        if self.grad_outputs is None:
            return None  # a double backward reaches the input without passing the output
        grad_inputs = self._call(_spread(positions, grads, self.inputs))
        return tuple(grad_inputs[position] for position in positions)

    def _call(self, grad_inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        grad_outputs, self.grad_outputs = self.grad_outputs, None
        for hook in self.hooks:
            result = hook(self.module, grad_inputs, grad_outputs)
            if result is not None:
                grad_inputs = result if isinstance(result, tuple) else (result,)
        return grad_inputs


def _pass_through(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int], Any]:
    """The values with their tensors led through one identity node: values, positions of tensors, the node."""
    positions = [i for i, value in enumerate(values) if isinstance(value, undertow.Tensor)]
    if not undertow.is_grad_enabled() or not any(values[i].requires_grad for i in positions):
        return values, positions, None
    passed = BackwardHookFunction.apply(*(values[i] for i in positions))
    node = next(tensor.grad_fn for tensor in passed if tensor.grad_fn is not None)
    renewed = dict(zip(positions, passed, strict=True))
    return tuple(renewed.get(i, value) for i, value in enumerate(values)), positions, node


def _spread(positions: list[int], grads: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Gradients of the tensors among `count` values, None for the other values."""
    found = dict(zip(positions, grads, strict=True))
    return tuple(found.get(i) for i in range(count))
