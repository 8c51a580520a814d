"""Names for blocks of a program in profiles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from undertow.instrument.profiler.emitters import Emitter, emitter_variable
from undertow.instrument.profiler.recorder import Recorder, recorder_of_thread


class record_function:
    """Names a block, or the calls of a function, in profiles; without a profile it does nothing.

    name  the name
    args  a text that is shown with it

    >>> import undertow as ut
    >>> x = ut.ones(2)
    >>> with ut.profiler.profile() as prof, ut.profiler.record_function("mine"):
    ...     y = x + 1
    >>> [event.name for event in prof.events()]
    ['mine', 'aten::add']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self.began: list[tuple[Recorder | None, Emitter | None, int]] = []

    def __enter__(self) -> record_function:
        emitter = emitter_variable.get()
        if emitter is not None:
            emitter.ranges.push(self.name)
        self.began.append((recorder_of_thread(), emitter, perf_counter_ns()))
        return self

    def __exit__(self, *exc: object) -> None:
        recorder, emitter, begin = self.began.pop()
        if emitter is not None:
            emitter.ranges.pop()
        if recorder is not None and recorder_of_thread() is recorder:
            recorder.span_ended(self.name, begin, self.args)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return named
