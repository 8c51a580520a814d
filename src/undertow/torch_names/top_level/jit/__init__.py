"""PyTorch's compiler of a part of Python: here functions and modules stay what they are, and run as they were written.

>>> import undertow as ut
>>> @ut.jit.script
... def double(x):
...     return x + x
>>> double(ut.ones(2))
tensor([2., 2.])
"""

from __future__ import annotations

import builtins
import contextlib
import typing
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from undertow.nn.module import Module
from undertow.torch_names.missing import refusal

Final = typing.Final
T = TypeVar("T")

#: what compiled code raises in PyTorch, whatever went wrong in it; here code raises what Python raises
Error = Exception


class TracerWarning(Warning):
    """What PyTorch warns of where a recorded call would not do what Python does: nothing is recorded here."""


class Attribute(typing.NamedTuple):
    value: Any
    type: Any


class ScriptFunction:
    """The class of functions that PyTorch has compiled: nothing is one of it."""


class CompilationUnit:
    """What PyTorch keeps compiled functions in."""


class ScriptModule(Module):
    """A Module; those of PyTorch's that are compiled are of this class."""


RecursiveScriptModule = TopLevelTracedModule = TracedModule = ScriptModule


def script(obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> T:
    """The function, class or module itself."""
    return obj


def trace(func: T, example_inputs: Any = None, *args: Any, **kwargs: Any) -> T:
    """The function or module itself, which is not called: there is nothing to record."""
    return func


def trace_module(mod: T, inputs: Any, *args: Any, **kwargs: Any) -> T:
    return mod


def _get_trace_graph(*args: Any, **kwargs: Any) -> NoReturn:
    """The graph of a call in PyTorch's own form."""
    refusal("torch.jit._get_trace_graph", "undertow.OpMode shows every operation while it runs (docs/op-modes.md).")


def freeze(mod: T, *args: Any, **kwargs: Any) -> T:
    return mod


def optimize_for_inference(mod: T, *args: Any, **kwargs: Any) -> T:
    return mod


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator that says what is not to be compiled; it changes nothing."""
    return drop if callable(drop) else lambda function: function


def unused(fn: T) -> T:
    return fn


def export(fn: T) -> T:
    return fn


def interface(obj: T) -> T:
    return obj


def script_if_tracing(fn: T) -> T:
    return fn


_script_if_tracing = script_if_tracing


def _overload(func: T) -> T:
    return func


def _overload_method(func: T) -> T:
    return func


def script_method(fn: T) -> T:
    return fn


def is_scripting() -> bool:
    """Whether this is being compiled: never."""
    return False


def is_tracing() -> bool:
    """Whether calls are being recorded: never."""
    return False


def annotate(the_type: Any, the_value: T) -> T:
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's isinstance, for types that it can decide."""
    return builtins.isinstance(obj, typing.get_origin(target_type) or target_type)


class Future:
    """What `fork` returns: the result, which is there already."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def wait(self) -> Any:
        return self._value

    def value(self) -> Any:
        return self._value

    def done(self) -> bool:
        return True


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Call the function, at once."""
    return Future(func(*args, **kwargs))


def wait(future: Future) -> Any:
    return future.wait()


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    yield


@contextlib.contextmanager
def strict_fusion() -> Iterator[None]:
    yield


def enable_onednn_fusion(enabled: bool) -> None:
    """There are no such kernels here."""


def onednn_fusion_enabled() -> bool:
    return False


def set_fusion_strategy(strategy: Any) -> Any:
    return strategy


def export_opnames(m: Any) -> list[str]:
    return []


def save(m: Any, f: Any, _extra_files: Any = None) -> NoReturn:
    refusal("torch.jit.save", "save the state_dict() with torch.save, and keep the code of the model.")


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> NoReturn:
    refusal("torch.jit.load", "build the model by its code, and load a state_dict() into it.")
