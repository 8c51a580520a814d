"""`emit_nvtx` and `emit_itt`: a range for each operation and node, in the timelines of Nsight Systems and VTune.

The tools give programs a small library to call: NVTX has `nvtxRangePushA` and `nvtxRangePop`, ITT has tasks. Ranges
nest by thread, so what pushes one pops it, whatever happens in between. Operations made of others have none: those that
they are made of do.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import get_ident, local
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from undertow.autograd.interceptors.observer import Observer, enter, leave, name_of
from undertow.engine.watch import Watch, install_watcher, remove_watcher
from undertow.graph.node import LAST, Node, next_sequence_nr
from undertow.instrument.profiler.recorder import shape_of
from undertow.modes import current
from undertow.scopes import Switched, put_back

if TYPE_CHECKING:
    from undertow.tensor import Tensor

# ---- the libraries


class Ranges(NamedTuple):
    """What opens a range of a thread, and what closes the latest."""

    push: Callable[[str], Any]
    pop: Callable[[], Any]


def nvtx_ranges() -> Ranges | None:
    """By a library that has NVTX's functions, or by the package `nvtx`."""
    for place in nvtx_libraries():
        try:
            return ranges_of_library(ctypes.CDLL(place))
        except (OSError, AttributeError):
            continue
    package = module_or_none("nvtx")
    return None if package is None else Ranges(package.push_range, package.pop_range)


def ranges_of_library(library: Any) -> Ranges:
    push, pop = library.nvtxRangePushA, library.nvtxRangePop
    push.argtypes, pop.argtypes = (ctypes.c_char_p,), ()
    return Ranges(lambda text: push(text.encode()), pop)


def nvtx_libraries() -> Iterator[str]:
    """Where one may be: named by the environment, on the path of libraries, in NVIDIA's packages for Python."""
    named = os.environ.get("UNDERTOW_NVTX_LIBRARY")
    if named:
        yield named
        return
    yield from ("libnvToolsExt.so.1", "libnvToolsExt.so", "libnvtx3interop.so.1", "nvToolsExt64_1.dll")
    packages = find_spec("nvidia")
    for folder in (packages.submodule_search_locations or []) if packages is not None else []:
        yield from map(str, sorted(Path(folder).glob("*/lib/libnv*t*x*.so*")))


def itt_ranges() -> Ranges | None:
    """By the package `ittapi`."""
    package = module_or_none("ittapi")
    if package is None:
        return None
    domain, open_tasks = package.domain("undertow"), _Stack()

    def push(text: str) -> None:
        task = package.task(text, domain)
        task.begin()
        open_tasks.of_thread.append(task)

    return Ranges(push, lambda: open_tasks.of_thread.pop().end())


class _Stack:
    """A list for each thread."""

    def __init__(self) -> None:
        self.local = local()

    @property
    def of_thread(self) -> list[Any]:
        found: list[Any] = vars(self.local).setdefault("list", [])
        return found


def module_or_none(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


# ---- what is marked


class Marked(Observer):
    """Puts every operation into a range."""

    def __init__(self, emitter: Emitter, below: Any = None) -> None:
        super().__init__(below)
        self.emitter = emitter

    def over(self, below: Any) -> Marked:
        return Marked(self.emitter, below)

    def ran(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, begin: int) -> None:
        pass

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        return self.emitter.in_range(self.named(function.op, args), super().__call__, function, args)

    def watched(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.emitter.in_range(self.named(name, args), super().watched, name, function, args, kwargs)

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text = self.named(cls.__name__, args).removeprefix("aten::")
        return self.emitter.in_range(text, super().apply_function, cls, args, kwargs)

    def named(self, what: Any, args: tuple[Any, ...]) -> str:
        """The name of a range: with the number that the operation's node will have, and shapes if they are wanted."""
        text = f"aten::{name_of(what)}"
        if current().grad_enabled:
            text += f", seq = {next_sequence_nr() + 1}"  # one number is spent to learn the next
        return text + self.emitter.sizes(args)


class MarkedPass(Watch):
    """Puts every node of one backward pass into a range."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.threads: set[int] = set()  # those that are in a range of this pass

    def before(self, node: Node, grads: list[Any]) -> None:
        number = "" if node.sequence_nr == LAST else f", seq = {node.sequence_nr}"
        self.emitter.ranges.push(f"{node.name()}{number}{self.emitter.sizes(grads)}")
        self.threads.add(get_ident())

    def after(self, node: Node, grads: list[Any], results: list[Any]) -> None:
        self.threads.remove(get_ident())
        self.emitter.ranges.pop()

    def failed(self, node: Node, error: BaseException) -> None:
        if get_ident() in self.threads:  # else it was a hook before the node
            self.after(node, [], [])


# ---- the blocks


class Emitter(Switched):
    """A block whose operations, nodes and named spans are ranges for another tool."""

    tool: ClassVar[str]
    cure: ClassVar[str]
    ranges: Ranges

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes
        self.outer: Emitter | None = None

    @property
    def given(self) -> Emitter | None:
        return self if self.enabled else None

    def find(self) -> Ranges | None:
        raise NotImplementedError("the library of one tool")

    def inside(self, outer: bool) -> bool:
        if outer:
            raise RuntimeError(f"{self.tool} annotation context manager is not reentrant: make another for each block")
        self.check()
        return self.enabled

    def check(self) -> None:
        if not self.enabled:
            return
        found = self.find()
        if found is None:
            raise RuntimeError(
                f"{type(self).__name__}: no library for {self.tool} was found: {self.cure}. "
                "undertow.profiler.profile needs none: it shows the same ranges in Perfetto (export_chrome_trace)."
            )
        self.ranges = found

    def begin(self) -> None:
        enter(Marked(self))
        self.outer = emitter_variable.get()
        emitter_variable.set(self)
        install_watcher(self.pass_if_marked)

    def cease(self) -> None:
        remove_watcher(self.pass_if_marked)
        put_back(emitter_variable, self, None, self.outer)
        leave(Marked, lambda found: found.emitter is self)

    def pass_if_marked(self) -> Watch | None:
        return MarkedPass(self) if emitter_variable.get() is self else None

    def in_range(self, text: str, function: Callable[..., Any], *args: Any) -> Any:
        """What a function returns, called inside a range."""
        self.ranges.push(text)
        try:
            return function(*args)
        finally:
            self.ranges.pop()

    def sizes(self, values: Any) -> str:
        if not self.record_shapes:
            return ""
        return f", sizes = {[list(v.shape) if hasattr(v, 'shape') else shape_of(v) for v in values]}"


class emit_nvtx(Emitter):
    """Ranges for NVIDIA's tools: `nsys profile python program.py` shows operations, nodes and `record_function` blocks.

    An operation and its node have the same number (`aten::mul, seq = 7` and `MulBackward0, seq = 7`), if no other
    thread records in between. It takes a library with NVTX's functions, which comes with CUDA and with
    the packages nvidia-nvtx and nvtx; or UNDERTOW_NVTX_LIBRARY names one. Without any, entering the block raises.

    record_shapes  the shapes of arguments in the names of ranges

    >>> import undertow as ut
    >>> with ut.autograd.profiler.emit_nvtx(enabled=False):
    ...     print(ut.ones(1))
    tensor([1.])
    """

    tool = "NVTX"
    cure = "install the package nvtx, or CUDA's libnvToolsExt, or name a library in UNDERTOW_NVTX_LIBRARY"

    def find(self) -> Ranges | None:
        return nvtx_ranges()


class emit_itt(Emitter):
    """Ranges for Intel's VTune, by the package `ittapi`; otherwise as `emit_nvtx`.

    record_shapes  the shapes of arguments in the names of ranges

    >>> import undertow as ut
    >>> with ut.autograd.profiler.emit_itt(enabled=False):
    ...     print(ut.ones(1) * 2)
    tensor([2.])
    """

    tool = "ITT"
    cure = "install the package ittapi"

    def find(self) -> Ranges | None:
        return itt_ranges()


emitter_variable: ContextVar[Emitter | None] = ContextVar("undertow.emitter", default=None)
