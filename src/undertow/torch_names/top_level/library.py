"""Operators that a program defines: plain functions here, which PyTorch would have to be told about.

>>> import undertow as ut
>>> @ut.library.custom_op("mine::double", mutates_args=())
... def double(x: ut.Tensor) -> ut.Tensor:
...     return x * 2
>>> double(ut.ones(2))
tensor([2., 2.])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from undertow.autograd.function import Function
from undertow.modes import is_grad_enabled
from undertow.tensor import Tensor

#: "namespace::name" -> what was defined under it
DEFINED: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """A function with a name, to which a derivative can be given."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._namespace, _, self._name = name.partition("::")
        self._qualname = name
        self._function = function
        self._signature = inspect.signature(function)
        self._backward: Callable[..., Any] | None = None
        self._setup: Callable[..., Any] | None = None
        self.__name__, self.__doc__ = self._name, function.__doc__
        DEFINED[name] = self

    def _implement(self, function: Callable[..., Any]) -> None:
        self._function, self._signature = function, inspect.signature(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if self._backward is None or not is_grad_enabled():
            return self._function(*args, **kwargs)
        return self._as_function(bound.kwargs).apply(*bound.args)

    def _as_function(self, by_keyword: dict[str, Any]) -> type[Function]:
        """A Function of autograd with the derivative that was registered."""
        function, setup, derivative = self._function, self._setup, self._backward
        further = {"keyword_only_inputs": by_keyword} if by_keyword else {}

        class Registered(Function):
            @staticmethod
            def forward(*args: Any) -> Any:
                return function(*args, **by_keyword)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                if setup is not None:
                    setup(ctx, inputs, output, **further)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                assert derivative is not None
                return derivative(ctx, *grads)

        Registered.__name__ = self._name
        return Registered

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """Give the operator its derivative: `backward(ctx, *grads)`, with what `setup_context` kept on `ctx`."""
        self._backward, self._setup = backward, setup_context

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Shapes are found by computing."""
        return fn

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """What to compute on a kind of device: taken for the CPU's, and passed over for others."""
        kinds = [device_types] if isinstance(device_types, str) else list(device_types or ["cpu"])

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            if "cpu" in kinds:
                self._implement(function)
            return function

        return register if fn is None else register(fn)

    def register_vmap(self, func: Any = None) -> Any:
        return (lambda function: function) if func is None else func

    def register_torch_dispatch(self, cls: Any, fn: Any = None, /) -> Any:
        return (lambda function: function) if fn is None else fn

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


def custom_op(name: str, fn: Any = None, /, *, mutates_args: Any = (), device_types: Any = None, **kwargs: Any) -> Any:
    """Make an operator of a function; as a decorator, without one."""
    return CustomOpDef(name, fn) if fn is not None else lambda function: CustomOpDef(name, function)


triton_op = custom_op


def _definition(op: Any) -> CustomOpDef | None:
    return op if isinstance(op, CustomOpDef) else DEFINED.get(str(op))


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None, lib: Any = None
) -> None:
    found = _definition(op)
    if found is not None:
        found.register_autograd(backward, setup_context=setup_context)


def register_fake(op: Any, func: Any = None, /, *, lib: Any = None, **kwargs: Any) -> Any:
    return (lambda function: function) if func is None else func


impl_abstract = register_vmap = register_torch_dispatch = register_autocast = register_fake


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    found = _definition(op)
    if found is None:
        return (lambda function: function) if func is None else func
    return found.register_kernel(device_types, func)


def define(qualname: str, schema: Any = None, *, lib: Any = None, tags: Any = ()) -> None:
    """Announce an operator, which `impl` will define."""

    def unknown(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{qualname} was defined, but not for the CPU: give a function to torch.library.impl({qualname!r}, 'cpu')."
        )

    CustomOpDef(qualname.partition(".")[0], unknown)


def implement(qualname: str, function: Callable[..., Any]) -> None:
    """Give an operator its function; one that was not announced is defined by it."""
    if qualname in DEFINED:
        DEFINED[qualname]._implement(function)
    else:
        CustomOpDef(qualname, function)


#: kinds of devices, and what PyTorch calls the ways to compute on any of them
FOR_THE_CPU = {"", "cpu", "default", "compositeimplicitautograd", "compositeexplicitautograd"}


def impl(qualname: Any, types: Any = "default", func: Any = None, *, lib: Any = None) -> Any:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        kinds = [types] if isinstance(types, str) else types
        if isinstance(qualname, str) and any([str(kind).lower() in FOR_THE_CPU for kind in kinds]):
            implement(qualname.partition(".")[0], function)
        return function

    return register if func is None else register(func)


class Library:
    """Operators under one name: `Library("mine", "DEF")`."""

    def __init__(self, ns: str, kind: str = "DEF", dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        name = schema.partition("(")[0]
        define(f"{self.ns}::{name}")
        return name

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **kwargs: Any) -> None:
        if (dispatch_key or self.dispatch_key).lower() in FOR_THE_CPU:
            name = op_name if isinstance(op_name, str) else str(op_name.name()).partition("::")[2]
            implement(f"{self.ns}::{name.partition('.')[0]}", fn)

    def _register_fake(self, op_name: Any, fn: Any, *args: Any, **kwargs: Any) -> None:
        """Shapes are found by computing."""

    def _destroy(self) -> None:
        """Take back what was defined."""
        for name in [name for name in DEFINED if name.startswith(f"{self.ns}::")]:
            del DEFINED[name]


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: Any = (), op_name: Any = None) -> str:
    return f"{op_name or ''}{inspect.signature(prototype_function)}"


def fallthrough_kernel() -> None:
    raise NotImplementedError("fallthrough_kernel() should never be called.")


__all__ = ["CustomOpDef", "Library", "Tensor", "custom_op", "define", "impl", "register_autograd", "register_fake"]
