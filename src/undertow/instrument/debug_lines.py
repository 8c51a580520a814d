"""UNDERTOW_DEBUG=1, 2 or 3 in the environment: a line on stderr for each operation, node (2), kernel (3).

    undertow: mul float32[3] 2.0 -> float32[3]  4.1us  train.py:14
    undertow:   MulBackward0 float32[3] -> float32[3] None  6.0us  train.py:14
    undertow:     kernel convolve float32[1, 3, 8, 8] ...  51.2us

It concerns the thread that imports undertow, and the threads of its backward passes. `debug(level)` does the same for
a block.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from threading import get_ident
from typing import Any

from undertow.autograd.interceptors.observer import Observer, clock, enter, leave, name_of
from undertow.backend import kernels
from undertow.compiled import core
from undertow.engine.watch import Watch, install_watcher
from undertow.graph.node import Node
from undertow.graph.user_lines import Site
from undertow.instrument.nodes import place_of
from undertow.own_files import user_frame
from undertow.scopes import Switched
from undertow.tensor import Tensor


class debug(Switched):
    """Print a line for each operation in a block (level 1), each node of its passes (2), each kernel (3).

    file  where it prints; None: standard error

    >>> import undertow as ut, sys
    >>> with ut.instrument.debug(1, file=sys.stdout):  # doctest: +ELLIPSIS
    ...     y = ut.ones(3) * 2
    undertow: mul float32[3] 2 -> float32[3]  ...
    """

    def __init__(self, level: int = 1, file: Any = None) -> None:
        self.level, self.file = level, file

    def begin(self) -> None:
        enter(Printed(self))
        _debugs.set((*_debugs.get(), self))
        if self.level >= 3:
            kernels.listeners.append(self.kernel_ran)
            self.tell_of_all()

    def cease(self) -> None:
        if self.level >= 3:
            if self.kernel_ran in kernels.listeners:
                kernels.listeners.remove(self.kernel_ran)
            self.tell_of_all()
        _debugs.set(tuple([each for each in _debugs.get() if each is not self]))
        leave(Printed, lambda found: found.debug is self)

    def tell_of_all(self) -> None:
        """Let kernels for small arrays, which nobody is told of, leave these to those that are spoken of."""
        if core is not None:
            core.use_twins(not kernels.listeners)

    def print(self, text: str) -> None:
        print("undertow:", text, file=self.file or sys.stderr)

    def operation_ran(
        self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, took: int
    ) -> None:
        frame = user_frame()
        given = " ".join([shown(a) for a in args] + [f"{name}={shown(v)}" for name, v in kwargs.items()])
        results = result if isinstance(result, tuple) else (result,)
        made = " ".join([shown(r) for r in results])
        line = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        self.print(f"{name_of(what)} {given} -> {made}  {took / 1000:.1f}us  {line}")

    def node_ran(self, node: Node, grads: list[Any], results: list[Any], took: int) -> None:
        code, lasti = place_of(node)
        line = "" if code is None else f"  {os.path.basename(code.co_filename)}:{Site(code, lasti).line}"
        made = " ".join([shown(r) for r in results])
        arrow = f" -> {made}" if results else ""
        self.print(f"  {node.name()} {' '.join([shown(g) for g in grads])}{arrow}  {took / 1000:.1f}us{line}")

    def kernel_ran(self, name: str, arguments: tuple[Any, ...], took: int) -> None:
        self.print(f"    kernel {name} {' '.join([shown(a) for a in arguments])}  {took / 1000:.1f}us")


def shown(value: Any) -> str:
    """A value in a few characters: a tensor or an array by its dtype and shape."""
    if isinstance(value, Tensor):
        value = value._array
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, tuple | list) and any(isinstance(item, Tensor) for item in value):
        return "[" + " ".join([shown(item) for item in value]) + "]"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


class Printed(Observer):
    """The observer of a debug."""

    def __init__(self, debug: debug, below: Any = None) -> None:
        super().__init__(below)
        self.debug = debug

    def over(self, below: Any) -> Printed:
        return Printed(self.debug, below)

    def ran(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, begin: int) -> None:
        self.debug.operation_ran(what, args, kwargs, result, clock() - begin)


class PrintedPass(Watch):
    def __init__(self, debugs: tuple[debug, ...]) -> None:
        self.debugs = debugs
        self.begun: dict[int, int] = {}

    def before(self, node: Node, grads: list[Any]) -> None:
        self.begun[get_ident()] = clock()

    def after(self, node: Node, grads: list[Any], results: list[Any]) -> None:
        took = clock() - self.begun[get_ident()]
        for each in self.debugs:
            each.node_ran(node, grads, results, took)


_debugs: ContextVar[tuple[debug, ...]] = ContextVar("undertow.debug", default=())


def _printed_if_asked() -> Watch | None:
    wanted = tuple([each for each in _debugs.get() if each.level >= 2])
    return PrintedPass(wanted) if wanted else None


install_watcher(_printed_if_asked)


def switch_on(text: str) -> None:
    """What UNDERTOW_DEBUG asks for, until the program ends."""
    if text not in ("0", "1", "2", "3"):
        raise ValueError(
            f"UNDERTOW_DEBUG={text}: expected 1 (print a line for each operation), 2 (and each node of backward "
            "passes), 3 (and each kernel), or 0"
        )
    if text != "0":
        debug(int(text)).__enter__()
