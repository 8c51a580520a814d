"""Which module is being called, by its path in the model: `encoder.layers.1.linear1`.

While someone asks, every call of a module is told when it ends; while nobody does, calls cost what they always cost.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.nn.module.calling import (
    forget_hooks_everywhere,
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

if TYPE_CHECKING:
    from undertow.nn.module import Module


class ModuleCall(NamedTuple):
    """A call that is under way. `path` is that of the module in the outermost one, whose path is its class's name."""

    module: Any
    path: str
    begin: int

    @property
    def class_name(self) -> str:
        return type(self.module).__name__


class ModuleCalls:
    """Tells `ended(call, nanoseconds)` of the calls of modules between `start` and `stop`."""

    def __init__(self, ended: Callable[[ModuleCall, int], None] | None = None) -> None:
        self.ended = ended
        self.handles: list[Any] = []
        self.names: weakref.WeakKeyDictionary[Any, dict[int, str]] = weakref.WeakKeyDictionary()
        self.open: ContextVar[tuple[ModuleCall, ...]] = ContextVar("undertow.module_calls", default=())

    def start(self) -> None:
        self.handles = [
            register_module_forward_pre_hook(self.called),
            register_module_forward_hook(self.returned, always_call=True),
        ]

    def stop(self) -> None:
        for handle in self.handles:
            handle.remove()
        forget_hooks_everywhere()

    @property
    def path(self) -> str:
        """The path of the module that is running now in this thread; "" outside all."""
        calls = self.open.get()
        return calls[-1].path if calls else ""

    def called(self, module: Module, args: tuple[Any, ...]) -> None:
        calls = self.open.get()
        self.open.set((*calls, ModuleCall(module, self.path_of(module, calls), perf_counter_ns())))

    def returned(self, module: Module, args: tuple[Any, ...], output: Any) -> None:
        end = perf_counter_ns()
        calls = self.open.get()
        while calls and calls[-1].module is not module:  # a call that ended by an error in a hook
            calls = calls[:-1]
        if calls:
            self.open.set(calls[:-1])
            if self.ended is not None:
                self.ended(calls[-1], end)

    def path_of(self, module: Module, calls: tuple[ModuleCall, ...]) -> str:
        if not calls:
            return type(module).__name__
        found = self.names_in(calls[0].module, module).get(id(module))
        # one that is not registered in the outermost module belongs to whoever called it
        return found if found is not None else f"{calls[-1].path}.{type(module).__name__}"

    def names_in(self, root: Any, module: Module) -> dict[int, str]:
        names = self.names.get(root)
        if names is None or id(module) not in names:
            names = self.names[root] = {id(part): name for name, part in root.named_modules() if name}
        return names
