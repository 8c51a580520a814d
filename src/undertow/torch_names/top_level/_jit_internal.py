"""Decorators of PyTorch's compiler of Python, by the module that has them; they change nothing."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .jit import Final as Final
from .jit import _overload as _overload
from .jit import _overload_method as _overload_method
from .jit import export as export
from .jit import ignore as ignore
from .jit import is_scripting as is_scripting
from .jit import unused as unused

T = TypeVar("T")
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list


#: function -> the two that it chooses from
boolean_dispatched: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def _copy_to_script_wrapper(fn: T) -> T:
    return fn


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str
) -> Any:
    """One of two functions, by a flag among the arguments."""

    def function(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    boolean_dispatched[function] = {
        "if_true": if_true, "if_false": if_false, "index": arg_index, "default": default, "arg_name": arg_name
    }  # fmt: skip
    return function
