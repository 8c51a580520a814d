"""Interrupts: wherever one comes, the engine works on, no lock is held, and every mode is what it was."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.engine.interruptions import at_every_event
from undertow import sim
from undertow.autograd import forward_ad
from undertow.autograd.checkpoint import checkpoint, recomputation
from undertow.autograd.forward import level
from undertow.autograd.functional.recording import recording
from undertow.backend.streams import chosen_streams
from undertow.compiled import core
from undertow.engine.engine import engine
from undertow.engine.tasks import current_task
from undertow.engine.watch import watches_of_pass
from undertow.instrument.debug_lines import debug
from undertow.instrument.flop_counter import FlopCounterMode
from undertow.instrument.profiler.composites import listener_of_thread
from undertow.instrument.profiler.recorder import recorder_of_thread
from undertow.instrument.replay.watching import Watching
from undertow.masked.nan_safe import around_pass
from undertow.modes import State, anomaly, current
from undertow.scopes import Scope, call_with, common_lock, held

#: where a tracer raises. Without the compiled core modes and locks are Python's own, which it can keep from ending by
#: raising at the line that ends their block, or where a call returns (a signal cannot). Then passes alone are tested,
#: and modes at fewer events.
EVENTS = ("line", "call", "return") if core is not None else ("call", "return")
needs_core = pytest.mark.skipif(core is None, reason="modes withstand interrupts if they are compiled")


def everything_switched() -> dict[str, Any]:
    """All modes of this thread and of the program."""
    state = current()
    return {
        **{name: getattr(state, name) for name in State.FIELDS},
        "grad mode": state.grad_mode, "task": current_task(), "anomaly": anomaly(), "tangents": level.enabled.get(),
        "level": forward_ad.current_level(), "streams": dict(chosen_streams()), "errors": np.geterr(),
        "early stop": recomputation.early_stop_choice.get(), "debug": recomputation.debug_choice.get(),
        "recorder": recorder_of_thread(), "listener": listener_of_thread.get(), "watches": watches_of_pass(),
        "group": recomputation._group.get(), "safe": around_pass.get(), "print": ut.tensor([1 / 3]).__repr__(),
        "sim": {name: getattr(sim.options, name) for name in vars(sim.Options) if name[0] != "_"},
    }  # fmt: skip


def assert_works() -> None:
    x = ut.ones(3, device="sim:0", requires_grad=True)
    (x * x).to("sim:1").sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def assert_unharmed(before: dict[str, Any], n: int | str) -> None:
    now = everything_switched()
    changed = {name: (before[name], now[name]) for name in now if now[name] != before[name]}
    assert not changed, f"interrupted at event {n}: {changed}"
    assert not common_lock._is_owned(), f"interrupted at event {n}"  # type: ignore[attr-defined]
    assert not engine._start_lock._is_owned(), f"interrupted at event {n}"  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt in a destructor or a generator that ends is told, and dropped, by Python itself."""
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)


# ---- at every event of a program


def in_a_process_of_its_own(call: str, **environment: str) -> None:
    """Call a function of this file where no threads of other tests take part in what a tracer sees, or get in its way.

    A child that hangs says where, and is ended.
    """
    code = f"import sys, {__name__} as tests; sys.unraisablehook = lambda told: None; tests.{call}"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", CHILD.format(limit=LIMIT, code=code)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=LIMIT + 60, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


#: how many seconds a child may take; most take one
LIMIT = 240
CHILD = """
import faulthandler
faulthandler.dump_traceback_later({limit}, exit=True)
{code}
"""


def leaf(device: str = "cpu") -> Any:
    return ut.ones(3, device=device, requires_grad=True)


def a_pass() -> None:
    (leaf() * 2).sum().backward()


def a_pass_with_hooks() -> None:
    x = leaf()
    y = x * x
    y.register_hook(lambda g: g * 2)
    x.register_post_accumulate_grad_hook(lambda p: None)
    ut.autograd.graph.register_multi_grad_hook([x, y], lambda grads: None)
    y.grad_fn.register_prehook(lambda grads: None)
    y.sum().backward()


def a_recorded_pass() -> None:
    x = leaf()
    (grad,) = ut.autograd.grad((x**3).sum(), x, create_graph=True)
    grad.sum().backward()


def a_nested_pass() -> None:
    x = leaf()
    y = x * 2

    @ut.enable_grad()
    def nested(grad: Any) -> None:
        (leaf() * 3).sum().backward()

    y.register_hook(nested)
    y.sum().backward()


def a_checkpoint() -> None:
    x = leaf()
    checkpoint(lambda t: (t * t).exp(), x, use_reentrant=False).sum().backward()


def a_reentrant_checkpoint() -> None:
    checkpoint(lambda t: (t * t).exp(), leaf(), use_reentrant=True).sum().backward()


def a_device_pass() -> None:
    (leaf("sim:0").to("sim:1") * 2).cpu().sum().backward()


class Doubled(ut.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    @ut.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


def a_function() -> None:
    Doubled.apply(leaf()).sum().backward()


def transforms() -> None:
    ut.func.vmap(ut.func.grad(lambda t: (t * t).sum()))(ut.ones(2, 3))


def a_jvp() -> None:
    ut.func.jvp(lambda t: t.sin(), (ut.ones(2),), (ut.ones(2),))


def a_jacobian() -> None:
    ut.autograd.functional.jacobian(lambda t: t * t, ut.ones(2))


def mixed_precision() -> None:
    with ut.autocast("cpu", dtype=ut.float16):
        a = ut.ones(2, 2, requires_grad=True)
        (a @ a).sum().backward()


def an_optimizer() -> None:
    p = leaf()
    (p * 2).sum().backward()
    ut.optim.SGD([p], lr=0.1).step()


def random_numbers() -> None:
    ut.randn(3)
    ut.nn.functional.dropout(ut.ones(4), 0.5)


PROGRAMS = [a_pass, a_pass_with_hooks, a_recorded_pass, a_nested_pass, a_checkpoint, a_reentrant_checkpoint, a_function,
            transforms, a_jvp, a_jacobian, mixed_precision, an_optimizer, random_numbers]  # fmt: skip
WITHOUT_MODES = [a_pass, a_pass_with_hooks, a_recorded_pass]


def a_few(programs: list[Callable[[], None]]) -> list[list[Callable[[], None]]]:
    """Those that share a process, which takes as long to start as one of them to run."""
    return [programs[start : start + 4] for start in range(0, len(programs), 4)]


@pytest.mark.parametrize(
    "programs",
    a_few(PROGRAMS if core is not None else WITHOUT_MODES),
    ids=lambda few: "+".join(f.__name__ for f in few),
)
def test_an_interrupt_at_every_event(programs: list[Callable[[], None]]) -> None:
    for_the_child = ", ".join(f"tests.{program.__name__}" for program in programs)
    in_a_process_of_its_own(f"interrupt_at_every_event({for_the_child})")


def interrupt_at_every_event(*programs: Callable[[], None]) -> None:
    assert_works()
    for program in programs:
        program()
        before = everything_switched()
        number = 0
        for number in at_every_event(program, EVENTS):
            assert_unharmed(before, f"{number} of {program.__name__}")
        assert number > 10, program
        assert_works()


def test_an_interrupt_at_events_of_a_device_pass() -> None:
    in_a_process_of_its_own("interrupt_a_device_pass()")


def interrupt_a_device_pass() -> None:
    """Other threads take part, so the number of events varies, and the engine is used after each."""
    a_device_pass()
    before = everything_switched()
    number = 0
    for number in at_every_event(a_device_pass, EVENTS):
        assert_unharmed(before, number)
        assert_works()
    assert number > 500


# ---- modes


MODES: dict[str, Callable[[], Any]] = {
    "no_grad": ut.no_grad,
    "enable_grad": ut.enable_grad,
    "set_grad_enabled": lambda: ut.set_grad_enabled(False),
    "inference_mode": ut.inference_mode,
    "multithreading": lambda: ut.autograd.set_multithreading_enabled(False),
    "view tracking": lambda: ut.autograd.force_original_view_tracking(False),
    "layout": lambda: ut.autograd.enforce_grad_layout_policy(False),
    "recording": recording,
    "saved_tensors_hooks": lambda: ut.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "no hooks": lambda: ut.autograd.graph.disable_saved_tensors_hooks("none"),
    "mutation": ut.autograd.graph.allow_mutation_on_saved_tensors,
    "anomaly": lambda: ut.autograd.set_detect_anomaly(True),
    "dual_level": forward_ad.dual_level,
    "own_level": forward_ad.own_level,
    "tangents off": lambda: forward_ad.set_fwd_grad_enabled(False),
    "autocast": lambda: ut.autocast("cpu", dtype=ut.float16),
    "operation mode": ut.OpMode,
    "nan_safe": ut.masked.nan_safe,
    "stream": lambda: sim.stream(SIDE),
    "configure": lambda: sim.configure(seed=3, real_time=True),
    "early stop": lambda: recomputation.set_checkpoint_early_stop(False),
    "debug": lambda: recomputation.set_checkpoint_debug_enabled(True),
    "group": recomputation.GraphExecGroup,
    "printoptions": lambda: ut.printoptions(precision=2),
    "fork_rng": ut.random.fork_rng,
    "cached": ut.nn.utils.parametrize.cached,
    "profile": ut.profiler.profile,
    "profile of everything": lambda: ut.profiler.profile(profile_memory=True, with_modules=True, with_stack=True),
    "autograd's profile": ut.autograd.profiler.profile,
    "flop counter": lambda: FlopCounterMode(display=False),
    "printed lines": lambda: debug(3, io.StringIO()),
    "watching": lambda: Watching(None),
}
SIDE = sim.Stream("sim:0")


@needs_core
def test_an_interrupt_at_every_event_of_a_mode() -> None:
    in_a_process_of_its_own("interrupt_every_mode()")


def interrupt_every_mode() -> None:
    for name, mode in MODES.items():
        try:
            interrupt_mode(mode)
        except BaseException as error:
            raise AssertionError(f"the mode is {name}") from error


def test_an_interrupt_in_a_mode_without_the_core() -> None:
    in_a_process_of_its_own("interrupt_modes_that_are_blocks()", UNDERTOW_PURE="1")


def interrupt_modes_that_are_blocks() -> None:
    """But for those that a call alone switches, which may be interrupted between the call and the block.

    What else is no ContextVar may hold locks, which are Python's own: at their lines only a tracer raises, no signal.
    """
    tried = 0
    for name, mode in MODES.items():
        made = mode()
        if getattr(made, "at_once", False):
            made.__exit__(None, None, None)
        else:
            is_simple = isinstance(getattr(made, "variable", None), ContextVar)
            try:
                interrupt_mode(mode, ("line", "call") if is_simple else ("call",))
            except BaseException as error:
                raise AssertionError(f"the mode is {name}") from error
            tried += 1
    assert tried > 20


def interrupt_mode(mode: Callable[[], Any], events: tuple[str, ...] = EVENTS) -> None:
    def program() -> None:
        with mode():
            pass

    program()
    before = everything_switched()
    for n in at_every_event(program, events):
        assert_unharmed(before, n)
        assert not ut.nn.utils.parametrize.Cache.depth


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_mode_ends_with_its_block_and_with_an_error(mode: Callable[[], Any]) -> None:
    before = everything_switched()
    with mode():
        pass
    assert everything_switched() == before
    with pytest.raises(ZeroDivisionError), mode():
        raise ZeroDivisionError
    assert everything_switched() == before


@needs_core
def test_a_module_has_its_own_tensors_after_an_interrupted_functional_call() -> None:
    in_a_process_of_its_own("interrupt_a_functional_call()")


def interrupt_a_functional_call() -> None:
    layer = ut.nn.Linear(2, 1)
    own, other = dict(layer.named_parameters()), {"weight": ut.ones(1, 2), "bias": ut.ones(1)}
    number = 0
    for number in at_every_event(lambda: ut.func.functional_call(layer, other, (ut.ones(2),)), EVENTS):
        assert all(own[name] is p for name, p in layer.named_parameters()), number
    assert number > 10


def test_modes_that_are_entered_by_hand_last() -> None:
    """As programs do that want a mode to the end: `autocast("cpu").__enter__()`."""
    try:
        ut.no_grad().__enter__()
        assert not ut.is_grad_enabled()
        ut.set_grad_enabled(True)
        assert ut.is_grad_enabled()
    finally:
        ut.set_grad_enabled(True)


# ---- what they are made of


class Variable:
    """A value that is set in two steps, and interrupted between them."""

    def __init__(self) -> None:
        self.first = self.second = 0
        self.interrupts = 0

    def get(self) -> int:
        assert self.first == self.second
        return self.first

    def set(self, value: int) -> None:
        self.first = value
        if self.interrupts:
            self.interrupts -= 1
            raise ZeroDivisionError
        self.second = value


def test_a_variable_whose_setting_is_interrupted() -> None:
    class Seven(Scope):
        variable = Variable()

        def inside(self, outer: int) -> int:
            return 7

    variable = Seven.variable
    variable.interrupts = 1
    with pytest.raises(ZeroDivisionError), Seven():
        raise AssertionError("it was not entered")
    assert variable.get() == 0
    if core is not None:
        with pytest.raises(ZeroDivisionError), Seven():
            variable.interrupts = 1
        assert variable.get() == 0
    with pytest.raises(ZeroDivisionError):
        call_with(variable, 5, lambda: 1 / 0)
    assert variable.get() == 0 and call_with(variable, 5, variable.get) == 5


def test_a_scope_whose_end_cannot_be_computed() -> None:
    class Odd(Scope):
        variable = Variable()

        def inside(self, outer: int) -> int:
            return 7

        def after(self, inner: int, outer: int) -> int:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Odd():
        assert Odd.variable.get() == 7
    assert Odd.variable.get() == 0


@pytest.mark.skipif(core is None, reason="without the core nothing is read so often")
def test_call_with_leaves_a_variable_unset_that_was_not_set() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    assert call_with(variable, 1, variable.get) == 1 and variable not in copy_context()
    with pytest.raises(ZeroDivisionError):
        call_with(variable, 1, lambda: 1 / 0)
    assert variable not in copy_context()
    variable.set(2)
    assert call_with(variable, 1, variable.set, 3) is not None and variable.get() == 2


def test_call_with_passes_everything_on() -> None:
    variable = Variable()
    assert call_with(variable, 1, lambda *a, **k: (a, k), 1, 2, x=3) == ((1, 2), {"x": 3})
    with pytest.raises(TypeError):
        call_with(variable)


def test_a_lock_is_held_in_a_block() -> None:
    lock: Any = threading.RLock()
    with held(lock), held(lock):
        assert lock._is_owned()
    assert not lock._is_owned()
    with pytest.raises(ZeroDivisionError), held(lock):
        raise ZeroDivisionError
    assert not lock._is_owned()


# ---- at random moments


@pytest.fixture
def alarms() -> Iterator[Callable[[float], None]]:
    """Raise KeyboardInterrupt after so many seconds."""
    armed = [False]

    def handler(number: int, frame: Any) -> None:
        if armed[0]:  # not if it comes after all, late
            armed[0] = False
            raise KeyboardInterrupt

    def set_alarm(delay: float) -> None:
        armed[0] = bool(delay)
        signal.setitimer(signal.ITIMER_REAL, delay)

    former = signal.signal(signal.SIGALRM, handler)
    yield set_alarm
    set_alarm(0)
    signal.signal(signal.SIGALRM, former)


def repeat(program: Callable[[], None], end: float) -> None:
    """Not in the block that catches the interrupt: see Note [Loops in blocks]."""
    while time.monotonic() < end:
        program()


@pytest.mark.parametrize(
    "program", [*PROGRAMS, a_device_pass] if core is not None else WITHOUT_MODES, ids=lambda f: f.__name__
)
def test_an_interrupt_at_random_moments(program: Callable[[], None], alarms: Callable[[float], None]) -> None:
    program()
    before = everything_switched()
    rng = np.random.default_rng(0)
    caught = 0
    for delay in rng.uniform(1e-5, 3e-3, 40):
        end = time.monotonic() + 1  # Python drops an interrupt that comes while a destructor runs
        try:
            alarms(delay)
            repeat(program, end)
            alarms(0)
        except KeyboardInterrupt:
            caught += 1
        assert_unharmed(before, caught)
    assert caught
    assert_works()


@needs_core
def test_interrupts_that_raise_in_every_mode_at_once(alarms: Callable[[float], None]) -> None:
    def program() -> None:
        for mode in MODES.values():
            with mode():
                pass

    before = everything_switched()
    for delay in np.random.default_rng(1).uniform(1e-5, 5e-3, 150):
        end = time.monotonic() + 1
        try:
            alarms(delay)
            repeat(program, end)
            alarms(0)
        except KeyboardInterrupt:
            pass
        assert_unharmed(before, 0)


# ---- a caller that waits


def test_an_interrupt_ends_a_nested_pass_on_another_thread(alarms: Callable[[float], None]) -> None:
    """The caller waits in the re-entrant pool; when its backward() has raised, nothing runs any more."""
    deep, beats = 200, [0]

    class Nested(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, left: int) -> Any:
            ctx.left = left
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            if ctx.left:
                with ut.enable_grad():
                    Nested.apply(leaf(), ctx.left - 1).sum().backward()
            else:
                assert threading.current_thread() is not threading.main_thread()
                alarms(0.01)
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    beats[0] += 1
                    time.sleep(1e-3)
            return grad, None

    with pytest.raises(KeyboardInterrupt):
        Nested.apply(leaf(), deep).sum().backward()
    seen = beats[0]
    time.sleep(0.05)
    assert seen == beats[0] and seen < 50_000
    assert current_task() is None and ut.is_grad_enabled()
    with_nesting = Nested.apply(leaf(), 0)
    assert with_nesting is not None
    assert_works()


def test_an_interrupted_job_leaves_the_interpreter_as_it_was() -> None:
    """In a process of its own: where something is left to raise in a thread, one that is profiled never gets on."""
    program = """
    import contextvars, sys, threading
    from undertow.engine import workers

    job = workers._Job(contextvars.copy_context(), lambda: job.interrupt(), ())
    thread = threading.Thread(target=job.run)
    thread.start()
    thread.join()
    assert job.done.is_set() and job.interrupted
    sys.setprofile(lambda frame, event, arg: None)
    print(sorted([3, 1], key=lambda x: x))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "[1, 3]\n"
