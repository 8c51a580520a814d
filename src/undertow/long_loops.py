"""Loops of undertow's own that may take long, and whoever wants to see how far they have come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

#: None, or a function of a loop's items, their number (None: not known) and its name that gives the items, and shows
#: how far it is
shown: ContextVar[Callable[[Iterable[Any], int | None, str], Iterable[Any]] | None] = ContextVar(
    "undertow.loops", default=None
)


def long_loop(items: Iterable[Any], total: int | None, name: str) -> Iterable[Any]:
    """The items of a loop, which is shown if somebody asked for that (`with undertow.instrument.progress():`)."""
    show = shown.get()
    return items if show is None else show(items, total, name)
