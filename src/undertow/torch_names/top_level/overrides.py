"""What classes that stand for tensors use to take part in PyTorch's functions (`__torch_function__`).

>>> import undertow as ut
>>> class Doubled:
...     "Stands for a tensor whose numbers are twice those that it keeps."
...
...     def __init__(self, half):
...         self.half = half
...
...     @classmethod
...     def __torch_function__(cls, func, types, args=(), kwargs=None):
...         if func is ut.sum:
...             return 2 * args[0].half.sum()
...         return NotImplemented
>>> ut.overrides.enable()  # `python -m undertow run` and subclasses of Tensor do so themselves
>>> ut.sum(Doubled(ut.ones(3)))
tensor(6.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from undertow.autograd.interceptors.op_mode import PassedBy, without
from undertow.modes import State, current, set_state
from undertow.scopes import Scope, call_with, set_value
from undertow.tensor import Tensor
from undertow.tensor.torch_function import ASKED, Asking, ask, asking, overloaded, overridable
from undertow.tensor.torch_function import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from undertow.tensor.torch_function import enable as enable


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or of a class with `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments has a `__torch_function__` that is to be asked, or a mode is."""
    now = asking.get()
    return bool(now.modes or (now.classes == ASKED and overloaded(relevant_args)))


def has_torch_function_unary(arg: Any) -> bool:
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    return has_torch_function(args)


def handle_torch_function(public_api: Any, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """What the innermost mode, or else the first class that knows the function, makes of the call."""
    found = overloaded(relevant_args)
    mode = asking.get().mode
    if mode is not None:
        result = mode.show_function(public_api, tuple([type(value) for value in found]), args, kwargs)
        if result is not NotImplemented:
            return result
    return ask(public_api, found, args, kwargs)


def wrap_torch_function(dispatcher: Any) -> Any:
    """A decorator: the function asks the arguments that `dispatcher` names first."""

    def decorate(function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        wrapped.__name__ = getattr(function, "__name__", "wrapped")
        return wrapped

    return decorate


def _get_overloaded_args(relevant_args: Iterable[Any]) -> list[Any]:
    return overloaded(relevant_args)


# ---- which functions there are


def resolve_name(f: Any) -> str | None:
    """The full name of a function that can be overridden, as PyTorch spells it: `torch.Tensor.add`; None of others."""
    for namespace, name, public in overridable():
        if public is f:
            return f"{_name_of(namespace)}.{name}"
    return None


def _name_of(namespace: Any) -> str:
    if namespace.get("results_keep_class") is not None:
        return "torch.Tensor"
    return (
        str(namespace.get("__name__", "torch")).replace("undertow.ops.namespaces", "torch").replace("undertow", "torch")
    )


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether it belongs to Tensor: a method, or the getter or setter of an attribute."""
    return getattr(func, "__name__", "") in ("__get__", "__set__") or any([func is v for v in vars(Tensor).values()])


def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions that ask, by where they are found: the module `torch`, `torch.nn.functional`, Tensor, ..."""
    found: dict[Any, list[Any]] = {}
    for namespace, _, public in overridable():
        place: Any = Tensor if namespace is vars(Tensor) else sys.modules[str(namespace.get("__name__", "undertow"))]
        found.setdefault(Tensor if _name_of(namespace) == "torch.Tensor" else place, []).append(public)
    return found


def get_ignored_functions() -> set[Any]:
    """Functions of the package that do not ask: they make no use of tensors."""
    package = sys.modules["undertow"]
    asked = {id(public) for _, _, public in overridable()}
    return {value for value in vars(package).values() if isinstance(value, FunctionType) and id(value) not in asked}


def get_testing_overrides() -> dict[Any, Any]:
    """For each function that asks, one of any arguments that returns -1."""
    return {public: _returns_minus_one for _, _, public in overridable()}


def _returns_minus_one(*args: Any, **kwargs: Any) -> int:
    return -1


# ---- modes


class _StateAndAsking:
    """The two variables that a TorchFunctionMode sets, as one (see scopes.py)."""

    def get(self) -> tuple[State, Asking]:
        return current(), asking.get()

    def set(self, wanted: tuple[State, Asking]) -> None:
        state, asked = wanted
        set_state(state)
        set_value(asking, asked)


class TorchFunctionMode(Scope):
    """A context in which `__torch_function__` of this object is asked about every function that the program calls.

    It is shown functions as they are called (`torch.matmul`, `nn.functional.linear`, `Tensor.add`), before they do
    anything; inside, the mode is off. `undertow.OpMode` shows the single operations that they are made of.

    >>> import undertow as ut
    >>> class Names(ut.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> with Names():
    ...     y = ut.nn.functional.linear(ut.ones(2, 3), ut.ones(1, 3))
    ones
    ones
    linear
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError("a TorchFunctionMode says what becomes of a function: it needs __torch_function__")

    variable = _StateAndAsking()

    def inside(self, outer: tuple[State, Asking]) -> Any:
        enable()
        state, asked = outer
        shown = PassedBy(self, state.intercept)
        return state.with_intercept(shown), asked._replace(modes=(*asked.modes, self))

    def after(self, inner: tuple[State, Asking], outer: Any = None) -> Any:
        state, asked = inner
        remaining = tuple([mode for mode in asked.modes if mode is not self])
        return state.with_intercept(without(state.intercept, self)), asked._replace(modes=remaining)

    def show_function(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the mode makes of a call, with itself off."""
        variable = self.variable
        return call_with(variable, self.after(variable.get()), self.__torch_function__, func, types, args, kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """One that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode_stack() -> list[Any]:
    """The modes that were entered, the innermost last."""
    return list(asking.get().modes)


def _get_current_function_mode() -> Any:
    return asking.get().mode
