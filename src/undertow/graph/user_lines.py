"""Where in the user's program something happened: the line that recorded a node, freed a graph, changed a tensor.

A site is a code object and an instruction offset, which cost two attribute reads to take (about 60 ns); a file name and
a line are made of them only when an error is printed. Frames of undertow itself are passed over: see own_files.py.

`set_site_recording(False)`, or UNDERTOW_SITES=0 in the environment, switches the recording off.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any

from undertow.own_files import user_frame

#: one bool: whether nodes remember the lines that made them
SITES_ARE_TAKEN = [os.environ.get("UNDERTOW_SITES", "1") != "0"]

#: functions that are told whether sites are taken
_listeners: list[Callable[[bool], Any]] = []


def tell(listener: Callable[[bool], Any]) -> None:
    """Have a function called now, and at every switch, with whether sites are taken."""
    _listeners.append(listener)
    listener(SITES_ARE_TAKEN[0])


def set_site_recording(enabled: bool) -> None:
    """Whether every recorded node remembers the line of the program that made it (errors then name it)."""
    SITES_ARE_TAKEN[0] = bool(enabled)
    for listener in _listeners:
        listener(SITES_ARE_TAKEN[0])


def is_site_recording_enabled() -> bool:
    return SITES_ARE_TAKEN[0]


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
    frame = user_frame()
    return Site(frame.f_code, frame.f_lasti)


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's program that is running now."""
    frame = user_frame()
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, registry=registry)
