"""The threads of simulated devices: what runs there, in which order, and what the program knows meanwhile."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import sim
from undertow.backend import namespace_of
from undertow.backend.simulated.arrays import send
from undertow.backend.simulated.operations import Operation
from undertow.backend.simulated.threads import DeviceThread, end_threads

xp, other_xp = namespace_of("sim:0"), namespace_of("sim:1")


@pytest.fixture(autouse=True)
def idle_devices() -> Iterator[None]:
    sim.synchronize()
    yield
    for space in (xp, other_xp):
        space.failures.clear()
    sim.synchronize()


class Gate:
    """An operation that keeps a device busy until it is opened."""

    def __init__(self, space: Any = xp) -> None:
        self.event = threading.Event()
        self.operation = send(space, "gate", self.pass_through, [], [])

    def pass_through(self) -> None:
        assert self.event.wait(60)

    def open(self) -> None:
        self.event.set()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *exc: object) -> None:
        self.open()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(operation, thread) of everything that runs."""
    seen: list[tuple[str, str]] = []

    def run(self: Operation) -> Any:
        seen.append((self.name, threading.current_thread().name))
        return original(self)

    original = Operation.run
    monkeypatch.setattr(Operation, "run", run)
    return seen


# ---- where and when


def test_operations_run_on_the_thread_of_their_device(runs: list[tuple[str, str]]) -> None:
    x = ut.ones((2, 3), device="sim:0", requires_grad=True)
    y = x.exp().to("sim:1") @ ut.ones(3, device="sim:1")
    y.sum().backward()
    x.grad[x.grad > 0].tolist()  # an index of booleans, which has to be waited for
    sim.synchronize()
    assert {thread for name, thread in runs if name != "synchronize"} == {"kernels of sim:0", "kernels of sim:1"}
    assert {(name, "kernels of sim:0") for name in ("exp", "copy", "getitem")} <= set(runs)
    assert ("dot", "kernels of sim:1") in runs


def test_the_program_goes_on_while_the_device_works() -> None:
    with Gate() as gate:
        x = xp.asarray(np.arange(6.0)).reshape(2, 3)
        y = np.exp(x.T * 2 + 1)
        y[0] = 7
        z = np.where(y > 1, y, 0).sum(axis=0)
        assert (y.shape, y.dtype, y.strides, z.shape) == ((3, 2), np.float64, (8, 24), (2,))
        assert not gate.operation.finished
    expected = np.exp(np.arange(6.0).reshape(2, 3).T * 2 + 1)
    expected[0] = 7
    assert np.array_equal(y.to_host(), expected) and np.array_equal(z.to_host(), expected.sum(axis=0))


def test_a_backward_pass_goes_on_while_the_device_works() -> None:
    x = ut.ones(3, device="sim:0", requires_grad=True)
    with Gate() as gate:
        (x * x * 3).sum().backward()
        assert x.grad.shape == (3,) and not gate.operation.finished
    assert x.grad.tolist() == [6, 6, 6]


READS = {
    "item": lambda a: a.sum().item(), "tolist": lambda a: a.tolist(), "to_host": lambda a: a.to_host(),
    "bool": lambda a: bool(a.sum() > 0), "float": lambda a: float(a.sum()), "index": lambda a: a[a > 0],
    "array_equal": lambda a: np.array_equal(a, a), "synchronize": lambda a: sim.synchronize("sim:0"),
    "stream": lambda a: sim.default_stream("sim:0").synchronize(),
    "event": lambda a: sim.default_stream("sim:0").record_event().synchronize(),
    "printing": lambda a: str(ut.Tensor(a, xp)), "pickle": lambda a: a.__reduce__(),
}  # fmt: skip


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_the_program_waits_when_it_reads(read: Any) -> None:
    a = np.exp(xp.ones(3))
    with Gate() as gate:
        timer = threading.Timer(0.03, gate.open)
        timer.start()
        read(a)
        assert gate.operation.finished
        timer.join()


def test_a_query_is_true_only_when_it_is_so() -> None:
    event = sim.Event()
    with Gate() as gate:
        event.record(sim.default_stream("sim:0"))
        timer = threading.Timer(0.03, gate.open)
        timer.start()
        while not event.query():
            pass
        assert gate.operation.finished
        timer.join()


def test_launches_that_block_wait() -> None:
    with sim.configure(launch_blocking=True), Gate() as gate:
        pass
    with sim.configure(launch_blocking=True):
        np.exp(xp.ones(3))
        assert gate.operation.finished


def test_memory_of_the_program_may_change_after_a_launch() -> None:
    host = np.arange(3.0)
    with Gate():
        a, b = xp.asarray(host), xp.zeros(3)
        b[:] = host
        c = xp.ones(3) * host
        host[:] = 9
    assert (a.tolist(), b.tolist(), c.tolist()) == ([0, 1, 2],) * 3


def test_a_result_may_be_made_read_only_before_it_is_there() -> None:
    with Gate():
        a = xp.ones(3) * 2
        b = xp.ones((2, 2)).sum(axis=0)
        for array in (a, b):
            array.setflags(write=False)
    assert (a.tolist(), b.tolist()) == ([2, 2, 2], [2, 2])


def test_operations_in_flight_keep_nothing_alive() -> None:
    before = sim.memory_allocated("sim:0")
    with Gate():
        a = xp.ones(1000)
        b = a * 2
        alive = weakref.ref(a), weakref.ref(b)
        assert sim.memory_allocated("sim:0") - before == 16000
        del a, b
        assert [ref() for ref in alive] == [None, None] and sim.memory_allocated("sim:0") == before


# ---- order


def names(runs: list[tuple[str, str]]) -> list[str]:
    return [name for name, _ in runs if name in ("sin", "cos", "tan")]


def test_a_stream_waits_for_another_devices(runs: list[tuple[str, str]]) -> None:
    here, there, side = sim.default_stream("sim:0"), sim.default_stream("sim:1"), sim.Stream("sim:1")
    b = other_xp.ones(2)
    side.wait_stream(there)
    with Gate() as gate:
        there.wait_stream(here)
        np.sin(b)
        with sim.stream(side):
            c = np.cos(b)
            assert c.tolist() == np.cos(np.ones(2)).tolist()  # the other stream of that device need not wait
        assert names(runs) == ["cos"]
        gate.open()
        sim.synchronize()
    assert names(runs) == ["cos", "sin"]


def test_a_wait_reaches_through_a_stream_that_had_nothing_to_do(runs: list[tuple[str, str]]) -> None:
    between = sim.Stream("sim:2")
    with Gate():
        between.wait_stream(sim.default_stream("sim:0"))
        sim.default_stream("sim:1").wait_stream(between)
        np.sin(other_xp.ones(2))
        time.sleep(0.02)
        assert names(runs) == []
    sim.synchronize()
    assert names(runs) == ["sin"]


def order_of_two_streams(seed: int, runs: list[tuple[str, str]]) -> list[str]:
    with sim.configure(seed=seed):
        streams = [sim.Stream("sim:0") for _ in range(2)]
        for k, stream in enumerate(streams):
            stream._random.seed(f"{seed} {k}")  # as the first two streams of a program
        a = xp.ones(2)
        sim.synchronize()
        runs.clear()
        with Gate():
            for stream, function in zip(streams, (np.sin, np.cos), strict=True):
                with sim.stream(stream):
                    for _ in range(5):
                        function(a)
        sim.synchronize()
    return names(runs)


def test_the_seed_decides_in_which_order_streams_come(runs: list[tuple[str, str]]) -> None:
    orders = [order_of_two_streams(seed, runs) for seed in (1, 1, 2, 3, 4)]
    assert orders[0] == orders[1] and len({tuple(order) for order in orders}) > 2
    assert all(order.count("sin") == order.count("cos") == 5 for order in orders)


def random_program(seed: int) -> None:
    """Operations on streams of three devices, each on arrays it has made sure of; against the same in NumPy."""
    rng = random.Random(seed)
    streams = [sim.Stream(f"sim:{rng.randrange(3)}") for _ in range(5)]
    made: list[tuple[Any, Any, Any]] = []  # array, its value, the stream that made it
    for stream in streams:
        with sim.stream(stream):
            made.append((stream.namespace.ones(3), np.ones(3), stream))
    for _ in range(40):
        stream = rng.choice(streams)
        array, value, source = rng.choice(made)
        stream.wait_stream(source)
        with sim.stream(stream), sim.stream(source) if source.device != stream.device else sim.stream(None):
            if source.device != stream.device:
                made.append((stream.namespace.take_over(array), value.copy(), stream))
            elif rng.random() < 0.3:
                source.wait_stream(stream)
                for user in streams:
                    stream.wait_stream(user)
                array *= 1.5
                value *= 1.5
                for user in streams:
                    user.wait_stream(stream)
            else:
                number = rng.random()
                made.append((array + number, value + number, stream))
    for array, value, stream in made:
        with sim.stream(stream):
            assert np.allclose(array.to_host(), value)


@pytest.mark.long
def test_random_programs_under_a_hundred_seeds() -> None:
    for seed in range(100):
        with sim.configure(seed=seed):
            random_program(seed)


def test_what_nothing_orders_may_go_wrong() -> None:
    """With the checker off, a read that nothing orders sees, under some seed, what it should not."""
    seen = set()
    fresh = namespace_of("sim:6")  # which no other test uses: what a seed makes of a device depends on its past, too
    for seed in range(20):
        with sim.configure(seed=seed, check=False):
            side, a = sim.Stream("sim:6"), fresh.zeros(1)
            sim.synchronize()
            with Gate(fresh):
                a += 1
                with sim.stream(side):
                    b = a * 1
            sim.synchronize()
            seen.add(b.to_host().item())
    assert seen == {0, 1}


def test_operations_take_as_long_as_the_seed_says() -> None:
    with sim.configure(latency=(0.01, 0.01), real_time=True):
        a, start = xp.ones(2), time.monotonic()
        for _ in range(3):
            a = a * 2
        sim.synchronize()
        assert time.monotonic() - start >= 0.03


# ---- errors


def launched_here(error: BaseException, operation: str) -> bool:
    told = f"launched by {operation} at {__file__}:"
    return any(note.startswith(told) for note in getattr(error, "__notes__", ()))


def fail() -> None:
    raise LookupError("lost")


def test_an_error_comes_to_light_when_the_program_waits() -> None:
    with Gate():
        send(xp, "careless", fail, [], [])
    for _ in range(2):
        try:
            xp.thread.wait_for_all()
            sim.synchronize("sim:0")
        except LookupError as error:
            assert launched_here(error, "careless")
            break
    else:
        pytest.fail("nobody was told")
    sim.synchronize("sim:0")  # told once


def test_an_error_names_the_line_of_a_node_that_a_worker_ran() -> None:
    x = ut.ones(2, device="sim:0", requires_grad=True)
    y = x.sin().sum()
    with sim.inject_failure("sim:0", op="cos"), pytest.raises(sim.DeviceFailure) as caught:
        y.backward()
        x.grad.tolist()
    note = f"launched by cos in SinBackward0, recorded at {__file__}:"
    assert any(told.startswith(note) for told in caught.value.__notes__)


def test_a_result_that_was_never_made_cannot_be_read() -> None:
    with sim.inject_failure("sim:0", op="sin"):
        a = np.sin(xp.ones(3))
    with pytest.raises(sim.DeviceFailure):
        sim.synchronize()
    b = a * 2 + 1
    c = b[1:].copy()
    for array in (a, b, c):
        with pytest.raises(sim.DeviceFailure, match="failed at sin") as caught:
            array.to_host()
        assert launched_here(caught.value, "sin")
    b[:] = 3  # all of it is new
    assert b.tolist() == [3, 3, 3]


def test_what_was_to_change_in_place_is_as_it_was() -> None:
    a = xp.ones(3)
    with sim.inject_failure("sim:0", op="add"):
        a += 1
        with pytest.raises(sim.DeviceFailure):
            sim.synchronize()
    assert a.tolist() == [1, 1, 1]


def test_floating_point_errors_that_are_to_be_raised_are_raised_at_once() -> None:
    a = xp.zeros(2)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        1 / a
    with np.errstate(all="ignore"):
        assert (1 / a).tolist() == [np.inf, np.inf]


def test_floating_point_errors_go_where_the_program_says() -> None:
    told: list[str] = []
    with np.errstate(over="call", call=lambda kind, flag: told.append(kind)):
        np.exp(xp.full(2, 1e3))
        assert told == ["overflow"]
    with pytest.warns(RuntimeWarning, match="overflow"):
        np.exp(xp.full(2, 1e3))
        sim.synchronize()


def test_a_warning_that_is_an_error_comes_home() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="overflow") as caught:
            np.exp(xp.full(2, 1e3)).to_host()
    assert launched_here(caught.value, "exp")


def test_a_thread_that_is_hit_by_an_exception_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(self: DeviceThread, item: Any) -> None:
        original(self, item)
        if isinstance(item, Operation) and item.name == "stone":
            raise KeyboardInterrupt("for somebody else")

    original = DeviceThread._take_in
    monkeypatch.setattr(DeviceThread, "_take_in", stumble)
    for name in ("warm", "stone"):
        send(xp, name, int, [], []).wait()
    with pytest.raises(KeyboardInterrupt):
        sim.synchronize()
    assert xp.ones(2).tolist() == [1, 1]


def test_an_interrupt_in_the_middle_of_a_launch_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: DeviceThread, operation: Operation) -> None:
        raise KeyboardInterrupt

    a = xp.ones(3)
    with Gate(other_xp) as gate:
        sim.default_stream("sim:0").wait_stream(sim.default_stream("sim:1"))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(DeviceThread, "give", interrupt)
            a += 1
        sim.default_stream("sim:0").record_event()
        b = a * 2
        assert not b._buffer.written.finished  # it still waits for the other device
        gate.open()
    assert (a.tolist(), b.tolist()) == ([1, 1, 1], [2, 2, 2])


def test_an_interrupt_while_the_program_waits() -> None:
    with Gate() as gate:
        timer = threading.Timer(0.05, lambda: signal.raise_signal(signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            sim.synchronize("sim:0")
        timer.join()
        gate.open()
    assert xp.ones(2).tolist() == [1, 1]


def test_without_another_thread_the_launching_one_runs_the_operation(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    space = namespace_of("sim:7")
    end_threads()
    DeviceThread.closing = False
    with monkeypatch.context() as patch, np.errstate(divide="ignore"):
        patch.setattr(threading.Thread, "start", refuse)
        assert (1 / space.zeros(2)).tolist() == [np.inf, np.inf]
    assert set(runs) == {(name, "MainThread") for name in ("zeros", "divide", "to_host")}
    with pytest.warns(RuntimeWarning):  # what that one did about errors was for the operation only
        np.divide(np.ones(1), 0)
    assert space.ones(2).tolist() == [1, 1] and runs[-1] == ("to_host", "kernels of sim:7")


# ---- destructors


@pytest.mark.long
def test_no_destructor_runs_on_a_devices_thread() -> None:
    seen: set[str] = set()

    class Garbage:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            seen.add(threading.current_thread().name)

    gc.set_threshold(50, 2, 2)
    for _ in range(50):
        Garbage()
        send(xp, "many lists", lambda: len([[] for _ in range(200)]), [], []).wait()  # enough for some collections
    gc.collect()
    assert seen == {"MainThread"}
    if sys.version_info < (3, 12):
        assert gc.get_freeze_count() == 0
    else:
        assert gc.get_freeze_count() < 1000  # Python itself hides its immortal objects there, a few hundred


# ---- fork, exit


def run_program(text: str) -> str:
    path = str(Path(ut.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60, env=env
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


BUSY = """
import os, sys, threading, time
import undertow as ut
ut.sim.configure(latency=(0.002, 0.004), real_time=True)
x = ut.ones(3, device="sim:0", requires_grad=True)
def work():
    y = x
    for _ in range(10):
        y = (y.to("sim:1") + 1).to("sim:0")
    return y
y = work()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_devices_are_busy() -> None:
    out = run_program(BUSY + """
y.sum().backward()
child = os.fork()
if child == 0:
    print("child", y.tolist(), work().tolist(), x.grad.tolist(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("parent", y.tolist(), work().tolist(), x.grad.tolist())
""")  # fmt: skip
    values = "[11.0, 11.0, 11.0] [11.0, 11.0, 11.0] [1.0, 1.0, 1.0]"
    assert out == f"child {values}\nparent {values}\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_while_other_threads_launch() -> None:
    out = run_program(BUSY + """
ut.sim.configure(latency=(0, 1e-5))
stop = []
def launch():
    while not stop:
        work()
threads = [threading.Thread(target=launch) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if work().tolist() == [11] * 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.append(1)
for thread in threads: thread.join()
print(work().tolist())
""")  # fmt: skip
    assert out == "[11.0, 11.0, 11.0]\n"


def test_the_interpreter_exits_while_devices_are_busy() -> None:
    assert run_program(BUSY + "print('bye')") == "bye\n"


def test_work_at_interpreter_exit() -> None:
    out = run_program("""
import atexit
class Late:
    def __del__(self):
        print("destructor", self.work().tolist(), flush=True)
atexit.register(lambda: print("at exit", work().tolist()))  # before undertow's own handler, so it runs after it
""" + BUSY + """
late = Late()
late.work = work
import undertow.backend.simulated as kept
sys.modules["late"] = late
""")  # fmt: skip
    assert "at exit [11.0, 11.0, 11.0]" in out


def test_threads_are_made_on_first_use() -> None:
    out = run_program("""
import threading
import undertow as ut
print(threading.active_count())
ut.ones(2, device="sim:0")
print(sorted(t.name for t in threading.enumerate()))
""")  # fmt: skip
    assert out == "1\n['MainThread', 'kernels of sim:0']\n"


def test_streams_by_the_name_of_their_device() -> None:
    side = ut.Stream("sim:1")
    assert isinstance(side, sim.Stream) and isinstance(ut.Event("sim"), sim.Event)
    default = sim.current_stream("sim:1")
    with side:
        assert sim.current_stream("sim:1") is side and sim.current_stream("sim:0") is not side
        with side, sim.Stream("sim:1") as inner:
            assert sim.current_stream("sim:1") is inner
        assert sim.current_stream("sim:1") is side
    assert sim.current_stream("sim:1") is default
