"""The protocol of queues, tasks and threads, under every schedule with a few preemptions.

The engine's own code runs, on real threads of which one runs at a time. At its yield points - pushing to and popping
from a queue, taking a lock, adding to a buffer, joining a thread - a scheduler decides who goes on. `explore` runs a
program again and again until every schedule with at most `preemptions` unforced switches has been tried (forced ones,
where a thread waits, are free). A schedule in which nobody can go on is a deadlock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import undertow as ut
from undertow.backend import cpu
from undertow.engine import devices, tasks
from undertow.engine.engine import Engine
from undertow.engine.input_buffer import DeviceInputBuffer
from undertow.engine.ready_queue import NodeTask, ReadyQueue
from undertow.graph.accumulate import gradient_edge

# ---- the scheduler


class Deadlock(AssertionError):
    pass


class Abandoned(BaseException):
    """Ends the threads of a schedule that has been given up."""


class Scheduler:
    """Runs threads one at a time. `plan` says whom to choose at the first decisions; after it, whoever comes first."""

    def __init__(self, plan: list[int], preemptions: int) -> None:
        self.plan, self.preemptions = plan, preemptions
        self.decisions: list[tuple[int, int]] = []  # the choice, and how many there were
        self.threads: list[ModelThread] = []
        self.current: ModelThread | None = None
        self.over = threading.Event()
        self.failure: BaseException | None = None

    def spawn(self, target: Callable[[], None]) -> None:
        ModelThread(self, target=target).start()

    def run(self) -> None:
        self.hand_over()
        assert self.over.wait(30), "a thread does not come back to the scheduler"
        if self.failure is not None:
            raise self.failure

    def pause(self, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """A yield point of the running thread, which goes on when it is chosen, and `may_go_on`."""
        me = self.current
        assert me is not None
        me.may_go_on = may_go_on
        self.hand_over()
        me.turn.acquire()
        if self.failure is not None:
            raise Abandoned

    def hand_over(self) -> None:
        chosen = self.choose()
        self.current = chosen
        if chosen is not None:
            chosen.turn.release()

    def choose(self) -> ModelThread | None:
        alive = [t for t in self.threads if not t.finished]
        able = [t for t in alive if t.may_go_on()]
        if not able:
            if alive and self.failure is None:
                self.give_up(Deadlock(f"{len(alive)} threads wait for each other"))
            elif not alive:
                self.over.set()
            return None
        if self.current in able:
            able.remove(self.current)
            able.insert(0, self.current)
            if not self.preemptions:
                able = able[:1]
        number = len(self.decisions)
        choice = self.plan[number] if number < len(self.plan) else 0
        self.decisions.append((choice, len(able)))
        self.preemptions -= self.current in able and choice > 0
        return able[choice]

    def give_up(self, failure: BaseException) -> None:
        self.failure = failure
        self.over.set()
        for thread in self.threads:
            thread.turn.release()


scheduler: Scheduler


class ModelThread:
    """Stands for threading.Thread."""

    def __init__(self, owner: Scheduler | None = None, target: Any = None, args: Any = (), **ignored: Any) -> None:
        self.owner = scheduler if owner is None else owner
        self.target, self.args = target, args
        self.turn = threading.Semaphore(0)
        self.finished = False
        self.may_go_on: Callable[[], bool] = lambda: True

    def start(self) -> None:
        self.owner.threads.append(self)
        threading.Thread(target=self.live, daemon=True).start()

    def live(self) -> None:
        self.turn.acquire()
        owner = self.owner
        try:
            if owner.failure is None:
                self.target(*self.args)
        except Abandoned:
            pass
        except BaseException as error:
            if owner.failure is None:
                owner.give_up(error)
        self.finished = True
        if owner.failure is None:
            owner.hand_over()

    def join(self, timeout: Any = None) -> None:
        self.owner.pause(lambda: self.finished)


class ModelLock:
    """Stands for threading.RLock."""

    def __init__(self) -> None:
        self.holder: Any = None
        self.depth = 0

    def __enter__(self) -> None:
        if self.holder is not scheduler.current:
            scheduler.pause(lambda: self.holder is None)
            self.holder = scheduler.current
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.holder = None

    def _is_owned(self) -> bool:
        return self.holder is scheduler.current


class ModelQueue(ReadyQueue):
    __slots__ = ()

    def push(self, task: NodeTask) -> None:
        scheduler.pause()
        super().push(task)

    def pop(self) -> NodeTask:
        scheduler.pause(lambda: len(self) > 0)
        return super().pop()


class ModelBuffer(DeviceInputBuffer):
    __slots__ = ()

    def __init__(self, *args: Any) -> None:
        scheduler.pause()
        super().__init__(*args)

    def take(self, *args: Any) -> None:
        scheduler.pause()
        super().take(*args)


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the scheduler's threads, locks and queues in the place of the real ones."""
    for module in (devices, tasks):
        names = {"RLock": ModelLock, "Thread": ModelThread, "get_ident": threading.get_ident, "local": threading.local}
        monkeypatch.setattr(module, "threading", SimpleNamespace(**names))
        monkeypatch.setattr(module, "ReadyQueue", ModelQueue)
    monkeypatch.setattr(devices, "DeviceInputBuffer", ModelBuffer)
    yield


def explore(program: Callable[[Engine], list[Callable[[], None]]], preemptions: int, limit: int = 4000) -> int:
    """Run `program` under every schedule; how many there were. It returns the functions of its threads."""
    global scheduler
    plan: list[int] = []
    for count in range(1, limit):
        scheduler = Scheduler(plan, preemptions)
        engine = Engine.__new__(Engine)
        engine.forget_threads()
        for target in program(engine):
            scheduler.spawn(target)
        scheduler.run()
        decisions = scheduler.decisions
        while decisions and decisions[-1][0] + 1 == decisions[-1][1]:
            decisions.pop()
        if not decisions:
            return count
        plan = [choice for choice, _ in decisions[:-1]] + [decisions[-1][0] + 1]
    raise AssertionError(f"more than {limit} schedules")


# ---- programs


def run_pass(engine: Engine, root: Any) -> None:
    edge = gradient_edge(root)
    seed = root._xp.ones(root.shape, root.dtype)
    engine.execute([edge], [seed], keep_graph=False, create_graph=False, xp=cpu)


def leaf(device: str = "cpu") -> Any:
    return ut.ones(1, device=device, requires_grad=True)


def two_devices(engine: Engine) -> list[Callable[[], None]]:
    """One pass whose branches run on two devices and meet in one leaf."""
    x = leaf()
    root = x.to("sim:0").cpu() + x.to("sim:1").cpu()

    def caller() -> None:
        run_pass(engine, root)
        assert x.grad.item() == 2
        engine.shut_down()

    return [caller]


def two_callers(engine: Engine) -> list[Callable[[], None]]:
    """Two passes at once, over the same device, into the same leaf."""
    x = leaf("sim:0")
    roots, done = [x * 2, x * 3], []

    def caller(number: int) -> None:
        run_pass(engine, roots[number])
        done.append(number)
        if len(done) == 2:
            assert x.grad.item() == 5
            engine.shut_down()

    return [lambda: caller(0), lambda: caller(1)]


def nested_across(engine: Engine) -> list[Callable[[], None]]:
    """Two branches, each of whose workers starts a pass on the other's device."""
    x = leaf()
    branches = {device: x.to(device) for device in ("sim:0", "sim:1")}
    inner = {device: leaf(other) for device, other in (("sim:0", "sim:1"), ("sim:1", "sim:0"))}
    inner_roots = {device: inner[device] * 1 for device in inner}
    for device, branch in branches.items():
        branch.register_hook(lambda g, device=device: run_pass(engine, inner_roots[device]))
    root = branches["sim:0"].cpu() + branches["sim:1"].cpu()

    def caller() -> None:
        run_pass(engine, root)
        assert [t.grad.item() for t in (x, *inner.values())] == [2, 1, 1]
        engine.shut_down()

    return [caller]


class Unlucky(Exception):
    pass


def an_error(engine: Engine) -> list[Callable[[], None]]:
    """One of two branches fails: the caller is told, and nothing runs afterwards."""
    x = leaf()
    good, bad = x.to("sim:0"), x.to("sim:1")
    returned = []

    def fail(grad: Any) -> None:
        raise Unlucky

    def check(grad: Any) -> None:
        assert not returned

    bad.register_hook(fail)
    good.register_hook(check)
    root = good.cpu() + bad.cpu()

    def caller() -> None:
        with pytest.raises(Unlucky):
            run_pass(engine, root)
        returned.append(True)
        assert x.grad is None
        engine.shut_down()

    return [caller]


def a_shutdown(engine: Engine) -> list[Callable[[], None]]:
    """The threads are ended while a pass is under way: it goes on without them."""
    x = leaf()
    root = (x.to("sim:0") * 2).cpu()
    done = []

    def caller() -> None:
        run_pass(engine, root)
        assert x.grad.item() == 2
        done.append(True)

    def ender() -> None:
        engine.shut_down()
        scheduler.pause(lambda: bool(done))
        engine.shut_down()

    return [caller, ender]


PROGRAMS = [(two_devices, 2), (two_callers, 1), (nested_across, 1), (an_error, 2), (a_shutdown, 1)]
DEEPER = [(two_devices, 3), (two_callers, 2), (nested_across, 2), (an_error, 3), (a_shutdown, 2)]


@pytest.mark.parametrize(("program", "preemptions"), PROGRAMS, ids=lambda p: getattr(p, "__name__", str(p)))
def test_no_schedule_loses_a_gradient_or_blocks(program: Any, preemptions: int) -> None:
    assert explore(program, preemptions) > 10


@pytest.mark.slow
@pytest.mark.parametrize(("program", "preemptions"), DEEPER, ids=lambda p: getattr(p, "__name__", str(p)))
def test_nor_does_one_with_more_preemptions(program: Any, preemptions: int) -> None:
    assert explore(program, preemptions, limit=60_000) > 100


# ---- the scheduler finds what is wrong with a broken protocol


def test_without_the_empty_task_the_caller_sleeps_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_finish", lambda self, task: task.task_done())

    def program(engine: Engine) -> list[Callable[[], None]]:
        root = leaf("sim:0") * 2  # the last node runs on the worker
        return [lambda: run_pass(engine, root)]

    with pytest.raises(Deadlock):
        explore(program, 0)


def test_without_the_mutex_some_schedule_loses_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoLock(ModelLock):
        def __enter__(self) -> None:
            pass

        def __exit__(self, *exc: object) -> None:
            pass

    monkeypatch.setattr(tasks.threading, "RLock", NoLock)
    with pytest.raises((AssertionError, Deadlock, KeyError)):
        explore(two_devices, 2)


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
        explore(nested_across, 1)
