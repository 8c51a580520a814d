"""Composites by `sys.monitoring`, from Python 3.12 on."""

from __future__ import annotations

import sys
import threading
from time import perf_counter_ns
from types import CodeType
from typing import Any

from undertow.instrument.profiler.composites import Switch, composites, listener_of_thread


class Monitor(Switch):
    """The one tool that `sys.monitoring` knows of, as long as some profile runs."""

    def __init__(self) -> None:
        super().__init__()
        self.tool: int | None = None  # None also if other tools have taken all numbers
        self.begun: dict[int, list[tuple[CodeType, int]]] = {}  # by thread, the outermost first

    def turn_on(self) -> None:
        if self.tool is not None:
            return
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        self.tool = next((n for n in (4, 3, monitoring.PROFILER_ID) if monitoring.get_tool(n) is None), None)
        if self.tool is not None:
            monitoring.use_tool_id(self.tool, "undertow.profiler")
            monitoring.register_callback(self.tool, monitoring.events.PY_START, self.started)
            monitoring.register_callback(self.tool, monitoring.events.PY_RETURN, self.returned)
            self.set_events(self.tool, monitoring.events.PY_START | monitoring.events.PY_RETURN)

    def turn_off(self) -> None:
        if self.tool is not None:
            self.set_events(self.tool, 0)
            sys.monitoring.free_tool_id(self.tool)  # type: ignore[attr-defined, unused-ignore]
            self.tool = None
        self.begun.clear()

    def set_events(self, tool: int, events: int) -> None:
        for code in composites():
            sys.monitoring.set_local_events(tool, code, events)  # type: ignore[attr-defined, unused-ignore]

    def started(self, code: CodeType, offset: int) -> None:
        if listener_of_thread.get() is not None:
            self.begun.setdefault(threading.get_ident(), []).append((code, perf_counter_ns()))

    def returned(self, code: CodeType, offset: int, result: Any) -> None:
        ended = listener_of_thread.get()
        begun = self.begun.get(threading.get_ident())
        while ended is not None and begun:
            latest, begin = begun.pop()
            if latest is code:
                return ended(composites()[code][1], begin, sys._getframe(1))
            # one that an error has left: monitoring says nothing of it
