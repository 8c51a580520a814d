"""What a profiler writes down while a program runs: one row per operation, node, module call and named span.

Nothing is computed while it runs; `build.py` makes events of the rows afterwards. The recorder of a thread is in a
ContextVar, which the threads of a backward pass inherit, so their nodes land in the same list (appending needs no
lock). With the compiled core the list is of a type of its own, whose rows are tuples only when they are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from threading import current_thread, get_ident, get_native_id
from time import perf_counter_ns, time_ns
from types import CodeType
from typing import Any, NamedTuple

from undertow.autograd.interceptors.observer import Observer, enter, leave
from undertow.backend import cpu
from undertow.compiled import core
from undertow.engine.watch import Watch, install_watcher, remove_watcher
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.node import Node, space_of, stream_of
from undertow.instrument.memory import Allocations, Maker
from undertow.instrument.module_calls import ModuleCall, ModuleCalls
from undertow.instrument.nodes import node_of, place_of, saved_bytes
from undertow.instrument.optimizer_steps import OptimizerSteps
from undertow.instrument.profiler.composites import Gates
from undertow.ops.declare.op import Op
from undertow.own_files import OWN_FILES, user_frame
from undertow.scopes import put_back
from undertow.tensor import Tensor

OPERATION, NODE, MODULE, SPAN, COMPOSITE, EXCHANGE = range(6)
composites = Gates()
#: in the place of a thread's number, for exchanges between processes
EXCHANGES = 0


class Row(NamedTuple):
    """One thing that happened.

    kind      OPERATION, NODE, MODULE, SPAN, COMPOSITE or EXCHANGE
    what      an Op, or a name; from the compiled core, the function of the operation or the class of the node
    begin, end  in nanoseconds
    thread    Python's number of the thread
    sequence_nr  of the node that the operation recorded, or of the node; None if there is none
    code, lasti  the line of the user's program: see graph/user_lines.py; code is None if it is not known
    shapes    of the tensors given, if they were asked for; of a node, the shape of the gradient it received
    more      further facts by name: stack, bytes, saved, given (arguments that are no tensors), out, device, stream;
              of a node, leads_to. From the compiled core, of a node on the CPU, only that: a tuple of numbers
    """

    kind: int
    what: Any
    begin: int
    end: int
    thread: int
    sequence_nr: int | None
    code: CodeType | None
    lasti: int
    shapes: Any
    more: dict[str, Any] | None


class Recorder:
    """Gathers rows from `start` to `stop`."""

    def __init__(
        self,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        most_rows: int = sys.maxsize,
    ) -> None:
        self.most_rows = most_rows
        self.record_shapes, self.with_stack = record_shapes, with_stack
        self.rows: Any = [] if core is None else core.Rows()
        self.threads: dict[int, tuple[int, str]] = {}
        self.allocations = Allocations() if profile_memory else None
        self.modules = ModuleCalls(self.module_ended) if with_modules else None
        self.steps = OptimizerSteps(self.step_ended)
        self.paths: dict[int, str] = {}  # of modules, by the number of the node
        self.is_detailed = record_shapes or with_stack or profile_memory
        self.rows_for_core = (
            None if self.is_detailed or most_rows < sys.maxsize or sys.platform != "linux" else self.rows
        )
        self.begin = self.end = self.wall = 0
        self.is_recording = False
        self._token: Any = None
        self._entered: Any = None
        self._composites: Any = None

    def start(self) -> None:
        if self.allocations is not None:
            self.allocations.start()
        self.begin, self.wall = perf_counter_ns(), time_ns()
        self.resume()

    def stop(self) -> None:
        if self.is_recording:
            self.pause()
        if self.allocations is not None:
            self.allocations.stop()
        self.end = perf_counter_ns()

    def resume(self) -> None:
        self.is_recording = True
        self._token = _recorder.set(self)
        self.note_thread()
        self._entered = enter(Profiled(self))
        if self.modules is not None:
            self.modules.start()
        self.steps.start()
        install_watcher(self.times_of_pass)  # while it runs: passes that nobody watches ask nobody
        self._composites = composites.listen(self.composite_ended)

    def pause(self) -> None:
        token, self._composites = self._composites, None
        composites.forget(self.composite_ended, token)
        remove_watcher(self.times_of_pass)
        self.steps.stop()
        if self.modules is not None:
            self.modules.stop()
        leave(Profiled, lambda found: found.recorder is self, self._entered)
        token, self._token = self._token, None
        put_back(_recorder, self, token, None)
        self.is_recording = False

    def times_of_pass(self) -> Watch | None:
        return PassTimes(self) if recorder_of_thread() is self else None

    def note_thread(self) -> int:
        ident = get_ident()
        if ident not in self.threads:
            self.threads[ident] = get_native_id(), current_thread().name
        return ident

    def maker(self, what: Any, node: Node | None) -> Maker:
        """Where the memory of an operation comes from, and so that of its node's gradients."""
        frame = user_frame()
        path = "" if self.modules is None else self.modules.path
        if node is not None and path:
            self.paths[node.sequence_nr] = path
        return Maker(what, frame.f_code, frame.f_lasti, path)

    def maker_of_node(self, node: Node) -> Maker:
        return Maker(node.name(), *place_of(node), self.paths.get(node.sequence_nr, ""))

    def span_ended(self, name: str, begin: int, args: str | None) -> None:
        more: dict[str, Any] = {} if args is None else {"args": args}
        if self.with_stack:
            more["stack"] = user_stack()
        self.rows.append((SPAN, name, begin, perf_counter_ns(), self.note_thread(), None, None, 0, None, more or None))

    def exchange_ended(self, name: str, begin: int, shapes: list[list[int]]) -> None:
        """Processes have exchanged something. It has a line of its own in a trace: the program may have gone on."""
        self.threads.setdefault(EXCHANGES, (EXCHANGES, "exchanges"))
        given = shapes if self.record_shapes else None
        self.rows.append((EXCHANGE, name, begin, perf_counter_ns(), EXCHANGES, None, None, 0, given, None))

    def composite_ended(self, op: Op, begin: int, given: list[Any], result: Any) -> None:
        end = perf_counter_ns()
        if len(self.rows) >= self.most_rows:
            return
        user = user_frame()
        shapes = [shape_of(value) for value in given] if self.record_shapes else None
        more: dict[str, Any] = {"stack": user_stack()} if self.with_stack else {}
        if self.allocations is not None:  # of what its operations made, this is known; `ones` is made of none
            more["bytes"] = self.allocations.note(result, self.maker(op.name, node_of(result)), end, given)
        more.update(place_of_result(result))
        self.rows.append(
            (COMPOSITE, op.name, begin, end, self.note_thread(), None, user.f_code, user.f_lasti, shapes, more)
        )

    def step_ended(self, name: str, begin: int) -> None:
        if recorder_of_thread() is self:
            self.span_ended(name, begin, None)

    def module_ended(self, call: ModuleCall, end: int) -> None:
        more = {"class": call.class_name}
        if len(self.rows) < self.most_rows:
            self.rows.append((MODULE, call.path, call.begin, end, self.note_thread(), None, None, 0, None, more))


class Profiled(Observer):
    """The observer of a recorder.

    rows_for_core  None, or the list of rows: the compiled core then times the usual operations itself (csrc/rows.h)
    """

    __slots__ = ("rows_for_core",)

    def __init__(self, recorder: Recorder, below: Any = None) -> None:
        super().__init__(below)
        self.recorder = recorder
        self.append = recorder.rows.append
        self.rows_for_core = recorder.rows_for_core if below is None else None

    def over(self, below: Any) -> Profiled:
        return Profiled(self.recorder, below)

    def watched(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rows = self.rows_for_core
        if rows is None or core is None:
            return super().watched(name, function, args, kwargs)
        return core.run_watched(rows, name, function, args, kwargs)

    def detach(self, function: Callable[..., Any], itself: Any, tensor: Tensor) -> Any:
        rows = self.rows_for_core
        if rows is None or core is None:
            return super().detach(function, itself, tensor)
        return core.run_watched(rows, "detach", itself, (tensor,), {})

    def draw(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rows = self.rows_for_core
        if rows is None or core is None:
            return super().draw(function, args, kwargs)
        return core.run_watched(rows, function.__name__, function, args, kwargs)

    def ran(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, begin: int) -> None:
        end = perf_counter_ns()
        recorder = self.recorder
        if len(recorder.rows) >= recorder.most_rows:
            return
        thread = get_ident()
        if thread not in recorder.threads:
            recorder.note_thread()
        node = node_of(result)
        shapes, more = self.details(what, args, kwargs, result, end) if recorder.is_detailed else (None, None)
        place = place_of_result(result)
        if place:
            more = {**(more or {}), **place}
        if node is None:
            user = user_frame()
            self.append((OPERATION, what, begin, end, thread, None, user.f_code, user.f_lasti, shapes, more))
        else:
            self.append((OPERATION, what, begin, end, thread, node.sequence_nr, *place_of(node), shapes, more))

    def details(
        self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, end: int
    ) -> tuple[Any, dict[str, Any]]:
        recorder, more = self.recorder, {}
        shapes = None
        if recorder.record_shapes:
            given = (*args, *kwargs.values())
            shapes = [shape_of(value) for value in given]
            first = result[0] if type(result) is tuple and result else result
            more["out"] = shape_of(first)
            more["given"] = tuple([None if holds_tensor(value) else value for value in given])
        if recorder.with_stack:
            more["stack"] = user_stack()
        if recorder.allocations is not None:
            node = node_of(result)
            given = (*args, *kwargs.values())
            more["bytes"] = recorder.allocations.note(result, recorder.maker(what, node), end, given)
            more["saved"] = 0 if node is None else saved_bytes(node)
        return shapes, more


def shape_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return list(value._array.shape)
    if isinstance(value, tuple | list) and value and all(isinstance(item, Tensor) for item in value):
        return [list(item._array.shape) for item in value]
    return []


def holds_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, tuple | list) and any(map(holds_tensor, value)))


def user_stack() -> tuple[tuple[CodeType, int], ...]:
    """The lines of the user's program that are running now, the innermost first."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        if not OWN_FILES[frame.f_code.co_filename]:
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


def place_of_space(space: Any) -> dict[str, str]:
    """The device and the stream that the work of this thread goes to."""
    return {"device": str(space.device), "stream": str(space.current_stream())}


def place_of_result(result: Any) -> dict[str, str]:
    """Nothing for the CPU."""
    first = result[0] if type(result) is tuple and result else result
    return place_of_space(first._xp) if isinstance(first, Tensor) and first._xp is not cpu else {}


def facts_of_node(node: Node, leads_to: tuple[int, ...]) -> dict[str, Any]:
    """What is known of a node on a device: to which nodes it leads, and where it runs."""
    return {"leads_to": leads_to, "device": str(space_of(node, 0).device), "stream": str(stream_of(node))}


class PassTimes(Watch):
    """Times the nodes of one backward pass."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.rows = recorder.rows_for_core
        self.begun: dict[int, int] = {}  # by thread: a pass may have several

    def before(self, node: Node, grads: list[Any]) -> None:
        self.begun[get_ident()] = perf_counter_ns()

    def after(self, node: Node, grads: list[Any], results: list[Any]) -> None:
        end, thread = perf_counter_ns(), get_ident()
        recorder = self.recorder
        if len(recorder.rows) >= recorder.most_rows:
            return
        recorder.note_thread()
        more: dict[str, Any] = {"leads_to": tuple([e[0].sequence_nr for e in node.next_edges if e is not None])}
        if recorder.record_shapes:
            more["wanted"] = [result is not None for result in results]
        if recorder.allocations is not None:
            results = [node.variable.grad] if type(node) is AccumulateGrad else results
            more["bytes"] = recorder.allocations.note(results, recorder.maker_of_node(node), end, grads)
        if stream_of(node) is not None:
            more.update(facts_of_node(node, more["leads_to"]))
        shapes = [None if g is None else list(g.shape) for g in grads]
        begin = self.begun.pop(thread, end)
        recorder.rows.append((NODE, node.name(), begin, end, thread, node.sequence_nr, *place_of(node), shapes, more))


_recorder: ContextVar[Recorder | None] = ContextVar("undertow.profiler", default=None)
recorder_of_thread = _recorder.get


if core is not None:
    core.bind(Profiled=Profiled, place_of_space=place_of_space, facts_of_node=facts_of_node)
