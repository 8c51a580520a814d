"""Interrupts at every line: a tracer that raises at the n-th event of undertow's own code, for all n.

A tracer can raise where a signal can (before and after each call), and in more places: at the line that ends a `with`,
in the middle of a `finally`. What stands that stands every Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import undertow as ut

OWN = str(Path(ut.__file__).parent)


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, which a test runner would take for its own."""


class Tracer:
    """Raises at the n-th event (a line, the beginning or the end of a call) in a file of undertow's."""

    def __init__(self, n: int, events: tuple[str, ...]) -> None:
        self.left = n
        self.events = events

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OWN):
            return None if event == "call" else self
        if event in self.events:
            self.left -= 1
            if self.left == 0:
                raise Interrupt
        return self


def interrupted_at(n: int, program: Callable[[], Any], events: tuple[str, ...]) -> bool:
    """Run a program and interrupt it at its n-th event; False if it has fewer."""
    tracer, former = Tracer(n, events), sys.gettrace()
    sys.settrace(tracer)
    try:
        program()
    except Interrupt:
        pass
    finally:
        sys.settrace(former)
    return tracer.left <= 0


#: how many interrupts one test has time for; a longer program is interrupted at every third, fifth, ... event
MOST = 250


def at_every_event(program: Callable[[], Any], events: tuple[str, ...], most: int = MOST) -> Iterator[int]:
    """Interrupt a program at its 1st event, at its 2nd, ..., and yield after each, to look what is left."""
    step = count_events(program, events) // most | 1
    n = 1
    while interrupted_at(n, program, events):
        yield n
        n += step


def count_events(program: Callable[[], Any], events: tuple[str, ...]) -> int:
    counter, former = Tracer(1 << 60, events), sys.gettrace()
    sys.settrace(counter)
    try:
        program()
    finally:
        sys.settrace(former)
    return (1 << 60) - counter.left
