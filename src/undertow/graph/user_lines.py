"""Where in the user's program something happened: the line that recorded a node, freed a graph, changed a tensor.

A site is a code object and an instruction offset, which cost two attribute reads to take (about 60 ns); a file name and
a line are made of them only when an error is printed. Frames of undertow itself are passed over: `INTERNAL` holds the
ids of its code objects, filled once, when the package has been imported.

`set_site_recording(False)`, or UNDERTOW_SITES=0 in the environment, switches the recording off.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from undertow.tensor.version_counter import OWN_CODE

#: ids of the code objects of undertow's own functions; they live as long as the process
INTERNAL: set[int] = OWN_CODE


class _NoFrame:
    """What generated code takes for a frame while recording is off."""

    f_code = None
    f_lasti = 0


def no_frame(depth: int) -> Any:
    return _NoFrame


#: the globals of the generated functions. They call `getframe` without asking whether they should, which would cost a
#: fifth of what taking a site does; switching means giving all of them another `getframe`.
_SCOPES: list[dict[str, Any]] = []

_enabled = [os.environ.get("UNDERTOW_SITES", "1") != "0"]


def take_sites_in(scope: dict[str, Any]) -> None:
    """Put `getframe` into the globals of a generated function, and keep it switched."""
    _SCOPES.append(scope)
    scope["getframe"] = sys._getframe if _enabled[0] else no_frame


#: functions that are told whether sites are taken
_listeners: list[Callable[[bool], Any]] = []


def tell(listener: Callable[[bool], Any]) -> None:
    """Have a function called now, and at every switch, with whether sites are taken."""
    _listeners.append(listener)
    listener(_enabled[0])


def set_site_recording(enabled: bool) -> None:
    """Whether every recorded node remembers the line of the program that made it (errors then name it)."""
    _enabled[0] = bool(enabled)
    for scope in _SCOPES:
        scope["getframe"] = sys._getframe if enabled else no_frame
    for listener in _listeners:
        listener(_enabled[0])


def is_site_recording_enabled() -> bool:
    return _enabled[0]


def user_frame(frame: FrameType) -> FrameType:
    """The nearest frame, from this one outwards, that is not undertow's own; the outermost if there is none."""
    while id(frame.f_code) in INTERNAL and frame.f_back is not None:
        frame = frame.f_back
    return frame


class Site:
    """A place in a program."""

    __slots__ = ("code", "lasti")

    def __init__(self, code: CodeType, lasti: int) -> None:
        self.code = code
        self.lasti = lasti

    @property
    def line(self) -> int:
        positions = list(self.code.co_positions())
        line = positions[self.lasti // 2][0] if self.lasti // 2 < len(positions) else None
        return self.code.co_firstlineno if line is None else line

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.line} in {self.code.co_name}"


def caller_site() -> Site:
    """The line of the user's program that is running now."""
    frame = user_frame(sys._getframe(1))
    return Site(frame.f_code, frame.f_lasti)


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's program that is running now."""
    frame = user_frame(sys._getframe(1))
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, registry=registry)


def register_internal(module: ModuleType) -> None:
    """Count every function of a module as undertow's own."""
    for value in vars(module).values():
        _register(value, module.__name__)


def register_code(code: CodeType) -> None:
    """Count a code object, and all that are nested in it, as undertow's own."""
    INTERNAL.add(id(code))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            register_code(constant)


def _register(value: Any, module: str) -> None:
    if isinstance(value, FunctionType):
        register_code(value.__code__)
        _register(getattr(value, "__wrapped__", None), module)  # what a decorator was put on
    elif isinstance(value, staticmethod | classmethod):
        _register(value.__func__, module)
    elif isinstance(value, property):
        for function in (value.fget, value.fset, value.fdel):
            _register(function, module)
    elif isinstance(value, type) and value.__module__ == module:
        for member in vars(value).values():
            if not isinstance(member, type):
                _register(member, module)
