"""Streams of GPUs: the order of work, the engine's rules about it, and memory that several streams use.

An emulated stream is a thread. A gate lets a stream stand still until the test opens it, so that a wait that is missing
shows: whoever should have waited is done while the gate is closed, with other numbers. See tests/engine/test_streams.py
for the same rules on simulated devices, whose checker names what is not ordered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import undertow as ut
from tests.cuda.conftest import REAL
from undertow.backend import namespace_of
from undertow.engine import devices, input_buffer
from undertow.engine.engine import Engine
from undertow.engine.input_buffer import accumulation_stream
from undertow.graph.node import stream_of

emulated = pytest.mark.skipif(REAL, reason="gates are the emulated device's")
two_devices = pytest.mark.skipif(REAL, reason="the machine may have one GPU")

factors = count(3)  # another one each time, so that memory that was used before holds no right number


@pytest.fixture(autouse=True)
def back_to_the_default_streams() -> Iterator[None]:
    yield
    if not REAL:
        gates().open_gates()
    ut.cuda.synchronize()


def gates() -> Any:
    from undertow import _cuda

    return _cuda


def stand_still(device: Any = "cuda:0") -> None:
    """Let the current stream stand still: on a GPU of the machine for some milliseconds."""
    if REAL:
        ut.cuda._sleep(10_000_000)
    else:
        gates().close_gate(ut.cuda.current_stream(device).number)


class Gated(ut.autograd.Function):
    """-x, whose gradient it says is the factor; its stream stands still before that is computed."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return -x  # not the numbers of the gradient, which may come to lie in the same memory

    @staticmethod
    def backward(ctx, g):
        stand_still(g.device)
        return g * ctx.factor, None


def leaf(device: str = "cuda:0") -> Any:
    return ut.ones(3, device=device, requires_grad=True)


def side_stream(device: str = "cuda:0") -> Any:
    """A stream that has waited for everything on the default streams so far."""
    stream = ut.cuda.Stream(device)
    for index in range(ut.cuda.device_count()):
        stream.wait_stream(ut.cuda.default_stream(index))
    return stream


def is_done(stream: Any, seconds: float = 30) -> bool:
    """Whether a stream comes to its end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if stream.query():
            return True
        time.sleep(1e-3)
    return False


# ---- the order of work


@emulated
def test_what_nothing_orders_runs_in_any_order() -> None:
    side, default = ut.cuda.Stream(), ut.cuda.current_stream()
    x = ut.zeros(3, device="cuda")
    ut.cuda.synchronize()
    with ut.cuda.stream(side):
        stand_still()
        x += 1
    before = x * 2
    assert is_done(default) and not side.query() and before.tolist() == [0, 0, 0]
    default.wait_stream(side)
    after = x * 2
    assert not default.query()
    gates().open_gates()
    assert after.tolist() == [2, 2, 2]


@emulated
def test_events_are_waited_for_and_asked() -> None:
    side = ut.cuda.Stream()
    started, middle, end = (ut.cuda.Event(enable_timing=True) for _ in range(3))
    with ut.cuda.stream(side):
        started.record()
        stand_still()
        x = ut.full((3,), 7.0, device="cuda")
        middle.record()
        stand_still()
        end.record()
    assert not middle.query() and not end.query()
    with pytest.raises(RuntimeError, match="must be completed"):
        started.elapsed_time(end)
    middle.wait()
    y = x + 1
    gates().open_gates()
    assert y.tolist() == [8, 8, 8]
    end.synchronize()
    assert started.elapsed_time(end) >= 0 and end.query()


def test_events_know_what_they_can_tell() -> None:
    plain, timed = ut.cuda.Event(), ut.cuda.Event(enable_timing=True)
    assert plain.query()
    with pytest.raises(ValueError, match="enable_timing=True"):
        plain.elapsed_time(timed)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(timed)
    event = ut.cuda.current_stream().record_event()
    event.synchronize()
    assert event.query() and event.device == ut.device("cuda:0")


def test_which_stream_is_current() -> None:
    default = ut.cuda.default_stream()
    assert ut.cuda.current_stream() is default and default is ut.cuda.default_stream("cuda:0")
    side = ut.cuda.Stream(priority=-1)
    with ut.cuda.stream(side):
        assert ut.cuda.current_stream() is side
        with ut.cuda.stream(None):
            assert ut.cuda.current_stream() is side
    assert ut.cuda.current_stream() is default
    ut.cuda.set_stream(side)
    assert ut.cuda.current_stream() is side
    ut.cuda.set_stream(default)
    assert side.device == ut.device("cuda:0") and (side.cuda_stream != 0) == REAL


def test_streams_come_back_when_there_are_too_many() -> None:
    made = {id(ut.cuda.Stream()) for _ in range(100)}
    assert len(made) < 40
    for given, priority in ((-1, -1), (-2, -2), (-9, -3), (5, 0)):  # there are some of every priority all the same
        urgent = [ut.cuda.Stream(priority=given) for _ in range(6)]
        assert {stream.priority for stream in urgent} == {priority}
        assert 1 < len(set(map(id, urgent))) <= 6 and (priority == 0) == (id(urgent[0]) in made)
    x = ut.arange(5.0, device="cuda")
    for _ in range(3):
        stream = side_stream()
        with ut.cuda.stream(stream):
            x = x + 1
        ut.cuda.current_stream().wait_stream(stream)
    assert x.tolist() == [3, 4, 5, 6, 7]


# ---- the rules of Note [Device order]: programs, each with the stream that a rule lets wait


def rule_2(factor: int) -> Any:
    """Producer and receiver on two streams of one device."""
    x = leaf()
    first, second = side_stream(), side_stream()
    with ut.cuda.stream(first):
        y = x * 2
    second.wait_stream(first)
    with ut.cuda.stream(second):
        z = Gated.apply(y, factor).sum()
    ut.cuda.current_stream().wait_stream(second)
    z.backward()
    return x, first


def rule_2_at_the_root(factor: int) -> Any:
    """The gradient that a pass starts with comes from the caller's current stream."""
    x = leaf()
    first, second = side_stream(), side_stream()
    with ut.cuda.stream(first):
        y = x * 2
    with ut.cuda.stream(second):
        stand_still()
        y.backward(ut.ones(3, device="cuda:0") * factor)
    ut.cuda.current_stream().wait_stream(first)
    return x, first


def rule_3(factor: int) -> Any:
    """A gradient copied from another device, for a receiver on a stream of its own."""
    x = leaf()
    side = side_stream()
    with ut.cuda.stream(side):
        y = x * 2
        z = y.to("cuda:1")
    Gated.apply(z, factor).sum().backward()
    return x, side


class TwoDevices(ut.autograd.Function):
    """Its node's stream is of cuda:0, and its second output's gradient is on cuda:1."""

    @staticmethod
    def forward(ctx, a):
        return a * 1, a.to("cuda:1")

    @staticmethod
    def backward(ctx, first, second):
        return first * 0 + second.to("cuda:0") * 2


def rule_4(factor: int) -> Any:
    """A gradient made on a stream of cuda:1, for a receiver whose stream is of cuda:0."""
    x = leaf()
    a, b = TwoDevices.apply(x)
    side = side_stream("cuda:1")
    with ut.cuda.stream(side):
        c = Gated.apply(b, factor).sum()
    ut.cuda.current_stream("cuda:1").wait_stream(side)
    (a.sum().to("cuda:1") + c).backward()
    return x, ut.cuda.default_stream("cuda:0")


PROGRAMS = [
    pytest.param(2, rule_2),
    pytest.param(2, rule_2_at_the_root),
    pytest.param(3, rule_3, marks=two_devices),
    pytest.param(4, rule_4, marks=two_devices),
]


def without(rule: int) -> Callable[..., Any]:
    """accumulation_stream with one rule removed: the stream is chosen, but waits for nothing."""

    def mutant(space: Any, producer: Any, consumer: Any) -> Any:
        where, before = accumulation_stream(space, producer, consumer)
        on = [other is not None and other.namespace is space for other in (producer, consumer)]
        found = {(True, True): 2, (False, True): 3, (True, False): 4, (False, False): 5}[on[0], on[1]]
        return where, [] if found == rule else before

    return mutant


@pytest.mark.parametrize(("rule", "program"), PROGRAMS)
@pytest.mark.parametrize("threads", [True, False], ids=["threads", "one thread"])
def test_with_the_rule_the_numbers_are_right(rule: int, program: Callable[[int], Any], threads: bool) -> None:
    factor = next(factors)
    with ut.autograd.set_multithreading_enabled(threads):
        x, _ = program(factor)
    if not REAL:
        gates().open_gates()
    assert x.grad.tolist() == [2 * factor] * 3


@emulated
@pytest.mark.parametrize(("rule", "program"), PROGRAMS)
def test_without_the_rule_they_are_wrong(rule: int, program: Callable[[int], Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(input_buffer, "accumulation_stream", without(rule))
    factor = next(factors)
    x, stream = program(factor)
    assert is_done(stream), "nobody can tell the rule from its absence"
    with ut.cuda.stream(stream):
        assert x.grad.tolist() != [2 * factor] * 3


# ---- backward runs on the stream forward ran on, and the caller waits for what it leaves behind


def on_a_side_stream(factor: int) -> tuple[Any, Any, Any]:
    x, side = leaf(), side_stream()
    with ut.cuda.stream(side):
        loss = Gated.apply(x, factor).sum()
    ut.cuda.current_stream().wait_stream(side)
    return x, loss, side


def test_backward_runs_on_the_stream_of_forward(monkeypatch: Any) -> None:
    x, loss, side = on_a_side_stream(2)
    seen: list[Any] = []
    x.register_hook(lambda g: seen.append(ut.cuda.current_stream()))
    loss.backward()
    assert seen == [side] and stream_of(loss.grad_fn) is side
    assert ut.cuda.current_stream() is ut.cuda.default_stream()
    monkeypatch.setattr(devices, "choose_streams", lambda streams: None)
    x, loss, side = on_a_side_stream(2)
    x.register_hook(lambda g: seen.append(ut.cuda.current_stream()))
    loss.backward()
    assert seen[1] is not side


@pytest.mark.parametrize("asked", ["accumulated", "captured"])
def test_the_caller_may_use_the_gradients_at_once(asked: str) -> None:
    factor = next(factors)
    x, loss, _ = on_a_side_stream(factor)
    if asked == "accumulated":
        loss.backward()
        used = x.grad * 1
    else:
        used = ut.autograd.grad(loss, x)[0] * 1
    if not REAL:
        gates().open_gates()
    assert used.tolist() == [factor] * 3


@emulated
def test_without_the_wait_at_the_end_of_a_pass_they_are_wrong(monkeypatch: Any) -> None:
    monkeypatch.setattr(Engine, "_join_leaf_streams", lambda self, task: None)
    factor = next(factors)
    x, loss, _ = on_a_side_stream(factor)
    loss.backward()
    used = x.grad * 1
    assert is_done(ut.cuda.current_stream()) and used.tolist() != [factor] * 3


def test_a_pass_on_the_current_stream_stays_with_its_caller(monkeypatch: Any) -> None:
    from undertow.engine import engine

    handed: list[Any] = []
    run = engine.Engine.execute_with_graph_task
    monkeypatch.setattr(
        engine.Engine, "execute_with_graph_task", lambda self, *args: (handed.append(1), run(self, *args))[1]
    )
    side = side_stream()
    for stream, is_handed in ((ut.cuda.default_stream(), False), (side, False), (side, True)):
        handed.clear()
        with ut.cuda.stream(stream):
            x = leaf()
            loss = (x * 2 + x).sum()
            if not is_handed:
                loss.backward()
        if is_handed:
            ut.cuda.current_stream().wait_stream(side)
            loss.backward()
        ut.cuda.current_stream().wait_stream(side)
        assert bool(handed) is is_handed and x.grad.tolist() == [3, 3, 3]


# ---- memory


def test_memory_belongs_to_its_stream() -> None:
    side = side_stream()
    with ut.cuda.stream(side):
        a = ut.ones(5000, device="cuda")
        address = a._array.address
    del a
    b = ut.ones(5000, device="cuda")
    assert b._array.address != address  # its stream may still be writing there
    with ut.cuda.stream(side):
        c = ut.ones(5000, device="cuda")
        assert c._array.address == address
    side.synchronize()


@emulated
def test_memory_that_another_stream_uses_waits_for_it() -> None:
    side = side_stream()
    x = ut.ones(7000, device="cuda")
    address = x._array.address
    side.wait_stream(ut.cuda.current_stream())
    with ut.cuda.stream(side):
        stand_still()
        y = x * 2
    x.record_stream(side)
    before = ut.cuda.memory_stats()["blocks_held_for_streams"]
    del x
    assert ut.cuda.memory_stats()["blocks_held_for_streams"] == before + 1
    other = ut.zeros(7000, device="cuda")
    assert other._array.address != address
    gates().open_gates()
    side.synchronize()
    assert y.sum().item() == 14000
    again = ut.zeros(7000, device="cuda")
    assert again._array.address == address and ut.cuda.memory_stats()["blocks_held_for_streams"] == 0


def across_two_streams() -> Any:
    """The gradient of y is made on one stream, and read on another, which stands still while memory is reused."""
    x = ut.ones(9000, device="cuda", requires_grad=True)
    first, second = side_stream(), side_stream()
    with ut.cuda.stream(first):
        y = Gated.apply(x, 2)
    second.wait_stream(first)
    with ut.cuda.stream(second):
        loss = (y * 3).sum()
    ut.cuda.current_stream().wait_stream(second)
    scratch = []

    def reuse(gradient: Any) -> None:
        with ut.cuda.stream(second):
            scratch.extend([ut.full((9000,), 1000.0 + k, device="cuda") for k in range(4)])

    x.register_hook(reuse)
    loss.backward()
    assert is_done(second) and len(scratch) == 4
    gates().open_gates()
    ut.cuda.synchronize()
    return x.grad.unique().tolist()


@emulated
def test_gradients_that_cross_streams_keep_their_memory(monkeypatch: Any) -> None:
    assert across_two_streams() == [6]
    monkeypatch.setattr(ut.cuda.Stream, "keep", lambda self, array: None)
    assert across_two_streams() != [6]


def test_all_the_memory_comes_back() -> None:
    ut.cuda.synchronize()
    before = ut.cuda.memory_allocated()
    for _ in range(20):
        x, loss, _ = on_a_side_stream(2)
        loss.backward()
        x.grad.record_stream(ut.cuda.current_stream())
        if not REAL:
            gates().open_gates()
    del x, loss
    ut.cuda.synchronize()
    assert ut.cuda.memory_allocated() == before


# ---- threads and models


@pytest.mark.parametrize("mode", ["queue", "direct"])
def test_many_streams_and_threads_train_the_same(mode: str) -> None:
    import threading

    def train(seed: int) -> list[float]:
        stream = side_stream()
        with ut.cuda.stream(stream):
            generator = ut.Generator().manual_seed(seed)
            w = ut.randn(4, 4, generator=generator).cuda().requires_grad_()
            x = ut.randn(8, 4, generator=generator).cuda()
            losses = []
            for _ in range(5):
                loss = ((x @ w).tanh() - 0.5).square().mean()
                (g,) = ut.autograd.grad(loss, w)
                w = (w - 0.1 * g).detach().requires_grad_()
                losses.append(loss.detach())
            return [loss.item() for loss in losses]

    ut.cuda.set_launch_mode(mode)
    try:
        alone = [train(seed) for seed in range(3)]
        together: dict[int, Any] = {}
        threads = [threading.Thread(target=lambda s=s: together.update({s: train(s)})) for s in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [together[seed] for seed in range(3)] == alone
    finally:
        ut.cuda.set_launch_mode("queue")


@two_devices
def test_a_pipeline_over_two_devices_and_four_streams() -> None:
    ut.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)  # both micro-batches use the same leaves
    w0, w1 = leaf("cuda:0"), leaf("cuda:1")
    streams = {(d, k): side_stream(f"cuda:{d}") for d in range(2) for k in range(2)}
    losses = []
    for k in range(2):
        with ut.cuda.stream(streams[0, k]), ut.cuda.stream(streams[1, k]):
            batch = ut.full((3,), k + 1.0, device="cuda:0")
            losses.append(((batch * w0).to("cuda:1") * w1).sum())
    for k, loss in enumerate(losses):
        if k:  # the gradients of the first batch are on its streams
            streams[0, k].wait_stream(streams[0, 0])
            streams[1, k].wait_stream(streams[1, 0])
        with ut.cuda.stream(streams[0, k]), ut.cuda.stream(streams[1, k]):
            loss.backward()
    for (device, _), stream in streams.items():
        ut.cuda.current_stream(f"cuda:{device}").wait_stream(stream)
    ut.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
    assert w0.grad.tolist() == w1.grad.tolist() == [3, 3, 3]


@two_devices
def test_what_waits_for_what() -> None:
    space = namespace_of("cuda:0")
    default, producer, consumer, elsewhere = (
        space.default_stream, ut.cuda.Stream(0), ut.cuda.Stream(0), ut.cuda.Stream(1)
    )  # fmt: skip
    if producer is consumer:
        pytest.skip("all streams are taken")
    assert accumulation_stream(space, producer, consumer) == (consumer, [producer])
    assert accumulation_stream(space, None, consumer) == (consumer, [default])
    assert accumulation_stream(space, elsewhere, consumer) == (consumer, [elsewhere, default])
    assert accumulation_stream(space, producer, None) == (default, [producer])
    assert accumulation_stream(space, elsewhere, elsewhere) == (default, [elsewhere])
