"""Modes that are shown single operations (`aten.mm.default`), on undertow's operation modes."""

from __future__ import annotations

from typing import Any

from undertow.autograd.interceptors.op_mode import Operation, OpMode
from undertow.torch_names.calls_of_aten import DECOMPOSITIONS, as_in_torch
from undertow.torch_names.overloads import Overloads


class TorchDispatchMode(OpMode):
    """A context in which `__torch_dispatch__` of this object is asked about every single operation.

    As `undertow.OpMode`, it is asked before the operation is recorded: what it does instead has gradients of its own.

    >>> import undertow as ut
    >>> from undertow.utils._python_dispatch import TorchDispatchMode
    >>> class Names(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> with Names():
    ...     y = ut.ones(2, 2) @ ut.ones(2, 2)
    aten.mm.default
    """

    def __init__(self, _dispatch_key: Any = None) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError("a TorchDispatchMode says what becomes of an operation: it needs __torch_dispatch__")

    def on_operation(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        instead = DECOMPOSITIONS.get(str(op))
        if instead is not None:
            with self:
                result = instead(*args, **kwargs)
            if result is not NotImplemented:
                return result
        name, function, shown = as_in_torch(op, args)
        return self.__torch_dispatch__(Overloads("aten", name, function), (), shown, kwargs)


class BaseTorchDispatchMode(TorchDispatchMode):
    """One that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether it is a tensor that PyTorch's compiler takes apart: none is."""
    return False


def _get_current_dispatch_mode() -> None:
    """The mode that PyTorch's dispatcher would ask: undertow has no dispatcher, and modes are asked before it."""
