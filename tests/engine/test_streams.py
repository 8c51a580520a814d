"""The engine's rules about streams. For each, a program that passes with it, and that the checker stops without it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import undertow as ut
from undertow import sim
from undertow.backend import cpu, namespace_of
from undertow.backend.simulated import StreamOrderError
from undertow.engine import devices, input_buffer
from undertow.engine.engine import Engine
from undertow.engine.input_buffer import DeviceInputBuffer, accumulation_stream
from undertow.graph.node import stream_of


def leaf(device: str = "sim:0") -> Any:
    return ut.ones(3, device=device, requires_grad=True)


def side_stream(device: str = "sim:0") -> Any:
    """A stream that has waited for everything on the default streams so far."""
    stream = sim.Stream(device)
    for index in range(3):
        stream.wait_stream(sim.default_stream(f"sim:{index}"))
    return stream


# ---- the rules of Note [Device order], in programs


def rule_2() -> Any:
    """Producer and receiver on two streams of one device."""
    x = leaf()
    first, second = side_stream(), side_stream()
    with sim.stream(first):
        y = x * 2
    second.wait_stream(first)
    with sim.stream(second):
        z = (y * 3).sum()
    sim.current_stream("sim:0").wait_stream(second)
    z.backward()
    return x


def rule_2_at_the_root() -> Any:
    """The gradient that a pass starts with comes from the caller's current stream."""
    x = leaf()
    first, second = side_stream(), side_stream()
    with sim.stream(first):
        y = x * 2
    with sim.stream(second):
        y.backward(ut.full((3,), 3.0, device="sim:0"))
    sim.current_stream("sim:0").wait_stream(second)
    return x


def rule_3() -> Any:
    """A gradient copied from another device, for a receiver on a stream of its own."""
    x = leaf()
    side = side_stream()
    with sim.stream(side):
        y = x * 2
        z = y.to("sim:1")
    (z * 3).sum().backward()
    return x


class TwoDevices(ut.autograd.Function):
    """Its node's stream is of sim:0, and its second output's gradient is on sim:1."""

    @staticmethod
    def forward(ctx, a):
        return a * 1, a.to("sim:1")

    @staticmethod
    def backward(ctx, first, second):
        return first + second.to("sim:0") * 5


def rule_4() -> Any:
    """A gradient made on a stream of sim:1, for a receiver whose stream is of sim:0."""
    x = leaf()
    a, b = TwoDevices.apply(x)
    side = side_stream("sim:1")
    with sim.stream(side):
        c = (b * 1).sum()
    sim.current_stream("sim:1").wait_stream(side)
    (a.sum().to("sim:1") + c).backward()
    return x


PROGRAMS = {2: [rule_2, rule_2_at_the_root], 3: [rule_3], 4: [rule_4]}
CASES = [(rule, program) for rule, programs in PROGRAMS.items() for program in programs]


def rule_for(space: Any, producer: Any, consumer: Any) -> int:
    on_producer = producer is not None and producer.namespace is space
    on_consumer = consumer is not None and consumer.namespace is space
    if space is cpu:
        return 1
    return {(True, True): 2, (False, True): 3, (True, False): 4, (False, False): 5}[on_producer, on_consumer]


def without(rule: int) -> Callable[..., Any]:
    """accumulation_stream with one rule removed: the stream is chosen, but waits for nothing."""

    def mutant(space: Any, producer: Any, consumer: Any) -> Any:
        if rule_for(space, producer, consumer) != rule:
            return accumulation_stream(space, producer, consumer)
        return (consumer if rule in (2, 3) else space.default_stream), []

    return mutant


@pytest.mark.parametrize("threads", [True, False], ids=["threads", "one thread"])
@pytest.mark.parametrize(("rule", "program"), CASES)
def test_with_the_rule_the_program_passes(rule: int, program: Callable[[], Any], threads: bool) -> None:
    with ut.autograd.set_multithreading_enabled(threads):
        assert program().grad.tolist() == [6, 6, 6]


@pytest.mark.parametrize(("rule", "program"), CASES)
def test_without_the_rule_the_checker_stops_it(rule: int, program: Callable[[], Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(input_buffer, "accumulation_stream", without(rule))
    with pytest.raises(StreamOrderError):
        program().grad.tolist()


# ---- the rules, one call each


def buffer_that_took(grads: list[Any], producer: Any, consumer: Any) -> DeviceInputBuffer:
    buffer = DeviceInputBuffer(1, None, deterministic=False)
    for grad in grads:
        buffer.take(0, grad, producer, consumer, (0, 0))
    return buffer


def test_rule_1_gradients_on_the_cpu_need_no_stream() -> None:
    assert accumulation_stream(cpu, None, sim.Stream("sim:0")) == (None, [])
    total = buffer_that_took([cpu.ones(2), cpu.ones(2)], None, None)
    assert total.slots[0].tolist() == [2, 2]


def test_rule_5_a_gradient_of_a_third_device_is_added_on_its_default_stream(monkeypatch: Any) -> None:
    space = namespace_of("sim:2")
    producer, consumer, side = sim.Stream("sim:0"), sim.Stream("sim:1"), side_stream("sim:2")

    def add_two() -> Any:
        grads = [space.ones(2), space.ones(2)]
        side.wait_stream(space.default_stream)
        with sim.stream(side):  # whatever stream the thread happens to be on
            return buffer_that_took(grads, producer, consumer).slots[0]

    assert accumulation_stream(space, producer, consumer) == (space.default_stream, [producer])
    assert (add_two() + 1).tolist() == [3, 3]  # read on the default stream, as the receiver will
    monkeypatch.setattr(input_buffer, "accumulation_stream", lambda *_: (None, []))
    with pytest.raises(StreamOrderError):
        add_two() + 1


def test_what_waits_for_what() -> None:
    space = namespace_of("sim:0")
    default, producer, consumer, elsewhere = space.default_stream, *map(sim.Stream, ("sim:0", "sim:0", "sim:1"))
    assert accumulation_stream(space, producer, consumer) == (consumer, [producer])
    assert accumulation_stream(space, consumer, consumer) == (consumer, [])
    assert accumulation_stream(space, None, consumer) == (consumer, [default])
    assert accumulation_stream(space, elsewhere, consumer) == (consumer, [elsewhere, default])
    assert accumulation_stream(space, producer, None) == (default, [producer])
    assert accumulation_stream(space, elsewhere, elsewhere) == (default, [elsewhere])


# ---- backward runs on the stream forward ran on


def forward_on_a_side_stream() -> tuple[Any, Any, list[Any]]:
    x, seen = leaf(), []
    side = side_stream()
    with sim.stream(side):
        y = x.exp()
        y.register_hook(lambda g: seen.append(sim.current_stream("sim:0")))
        z = y.sum()
    return z, side, seen


def test_backward_runs_on_the_stream_of_forward() -> None:
    z, side, seen = forward_on_a_side_stream()
    z.backward(ut.ones((), device="sim:0"))  # the caller is on the default stream, which has waited for nothing
    assert seen == [side] and stream_of(z.grad_fn) is side


def test_without_that_rule_the_checker_stops_it(monkeypatch: Any) -> None:
    z, _, _ = forward_on_a_side_stream()
    monkeypatch.setattr(devices, "choose_streams", lambda streams: None)
    with pytest.raises(StreamOrderError):
        z.backward(ut.ones((), device="sim:0"))


def test_the_callers_stream_is_its_own_again() -> None:
    z, _, _ = forward_on_a_side_stream()
    other = side_stream()
    with sim.stream(other):
        z.backward(ut.ones((), device="sim:0"))
        assert sim.current_stream("sim:0") is other


# ---- the caller waits for what a pass leaves behind


def leaf_on_a_side_stream() -> tuple[Any, Any]:
    x = leaf()
    side = side_stream()
    with sim.stream(side):
        y = (x * 2 * 1).sum()
    sim.current_stream("sim:0").wait_stream(side)
    return x, y


def accumulated(x: Any, y: Any) -> Any:
    y.backward()
    return x.grad


def captured(x: Any, y: Any) -> Any:
    return ut.autograd.grad(y, x)[0]


def captured_on_the_way(x: Any, y: Any) -> Any:
    middle = y.grad_fn.next_functions[0][0].next_functions[0][0]
    first, _ = ut.autograd.grad(y, [ut.autograd.graph.GradientEdge(middle, 0), x])
    return first * 2


def captured_alone(x: Any, y: Any) -> Any:
    middle = y.grad_fn.next_functions[0][0].next_functions[0][0]
    return ut.autograd.grad(y, ut.autograd.graph.GradientEdge(middle, 0))[0] * 2


def seen_by_a_callback(x: Any, y: Any) -> Any:
    found = []
    x.register_hook(lambda g: ut.autograd.graph.queue_callback(lambda: found.append(x.grad * 1)))
    y.backward()
    return found[0]


ASKING = [accumulated, captured, captured_on_the_way, captured_alone, seen_by_a_callback]


@pytest.mark.parametrize("ask", ASKING, ids=lambda f: f.__name__)
def test_the_caller_may_use_the_gradients_at_once(ask: Callable[..., Any], monkeypatch: Any) -> None:
    assert (ask(*leaf_on_a_side_stream()) * 1).tolist() == [2, 2, 2]
    monkeypatch.setattr(Engine, "_join_leaf_streams", lambda self, task: None)
    with pytest.raises(StreamOrderError):
        ask(*leaf_on_a_side_stream()) * 1


def test_only_the_callers_current_stream_waits() -> None:
    x, y = leaf_on_a_side_stream()
    caller, stranger = side_stream(), side_stream()
    with sim.stream(caller):
        y.backward(ut.ones((), device="sim:0"))
        assert (x.grad * 1).shape == (3,)
    with sim.stream(stranger), pytest.raises(StreamOrderError):
        x.grad * 1


# ---- programs as users write them


def test_a_pipeline_over_two_devices_and_four_streams() -> None:
    """Two stages on two devices, each working on two micro-batches on streams of their own."""
    ut.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)  # both micro-batches use the same leaves
    w0, w1 = leaf("sim:0"), leaf("sim:1")
    streams = {(d, k): side_stream(f"sim:{d}") for d in range(2) for k in range(2)}
    losses = []
    for k in range(2):
        with sim.stream(streams[0, k]), sim.stream(streams[1, k]):
            batch = ut.full((3,), k + 1.0, device="sim:0")
            losses.append(((batch * w0).to("sim:1") * w1).sum())
    for k, loss in enumerate(losses):
        with sim.stream(streams[1, k]):
            seed = ut.ones((), device="sim:1")
            if k:  # the gradients of the first batch are on its streams
                streams[0, k].wait_stream(streams[0, 0])
                streams[1, k].wait_stream(streams[1, 0])
            with sim.stream(streams[0, k]):
                loss.backward(seed)
    for (device, _), stream in streams.items():
        sim.current_stream(f"sim:{device}").wait_stream(stream)
    ut.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
    assert w0.grad.tolist() == w1.grad.tolist() == [3, 3, 3]


def test_a_user_who_forgets_to_wait_is_told() -> None:
    x = leaf()
    side = sim.Stream("sim:0")
    with sim.stream(side), pytest.raises(StreamOrderError, match="Let the one wait for the other"):
        x * 2


# ---- the cases of PyTorch's own tests of streams


@pytest.fixture(params=[True, False], ids=["threads", "one thread"])
def threads(request: pytest.FixtureRequest) -> Any:
    with ut.autograd.set_multithreading_enabled(request.param):
        yield


class AddsOne(ut.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.clone()

    @staticmethod
    def backward(ctx, g):
        return g.clone().add_(1)


class MovesAway(ut.autograd.Function):
    """To sim:1; its gradient is made on a stream of sim:0 of its own, which the node's stream then waits for."""

    @staticmethod
    def forward(ctx, a):
        ctx.stream = sim.current_stream("sim:1")
        return a.to("sim:1")

    @staticmethod
    def backward(ctx, g):
        own = sim.Stream("sim:0")
        with sim.stream(own):
            result = g.to("sim:0").add_(1)
        ctx.stream.wait_stream(own)
        return result


def test_case_2_a_producer_on_another_stream(threads: Any) -> None:
    first = sim.Stream("sim:0")
    with sim.stream(first):
        a = leaf()
        b = a * 2
    second = sim.Stream("sim:0")
    second.wait_stream(first)
    with sim.stream(second):
        AddsOne.apply(b).sum().backward()
    sim.synchronize()
    assert a.grad.tolist() == [4, 4, 4]


@pytest.mark.parametrize("ambient", [True, False], ids=["on a side stream", "on the default stream"])
def test_case_3_a_producer_on_another_device(threads: Any, ambient: bool) -> None:
    first = sim.Stream("sim:0")
    with sim.stream(first):
        a = leaf()
        b = a * 2
    sim.default_stream("sim:0").wait_stream(first)
    out = MovesAway.apply(b)
    side = side_stream("sim:0") if ambient else None
    with sim.stream(side):
        out.sum().backward()
    sim.synchronize()
    assert a.grad.tolist() == [4, 4, 4]


def test_case_3_without_the_wait_for_the_producer(monkeypatch: Any) -> None:
    def mutant(space: Any, producer: Any, consumer: Any) -> Any:
        where, before = accumulation_stream(space, producer, consumer)
        return where, [other for other in before if other is not producer or other.namespace is space]

    monkeypatch.setattr(input_buffer, "accumulation_stream", mutant)
    a = leaf()
    with pytest.raises(StreamOrderError):
        MovesAway.apply(a * 2).sum().backward()


def test_case_4_a_producer_on_a_stream_of_another_device(threads: Any) -> None:
    a = leaf()
    _, b = TwoDevices.apply(a)
    side = sim.Stream("sim:1")
    side.wait_stream(sim.default_stream("sim:1"))
    with sim.stream(side):
        AddsOne.apply(b).sum().backward()
    sim.synchronize()
    assert a.grad.tolist() == [10, 10, 10]


def test_case_4_two_producers_on_streams_of_another_device(threads: Any) -> None:
    class Doubles(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.clone()

        @staticmethod
        def backward(ctx, g):
            return g.clone().mul_(2)

    a = leaf()
    _, b = TwoDevices.apply(a)
    results = []
    for _ in range(2):
        side = side_stream("sim:1")
        with sim.stream(side):
            results.append(Doubles.apply(b))
        sim.default_stream("sim:1").wait_stream(side)
    (results[0] + results[1]).sum().backward()
    assert a.grad.tolist() == [20, 20, 20]


def test_a_branch_on_a_side_stream_runs_beside_the_main_one(threads: Any) -> None:
    """The receiver's stream, which is also the main branch's, waits for the side branch only when it must."""
    events: dict[str, Any] = {}

    def mark(name: str) -> None:
        events[name] = sim.current_stream("sim:0").record_event()

    class Main(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.clone()

        @staticmethod
        def backward(ctx, g):
            mark("main starts")
            return g

    class Side(Main):
        @staticmethod
        def backward(ctx, g):
            mark("side starts")
            for _ in range(50):
                g = g * 1
            mark("side ends")
            return g

    a = leaf()
    b = a * 1
    main = Main.apply(b)
    side = side_stream()
    with sim.stream(side):
        other = Side.apply(b)  # recorded last, so its gradient is the first to arrive at b's node
    sim.default_stream("sim:0").wait_stream(side)
    (main + other).sum().backward()
    assert events["side starts"].elapsed_time(events["side ends"]) > 0
    assert events["main starts"].elapsed_time(events["side ends"]) > 0
    assert a.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_a_leaf_whose_node_was_made_on_another_stream(kept: bool, silent: bool) -> None:
    ut.set_warn_always(True)
    ut.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(not silent)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            first, second = side_stream(), side_stream()
            with sim.stream(first):
                a = leaf()
                former = a.clone() if kept else None  # keeps the node
            second.wait_stream(first)
            with sim.stream(second):
                (a * 1).sum().backward()
            del former
    finally:
        ut.set_warn_always(False)
        ut.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
    told = any("set_warn_on_accumulate_grad_stream_mismatch" in str(w.message) for w in caught)
    assert told == (kept and not silent)
