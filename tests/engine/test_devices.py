"""The engine's threads: which thread runs what, in which order, in whose context, and how errors come home."""

from __future__ import annotations

import contextvars
import itertools
import random
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.reference_engine import ReferenceEngine
from undertow import sim
from undertow.backend import cpu, namespace_of
from undertow.engine.devices import this_thread
from undertow.engine.engine import engine
from undertow.engine.ready_queue import NodeTask, ReadyQueue
from undertow.engine.tasks import DeviceGraphTask, current_task
from undertow.graph.node import LAST
from undertow.modes import current, set_state


def leaf(values: Any = (1.0, 2.0), device: str = "sim:0") -> Any:
    return ut.tensor(values, dtype=ut.float64, device=device, requires_grad=True)


def thread_name(*_: Any) -> str:
    return threading.current_thread().name


# ---- which thread


def test_each_device_has_a_thread_and_the_cpu_has_the_callers() -> None:
    seen = {}
    x = leaf(device="cpu")
    y = x.to("sim:0").sin()
    z = y.to("sim:1").cos()
    w = z.cpu().exp()
    for name, tensor in {"x": x, "y": y, "z": z, "w": w}.items():
        tensor.register_hook(lambda g, name=name: seen.setdefault(name, (thread_name(), str(g.device))) and None)
    w.sum().backward()
    caller = thread_name()
    assert seen == {
        "w": (caller, "cpu"), "z": ("undertow-sim:1", "sim:1"), "y": ("undertow-sim:0", "sim:0"), "x": (caller, "cpu"),
    }  # fmt: skip
    assert set(engine.device_ready_queues) >= {namespace_of("sim:0").device, namespace_of("sim:1").device}


def test_a_device_keeps_its_thread() -> None:
    seen = set()
    for _ in range(3):
        x = leaf()
        x.register_hook(lambda g: seen.add(threading.get_ident()))
        (x * x).sum().backward()
    assert len(seen) == 1


def test_without_multithreading_everything_runs_on_the_caller() -> None:
    seen = set()
    x = leaf()
    y = (x * 2).to("sim:1")
    for tensor in (x, y):
        tensor.register_hook(lambda g: seen.add(thread_name()))
    with ut.autograd.set_multithreading_enabled(False):
        (y * y).sum().backward()
    assert seen == {thread_name()} and x.grad.tolist() == [8, 16]


def test_a_cpu_graph_takes_the_short_way_although_devices_are_in_use() -> None:
    leaf()
    kinds = []
    x = leaf(device="cpu")
    x.register_hook(lambda g: kinds.append(type(current_task())))
    (x * x).sum().backward()
    assert len(kinds) == 1 and kinds[0] is not DeviceGraphTask


def test_queue_choice_follows_the_first_gradient_that_is_not_on_the_cpu() -> None:
    class Both(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.cpu(), a.to("sim:1")

        @staticmethod
        def backward(ctx, on_cpu, on_sim):
            ctx.where.append((thread_name(), str(on_cpu.device), str(on_sim.device)))
            return on_cpu.to("sim:0") + on_sim.to("sim:0")

    x = leaf()
    a, b = Both.apply(x)
    a.grad_fn.where = where = []
    (a.sum() + b.sum().cpu()).backward()
    assert where == [("undertow-sim:1", "cpu", "sim:1")] and x.grad.tolist() == [2, 2]


# ---- the queue


class FakeNode:
    def __init__(self, sequence_nr: int) -> None:
        self.sequence_nr = sequence_nr


class FakeTask:
    def __init__(self, reentrant_depth: int) -> None:
        self.reentrant_depth = reentrant_depth


def in_queue_order(tasks: list[NodeTask]) -> list[NodeTask]:
    queue = ReadyQueue()
    for task in tasks:
        queue.push(task)
    return [queue.pop() for _ in tasks]


def test_the_order_of_the_queue() -> None:
    outer, inner = FakeTask(0), FakeTask(1)
    shutdown, empty = NodeTask(None, None, None, is_shutdown=True), NodeTask(outer, None, None)
    accumulate = NodeTask(outer, FakeNode(LAST), None)
    late, early = NodeTask(outer, FakeNode(7), None), NodeTask(outer, FakeNode(3), None)
    nested, nested_early = NodeTask(inner, FakeNode(5), None), NodeTask(inner, FakeNode(1), None)
    right = [shutdown, empty, nested, nested_early, accumulate, late, early]
    for arrangement in itertools.permutations(right):
        assert in_queue_order(list(arrangement)) == right


def test_equals_leave_the_queue_as_they_came() -> None:
    task = FakeTask(0)
    equals = [NodeTask(task, FakeNode(4), None) for _ in range(5)]
    assert in_queue_order(equals) == equals


def test_pop_waits_for_a_push() -> None:
    queue, found = ReadyQueue(), []
    thread = threading.Thread(target=lambda: found.append(queue.pop()))
    thread.start()
    task = NodeTask(FakeTask(0), FakeNode(1), None)
    queue.push(task)
    thread.join(60)
    assert found == [task] and len(queue) == 0


# ---- the caller's context


_user_variable: contextvars.ContextVar[int] = contextvars.ContextVar("user_variable", default=0)


def test_workers_run_in_the_callers_context() -> None:
    seen = []

    def look(grad: Any) -> None:
        state = (ut.is_grad_enabled(), _user_variable.get(), np.geterr()["divide"], thread_name())
        seen.append(state)

    x = leaf()
    x.register_hook(look)
    token = _user_variable.set(42)
    try:
        (x * x).sum().backward()
    finally:
        _user_variable.reset(token)
    assert seen == [(False, 42, "ignore", "undertow-sim:0")]


def test_grad_mode_in_workers_is_that_of_the_pass() -> None:
    seen = []
    x = leaf()
    y = x * x
    y.register_hook(lambda g: seen.append((ut.is_grad_enabled(), thread_name())))
    ut.autograd.grad(y.sum(), x, create_graph=True)
    assert seen == [(True, "undertow-sim:0")]


def test_saved_tensor_hooks_of_the_caller_hold_in_workers() -> None:
    packed = []
    x = leaf()

    class Records(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            with ut.enable_grad():
                inner = leaf() * leaf()  # saves two tensors
            assert inner.requires_grad
            return g * 2

    y = Records.apply(x).sum()
    with ut.autograd.graph.saved_tensors_hooks(lambda t: packed.append(thread_name()) or t, lambda t: t):
        y.backward()
    assert packed == ["undertow-sim:0"] * 2


def test_inference_mode_and_interceptors_of_the_caller_hold_in_workers() -> None:
    def intercept(function: Any, args: Any) -> Any:
        raise AssertionError("no operation is called here")

    seen = []
    x = leaf()
    y, ones = x * x, ut.ones_like(x)
    x.register_hook(lambda g: seen.append((ut.is_inference_mode_enabled(), current().intercept, thread_name())))
    outer = current()
    with ut.inference_mode():
        set_state(current().with_intercept(intercept))
        try:
            engine.execute([y.grad_fn], [ones._array], keep_graph=False, create_graph=False, xp=cpu)
        finally:
            set_state(outer)
    assert seen == [(True, intercept, "undertow-sim:0")]


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_mode_of_the_caller_holds_in_workers() -> None:
    x = leaf((-1.0, 1.0))
    with ut.autograd.detect_anomaly():
        y = (x.abs() * 0).sqrt() * 0
        with pytest.warns(UserWarning, match="SqrtBackward0"), pytest.raises(RuntimeError, match="nan values"):
            y.sum().backward()
    assert x.grad is None


def test_what_a_worker_changes_in_its_context_stays_there() -> None:
    x = leaf()
    x.register_hook(lambda g: _user_variable.set(7) and None)
    (x * x).sum().backward()
    assert _user_variable.get() == 0


def test_the_running_node_and_task_are_the_threads_own() -> None:
    seen = []
    x = leaf(device="cpu")
    parts = [x.to(f"sim:{k}").sin() for k in range(3)]
    barrier = threading.Barrier(3)

    def look(grad: Any) -> None:
        barrier.wait(60)  # all three nodes are running
        seen.append((ut.autograd.graph.current_node(), ut.autograd.graph.current_graph_task_id()))
        barrier.wait(60)

    for part in parts:
        part.register_hook(look)
    sum(part.cpu().sum() for part in parts).backward()
    assert {node for node, _ in seen} == {part.grad_fn for part in parts}
    assert len({task for _, task in seen}) == 1


def test_warnings_of_workers_reach_the_caller() -> None:
    x = leaf()
    x.register_hook(lambda g: warnings.warn("careful", stacklevel=1))
    with pytest.warns(UserWarning, match="careful"):
        (x * x).sum().backward()
    with pytest.raises(UserWarning, match="careful"):  # the tests turn warnings into errors, workers' too
        (x * x).sum().backward()


# ---- results


def test_grad_captures_gradients_on_devices() -> None:
    x, w = leaf(), leaf((3.0, 4.0), "sim:1")
    y = x.to("sim:1") * w
    gx, gy, gw = ut.autograd.grad(y.sum(), [x, y, w])
    assert [g.tolist() for g in (gx, gy, gw)] == [[3, 4], [1, 1], [1, 2]]
    assert [str(g.device) for g in (gx, gy, gw)] == ["sim:0", "sim:1", "sim:1"]
    assert x.grad is None and w.grad is None


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_capture_hooks_replace_what_was_captured(device: str) -> None:
    x = leaf(device=device)
    y = x * 3
    edges = [ut.autograd.graph.get_gradient_edge(t).node for t in (y, x)]
    hooks = {1: [lambda g: g + 1, lambda g: g * 10]}
    seed = ut.ones(2, dtype=ut.float64, device=device)._array
    options = {"keep_graph": False, "create_graph": False, "xp": namespace_of("cpu")}
    first, second = engine.execute(edges[:1], [seed], captures=edges, capture_hooks=hooks, **options)
    assert first.tolist() == [1, 1] and second.tolist() == [40, 40] and x.grad is None


def test_backward_into_chosen_inputs() -> None:
    x, w = leaf(), leaf((3.0, 4.0), "sim:1")
    y = x.to("sim:1") * w
    y.sum().backward(inputs=[x, y])
    assert (x.grad.tolist(), y.grad.tolist(), w.grad) == ([3, 4], [1, 1], None)


def test_second_derivatives_across_devices() -> None:
    x = leaf()
    y = (x.to("sim:1") ** 3).cpu().sum()
    (first,) = ut.autograd.grad(y, x, create_graph=True)
    (second,) = ut.autograd.grad(first.sum(), x)
    assert (first.tolist(), second.tolist(), str(second.device)) == ([3, 12], [6, 12], "sim:0")


def test_single_numbers_come_back_to_the_cpu() -> None:
    scale = ut.tensor(3.0, dtype=ut.float64, requires_grad=True)
    (leaf() * scale).sum().backward()
    assert scale.grad.item() == 3 and str(scale.grad.device) == "cpu"


def test_a_gradient_on_the_wrong_device_is_refused() -> None:
    class Strays(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g.to("sim:1")

    refusal = "StraysBackward returned an invalid gradient at index 0 - expected device sim:0 but got sim:1"
    with pytest.raises(RuntimeError, match=refusal):
        Strays.apply(leaf()).sum().backward()


def test_graph_is_freed_and_can_be_kept() -> None:
    x = leaf()
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8]
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


def test_gradients_that_nothing_flowed_into_stay_undefined() -> None:
    class Stops(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return None, g

    x, y = leaf(), leaf()
    Stops.apply(x * 2, y).sum().backward()
    assert x.grad is None and y.grad.tolist() == [1, 1]


# ---- nested passes


def nested(levels: int, device: str, seen: list[Any]) -> type:
    class Nested(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a, level):
            ctx.level = level
            return a * 2

        @staticmethod
        def backward(ctx, g):
            seen.append((ctx.level, thread_name()))
            if ctx.level < levels:
                x = ut.ones(1, device=device, requires_grad=True)
                with ut.enable_grad():
                    y = Nested.apply(x, ctx.level + 1)
                y.backward()
                g = g * x.grad / 2
            return g * 2, None

    return Nested


@pytest.mark.parametrize("device", ["sim:0", "cpu"])
def test_nested_passes_hop_threads(device: str) -> None:
    seen: list[Any] = []
    x = ut.ones(1, device=device, requires_grad=True)
    nested(150, device, seen).apply(x, 0).backward()
    assert x.grad.item() == 2 and [level for level, _ in seen] == list(range(151))
    if device == "sim:0":
        # a thread that waits for a nested pass drains its queue: the device's thread, or the pool's in its place
        assert {name for _, name in seen} == {"undertow-sim:0", "undertow-reentrant"}


def test_nested_passes_may_wait_for_each_others_devices() -> None:
    class Crossing(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a, other, depth):
            ctx.other, ctx.depth = other, depth
            return a * 1

        @staticmethod
        def backward(ctx, g):
            if ctx.depth:
                x = ut.ones(2, device=ctx.other, requires_grad=True)
                with ut.enable_grad():
                    y = Crossing.apply(x, str(g.device), ctx.depth - 1).sum()
                y.backward()
                assert x.grad.tolist() == [1, 1]
            return g, None, None

    x, y = leaf(device="sim:0"), leaf(device="sim:1")
    total = Crossing.apply(x, "sim:1", 6).sum().cpu() + Crossing.apply(y, "sim:0", 6).sum().cpu()
    total.backward()
    assert x.grad.tolist() == y.grad.tolist() == [1, 1]


def test_callbacks_run_once_at_the_end_of_their_own_pass() -> None:
    log: list[str] = []

    def inner_hook(grad: Any) -> None:
        ut.autograd.graph.queue_callback(lambda: log.append("inner callback"))

    def outer_hook(grad: Any) -> None:
        ut.autograd.graph.queue_callback(lambda: log.append(f"outer callback on {thread_name()}"))
        x = leaf(device="sim:1")
        x.register_hook(inner_hook)
        with ut.enable_grad():
            y = (x * 2).sum()
        y.backward()
        log.append("inner pass done")

    x = leaf()
    x.register_hook(outer_hook)
    (x * 2).sum().backward()
    assert log == ["inner callback", "inner pass done", f"outer callback on {thread_name()}"]


def test_a_nested_error_reaches_the_caller_through_all_threads() -> None:
    def fail(grad: Any) -> None:
        raise LookupError("deep down")

    def outer_hook(grad: Any) -> None:
        x = leaf(device="sim:1")
        x.register_hook(fail)
        with ut.enable_grad():
            y = (x * 2).sum()
        y.backward()

    x = leaf()
    x.register_hook(outer_hook)
    with pytest.raises(LookupError, match="deep down") as caught:
        (x * 2).sum().backward()
    names = [frame.name for frame in caught.traceback]
    assert names.index("outer_hook") < names.index("fail")


# ---- many passes at once


def test_shared_leaves_get_exact_sums_from_many_threads() -> None:
    sys.setswitchinterval(1e-6)
    x = leaf((1.0, 2.0), "sim:0")
    w = leaf((3.0, 5.0), "cpu")

    def work() -> None:
        for _ in range(10):
            (x.to("sim:1") * w.to("sim:1")).sum().cpu().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert x.grad.tolist() == [120, 200] and w.grad.tolist() == [40, 80]


def test_a_shared_graph_lets_one_pass_through_and_tells_the_others() -> None:
    x = leaf()
    y = (x.exp() * x).to("sim:1").sum()
    outcomes: list[Any] = []

    def work() -> None:
        try:
            y.backward()
            outcomes.append(None)
        except RuntimeError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    told = [o for o in outcomes if o is not None]
    assert len(outcomes) == 4 and len(told) < 4
    assert all("Trying to backward through the graph a second time" in o for o in told)


# ---- random graphs


DEVICES = ["cpu", "sim:0", "sim:1", "sim:2"]


OPERATIONS = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "sub": lambda a, b: a - b,
    "sin": lambda a, b: a.sin() * 0.5 + b, "tanh": lambda a, b: (a * b).tanh(),
}  # fmt: skip


class Program:
    """A random graph of a few operations; `devices` says where each intermediate lies."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.values = np.random.default_rng(seed).normal(size=(3, 4))
        self.steps = []
        for number in range(choose.randint(5, 14)):
            a, b = (choose.randrange(3 + number) for _ in range(2))
            self.steps.append((choose.choice(sorted(OPERATIONS)), a, b, choose.choice(DEVICES)))

    def run(self, on_devices: bool) -> tuple[list[Any], Any]:
        leaves = [ut.tensor(v, device=DEVICES[k] if on_devices else "cpu", requires_grad=True)
                  for k, v in enumerate(self.values)]  # fmt: skip
        found = list(leaves)
        for name, a, b, device in self.steps:
            device = device if on_devices else "cpu"
            a, b = found[a].to(device), found[b].to(device)
            found.append(OPERATIONS[name](a, b))
        total = found[-1].sum().cpu()
        for value in found[3:-1]:
            total = total + value.sum().cpu()
        return leaves, total


@pytest.mark.parametrize("block", range(4))
def test_random_graphs_agree_with_the_reference_engine(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        program = Program(seed)
        leaves, total = program.run(on_devices=False)
        edge = ut.autograd.graph.get_gradient_edge(total)
        expected = ReferenceEngine().run_backward([(edge.node, edge.output_nr)], [ut.ones_like(total)])
        with sim.configure(seed=seed, latency=(0, 2e-5), real_time=True, launch_blocking=seed % 2 == 0):
            leaves_on_devices, total = program.run(on_devices=True)
            total.backward()
        for one, other in zip(leaves, leaves_on_devices, strict=True):
            found = None if other.grad is None else other.grad.cpu().numpy()
            right = expected.get(one)
            assert (found is None) == (right is None)
            assert found is None or np.allclose(found, right.detach().numpy(), rtol=1e-12, atol=1e-14), seed


# ---- deterministic sums


def sums_in_order(order: tuple[int, ...]) -> bytes:
    """The gradient of a leaf that three devices contribute to, in the order given."""
    x = ut.tensor([1.0], dtype=ut.float32, requires_grad=True)
    parts = [x.to(f"sim:{k}") for k in range(3)]
    node = ut.autograd.graph.get_gradient_edge(x).node

    def wait_for_turn(device: int) -> None:
        waiting_for = 3 - order.index(device)
        deadline = time.monotonic() + 60
        while current_task().dependencies[node] != waiting_for:
            assert time.monotonic() < deadline
            time.sleep(1e-4)

    total = 0
    for device, (part, factor) in enumerate(zip(parts, (1e8, 1.0, -1e8), strict=True)):
        part.register_hook(lambda g, device=device: wait_for_turn(device))
        total = (part * factor).sum().cpu() + total
    total.backward()
    return x.grad.numpy().tobytes()


def test_deterministic_sums_do_not_depend_on_who_comes_first() -> None:
    orders = list(itertools.permutations(range(3)))
    as_it_comes = {sums_in_order(order) for order in orders}
    ut.use_deterministic_algorithms(True)
    try:
        ordered = {sums_in_order(order) for order in orders}
    finally:
        ut.use_deterministic_algorithms(False)
    assert len(as_it_comes) > 1 and len(ordered) == 1


def test_deterministic_passes_equal_a_single_thread_bit_by_bit() -> None:
    for seed in range(25):
        program = Program(seed)
        leaves, total = program.run(on_devices=True)
        with ut.autograd.set_multithreading_enabled(False):
            total.backward()
        ut.use_deterministic_algorithms(True)
        try:
            with sim.configure(seed=seed, latency=(0, 2e-5), real_time=True):
                leaves_on_devices, total = program.run(on_devices=True)
                total.backward()
            for one, other in zip(leaves, leaves_on_devices, strict=True):
                if one.grad is not None:
                    assert one.grad.cpu().numpy().tobytes() == other.grad.cpu().numpy().tobytes()
        finally:
            ut.use_deterministic_algorithms(False)


def test_no_thread_is_left_with_a_queue_of_somebody_else() -> None:
    (leaf() * 2).sum().backward()
    assert this_thread.queue is None and this_thread.device is None


# ---- the cases of PyTorch's own tests of devices


def test_gradients_of_two_copies_meet() -> None:
    x = leaf()
    (x.to("sim:1") + x.to("sim:1")).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_outputs_on_many_devices_of_which_one_is_used() -> None:
    class Broadcast(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return tuple(a.to(f"sim:{k}") if k else a.clone() for k in range(4))

        @staticmethod
        def backward(ctx, *grads):
            assert [str(g.device) for g in grads] == [f"sim:{k}" for k in range(4)]  # zeros for the unused ones
            return sum((g.to("sim:0") for g in grads[1:]), grads[0])

    x = leaf()
    (Broadcast.apply(x)[-1] * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_nested_passes_on_other_kinds_of_device() -> None:
    class Nests(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a, device):
            ctx.device = device
            return a * 1

        @staticmethod
        def backward(ctx, g):
            with ut.enable_grad():
                inner = ut.ones(2, device=ctx.device, requires_grad=True)
                (inner * inner).sum().backward()
            assert inner.grad.tolist() == [2, 2]
            return g, None

    for outer, inner in itertools.product(["cpu", "sim:0", "sim:1"], repeat=2):
        x = leaf(device=outer)
        Nests.apply(x, inner).to("sim:0").sum().backward()
        assert x.grad.tolist() == [1, 1]


def test_a_failed_nested_pass_gives_its_memory_back() -> None:
    class Nests(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 1

        @staticmethod
        def backward(ctx, g):
            with ut.enable_grad():
                inner = ut.ones(1000, device="sim:0", requires_grad=True)
                root = inner.exp().sum()
            root.backward()
            raise LookupError("in the parent, on the CPU")

    def run() -> None:
        x = leaf()
        y = Nests.apply((x * x).cpu())
        with pytest.raises(LookupError, match="in the parent"):
            y.sum().backward()

    run()
    sim.synchronize()
    before = sim.memory_allocated("sim:0")
    for _ in range(3):
        run()
    deadline = time.monotonic() + 60
    while sim.memory_allocated("sim:0") != before and time.monotonic() < deadline:
        time.sleep(1e-3)
    assert sim.memory_allocated("sim:0") == before


def test_what_no_rule_needs_is_not_kept_on_the_device() -> None:
    x, m = ut.randn(100, device="sim:0", requires_grad=True), ut.randn(1, device="sim:0")
    z = x.sum()
    before = sim.memory_allocated("sim:0")
    z = ((x + 2) * m).sum()
    assert sim.memory_allocated("sim:0") == before and z.requires_grad


def test_a_leaf_that_gets_nothing_runs_before_older_nodes() -> None:
    executed = []

    class Tells(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.clone()

        @staticmethod
        def backward(ctx, g):
            executed.append("older node")
            return g

    class Product(ut.autograd.Function):
        @staticmethod
        def forward(ctx, a, w):
            ctx.save_for_backward(a, w)
            return a * w

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1], None

    x, w = leaf(), leaf()
    w.register_hook(lambda g: executed.append("leaf"))
    Product.apply(Tells.apply(x), w).sum().backward()
    assert executed == ["leaf", "older node"]


@pytest.mark.parametrize(("start", "end"), [("sim:0", "cpu"), ("cpu", "sim:0"), ("sim:0", "sim:1")])
def test_gradcheck_from_one_device_to_another(start: str, end: str) -> None:
    assert ut.autograd.gradcheck(lambda x: (x * x).to(end), leaf(device=start))


def test_saved_tensors_kept_on_the_cpu() -> None:
    x = leaf()
    with ut.autograd.graph.save_on_cpu():
        y = x.exp() * x
    (grad,) = ut.autograd.grad(y.sum(), x)
    assert np.allclose(grad.tolist(), [2 * np.e, 3 * np.exp(2)])


# ---- CPU branches in parallel


@pytest.fixture
def parallel() -> Any:
    ut.autograd.graph.set_parallel_branches(2, least_bytes=64)
    yield
    ut.autograd.graph.set_parallel_branches(0)


def branching(seen: set[str] | None = None) -> tuple[list[Any], Any]:
    leaves = [ut.tensor(np.full(8, k + 1.0), requires_grad=True) for k in range(4)]
    total = leaves[0] * leaves[1]
    for x in leaves:
        y = (x.sin() * x).exp()
        if seen is not None:
            y.register_hook(lambda g: seen.add(thread_name()))
        total = total + y
    return leaves, total


def test_branches_run_on_helping_threads_and_give_the_same(parallel: Any) -> None:
    seen: set[str] = set()
    leaves, total = branching(seen)
    total.backward(ut.ones_like(total))
    ut.autograd.graph.set_parallel_branches(0)
    others, total = branching()
    total.backward(ut.ones_like(total))
    assert {"undertow-cpu:0", "undertow-cpu:1"} <= seen
    for one, other in zip(leaves, others, strict=True):
        assert np.allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-13)


def test_small_nodes_and_chains_stay_with_the_caller(parallel: Any) -> None:
    ut.autograd.graph.set_parallel_branches(2, least_bytes=1 << 20)
    seen: set[str] = set()
    _, total = branching(seen)
    total.backward(ut.ones_like(total))
    assert seen == {thread_name()}


def test_errors_in_branches_reach_the_caller(parallel: Any) -> None:
    def fail(grad: Any) -> None:
        raise LookupError("in a branch")

    leaves, total = branching()
    leaves[2].register_hook(fail)
    with pytest.raises(LookupError, match="in a branch"):
        total.backward(ut.ones_like(total))


def test_many_passes_with_parallel_branches(parallel: Any) -> None:
    sys.setswitchinterval(1e-6)
    leaves = [ut.tensor(np.ones(8), requires_grad=True) for _ in range(3)]

    def work() -> None:
        for _ in range(20):
            total = leaves[0] * 2 + leaves[1] * 3
            (total + leaves[2] * total.detach()).backward(ut.ones(8, dtype=ut.float64))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [x.grad[0].item() for x in leaves] == [120, 180, 300]


def test_the_number_of_helpers_must_make_sense() -> None:
    with pytest.raises(ValueError, match="threads must not be negative"):
        ut.autograd.graph.set_parallel_branches(-1)
