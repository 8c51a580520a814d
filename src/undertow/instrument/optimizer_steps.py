"""When `step` and `zero_grad` of optimizers begin and end, for profiles: by hooks, while one runs."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from undertow.optim.hooks import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    register_optimizer_zero_grad_hook,
)

if TYPE_CHECKING:
    from undertow.optim.optimizer import Optimizer


class OptimizerSteps:
    """Tells `ended(name, when it began)` of every step and zero_grad, in any thread, between `start` and `stop`."""

    def __init__(self, ended: Callable[[str, int], None]) -> None:
        self.ended = ended
        self.handles: list[Any] = []
        self.open: dict[int, list[tuple[Any, int]]] = {}  # by thread: steps that have begun, the outermost first

    def start(self) -> None:
        self.handles = [
            register_optimizer_step_pre_hook(self.before),
            register_optimizer_step_post_hook(self.after),
            register_optimizer_zero_grad_hook(self.forgot),
        ]

    def stop(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.open.clear()

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.open.setdefault(get_ident(), []).append((optimizer, perf_counter_ns()))

    def after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        steps = self.open.get(get_ident(), [])
        while steps:
            latest, begin = steps.pop()
            if latest is optimizer:
                return self.ended(name_of(optimizer, "step"), begin)
            # one that an error has left

    def forgot(self, optimizer: Optimizer, begin: int) -> None:
        self.ended(name_of(optimizer, "zero_grad"), begin)


def name_of(optimizer: Optimizer, method: str) -> str:
    """What PyTorch calls a method of an optimizer in its profiles."""
    return f"Optimizer.{method}#{type(optimizer).__name__}.{method}"
