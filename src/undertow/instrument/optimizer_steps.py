"""When steps of optimizers begin and end, for profiles: by hooks that are there while one of them runs."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from undertow.optim.hooks import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class OptimizerSteps:
    """Tells `ended(optimizer, when it began)` of every step, in any thread, between `start` and `stop`."""

    def __init__(self, ended: Callable[[Any, int], None]) -> None:
        self.ended = ended
        self.handles: list[Any] = []
        self.open: dict[int, list[tuple[Any, int]]] = {}  # by thread: steps that have begun, the outermost first

    def start(self) -> None:
        self.handles = [
            register_optimizer_step_pre_hook(self.before),
            register_optimizer_step_post_hook(self.after),
        ]

    def stop(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.open.clear()

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.open.setdefault(get_ident(), []).append((optimizer, perf_counter_ns()))

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        steps = self.open.get(get_ident(), [])
        while steps:
            latest, begin = steps.pop()
            if latest is optimizer:
                return self.ended(optimizer, begin)
            # one that an error has left
