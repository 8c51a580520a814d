"""Which stream of each device the work of this thread goes to, for backends whose devices have streams.

A backend's Stream has `device`, `namespace`, `wait_stream(other)`, `keep(array)` and `synchronize()`; its namespace
answers `current_stream()` and `default_stream`. The CPU has none: its `current_stream()` is None.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Any, Self

from undertow.backend.interface import Device
from undertow.scopes import Scope, set_value

#: device -> the stream chosen for it; a device that is not there uses its default stream
chosen_variable: ContextVar[Mapping[Device, Any]] = ContextVar("undertow.streams", default=MappingProxyType({}))
chosen_streams = chosen_variable.get
choose_streams: Callable[[Mapping[Device, Any]], None] = partial(set_value, chosen_variable)


class _Working(threading.local):
    """What a thread does for the engine, for errors that come to light later.

    node   (name, code, instruction) of the node it runs: the line that recorded it; None if it runs none
    """

    node: tuple[Any, ...] | None = None


working = _Working()


class stream(Scope):
    """Send the work of this thread to a stream: `with stream(s): ...`. Other devices keep theirs; None changes nothing.

    >>> import undertow as ut
    >>> side = ut.sim.Stream("sim:0")
    >>> with ut.sim.stream(side):
    ...     x = ut.ones(2, device="sim:0")
    >>> ut.sim.current_stream("sim:0").wait_stream(side)
    """

    variable = chosen_variable

    def __init__(self, stream: Any) -> None:
        self.stream = self.given = stream

    def inside(self, outer: Mapping[Device, Any]) -> Mapping[Device, Any]:
        return outer if self.stream is None else {**outer, self.stream.device: self.stream}


_entered: ContextVar[Any] = ContextVar("undertow.entered_streams", default=None)


class UsedInBlocks:
    """`with stream: ...`: what this thread asks of the stream's device goes to it."""

    def _scopes(self) -> list[Any]:
        return [stream(self)]

    def __enter__(self) -> Self:
        scopes = self._scopes()
        for scope in scopes:
            scope.__enter__()
        _entered.set((scopes, _entered.get()))
        return self

    def __exit__(self, *error: object) -> None:
        inner = _entered.get()
        if inner is not None:
            _entered.set(inner[1])
            for scope in reversed(inner[0]):
                scope.__exit__(*error)
