"""Profiles: what they see, how it is grouped and written, and that nothing is left when they end."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import gzip
import inspect
import json
import subprocess
import sys
import threading
import weakref
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from undertow.profiler import ProfilerAction, profile, record_function, schedule
from undertow.utils.flop_counter import FlopCounterMode

import undertow as ut
from undertow.engine import watch
from undertow.instrument.profiler.chrome_trace import lanes_of_streams
from undertow.instrument.profiler.composites import composites as followed
from undertow.instrument.profiler.events import FunctionEvent
from undertow.instrument.profiler.recorder import Profiled
from undertow.modes import current
from undertow.nn.module.calling import EVERYWHERE
from undertow.tensor.torch_function import LOOKING_ON, python_function


def names(prof: Any) -> list[str]:
    return [event.name for event in prof.events() if not event.is_composite]


def a_model() -> ut.nn.Module:
    return ut.nn.Sequential(ut.nn.Linear(4, 8), ut.nn.ReLU(), ut.nn.Sequential(ut.nn.Linear(8, 2)))


# ---- operations made of others


def a_loss() -> Any:
    x = ut.ones(2, 3, requires_grad=True)
    return ut.nn.functional.soft_margin_loss(x @ ut.ones(3, 4), ut.ones(2, 4))


def test_a_composite_is_around_what_it_is_made_of() -> None:
    with profile(record_shapes=True, profile_memory=True, with_flops=True) as prof:
        a_loss()
    product = next(e for e in prof.events() if e.name == "aten::matmul")
    assert product.is_composite and [child.name for child in product.cpu_children] == ["aten::mm"]
    assert product.input_shapes[:2] == [[2, 3], [3, 4]] and "a_loss" in product.line
    assert product.self_cpu_time_total == product.cpu_time_total - product.cpu_children[0].cpu_time_total > 0
    assert product.cpu_memory_usage == product.cpu_children[0].cpu_memory_usage == 32
    assert product.flops is None and product.cpu_children[0].flops == 48
    loss = next(e for e in prof.events() if e.name == "aten::soft_margin_loss")
    assert loss.is_composite and len(loss.cpu_children) > 2 and not loss.cpu_children[0].is_composite


def test_a_composite_of_the_name_of_its_operation_is_not_shown_twice() -> None:
    with profile(record_shapes=True) as prof:
        ut.ones(3).sum()
    assert [e.name for e in prof.events()].count("aten::sum") == 1


def test_composites_that_fail_leave_no_row_and_hide_none() -> None:
    with profile(record_shapes=True) as prof:
        for columns in (2, 3):
            with contextlib.suppress(RuntimeError):
                ut.matmul(ut.ones(2, 3), ut.ones(columns, 2))
    assert [[c.name for c in e.cpu_children] for e in prof.events() if e.name == "aten::matmul"][-1] == ["aten::mm"]


def test_operations_that_record_nothing_have_their_line() -> None:
    x = ut.ones(2, 2)
    first = sys._getframe().f_lineno + 2
    with profile() as profiled:
        x + x
        x.add_(1.0)
        x.detach()
        ut.rand(2)
    lines = [int(str(event.line).partition("(")[2].partition(")")[0]) for event in profiled.events()]
    assert lines == [first, first + 1, first + 2, first + 3]


#: a thread that inherited the profile is inside composites while the profile ends
ENDS_IN_THE_MIDDLE = """
import contextvars, threading
import undertow as ut
x = ut.rand(500, 500)
for call in (lambda: ut.einsum("ij,jk->ik", x, x), lambda: ut.matmul(x, x)):
    for _ in range(5):
        with ut.profiler.profile() as profiled:
            begun = threading.Event()
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(lambda: (begun.set(), [call() for _ in range(5)]),))
            thread.start()
            begun.wait()
            call()
        thread.join()
        assert len(profiled.events()) >= 2
"""


def test_a_profile_that_ends_while_another_thread_is_in_a_composite() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_IN_THE_MIDDLE], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_composites_are_in_every_profile() -> None:
    with profile() as prof:
        a_loss()
    composites = {e.name: e for e in prof.events() if e.is_composite}
    assert {"aten::matmul", "aten::soft_margin_loss"} <= set(composites)
    assert [child.name for child in composites["aten::matmul"].cpu_children] == ["aten::mm"]
    assert "a_loss" in composites["aten::matmul"].line


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}])
def test_what_is_inside_a_composite_has_its_line(options: dict[str, Any]) -> None:
    x = ut.ones(2, 3)
    with profile(**options) as prof:
        ut.outer(x[0], x[1])
        ut.nn.functional.dropout(x)
    inside = [e for e in prof.events() if e.cpu_parent is not None and e.cpu_parent.is_composite]
    assert len(inside) > 2
    assert all("test_what_is_inside_a_composite_has_its_line" in e.line for e in inside if e.is_composite)
    assert not options or {e.line for e in inside} == {e.cpu_parent.line for e in inside}


def test_rows_of_a_profile_live_no_longer_than_it() -> None:
    class Named(str):
        pass

    name = Named("mine")
    with profile() as prof, record_function(name):
        a_loss().backward()
    kept, name = weakref.ref(name), None  # type: ignore[assignment]
    assert kept() is not None and any(row[1] is kept() for row in prof.recorder.rows)  # type: ignore[union-attr]
    prof.recorder.rows.append((3, prof, 1, 2, 3, None, None, 0, None, None))  # type: ignore[union-attr]
    del prof
    gc.collect()
    assert kept() is None


def test_functions_in_float32_run_under_the_profile_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(
        Profiled, "over", lambda self, below, over=Profiled.over: made.append(over(self, below)) or made[-1]
    )
    with profile() as prof:
        ut.nn.functional.l1_loss(ut.ones(2), ut.zeros(2))
    assert len(made) == 1 and "aten::l1_loss" in [e.name for e in prof.events()]
    with profile() as prof, ut.autocast("cpu", ut.bfloat16):
        loss = ut.nn.functional.l1_loss(ut.ones(2, dtype=ut.bfloat16), ut.zeros(2, dtype=ut.bfloat16))
    assert loss.dtype is ut.float32


def test_composites_of_one_factory_are_told_apart() -> None:
    x = ut.ones(2, 3)
    with profile() as prof:
        ut.zeros_like(x)
        ut.ones_like(x)
        ut.permute_copy(x, (1, 0))
    assert [e.name for e in prof.events() if e.is_composite and "_" in e.name] == [
        "aten::zeros_like", "aten::ones_like", "aten::permute_copy",
    ]  # fmt: skip


def test_arguments_of_composites_of_a_factory() -> None:
    x = ut.ones(2, 3)
    with profile(record_shapes=True, with_stack=True) as prof:
        ut.zeros_like(x)
        x.std()
        ut.atleast_2d(x)
    shapes = {e.name: e.input_shapes for e in prof.events() if e.is_composite}
    assert shapes["aten::zeros_like"][0] == [2, 3] and "aten::atleast_2d" in shapes


def test_functions_that_begin_to_ask_during_a_profile_go_on_asking(tmp_path: Path) -> None:
    """In a process of its own: once they ask, they do so until its end."""
    program = tmp_path / "program.py"
    program.write_text(
        """
import undertow as ut

x = ut.ones(2, 2)
with ut.profiler.profile():
    x @ x

def calls_of(number):
    class Mine(ut.Tensor):
        seen = []
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.seen.append(function.__name__)
            return number
    return Mine

with ut.profiler.profile() as during:
    Mine = calls_of(7)  # the first such class: functions ask from here on
    assert ut.matmul(x.as_subclass(Mine), x) == 7
    x @ x
mine = x.as_subclass(Mine)
assert ut.matmul(mine, x) == 7 and ut.zeros_like(mine) == 7
with ut.profiler.profile() as after:
    assert ut.matmul(mine, x) == 7
    x @ x
assert ut.matmul(mine, x) == 7
for prof in (during, after):
    assert [e.name for e in prof.events() if e.is_composite].count("aten::matmul") == 1, prof.events()

class Asks(ut.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return x.exp()

asks = x.as_subclass(Asks)
with ut.profiler.profile() as prof:
    asks + x, ut.cat([asks, x]), asks.mul_(x)
assert [e.name for e in prof.events()] == ["aten::exp"] * 3, prof.events()
"""
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_composites_of_threads_without_a_profile_are_not_seen() -> None:
    with profile() as prof:
        thread = threading.Thread(target=a_loss)
        thread.start()
        thread.join()
    assert not prof.events()


def test_nothing_is_left_of_following_composites() -> None:
    functions: list[Any] = [inspect.unwrap(python_function(public)) for public in followed()]  # type: ignore[arg-type]
    before = sys.getprofile(), [function.__code__ for function in functions]
    with profile(record_shapes=True):
        a_loss()
        with_profile = inspect.signature(ut.matmul), inspect.signature(ut.permute_copy), inspect.getsource(ut.matmul)
        assert (sys.getprofile(), [function.__code__ for function in functions]) == before
    assert (sys.getprofile(), [function.__code__ for function in functions]) == before and not LOOKING_ON
    assert with_profile == (
        inspect.signature(ut.matmul), inspect.signature(ut.permute_copy), inspect.getsource(ut.matmul),
    )  # fmt: skip


# ---- steps of optimizers


def test_steps_of_optimizers_are_named_as_in_pytorch() -> None:
    w = ut.ones(2, requires_grad=True)
    first, second = ut.optim.SGD([w], lr=0.1), ut.optim.LBFGS([w], max_iter=2)

    def closure() -> Any:
        second.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with profile() as prof:
        with contextlib.suppress(TypeError):
            second.step()  # no closure: it leaves nothing behind
        first.step()
        second.step(closure)
        first.zero_grad()
        thread = threading.Thread(target=first.step)  # that is not seen
        thread.start()
        thread.join()
    first.step()
    first.zero_grad()
    steps = [event for event in prof.events() if event.is_user_annotation]
    assert list(dict.fromkeys([event.name for event in steps])) == [
        "Optimizer.step#SGD.step", "Optimizer.step#LBFGS.step", "Optimizer.zero_grad#LBFGS.zero_grad",
        "Optimizer.zero_grad#SGD.zero_grad",
    ]  # fmt: skip
    assert steps[2].cpu_parent is steps[1] and steps[-1].cpu_parent is None and "SGD" not in steps[-2].name
    assert "aten::mul" in [child.name for child in steps[1].cpu_children]


# ---- what is seen


def test_operations_and_nodes_in_the_order_they_began() -> None:
    x = ut.ones(3, requires_grad=True)
    with profile() as prof:
        (x * 2).exp().sum().backward()
    assert names(prof)[:3] == ["aten::mul", "aten::exp", "aten::sum"]
    assert [n.rpartition("::")[2] for n in names(prof)[3:]] == [
        "SumBackward0", "ExpBackward0", "MulBackward0", "AccumulateGrad",
    ]  # fmt: skip
    starts = [event.time_range.start for event in prof.events()]
    assert starts == sorted(starts) and all(event.cpu_time_total >= 0 for event in prof.events())


def test_gradients_are_those_without_a_profile() -> None:
    model, x = a_model(), ut.randn(5, 4)
    model(x).pow(2).sum().backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_modules=True, with_flops=True):
        model(x).pow(2).sum().backward()
    assert all(bool((p.grad == w).all()) for p, w in zip(model.parameters(), wanted, strict=True))


def test_node_and_operation_share_a_number_and_the_line() -> None:
    x = ut.ones(3, requires_grad=True)
    with profile() as prof:
        y = x.exp()
        y.sum().backward()
    forward = next(event for event in prof.events() if event.name == "aten::exp")
    node = next(event for event in prof.events() if event.name == "ExpBackward0")
    assert forward.sequence_nr == node.sequence_nr >= 0
    assert node.fwd_thread == forward.thread
    assert forward.line == node.line and forward.line.startswith(__file__)


def test_changes_in_place_random_numbers_and_custom_functions_are_seen() -> None:
    class Twice(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    with profile() as prof:
        x = ut.randn(3)
        x.mul_(2)
        x.t_()
        x.detach()
        Twice.apply(x.requires_grad_()).sum().backward()
    found = names(prof)
    assert found[:4] == ["aten::randn", "aten::mul_", "aten::t_", "aten::detach"]
    outer = next(event for event in prof.events() if event.name == "Twice")
    assert [child.name for child in outer.cpu_children] == ["aten::mul"]
    node = next(event for event in prof.events() if event.name == "TwiceBackward")
    assert [child.name for child in node.cpu_children] == ["aten::mul"]


def test_an_lstm_takes_the_way_it_takes_without_a_profile() -> None:
    layer = ut.nn.LSTM(3, 4)
    with profile() as prof:
        out, _ = layer(ut.randn(5, 2, 3))
        out.sum().backward()
    assert "LSTMRecurrence" in names(prof) and "LSTMRecurrenceBackward" in names(prof)


def test_shapes_stacks_memory_and_flops_where_asked_for() -> None:
    layer = ut.nn.Linear(4, 2)
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True) as prof:
        y = layer(ut.ones(3, 4))
    (event,) = [e for e in prof.events() if e.name == "aten::linear"]
    assert event.input_shapes == [[3, 4], [2, 4], [2]]
    assert event.cpu_memory_usage == y.numel() * 4
    assert event.flops == 2 * 3 * 4 * 2
    assert event.saved_bytes == sum(row.bytes for row in ut.autograd.graph.saved_tensors_report(y).rows)
    assert event.stack[0].startswith(f"{__file__}(") and "test_shapes" in event.stack[0]
    text = prof.key_averages(group_by_input_shape=True).table()
    assert "[[3, 4], [2, 4], [2]]" in text and "Self CPU Mem" in text and "Total FLOPs" in text


def test_modules_by_path_forward_and_backward() -> None:
    model = a_model()
    with profile(with_modules=True) as prof:
        model(ut.ones(3, 4)).sum().backward()
    forward = [e.module for e in prof.events() if e.name == "aten::linear"]
    backward = [e.module for e in prof.events() if e.name == "LinearBackward0"]
    assert forward == ["0", "2.0"] and backward == ["2.0", "0"]
    assert [e.module for e in prof.events() if e.category == "module"] == ["Sequential", "0", "1", "2", "2.0"]
    assert EVERYWHERE == []


def test_the_threads_of_a_pass_on_devices() -> None:
    with ut.sim.configure(devices=2):
        x = ut.ones(3, requires_grad=True)
        with profile() as prof:
            y = x.to("sim:0") * 2
            (y.to("cpu") + (x.to("sim:1") * 3).to("cpu")).sum().backward()
    assert x.grad.tolist() == [5.0] * 3
    nodes = [event for event in prof.events() if event.name == "MulBackward0"]
    assert {event.device for event in nodes} == {"sim:0", "sim:1"}
    assert len({event.thread for event in nodes}) == 2


# ---- switching it


def test_the_context_is_what_it_was() -> None:
    """Every variable that has a value makes reading all of them slower."""

    def variables() -> set[str]:
        return {variable.name for variable in contextvars.copy_context()}

    def compare() -> None:
        x = ut.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        before, watchers = variables(), watch._watchers
        with profile(with_modules=True, profile_memory=True):
            (x * 2).sum().backward()
            assert variables() > before
        assert variables() == before and watch._watchers == watchers
        prof = profile()
        prof.start()
        with ut.no_grad():
            prof.stop()  # another mode has come in between
        assert current().intercept is None and ut.is_grad_enabled()

    contextvars.Context().run(compare)


def test_nothing_is_left_when_it_ends() -> None:
    with profile(with_modules=True, profile_memory=True):
        assert ut.profiler.is_enabled() and current().intercept is not None
    assert not ut.profiler.is_enabled() and current().intercept is None and EVERYWHERE == []


def test_nothing_is_left_when_the_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), profile(with_modules=True) as prof:
        ut.ones(2).exp()
        1 / 0
    assert current().intercept is None and names(prof) == ["aten::exp"]


def test_profiles_do_not_nest() -> None:
    with profile(), pytest.raises(RuntimeError, match="do not nest"), profile():
        pass
    assert not ut.profiler.is_enabled()


def test_other_threads_are_not_seen() -> None:
    with profile() as prof:
        thread = threading.Thread(target=lambda: ut.ones(2).exp())
        thread.start()
        thread.join()
    assert names(prof) == []


def test_it_stands_above_modes_and_transformations() -> None:
    x = ut.ones(2, 3)
    with profile() as prof:
        assert ut.vmap(ut.func.grad(lambda row: (row * row).sum()))(x).tolist() == [[2.0] * 3] * 2
        with ut.autocast("cpu", dtype=ut.float16):
            assert (x @ x.t()).dtype == ut.float16
    assert "aten::mul" in names(prof) and "aten::mm" in names(prof)


def test_it_may_be_left_inside_a_mode_that_was_entered_later() -> None:
    class Log(ut.OpMode):
        def on_operation(self, op: Any, args: Any, kwargs: Any) -> Any:
            seen.append(str(op))
            return op(*args, **kwargs)

    seen: list[str] = []
    prof, log = profile(), Log()
    prof.start()
    log.__enter__()
    ut.ones(2).exp()
    prof.stop()
    ut.ones(2).sin()
    log.__exit__(None, None, None)
    assert current().intercept is None
    assert seen == ["exp", "sin"] and names(prof) == ["aten::exp"]


def test_results_are_refused_while_it_runs() -> None:
    with profile() as prof, pytest.raises(AssertionError, match="didn't finish"):
        prof.events()
    assert str(profile()) == "<unfinished profiler_util.profile>"


# ---- steps


def test_schedule_refuses_what_makes_no_sense() -> None:
    with pytest.raises(AssertionError, match="active must be positive"):
        schedule(wait=1, warmup=1, active=0)


def test_steps_by_a_schedule() -> None:
    found: list[Any] = []

    def ready(prof: Any) -> None:
        found.append((prof.step_num, names(prof)))

    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1), on_trace_ready=ready) as prof:
        for step in range(6):
            getattr(ut.ones(2), ["sin", "cos", "exp", "tanh", "sqrt", "neg"][step])()
            prof.step()
    assert found == [(4, ["ProfilerStep#2", "aten::exp", "ProfilerStep#3", "aten::tanh"])]
    assert prof.current_action is ProfilerAction.NONE and not ut.profiler.is_enabled()


def test_on_trace_ready_at_the_end_of_a_block() -> None:
    found: list[int] = []
    with profile(on_trace_ready=lambda prof: found.append(len(names(prof)))):
        ut.ones(2).exp()
    assert found == [1]


# ---- averages and tables


def test_averages() -> None:
    x = ut.ones(3)
    with profile(record_shapes=True) as prof:
        for _ in range(3):
            x.exp()
        x[:2].exp()
    (average,) = [a for a in prof.key_averages() if a.key == "aten::exp"]
    assert average.count == 4
    assert average.cpu_time_total == pytest.approx(
        sum(e.cpu_time_total for e in prof.events() if e.name == "aten::exp")
    )
    by_shape = [a for a in prof.key_averages(group_by_input_shape=True) if a.key == "aten::exp"]
    assert sorted((a.count, str(a.input_shapes)) for a in by_shape) == [(1, "[[2]]"), (3, "[[3]]")]
    assert prof.total_average().count == len(prof.events())


def test_a_table_is_sorted_and_cut() -> None:
    x = ut.ones(3)
    with profile() as prof:
        x.exp()
        for _ in range(3):
            x.sin()
    rows = prof.key_averages().table(sort_by="count", row_limit=1).splitlines()
    assert "aten::sin" in rows[3] and not any("aten::exp" in row for row in rows)
    with pytest.raises(ValueError, match="cannot sort by 'nonsense'"):
        prof.key_averages().table(sort_by="nonsense")


def test_self_time_is_what_is_not_spent_inside() -> None:
    x = ut.ones(1000)
    with profile() as prof, record_function("outer"):
        x.exp()
    outer, inner = prof.events()
    assert outer.cpu_children == [inner] and inner.cpu_parent is outer
    assert outer.self_cpu_time_total == pytest.approx(outer.cpu_time_total - inner.cpu_time_total)


@pytest.mark.torch
def test_the_names_of_a_training_step_are_torchs(torch: ModuleType) -> None:
    def step(lib: Any) -> list[str]:
        x = lib.ones(3, 4)
        w = lib.ones(4, 2, requires_grad=True)
        with lib.profiler.profile() as prof:
            (x.mm(w).relu() + 1).exp().sum().backward()
        return [event.name for event in prof.events()]

    ours, theirs = step(ut), step(torch)
    for name in ours:
        assert name.replace("undertow::", "torch::") in theirs, name


# ---- files


def trace_of(prof: Any, path: Path) -> Any:
    prof.export_chrome_trace(str(path))
    return json.loads(path.read_text())


def test_chrome_trace(tmp_path: Path) -> None:
    x = ut.ones(3, requires_grad=True)
    with profile(record_shapes=True, profile_memory=True) as prof:
        (x.exp() * 2).sum().backward()
    prof.add_metadata("note", "mine")
    trace = trace_of(prof, tmp_path / "trace.json")
    slices = {entry["name"]: entry for entry in trace["traceEvents"] if entry["ph"] == "X"}
    assert slices["aten::exp"]["args"]["Input Dims"] == [[3]] and trace["note"] == "mine"
    starts = {entry["id"]: entry for entry in trace["traceEvents"] if entry["ph"] == "s"}
    ends = {entry["id"]: entry for entry in trace["traceEvents"] if entry["ph"] == "f"}
    assert starts.keys() == ends.keys() and {e["cat"] for e in starts.values()} == {"fwdbwd", "ready"}
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
    ready = [number for number, entry in starts.items() if entry["cat"] == "ready"]
    targets = {ends[number]["ts"] for number in ready}
    assert slices["MulBackward0"]["ts"] in targets and slices["ExpBackward0"]["ts"] in targets
    assert any(entry["ph"] == "C" and entry["args"]["bytes"] > 0 for entry in trace["traceEvents"])
    assert {entry["args"]["name"] for entry in trace["traceEvents"] if entry["name"] == "thread_name"} == {"MainThread"}


def test_a_trace_has_a_lane_for_each_stream(tmp_path: Path) -> None:
    x = ut.ones(3, device="sim:0", requires_grad=True)
    with profile() as prof:
        (x.exp() @ x).backward()
        with ut.sim.Stream("sim:1"):
            ut.ones(3, device="sim:1").sin()
    entries = trace_of(prof, tmp_path / "trace.json")["traceEvents"]
    check_trace(entries)
    names = {entry["tid"]: entry["args"]["name"] for entry in entries if entry["name"] == "thread_name"}
    lanes: dict[str, list[str]] = {}
    for entry in entries:
        if entry.get("cat") == "launch":
            lanes.setdefault(names[entry["tid"]], []).append(entry["name"])
    default = lanes.pop("default stream of sim:0")
    assert default[:2] == ["aten::exp", "aten::dot"] and default[2] == "DotBackward0"
    ((side, launched),) = lanes.items()
    assert side.endswith("of sim:1") and launched == ["aten::ones", "aten::sin"]


def test_what_several_threads_give_to_a_stream_at_once_has_several_lanes() -> None:
    given = {"device": "sim:0", "stream": "a stream of sim:0"}
    times = [(0.0, 4.0), (1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 6.0)]
    events = [FunctionEvent(k, str(k), 1, begin, end, **given) for k, (begin, end) in enumerate(times)]
    lanes = lanes_of_streams([*events, FunctionEvent(5, "on the CPU", 1, 0.0, 1.0)])
    assert [[event.name for event in lane.events] for lane in lanes] == [["0", "1", "2", "4"], ["3"]]
    assert {lane.name for lane in lanes} == {"a stream of sim:0"}


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}])
def test_every_event_on_a_device_knows_its_stream(options: dict[str, Any]) -> None:
    x = ut.ones(2, 2, device="sim:1", requires_grad=True)
    with profile(**options) as prof:
        ut.matmul(x, x).sum().backward()
        ut.ones(2).exp()
    places = {event.name: (event.device, event.stream) for event in prof.events()}
    assert places.pop("aten::exp") == places.pop("aten::ones") == (None, None)
    assert {"aten::matmul", "aten::mm", "MmBackward0"} < places.keys()
    assert set(places.values()) == {("sim:1", "default stream of sim:1")}


def test_flops_of_nodes() -> None:
    model = ut.nn.Sequential(ut.nn.Linear(8, 16), ut.nn.ReLU(), ut.nn.Linear(16, 2))
    with profile(with_flops=True) as prof, FlopCounterMode(display=False) as counter:
        model(ut.ones(4, 8)).sum().backward()
    flops = {row.key: row.flops for row in prof.key_averages() if row.flops}
    assert flops == {"aten::linear": 1280, "LinearBackward0": 1536}  # no gradient of the input of the first
    assert sum(flops.values()) == counter.get_total_flops()


def test_arguments_that_do_not_exist_are_refused() -> None:
    for kind in (profile, ut.autograd.profiler.profile):
        with pytest.raises(TypeError, match="record_shape"):
            kind(record_shape=True)


def test_events_of_all_rounds() -> None:
    names = []
    for accumulates in (False, True):
        rounds = ut.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
        with profile(schedule=rounds, acc_events=accumulates) as prof:
            for function in (ut.sin, ut.cos, ut.exp, ut.log, ut.sqrt, ut.tan, ut.neg):
                function(ut.ones(1))
                prof.step()
        names.append([event.name for event in prof.events() if event.name not in ("aten::ones", "aten::full")])
    last, both = names
    assert last == ["ProfilerStep#5", "aten::tan"]
    assert both == ["ProfilerStep#2", "aten::exp", *last]


def test_a_part_of_a_block_is_left_out() -> None:
    x = ut.ones(3, requires_grad=True)
    cpu = [ut.profiler.ProfilerActivity.CPU]
    with profile(with_modules=True, profile_memory=True) as prof:
        y = x.exp()
        prof.toggle_collection_dynamic(False, cpu)
        prof.toggle_collection_dynamic(False, cpu)
        assert not ut.profiler.is_enabled()
        y.sum().backward()
        prof.toggle_collection_dynamic(True, cpu)
        y.detach().sin()
        prof.toggle_collection_dynamic(False, cpu)
    assert [event.name for event in prof.events()] == ["aten::exp", "aten::detach", "aten::sin"]
    with pytest.raises(RuntimeError, match="no profile is under way"):
        prof.toggle_collection_dynamic(True, cpu)
    assert not ut.profiler.is_enabled()


def test_traces_of_several_processes_are_merged(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        with profile() as prof:
            ut.ones(2, requires_grad=True).exp().sum().backward()
        paths.append(str(tmp_path / f"{rank}.json.gz"))
        prof.export_chrome_trace(paths[-1])
    with gzip.open(paths[0]) as file:
        assert file.read(1) == b"{"
    ut.profiler.merge_traces(paths, str(tmp_path / "all.json"))
    entries = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    assert len({entry["pid"] for entry in entries}) == 2
    check_trace(entries)


def check_trace(entries: list[dict[str, Any]]) -> None:
    """What Perfetto asks of a trace: else it leaves entries out, and says so only on its page of statistics."""
    slices: dict[Any, list[tuple[float, float]]] = {}
    arrows: dict[int, list[dict[str, Any]]] = {}
    for entry in entries:
        assert type(entry["pid"]) is type(entry["tid"]) is int and type(entry["name"]) is str
        assert entry["ph"] in "MXsfC" and (entry["ph"] == "M" or entry["ts"] >= 0)
        if entry["ph"] == "X":
            assert entry["dur"] >= 0
            slices.setdefault((entry["pid"], entry["tid"]), []).append((entry["ts"], entry["ts"] + entry["dur"]))
        elif entry["ph"] in "sf":
            assert type(entry["id"]) is int
            arrows.setdefault(entry["id"], []).append(entry)
        elif entry["ph"] == "C":
            assert all(type(value) is int for value in entry["args"].values())
    for ends in arrows.values():
        assert [end["ph"] for end in ends] == ["s", "f"] and len({end["pid"] for end in ends}) == 1
        for end in ends:  # each is bound to the slice that it lies in
            lane = slices[end["pid"], end["tid"]]
            assert any(begin <= end["ts"] <= until for begin, until in lane)
    for lane in slices.values():
        for (_, end), (begin, until) in pairwise(sorted(lane, key=lambda slice: (slice[0], -slice[1]))):
            assert begin >= end or until <= end + 1e-3  # one after the other, or one in the other


def test_traces_for_tensorboard(tmp_path: Path) -> None:
    with profile(on_trace_ready=ut.profiler.tensorboard_trace_handler(str(tmp_path / "log"), "worker")):
        ut.ones(2).exp()
    (path,) = (tmp_path / "log").iterdir()
    assert path.name.startswith("worker.") and path.name.endswith(".pt.trace.json")


def test_stacks_for_a_flame_graph(tmp_path: Path) -> None:
    def inner() -> Any:
        return ut.ones(1000, 1000).exp()

    with profile(with_stack=True) as prof:
        inner()
    prof.export_stacks(str(tmp_path / "stacks"))
    lines = (tmp_path / "stacks").read_text().splitlines()
    (line,) = [line for line in lines if "aten::exp" in line]
    stack, _, value = line.rpartition(" ")
    assert int(value) > 0
    assert stack.split(";")[-1] == "aten::exp" and stack.split(";")[-2].endswith("inner")
    with pytest.raises(ValueError, match="metric should be one of"):
        prof.export_stacks(str(tmp_path / "stacks"), "nonsense")
    with profile() as without, pytest.raises(AssertionError):
        without.export_stacks("nowhere")
    with pytest.raises(RuntimeError, match="with_stack=True"):
        without.export_stacks("nowhere")


# ---- memory


def test_memory_timeline_names_what_is_left() -> None:
    kept = []
    with profile(profile_memory=True, with_modules=True) as prof:
        for _ in range(3):
            kept.append(ut.nn.Identity()(ut.ones(1000)).exp())
            ut.ones(1000).sin()
    timeline = prof.memory_timeline()
    leaks = timeline.leaks()
    assert leaks.by("operation") == {"exp": 12000} and leaks.bytes == 12000
    assert "test_memory_timeline" in next(iter(leaks.by("line")))
    assert timeline.peak_bytes == 20000 and timeline.at().by("operation") == {"exp": 12000, "ones": 4000, "sin": 4000}
    first, last = timeline.at(0.0), timeline.at(timeline.curve[-1][0])
    assert first.bytes == 0 and (last - first).bytes == 12000 and (first - last).blocks == []


def test_memory_of_new_tensors_and_of_views_of_older_ones() -> None:
    older, array = ut.ones(1000), np.ones(50)
    with profile(profile_memory=True) as prof:
        kept = [older[:5], older.view(10, 100), older.reshape(20, 50), ut.from_numpy(array), older.add_(1)]
        kept += [ut.zeros(100), ut.tensor([1.0, 2.0]), ut.ones(4, 4) @ ut.ones(4, 4)]
    made = prof.memory_timeline().leaks().by("operation")
    assert made == {"zeros": 400, "tensor": 8, "mm": 64}
    rows = {row.key: (row.cpu_memory_usage, row.self_cpu_memory_usage) for row in prof.key_averages()}
    assert rows["aten::matmul"] == (64, 0) and rows["aten::ones"] == (128, 128) and rows["aten::view"] == (0, 0)


def test_memory_by_module_also_in_the_backward_pass() -> None:
    model = a_model()
    with profile(profile_memory=True, with_modules=True) as prof:
        model(ut.ones(3, 4)).sum().backward()
    by_module = prof.memory_timeline().leaks().by("operation")
    assert by_module["undertow::autograd::AccumulateGrad"] == sum(p.numel() * 4 for p in model.parameters())
    assert "2.0" in {block.module for block in prof.memory_timeline().blocks if block.operation == "LinearBackward0"}


def test_memory_is_written(tmp_path: Path) -> None:
    with profile(profile_memory=True) as prof:
        ut.ones(1000).exp()
    prof.export_memory_timeline(str(tmp_path / "memory.json"))
    assert json.loads((tmp_path / "memory.json").read_text())["blocks"][1]["operation"] == "exp"
    prof.export_memory_timeline(str(tmp_path / "memory.html"))
    assert "<svg" in (tmp_path / "memory.html").read_text()
    with profile() as without:
        pass
    with pytest.raises(RuntimeError, match="profile_memory=True"):
        without.memory_timeline()


# ---- names


def test_the_modules_are_found_by_import() -> None:
    from undertow.autograd.profiler import profile as of_autograd
    from undertow.autograd.profiler_util import EventList

    with of_autograd(enabled=False) as nothing:
        assert nothing is None and not ut.profiler.is_enabled()
    assert EventList() == [] and str(EventList()) == ""


# ---- the compiled core


class Cube(ut.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return 3 * grad * ctx.saved_tensors[0] ** 2


def everything() -> None:
    w = ut.ones(3, 3, requires_grad=True)
    b = ut.ones(3, requires_grad=True)
    b.register_post_accumulate_grad_hook(lambda leaf: None)
    x = ut.ones(2, 3)
    x.add_(1.0).mul_(x)
    h = (x @ w + b).tanh()
    h.register_hook(lambda grad: grad * 2)
    parts = ut.split(h, 1)
    y = Cube.apply(ut.cat([parts[0], parts[1] * 2]))
    y[0] = 1.0
    values, _ = ut.sort(y + h, dim=1)
    values.sum().backward(retain_graph=True)
    ut.autograd.grad(values.sum(), w)
    with ut.no_grad():
        w -= 0.1 * w.grad
    ut.add(x, x, out=ut.zeros(2, 3))
    ut.vmap(lambda row: row.exp())(x)


def facts(prof: Any) -> list[Any]:
    first = min([e.sequence_nr for e in prof.events() if e.sequence_nr >= 0])
    return sorted(
        (
            e.name,
            max(e.sequence_nr - first, -1),
            str(e.line),
            sorted(n - first for n in e.leads_to if n < 2**63),
            e.category,
        )
        for e in prof.events()
        if e.name not in ("aten::split", "aten::split_with_sizes") and not e.is_composite
    )


def test_the_core_writes_down_what_python_does() -> None:
    found = []
    for options in ({}, {"record_shapes": True}):
        with profile(**options) as prof:
            everything()
        found.append(facts(prof))
    assert found[0] == found[1] and len(found[0]) > 40


def shapes_and_writes() -> None:
    """What C does by shortcuts, on lists, or leaves to Python (half precision, and an operand of another dtype)."""
    w = ut.ones(2, 6, requires_grad=True)
    h = w.reshape(3, 4) * 2
    h.chunk(2)[0].T.contiguous().squeeze().expand_as(ut.ones(2, 4, 2)).sum(0)
    h[1:, 2]
    h[0] = 3.0
    h[0] *= 2
    h[ut.tensor([0, 1])] = ut.zeros(4)
    ut.stack([h, h]).max(1)
    x = ut.ones(4)
    x.copy_(h[0])
    with ut.no_grad():
        x = ut.zeros(4)
        x[2] = 1.0
        x.zero_()
        x.fill_(2.0)
        x.copy_(ut.ones(4))
    x.half().exp() + ut.arange(4)
    x.add_(ut.arange(4))
    h.detach()


def test_the_core_writes_down_shortcuts_and_what_it_leaves_to_python() -> None:
    found = []
    for options in ({}, {"record_shapes": True}):
        with profile(**options) as prof:
            shapes_and_writes()
        found.append([(e.name, e.is_composite, e.line) for e in prof.events() if e.is_composite or e.sequence_nr >= 0])
        found.append([e.name for e in prof.events()])
    assert found[0] == found[2] and found[1] == found[3]
    assert found[1].count("aten::copy_") == 5 and "aten::index_put_" in found[1]


def test_a_profile_of_a_pass_that_fails() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x.exp()
    z = (y * 2).sum()
    y.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"), profile() as prof:
        z.backward()
    assert "MulBackward0" in names(prof) and "ExpBackward0" not in names(prof)


def test_operations_that_fail_leave_no_row() -> None:
    with profile() as prof:
        with pytest.raises(RuntimeError):
            ut.ones(2, 3) @ ut.ones(2, 3)
        ut.ones(2).exp()
    assert names(prof) == ["aten::exp"]
