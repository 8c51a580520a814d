"""When operations that are made of others begin and end: `matmul` around `mm`, `group_norm` around all that it takes.

A composite is a plain function (`@composite` in ops/declare) with nothing in front of it, which costs nothing while
nobody looks. Python itself says when one is entered and left: `sys.monitoring` for these functions alone, which no
other function notices. Before Python 3.12 there is only `sys.setprofile`, which is told of every call and slows all
of them down. It is used where a profile costs microseconds anyway, and where no debugger or profiler has taken it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import cache
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

from undertow.ops.declare.op import REGISTRY, Op

HAS_MONITORING = sys.version_info >= (3, 12)

#: called with an operation, when it began, and its frame, which is about to end
Ended = Callable[[Op, int, FrameType], None]


@cache
def composites_by_code() -> dict[CodeType, Op]:
    """The composites that are called something, by what Python runs for them; not those that share it."""
    found = [op for op in {id(op): op for op in REGISTRY.values()}.values() if op.kind == "composite"]
    codes = [inspect.unwrap(op.function).__code__ for op in found]
    counts = Counter(codes)
    pairs = zip(codes, found, strict=True)
    return {code: op for code, op in pairs if counts[code] == 1 and not op.name.startswith("_")}


class CompositeCalls:
    """Follows the composites of this thread (and of what inherits its context) from `start` to `stop`."""

    def __init__(self, ended: Ended, slowly: bool) -> None:
        self.ended, self.slowly = ended, slowly
        self.open: dict[int, list[tuple[CodeType, int]]] = {}  # by thread: those that have begun, the outermost first
        self._token: Token[CompositeCalls | None] | None = None
        self._is_profile_function = False

    def start(self) -> None:
        self._token = _calls.set(self)
        if HAS_MONITORING:
            monitor.enter()
        elif self.slowly and sys.getprofile() is None:
            self._is_profile_function = True
            sys.setprofile(self.told)

    def stop(self) -> None:
        if HAS_MONITORING:
            monitor.leave()
        elif self._is_profile_function:
            self._is_profile_function = False
            sys.setprofile(None)
        if self._token is not None:
            _calls.reset(self._token)

    def told(self, frame: FrameType, event: str, arg: Any) -> None:
        if frame.f_code in composites_by_code():
            if event == "call":
                self.began(frame.f_code)
            elif event == "return":
                self.returned(frame)

    def began(self, code: CodeType) -> None:
        self.open.setdefault(threading.get_ident(), []).append((code, perf_counter_ns()))

    def returned(self, frame: FrameType) -> None:
        code, stack = frame.f_code, self.open.get(threading.get_ident(), [])
        while stack:
            latest, begin = stack.pop()
            if latest is code:
                return self.ended(composites_by_code()[code], begin, frame)
            # one that an error has left: monitoring says nothing of it


_calls: ContextVar[CompositeCalls | None] = ContextVar("undertow.profiler.composites", default=None)


class Monitor:
    """The one tool that `sys.monitoring` knows of, as long as some profile runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # guards running and tool
        self.running = 0
        self.tool: int | None = None

    def enter(self) -> None:
        with self.lock:
            self.running += 1
            if self.running == 1:
                self.tool = self.switch_on()

    def leave(self) -> None:
        with self.lock:
            self.running -= 1
            if self.running == 0 and self.tool is not None:
                self.set_events(self.tool, 0)
                sys.monitoring.free_tool_id(self.tool)  # type: ignore[attr-defined, unused-ignore]
                self.tool = None

    def switch_on(self) -> int | None:
        """The number under which composites are followed; None if other tools have taken all of them."""
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        tool = next((n for n in (4, 3, monitoring.PROFILER_ID) if monitoring.get_tool(n) is None), None)
        if tool is not None:
            monitoring.use_tool_id(tool, "undertow.profiler")
            monitoring.register_callback(tool, monitoring.events.PY_START, _started)
            monitoring.register_callback(tool, monitoring.events.PY_RETURN, _returned)
            self.set_events(tool, monitoring.events.PY_START | monitoring.events.PY_RETURN)
        return tool

    def set_events(self, tool: int, events: int) -> None:
        for code in composites_by_code():
            sys.monitoring.set_local_events(tool, code, events)  # type: ignore[attr-defined, unused-ignore]


def _started(code: CodeType, offset: int) -> None:
    calls = _calls.get()
    if calls is not None:
        calls.began(code)


def _returned(code: CodeType, offset: int, result: Any) -> None:
    calls = _calls.get()
    if calls is not None:
        calls.returned(sys._getframe(1))


monitor = Monitor()
