"""What classes that stand for tensors use to take part in PyTorch's functions (`__torch_function__`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from undertow.autograd.interceptors.op_mode import OpMode
from undertow.tensor import Tensor


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or of a class with `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments has a `__torch_function__` of its own."""
    return any([_own(arg) is not None for arg in relevant_args])


def has_torch_function_unary(arg: Any) -> bool:
    return _own(arg) is not None


def has_torch_function_variadic(*args: Any) -> bool:
    return has_torch_function(args)


def _own(arg: Any) -> Any:
    found = getattr(type(arg), "__torch_function__", None)
    if found is None or getattr(found, "__func__", found) is DEFAULT:
        return None
    return found


DEFAULT = getattr(getattr(Tensor, "__torch_function__", None), "__func__", None)


def _overloaded(relevant_args: Iterable[Any]) -> list[Any]:
    """The arguments with a `__torch_function__`, one of each class, subclasses before their bases."""
    found: list[Any] = []
    for arg in relevant_args:
        if _own(arg) is None or any([type(arg) is type(other) for other in found]):
            continue
        place = next((n for n, other in enumerate(found) if issubclass(type(arg), type(other))), len(found))
        found.insert(place, arg)
    return found


def handle_torch_function(public_api: Any, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """What the first class that knows the function makes of the call."""
    overloaded = _overloaded(relevant_args)
    types = tuple([type(arg) for arg in overloaded])
    for arg in overloaded:
        result = type(arg).__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"no implementation found for '{getattr(public_api, '__module__', '')}.{getattr(public_api, '__name__', '')}' "
        f"on types that implement __torch_function__: {list(types)}"
    )


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


def resolve_name(f: Any) -> str | None:
    """The name of a function, with its module."""
    name = getattr(f, "__qualname__", getattr(f, "__name__", None))
    return None if name is None else f"torch.{name}"


def is_tensor_method_or_property(func: Any) -> bool:
    return any([func is value for value in vars(Tensor).values()]) or getattr(func, "__name__", "") == "__get__"


def get_ignored_functions() -> set[Any]:
    return set()


def get_overridable_functions() -> dict[Any, list[Any]]:
    return {}


def get_testing_overrides() -> dict[Any, Any]:
    return {}


class TorchFunctionMode(OpMode):
    """A context in which `__torch_function__` of this object is asked for every operation (see undertow.OpMode).

    It is shown single operations, by their names, which can be called; not functions that are made of several.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError("a TorchFunctionMode says what becomes of a function: it needs __torch_function__")

    def on_operation(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.__torch_function__(op, (), args, kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """One that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))
