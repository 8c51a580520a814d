"""The protocol of queues, tasks and threads, under every schedule.

The engine's own code runs, on the threads, locks and queues of `schedules.py`. Its yield points are everything its
threads share: pushing to and popping from a queue, and looking whether it is closed; taking a lock; the flags that are
read without one (`completed`, `has_error`); looking up a device's queue; adding to a buffer; joining a thread. Streams
are left out (no thread waits for them, and the checker is off): they are the matter of test_streams.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import undertow as ut
from tests.engine import schedules
from tests.engine.schedules import AtomicLock, Cell, Count, Deadlock, ModelLock, ModelThread, QueueUse, Shared, explore
from undertow import sim
from undertow.backend import cpu
from undertow.backend.simulated.threads import DeviceThread, end_threads
from undertow.engine import dependencies, devices, loop, tasks
from undertow.engine import engine as engine_module
from undertow.engine.engine import Engine
from undertow.engine.input_buffer import DeviceInputBuffer
from undertow.engine.ready_queue import NodeTask, ReadyQueue
from undertow.engine.tasks import DeviceGraphTask, FutureResult
from undertow.graph import accumulate
from undertow.graph.accumulate import gradient_edge

# ---- the engine's parts, with yield points


class EngineThread(ModelThread):
    """A thread that has not been the engine's before."""

    def live(self) -> None:
        devices.this_thread.__dict__.clear()
        super().live()


class ModelQueue(Shared, ReadyQueue):
    def __init__(self) -> None:
        Shared.__init__(self)
        self.is_closed = Cell(None)
        ReadyQueue.__init__(self)

    def is_open(self) -> bool:
        return len(self) > 0

    def push(self, task: NodeTask) -> None:
        use = QueueUse(task.place(), task, alike=task.fn is None)
        schedules.scheduler.pause(self, use=lambda: use)
        super().push(task)

    def pop(self) -> NodeTask:
        schedules.scheduler.pause(self, waits=True, use=self.next_pop)
        return super().pop()

    def next_pop(self) -> QueueUse:
        self._sort_in()
        (place, _, task), *others = sorted(self._heap)
        return QueueUse(place, task, others=[entry[2] for entry in others])

    def drain(self) -> list[NodeTask]:
        schedules.scheduler.pause(self)
        return super().drain()

    def nudge(self) -> None:
        task = NodeTask(None, None, None)
        use = QueueUse(task.place(), None, alike=True)
        schedules.scheduler.pause(self, use=lambda: use)
        super().nudge()
        self._sort_in()
        use.item = max(self._heap, key=lambda entry: entry[1])[2]  # the one that came last

    _closed = property(lambda self: self.is_closed.get(), lambda self, handler: self.is_closed.set(handler))


class ModelBuffer(DeviceInputBuffer):
    __slots__ = ("shared",)

    def __init__(self, *args: Any) -> None:
        self.shared = Shared()
        schedules.scheduler.pause(self.shared)
        super().__init__(*args)

    def take(self, *args: Any) -> None:
        schedules.scheduler.pause(self.shared)
        super().take(*args)


class ModelFuture(FutureResult):
    def __init__(self) -> None:
        self.flag = Cell(False)
        super().__init__()

    completed = property(lambda self: self.flag.get(), lambda self, value: self.flag.set(value))


class ModelTask(DeviceGraphTask):
    def __init__(self, *args: Any) -> None:
        self.error_flag = Cell(False)
        self.count = Count(0)
        super().__init__(*args)

    @property
    def outstanding_tasks(self) -> int:
        return self.count.value

    @outstanding_tasks.setter
    def outstanding_tasks(self, value: int) -> None:
        mutex = self.__dict__.get("mutex")
        if mutex is not None and mutex._is_owned():
            self.count.change_to(value)
        else:
            assert not isinstance(mutex, AtomicLock) or self.count.value == 0  # nobody else knows of the pass yet
            self.count.value = value

    has_error = property(lambda self: self.error_flag.get(), lambda self, value: self.error_flag.set(value))


class ModelDict(dict[Any, Any]):
    """The queues of the devices, which are looked up without a lock."""

    def __init__(self) -> None:
        self.shared = Shared()

    def get(self, key: Any, default: Any = None) -> Any:
        schedules.scheduler.pause(self.shared, writes=False)
        return super().get(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        schedules.scheduler.pause(self.shared)
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        schedules.scheduler.pause(self.shared)
        super().__delitem__(key)


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put threads, locks and queues with yield points in the place of the real ones."""
    for module in (devices, tasks):
        names = {"RLock": ModelLock, "Thread": EngineThread, "get_ident": threading.get_ident, "local": threading.local}
        monkeypatch.setattr(module, "threading", SimpleNamespace(**names))
        monkeypatch.setattr(module, "ReadyQueue", ModelQueue)
    monkeypatch.setattr(devices, "DeviceInputBuffer", ModelBuffer)
    monkeypatch.setattr(devices, "_leaves_gradients", lambda task, node: False)  # no leaf streams
    monkeypatch.setattr(tasks, "FutureResult", ModelFuture)
    monkeypatch.setattr(engine_module, "DeviceGraphTask", ModelTask)
    for module in (dependencies, loop):
        monkeypatch.setattr(module, "core", None)  # the compiled loop has no places to switch threads at
    monkeypatch.setattr(accumulate, "_lock", accumulate._lock)  # a program may change it
    end_threads()  # so that whoever launches a kernel runs it, and the scheduler's threads are all there are
    with sim.configure(check=False):
        yield
    DeviceThread.closing = False


def run_all(program: Callable[[Engine], list[Callable[[], None]]]) -> int:
    """Explore a program: it gets an engine, and returns the functions of its threads; the last one checks the end."""

    def with_engine() -> list[Callable[[], None]]:
        engine = Engine.__new__(Engine)
        engine.forget_threads()
        engine.device_ready_queues = ModelDict()
        *targets, check = program(engine)
        return [partial(main, targets, check)]

    return explore(with_engine)


def main(targets: list[Callable[[], None]], check: Callable[[], None]) -> None:
    threads = [EngineThread(target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check()


# ---- programs


def run_pass(engine: Engine, *roots: Any) -> None:
    edges = [gradient_edge(root) for root in roots]
    seeds = [root._xp.ones(root.shape, root.dtype) for root in roots]
    engine.execute(edges, seeds, keep_graph=False, create_graph=False, xp=cpu)


def leaf(device: str = "cpu") -> Any:
    return ut.ones(1, device=device, requires_grad=True)


def two_devices(engine: Engine) -> list[Callable[[], None]]:
    """One pass whose branches run on two devices and meet in one leaf."""
    x = leaf()
    root = x.to("sim:0").cpu() + x.to("sim:1").cpu()

    def check() -> None:
        assert x.grad.item() == 2

    return [lambda: run_pass(engine, root), check]


def two_callers(engine: Engine) -> list[Callable[[], None]]:
    """Two passes at once, over the same device, into the same leaf."""
    x = leaf("sim:0")
    roots = [x * 2, x]

    def check() -> None:
        assert x.grad.item() == 3

    return [lambda: run_pass(engine, roots[0]), lambda: run_pass(engine, roots[1]), check]


def one_leaf(engine: Engine) -> list[Callable[[], None]]:
    """Two passes at once, whose callers add to one leaf themselves."""
    accumulate._lock = ModelLock()
    x = leaf()
    roots = [x.to("sim:0"), x.to("sim:1")]

    def check() -> None:
        assert x.grad.item() == 2

    return [lambda: run_pass(engine, roots[0]), lambda: run_pass(engine, roots[1]), check]


def nest(engine: Engine, tensor: Any, other: str) -> Any:
    """Have the gradient of `tensor` start a pass with two roots on another device; the leaf of that."""
    inner = leaf(other)
    tensor.register_hook(lambda g: run_pass(engine, inner, inner))
    return inner


def nested(engine: Engine) -> list[Callable[[], None]]:
    """The worker of one device starts a pass on another, and drains its own queue meanwhile."""
    x = leaf("sim:0")
    y = nest(engine, x, "sim:1")

    def check() -> None:
        assert (x.grad.item(), y.grad.item()) == (2, 2)

    return [lambda: run_pass(engine, x, x), check]


def crossed(engine: Engine) -> list[Callable[[], None]]:
    """A pass over two devices, each of whose workers starts a pass on the other one's."""
    outer = [leaf("sim:0"), leaf("sim:1")]
    inner = [nest(engine, outer[0], "sim:1"), nest(engine, outer[1], "sim:0")]

    def check() -> None:
        assert [t.grad.item() for t in (*outer, *inner)] == [1, 1, 2, 2]

    return [lambda: run_pass(engine, *outer), check]


def nested_across(engine: Engine) -> list[Callable[[], None]]:
    """The same in the middle of a pass: two branches, which meet in a leaf of the caller's."""
    x = leaf()
    branches = [x.to("sim:0"), x.to("sim:1")]
    inner = [nest(engine, branch, other) for branch, other in zip(branches, ("sim:1", "sim:0"), strict=True)]
    root = branches[0].cpu() + branches[1].cpu()

    def check() -> None:
        assert [t.grad.item() for t in (x, *inner)] == [2, 2, 2]

    return [lambda: run_pass(engine, root), check]


class Unlucky(Exception):
    pass


def an_error(engine: Engine) -> list[Callable[[], None]]:
    """One of two branches fails: the caller is told, and nothing runs afterwards."""
    x = leaf()
    good, bad = x.to("sim:0"), x.to("sim:1")
    returned = Cell(False)

    def fail(grad: Any) -> None:
        raise Unlucky

    def is_in_time(grad: Any) -> None:
        assert not returned.get()

    bad.register_hook(fail)
    good.register_hook(is_in_time)
    root = good.cpu() + bad.cpu()

    def caller() -> None:
        with pytest.raises(Unlucky):
            run_pass(engine, root)
        returned.set(True)

    def check() -> None:
        assert x.grad is None

    return [caller, check]


def a_shutdown(engine: Engine) -> list[Callable[[], None]]:
    """The threads are ended while a pass is under way: it goes on without them."""
    x = leaf()
    root = (x.to("sim:0") * 2).cpu()

    def check() -> None:
        assert x.grad.item() == 2

    return [lambda: run_pass(engine, root), engine.shut_down, check]


PROGRAMS = [two_devices, two_callers, one_leaf, nested, an_error, a_shutdown]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_no_schedule_loses_a_gradient_or_blocks(program: Any) -> None:
    assert run_all(program) > 10


@pytest.mark.slow
@pytest.mark.parametrize("program", [crossed, nested_across], ids=lambda p: p.__name__)
def test_nor_does_one_of_passes_that_cross(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.threading, "RLock", AtomicLock)  # that it excludes is the matter of the tests above
    assert run_all(program) > 1000


@pytest.mark.parametrize("deterministic", [True, False])
def test_in_deterministic_mode_all_schedules_give_the_same_bits(deterministic: bool) -> None:
    found = set()

    def program(engine: Engine) -> list[Callable[[], None]]:
        accumulate._lock = ModelLock()
        x = leaf()
        roots = [x * factor for factor in (1e8, 1.0, -1e8)]

        def check() -> None:
            found.add(x.grad.item())

        return [*[partial(run_pass, engine, root) for root in roots], check]

    ut.use_deterministic_algorithms(deterministic)
    try:
        assert run_all(program) >= 6
    finally:
        ut.use_deterministic_algorithms(False)
    assert found == ({1} if deterministic else {0, 1})


# ---- the search finds what is wrong with a broken protocol


def test_without_the_empty_task_the_caller_sleeps_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_finish", lambda self, task: task.task_done())

    def program(engine: Engine) -> list[Callable[[], None]]:
        root = leaf("sim:0") * 2  # the last node runs on the worker
        return [lambda: run_pass(engine, root), lambda: None]

    with pytest.raises(Deadlock):
        run_all(program)


def test_without_the_mutex_some_schedule_loses_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoLock(ModelLock):
        def __enter__(self) -> None:
            pass

        def __exit__(self, *exc: object) -> None:
            pass

    monkeypatch.setattr(tasks.threading, "RLock", NoLock)
    with pytest.raises((AssertionError, Deadlock, KeyError)):
        run_all(two_devices)


def test_without_draining_crossed_passes_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_without_draining(self: Engine, task: Any, root: Any) -> None:
        outer, devices.this_thread.queue = devices.this_thread.queue, None
        try:
            original(self, task, root)
        finally:
            devices.this_thread.queue = outer

    original = Engine.execute_with_graph_task
    monkeypatch.setattr(Engine, "execute_with_graph_task", wait_without_draining)
    with pytest.raises(Deadlock):
        run_all(crossed)


def test_without_looking_at_the_queue_again_a_push_to_an_ended_thread_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadyQueue, "push", lambda self, task: self._inbox.put(task))
    with pytest.raises(Deadlock):
        run_all(a_shutdown)
