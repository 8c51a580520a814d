"""When things go wrong: errors reach the caller as they are, and leave an engine that works and holds nothing."""

from __future__ import annotations

import _thread
import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import undertow as ut
from undertow import sim
from undertow.backend import namespace_of
from undertow.engine.engine import engine
from undertow.engine.ready_queue import NodeTask
from undertow.engine.tasks import DeviceGraphTask, GraphTask, current_task


class Unlucky(Exception):
    pass


def leaf(device: str = "sim:0") -> Any:
    return ut.ones(3, device=device, requires_grad=True)


def fail(*_: Any) -> Any:
    raise Unlucky("as planned")


@ut.enable_grad()
def assert_works(device: str) -> None:
    x = leaf(device)
    (x * x).to("sim:1").sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


# ---- errors of user code


class FailsInBackward(ut.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2

    backward = staticmethod(fail)


def in_a_tensor_hook(x: Any) -> Any:
    y = x * 2
    y.register_hook(fail)
    return y.sum()


def in_a_leafs_hook(x: Any) -> Any:
    x.register_hook(fail)
    return (x * 2).sum()


def in_a_node_pre_hook(x: Any) -> Any:
    y = x * 2
    y.grad_fn.register_prehook(fail)
    return y.sum()


def in_a_node_post_hook(x: Any) -> Any:
    y = x * 2
    y.grad_fn.register_hook(fail)
    return y.sum()


def in_a_post_accumulate_hook(x: Any) -> Any:
    x.register_post_accumulate_grad_hook(fail)
    return (x * 2).sum()


def in_an_unpack_hook(x: Any) -> Any:
    with ut.autograd.graph.saved_tensors_hooks(lambda t: t, fail):
        return x.exp().sum()


def in_a_function(x: Any) -> Any:
    return FailsInBackward.apply(x).sum()


def in_a_callback(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda g: ut.autograd.graph.queue_callback(fail))
    return y.sum()


PLACES = [in_a_tensor_hook, in_a_leafs_hook, in_a_node_pre_hook, in_a_node_post_hook, in_a_post_accumulate_hook,
          in_an_unpack_hook, in_a_function, in_a_callback]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
def test_an_error_reaches_the_caller_as_it_is(place: Callable[..., Any], device: str) -> None:
    x = leaf(device)
    with pytest.raises(Unlucky, match="as planned") as caught:
        place(x).backward()
    shown = "".join(traceback.format_exception(caught.value))
    assert "in fail" in shown  # the traceback leads to the line that raised
    if place is not in_a_callback:  # callbacks belong to no node
        assert "while running" in shown
    if place not in (in_a_callback, in_a_leafs_hook, in_a_post_accumulate_hook):
        assert f"recorded at {__file__}" in shown  # and the note to the forward line
    assert current_task() is None and ut.is_grad_enabled()
    assert_works(device)


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
def test_a_failed_pass_leaves_nothing_behind(place: Callable[..., Any], device: str) -> None:
    assert_works(device)
    gc.collect()
    gc.disable()
    x = leaf(device)
    gone = weakref.ref(x)
    try:
        place(x).backward()
    except Unlucky as error:
        error.__traceback__ = None
    del x
    deadline = time.monotonic() + 60  # a worker may still be on its way back to its queue
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(1e-3)
    assert gone() is None


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_an_error_in_a_pack_hook_of_a_recorded_pass(device: str) -> None:
    x = ut.ones(2, device=device, requires_grad=True)
    y = x.exp().sum()
    with ut.autograd.graph.saved_tensors_hooks(fail, lambda t: t), pytest.raises(Unlucky):
        ut.autograd.grad(y, x, create_graph=True)
    (again,) = ut.autograd.grad(x.exp().sum(), x, create_graph=True)
    assert again.tolist() == x.exp().tolist()


def test_a_thread_that_ends_leaves_nothing_behind() -> None:
    def work() -> None:
        x = ut.ones(2, device="sim:0", requires_grad=True)
        y = (x * x).sum()
        nodes.append(weakref.ref(y.grad_fn))
        y.backward(retain_graph=True)

    nodes: list[Any] = []
    work()  # the device has its thread now
    before = threading.active_count()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert threading.active_count() == before and [node() for node in nodes] == [None] * 9


def test_idle_workers_hold_nothing() -> None:
    gc.collect()
    gc.disable()
    x = leaf()
    gone = weakref.ref(x)
    (x * x).to("sim:1").sum().backward()
    del x
    deadline = time.monotonic() + 60
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(1e-3)
    assert gone() is None


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_errors_that_are_no_exceptions_travel_too(error: BaseException) -> None:
    def hook(grad: Any) -> None:
        raise error

    x = leaf()
    x.register_hook(hook)
    with pytest.raises(type(error)):
        (x * 2).sum().backward()
    assert_works("sim:0")


def test_the_caller_returns_after_the_last_node_has_ended() -> None:
    started, ended = threading.Event(), threading.Event()

    def slow(grad: Any) -> None:
        started.set()
        time.sleep(0.05)
        ended.set()

    def fail_later(grad: Any) -> None:
        started.wait(60)
        raise Unlucky("as planned")

    x = leaf("cpu")
    a, b = x.to("sim:0") * 2, x.to("sim:1") * 2
    a.register_hook(slow)
    b.register_hook(fail_later)
    with pytest.raises(Unlucky):
        (a.cpu() + b.cpu()).sum().backward()
    assert ended.is_set()


def test_after_an_error_queued_nodes_are_skipped() -> None:
    ran = []
    x = leaf("cpu")
    first, second = (x.to("sim:0") * 2 for _ in range(2))  # one worker, so one after the other
    for part in (first, second):
        part.register_hook(lambda g: ran.append(1) or fail())
    with pytest.raises(Unlucky):
        (first + second).sum().cpu().backward()
    assert len(ran) == 1 and x.grad is None


# ---- errors of devices


def test_a_device_that_fails_in_backward() -> None:
    x = leaf()
    y = x.exp().sum()
    failure = sim.inject_failure("sim:0", op="multiply")
    with failure, pytest.raises(sim.DeviceFailure, match="sim:0 failed at multiply") as caught:
        y.backward()
    assert any("ExpBackward0, recorded at" in note for note in caught.value.__notes__)
    assert x.grad is None
    assert_works("sim:0")


def test_every_operation_of_a_pass_may_fail() -> None:
    outcomes = []
    for after in range(12):
        x, w = leaf(), leaf("sim:1")
        y = ((x * 3).to("sim:1") * w).tanh().sum()
        try:
            with sim.inject_failure("sim:1", after=after):
                y.backward()
            outcomes.append("passed")
        except sim.DeviceFailure:
            outcomes.append("failed")
    assert outcomes[0] == "failed" and outcomes[-1] == "passed" and outcomes == sorted(outcomes)
    assert_works("sim:1")


def test_memory_that_runs_out_in_backward() -> None:
    x = ut.ones(1000, device="sim:3", requires_grad=True)
    y = (x.exp() * x).sum()
    sim.set_memory_limit("sim:3", sim.memory_allocated("sim:3") + 4500)
    try:
        with pytest.raises(sim.OutOfMemoryError, match="sim:3 out of memory"):
            y.backward()
    finally:
        sim.set_memory_limit("sim:3", None)
    assert_works("sim:3")


# ---- interrupts


def test_an_interrupt_while_the_caller_waits() -> None:
    def interrupt(grad: Any) -> None:
        _thread.interrupt_main()
        time.sleep(0.05)  # the caller gets it while it waits for this node

    x = leaf()
    x.register_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        (x * 2).sum().backward()
        time.sleep(0.1)
    assert current_task() is None and ut.is_grad_enabled()
    assert_works("sim:0")


def test_after_an_interrupt_the_caller_waits_for_nodes_that_run() -> None:
    ended = []

    def interrupt(grad: Any) -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # it ends the caller's wait at once
        time.sleep(0.2)
        ended.append(True)

    x = leaf()
    x.register_hook(interrupt)
    y = (x * 2).sum()
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            y.backward()
    finally:
        signal.signal(signal.SIGINT, former)
    assert ended and x.grad.tolist() == [2, 2, 2]  # the node that was running has ended: nothing goes on unseen


def test_an_interrupt_inside_a_node_of_the_caller() -> None:
    x = leaf("cpu")
    y = x.to("sim:0").cpu()
    y.register_hook(lambda g: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        y.sum().backward()
    assert_works("sim:0")


def test_interrupts_at_random_moments_leave_a_working_engine() -> None:
    main = threading.get_ident()
    caught = 0
    for delay in (0.0005, 0.001, 0.002, 0.003, 0.005, 0.008):
        timer = threading.Timer(delay, lambda: signal.pthread_kill(main, signal.SIGINT))
        try:
            timer.start()  # in here, because the shortest delay may be over before start() returns
            end = time.monotonic() + 1  # Python itself drops an interrupt that comes while a destructor runs
            while time.monotonic() < end:
                x = leaf()
                (x.to("sim:1") * 2).cpu().sum().backward()
            timer.join()
        except KeyboardInterrupt:
            caught += 1
        timer.join()
        assert current_task() is None
        assert_works("sim:0")
    assert caught


# ---- threads that die


def test_a_worker_that_dies_is_noticed_and_replaced() -> None:
    device = namespace_of("sim:2").device
    assert_works("sim:2")
    entered, go_on = threading.Event(), threading.Event()

    def hold(grad: Any) -> None:
        entered.set()
        go_on.wait(60)

    x = leaf("sim:2")
    y = x * 2
    y.register_hook(hold)
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            y.sum().backward()
        except RuntimeError as error:
            outcome.append(error)

    caller = threading.Thread(target=run)
    caller.start()
    entered.wait(60)
    broken: Any = NodeTask(None, y.grad_fn, None)  # a task of no pass: whoever pops it cannot go on
    engine.device_ready_queues[device].push(broken)
    go_on.set()
    caller.join(60)
    assert not caller.is_alive()
    assert "the worker thread of sim:2 has ended" in str(outcome[0])
    assert isinstance(outcome[0].__cause__, AttributeError)
    assert_works("sim:2")


def test_shutdown_ends_the_threads_and_the_next_pass_starts_them_again() -> None:
    assert_works("sim:0")
    threads = list(engine._threads.values())
    engine.shut_down()
    assert not any(thread.is_alive() for thread in threads) and not engine.device_ready_queues
    assert_works("sim:0")


def test_a_shutdown_in_the_middle_of_passes_fails_none() -> None:
    total, errors = leaf("cpu"), []

    def work() -> None:
        try:
            for _ in range(30):
                (total.to("sim:0") * 2).to("sim:1").sum().backward()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        engine.shut_down()
    assert not errors and total.grad.tolist() == [180, 180, 180]


def test_shutdown_waits_for_a_nested_pass() -> None:
    def hook(grad: Any) -> None:
        engine.device_ready_queues[namespace_of("sim:0").device].push_shutdown_task()
        assert_works("sim:0")

    x = leaf()
    x.register_hook(hook)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert_works("sim:0")


def test_exit_on_error_ends_a_pass_while_others_run() -> None:
    task = DeviceGraphTask(GraphTask(False, False, namespace_of("cpu"), None), True, False)
    task.outstanding_tasks, task.exit_on_error = 3, True
    assert not task.task_done()
    task.set_exception(Unlucky("first"))
    task.set_exception(Unlucky("second"))
    assert task.task_done() and task.future_result.completed
    with pytest.raises(Unlucky, match="first"):
        task.future_result.raise_error()
    assert not task.task_done()  # only one thread ends the pass


# ---- processes


def run_program(source: str, timeout: float = 60) -> str:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", textwrap.dedent(source)],
        capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


PASS = """
    import undertow as ut
    def run():
        x = ut.ones(2, device="sim:0", requires_grad=True)
        (x.to("sim:1") * 3).sum().cpu().backward()
        return x.grad.tolist()
"""


def test_a_fork_after_passes_have_run() -> None:
    out = run_program(PASS + """
    import os, warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
    print(run(), flush=True)
    child = os.fork()
    if child == 0:
        print("child", run(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent", run())
    """)  # fmt: skip
    assert out == "[3.0, 3.0]\nchild [3.0, 3.0]\nparent [3.0, 3.0]\n"


def test_a_fork_while_another_thread_works_out_an_attribute() -> None:
    """Python 3.11's own cached_property has a lock for all objects, which the child would never get."""
    out = run_program("""
    import os, threading, warnings
    from undertow.scopes import computed_once
    warnings.simplefilter("ignore", DeprecationWarning)
    inside, on = threading.Event(), threading.Event()
    class Slow:
        wait = True
        @computed_once
        def attribute(self):
            if self.wait:
                inside.set()
                on.wait()
            return [self.wait]
    slow, quick = Slow(), Slow()
    quick.wait = False
    threads = [threading.Thread(target=lambda: slow.attribute)]
    threads[0].start()
    inside.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if quick.attribute == [False] else 1)
    print(os.waitpid(child, 0)[1], quick.attribute is quick.attribute, Slow.attribute.name)
    on.set()
    threads[0].join()
    print(slow.attribute)
    """)
    assert out == "0 True attribute\n[True]\n"


def test_nothing_is_worked_out_under_a_lock_of_python() -> None:
    sources = Path(ut.__file__).parent.rglob("*.py")
    uses = [path for path in sources if re.search(r"@.*\bcached_property", path.read_text())]
    assert uses == []  # but by scopes.computed_once


def test_a_fork_while_other_threads_are_inside_passes() -> None:
    out = run_program(PASS + """
    import os, threading, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    stop = threading.Event()
    def busy():
        while not stop.is_set():
            run()
    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads: thread.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            os._exit(0 if run() == [3, 3] else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads: thread.join()
    print("ok")
    """)  # fmt: skip
    assert out == "ok\n"


def test_the_interpreter_exits_with_idle_workers() -> None:
    assert run_program(PASS + "    print(run())") == "[3.0, 3.0]\n"


def test_the_interpreter_exits_while_a_daemon_thread_is_inside_a_pass() -> None:
    out = run_program(PASS + """
    import threading, time
    def busy():
        while True:
            run()
    threading.Thread(target=busy, daemon=True).start()
    time.sleep(0.05)
    print("bye")
    """)  # fmt: skip
    assert out == "bye\n"


@pytest.mark.parametrize("attempt", range(2))  # threads that end in the right order do not meet
def test_the_interpreter_exits_while_operations_wait_for_another_device(attempt: int) -> None:
    out = run_program("""
    import threading, time
    import undertow as ut
    def busy():
        while True:
            x = ut.ones(2, device="sim:0", requires_grad=True)
            (x.to("sim:1") * 3).sum().backward()
            x.grad.cpu()
    threading.Thread(target=busy, daemon=True).start()
    time.sleep(0.05)
    print("bye")
    """)  # fmt: skip
    assert out == "bye\n"


@pytest.mark.parametrize("attempt", range(3))
def test_the_interpreter_exits_while_threads_use_all_devices(attempt: int) -> None:
    """What is left on two devices may wait for each other in turn: a later one of the first for a later one of both."""
    out = run_program("""
    import random, threading, time
    import undertow as ut
    def busy(seed):
        devices = random.Random(seed)
        while True:
            x = ut.ones(2, requires_grad=True)
            y = x
            for _ in range(4):
                y = y.to(devices.choice(["cpu", "sim:0", "sim:1", "sim:2"])) * 3
            y.sum().backward()
    for seed in range(3):
        threading.Thread(target=busy, args=(seed,), daemon=True).start()
    time.sleep(0.1)
    print("bye")
    """)  # fmt: skip
    assert out == "bye\n"


def test_a_pass_at_interpreter_exit() -> None:
    out = run_program("""
    import atexit
    atexit.register(lambda: print("at exit", run()))  # before undertow's own handler, so it runs after it
    """ + PASS + "    print(run())")  # fmt: skip
    assert out == "[3.0, 3.0]\nat exit [3.0, 3.0]\n"


# ---- destructors


def test_destructors_that_run_passes_do_not_block() -> None:
    """Collections at every allocation, in every thread, run passes over the devices that the thread is using."""
    out = run_program(PASS + """
    import gc, threading, time
    count = [0]
    class Mess:
        def __init__(self, depth):
            self.me = self  # only the collector ends this
            self.depth = depth
            x = ut.ones(2, device="sim:0", requires_grad=True)
            with ut.enable_grad():  # a destructor makes one in whatever mode the code it interrupts has
                self.y = (x.to("sim:1") * x.to("sim:1")).sum().cpu()
        def __del__(self):
            self.y.backward()
            count[0] += 1
            if self.depth:
                Mess(self.depth - 1)
    def work():
        for _ in range(15):
            Mess(1)
            assert run() == [3, 3]
    gc.set_threshold(20, 2, 2)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    for _ in range(5000):  # another thread may be in the middle of a collection, and then this one's does nothing
        gc.collect()
        if count[0] == 90: break
        time.sleep(0.01)
    print(count[0] == 90)
    """)  # fmt: skip
    assert out == "True\n"


def test_a_destructor_under_the_lock_of_a_task_runs_its_pass_on_its_own_thread() -> None:
    seen = []

    def hook(grad: Any) -> None:
        task = current_task()
        with task.mutex:
            x = leaf("sim:0")
            x.register_hook(lambda g: seen.append(threading.current_thread().name))
            with ut.enable_grad():
                y = (x * 2).sum()
            y.backward()

    x = leaf("sim:1")
    x.register_hook(hook)
    (x * 2).sum().backward()
    assert seen == ["undertow-sim:1"]  # not sim:0's worker, which might be waiting for the lock


def test_dropping_a_graph_inside_a_pass() -> None:
    graphs = [(leaf() * 2).exp() for _ in range(3)]
    x = leaf()
    x.register_hook(lambda g: graphs.clear())
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


# ---- for a long time


def count_objects() -> int:
    """How many objects there are after a collection, while none that a device's thread postpones hides them."""
    for _ in range(1000):
        gc.collect()
        hidden, found = gc.get_freeze_count(), len(gc.get_objects())
        if hidden == gc.get_freeze_count() < 1000:  # Python 3.12 itself hides its immortal objects, a few hundred
            break
        time.sleep(1e-3)
    return found


@pytest.mark.slow
def test_ten_thousand_passes_from_eight_threads() -> None:
    gc.unfreeze()  # conftest.py hides what was there before the tests, until a collection in a device's thread
    w = ut.zeros(4, dtype=ut.float64, requires_grad=True)
    v = ut.zeros(4, dtype=ut.float64, device="sim:0", requires_grad=True)
    errors: list[BaseException] = []

    def work(passes: int) -> None:
        try:
            for n in range(passes):
                if n % 10:
                    (w * 2 + w).sum().backward()
                else:
                    (v.to("sim:1") * 3).sum().backward()
        except BaseException as error:
            errors.append(error)

    def run_all(passes: int) -> None:
        threads = [threading.Thread(target=work, args=(passes,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    run_all(10)
    objects, memory, threads = count_objects(), sim.memory_allocated("sim:1"), threading.active_count()
    run_all(1250)
    assert not errors
    assert w.grad.tolist() == [8 * (1125 + 9) * 3.0] * 4 and v.grad.tolist() == [8 * (125 + 1) * 3.0] * 4
    assert count_objects() - objects < 200 and sim.memory_allocated("sim:1") == memory
    assert threading.active_count() == threads


def test_many_threads_with_a_short_switch_interval() -> None:
    sys.setswitchinterval(1e-6)
    w = ut.zeros(2, dtype=ut.float64, requires_grad=True)
    barrier = threading.Barrier(6)

    def work(k: int) -> None:
        barrier.wait(60)
        for _ in range(15):
            parts = [w.to(f"sim:{d}") * (d + 1) for d in range(3)]
            sum(part.cpu() for part in parts).sum().backward()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert w.grad.tolist() == [6 * 15 * 6.0] * 2


# ---- signals, forks and random numbers


def test_signal_handlers_that_use_the_library() -> None:
    """Handlers that draw, record, run passes over the devices in use, and change modes, wherever the program is."""
    out = run_program(PASS + """
    import signal, threading, time
    count = [0]
    def handler(number, frame):
        with ut.enable_grad():  # it interrupts whatever mode the program is in
            assert run() == [3, 3]
        ut.randn(5)
        ut.manual_seed(count[0])
        with ut.no_grad():
            ut.ones(2) * 2
        count[0] += 1
        signal.setitimer(signal.ITIMER_REAL, 1e-3)
    signal.signal(signal.SIGALRM, handler)
    def draw():
        while not done.is_set():
            ut.randn(3)
    done = threading.Event()
    thread = threading.Thread(target=draw)
    thread.start()
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    end = time.monotonic() + 60
    while count[0] < 60 and time.monotonic() < end:
        assert run() == [3, 3]
        ut.randn(1001)
        ut.randperm(50)
        ut.nn.functional.dropout(ut.ones(100))
        assert ut.is_grad_enabled()
    signal.setitimer(signal.ITIMER_REAL, 0)
    done.set()
    thread.join()
    print(count[0] >= 60)
    """, timeout=120)  # fmt: skip
    assert out == "True\n"


def test_a_handler_draws_while_the_first_draw_loads_what_it_needs() -> None:
    out = run_program("""
    import signal
    import undertow as ut
    drawn = []
    def handler(number, frame):
        drawn.append(ut.rand(3).tolist())
        if len(drawn) < 5:
            signal.setitimer(signal.ITIMER_REAL, 2e-3)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 2e-3)
    while len(drawn) < 5:
        ut.rand(3)
    print(len({tuple(numbers) for numbers in drawn}))
    """, timeout=60)  # fmt: skip
    assert out == "5\n"


def test_forks_while_other_threads_draw_and_compute() -> None:
    out = run_program(PASS + """
    import os, threading, time, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    stop = threading.Event()
    own = ut.Generator()
    shared = ut.zeros(2, requires_grad=True)
    def draw():
        while not stop.is_set():
            ut.randn(20001)
            ut.randperm(999, generator=own)
    def accumulate():
        while not stop.is_set():
            (shared * 2).sum().backward()
    threads = [threading.Thread(target=f) for f in (draw, draw, accumulate, accumulate)]
    for thread in threads: thread.start()
    for k in range(25):
        child = os.fork()
        if child == 0:
            ut.randn(3); ut.rand(3, generator=own); ut.manual_seed(1)
            (shared * 2).sum().backward()
            os._exit(0 if run() == [3, 3] else 1)
        end = time.monotonic() + 60
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid: break
            assert time.monotonic() < end, "the child hangs"
            time.sleep(1e-3)
        assert status == 0
    stop.set()
    for thread in threads: thread.join()
    print("ok")
    """, timeout=120)  # fmt: skip
    assert out == "ok\n"


def test_a_destructor_that_draws_while_a_draw_is_interrupted() -> None:
    out = run_program("""
    import gc
    import undertow as ut
    class Mess:
        def __init__(self): self.me = self
        def __del__(self): ut.randn(3); ut.rand(2)
    gc.set_threshold(1, 1, 1)
    for _ in range(200):
        Mess()
        ut.randn(17)
        ut.nn.init.normal_(ut.empty(5))
    print("ok")
    """)  # fmt: skip
    assert out == "ok\n"


def test_a_handler_draws_other_numbers_than_the_draw_it_interrupts() -> None:
    generator = ut.Generator().manual_seed(0)
    ut.randn((), generator=generator)  # one number, and a spare one
    stream: Any = generator._stream
    pairs, inner = stream.normal_pairs, []

    def interrupted(count: int) -> Any:
        stream.normal_pairs = pairs
        inner.append(ut.randn((), generator=generator).item())
        return pairs(count)

    stream.normal_pairs = interrupted
    outer = ut.randn(2, generator=generator).tolist()
    assert len({*outer, *inner}) == 3


# ---- memory that other threads change


@pytest.mark.slow
def test_a_thread_that_changes_every_operand_while_kernels_run() -> None:
    """Results are anything; the program lives, and nothing outside the arrays is read or written."""
    out = run_program("""
    import threading, time
    import numpy as np
    import undertow as ut
    F = ut.nn.functional
    rng = np.random.default_rng(0)
    n = 400
    a = rng.normal(size=(n, n)).astype(np.float32)
    index = rng.integers(0, n, (n, n))
    flags = rng.integers(0, 2, (n, n)).astype(bool)
    x, i, m = ut.from_numpy(a), ut.from_numpy(index), ut.from_numpy(flags)
    image = x[:64, :64].reshape(1, 1, 64, 64)
    calls = [
        lambda: ut.gather(x, 0, i), lambda: ut.zeros(n, n).scatter_add_(0, i, x), lambda: x[i[0], i[1]],
        lambda: ut.zeros(n, n).index_add_(0, i[0], x), lambda: F.embedding(i[0], x), lambda: x.take_along_dim(i, 1),
        lambda: ut.zeros(n, n).scatter_(1, i, x), lambda: x[m], lambda: ut.where(m, x, 0), lambda: x.masked_fill(m, 1),
        lambda: x.index_select(0, i[0]), lambda: ut.bincount(i[0], minlength=n), lambda: x.sort(), lambda: x.topk(5),
        lambda: F.cross_entropy(x, i[0]), lambda: F.nll_loss(x, i[0]), lambda: F.one_hot(i[0] % n, n),
        lambda: F.max_pool2d(image, 2), lambda: F.conv2d(image, image[..., :3, :3]), lambda: F.softmax(x, 1),
        lambda: F.layer_norm(x, (n,)), lambda: x @ x, lambda: x.cumsum(0), lambda: ut.searchsorted(x[0], x[1]),
        lambda: F.gelu(x), lambda: x.put_(i[0], x[0]), lambda: F.embedding_bag(i[:2], x), lambda: x.median(),
    ]
    done = threading.Event()
    def disturb():
        values = np.array([0, n - 1, -1, -n, n, -n - 1, 1 << 40, -(1 << 62)])
        while not done.is_set():
            index[...] = rng.choice(values, (n, n))
            a[...] = rng.choice([0, np.nan, np.inf, 1e38], (n, n))
            flags[...] = rng.integers(0, 2, (n, n))
            index[...] = 0
    def use():
        np.seterr(all="ignore")
        k = 0
        while not done.is_set():
            k += 1
            try:
                calls[k % len(calls)]()
            except (IndexError, RuntimeError, ValueError):
                pass
    threads = [threading.Thread(target=f) for f in (disturb, use, use)]
    for thread in threads: thread.start()
    time.sleep(4)
    done.set()
    for thread in threads: thread.join()
    print("ok")
    """, timeout=120)  # fmt: skip
    assert out == "ok\n"
