"""The parts of the engine by their names: GraphRoot, Identity, owner, dependencies, pruning, ImperativeEngine."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow.backend import cpu, namespace_of
from undertow.engine import engine as engine_module
from undertow.engine.dependencies import compute_dependencies, min_topological_nr
from undertow.engine.devices import this_thread
from undertow.engine.engine import engine
from undertow.engine.tasks import Dependencies, GraphRoot, GraphTask, current_task
from undertow.graph import node as node_module
from undertow.graph.accumulate import gradient_edge
from undertow.graph.end_nodes import Identity


def leaf(L: ModuleType = ut, **options: Any) -> Any:
    return L.tensor([1.0, 2.0], requires_grad=True, **options)


def seen_in_pass(question: Any, *roots: Any) -> Any:
    """What `question()` gives inside a pass from these roots."""
    answers: list[Any] = []
    handle = roots[0].register_hook(lambda g: answers.append(question()))
    ut.autograd.backward(roots, [ut.ones_like(root) for root in roots], retain_graph=True)
    handle.remove()
    return answers[0]


# ---- where a pass starts


def test_an_only_root_needs_no_graph_root() -> None:
    y, z = leaf() * 2, leaf().exp()
    assert seen_in_pass(lambda: current_task().root, y) is y.grad_fn
    assert type(seen_in_pass(lambda: current_task().root, y, z)) is GraphRoot


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_an_only_root_may_be_one_of_several_outputs(device: str) -> None:
    x = ut.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    first, second = x.unbind(0)
    second.backward(ut.tensor([5.0, 6.0], device=device))
    assert x.grad.tolist() == [[0, 0], [5, 6]]
    del first


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_an_only_root_may_be_a_leaf(device: str) -> None:
    x = leaf(device=device)
    seen: list[Any] = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    x.backward(ut.tensor([3.0, 4.0], device=device))
    x.backward(ut.tensor([1.0, 1.0], device=device), inputs=[x])
    assert x.grad.tolist() == [4, 5] and seen == [[3, 4], [3, 4], [1, 1], [4, 5]]


def test_the_first_gradient_is_cast_for_an_only_root(L: ModuleType) -> None:
    x = leaf(L)
    (x * 2).backward(L.tensor([1.0, 2.0], dtype=L.float64))
    assert x.grad.dtype == L.float32 and x.grad.tolist() == [2, 4]


def test_an_only_root_on_a_device_starts_on_its_thread() -> None:
    y = leaf(device="sim:0") * 2
    names: list[str] = []
    y.register_hook(lambda g: names.append(threading.current_thread().name))
    y.sum().backward()
    assert names == ["undertow-sim:0"]


def test_nodes_on_meta_run_on_the_calling_thread() -> None:
    y = leaf(device="meta").exp()
    names: list[str] = []
    y.register_hook(lambda g: names.append(threading.current_thread().name))
    y.sum().backward()
    assert names == [threading.current_thread().name]


# ---- names


def test_nodes_that_stand_for_no_operation_have_a_namespace(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    assert y.grad_fn.name() == "MulBackward0"
    assert y.grad_fn.next_functions[0][0].name() == f"{L.__name__}::autograd::AccumulateGrad"
    y[0].mul_(3)
    assert y.grad_fn.name() == f"{L.__name__}::autograd::CopySlices"
    assert type(y.grad_fn).__name__ == "CopySlices"


# ---- dependencies


@pytest.mark.parametrize("watched", [False, True])
def test_dependencies_count_down_to_zero(watched: bool) -> None:
    x = leaf()
    y = x * 2
    parts = [y.exp(), y.sin(), y * y]
    root = parts[0] + parts[1] + parts[2]
    waiting: list[int] = []
    for part in parts:
        part.register_hook(lambda g: waiting.append(current_task().dependencies[y.grad_fn]))
    task: list[Any] = []
    root.register_hook(lambda g: task.append(current_task()))
    with ut.autograd.set_detect_anomaly(watched):
        root.sum().backward()
    assert waiting == [4, 2, 1]  # y * y goes first, and has two edges
    assert set(task[0].dependencies.values()) == {0} and y.grad_fn in task[0].dependencies


def test_a_node_that_was_not_counted_is_named() -> None:
    x, other = leaf(), leaf()
    y = x * 2
    z = y.exp()
    stranger = other.sin()

    def rewire(grad: Any) -> None:
        y.grad_fn.next_edges = (stranger.grad_fn, None)

    z.register_hook(rewire)
    with pytest.raises(RuntimeError, match=r"dependency not found for SinBackward0.*while the pass ran"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="dependency not found for ExpBackward0"):
        Dependencies()[z.grad_fn]


# ---- pruning


def counted(root: Any, *targets: Any) -> set[str]:
    """The names of the nodes that a pass from root to the targets looks at."""
    task = GraphTask(False, False, cpu, None)
    nodes = [t.grad_fn for t in targets]
    lowest, numbers = min_topological_nr(root.grad_fn, [], nodes)
    compute_dependencies(task, root.grad_fn, lowest, numbers)
    return {node.name() for node in task.dependencies}


@pytest.mark.parametrize("trusted", [True, False])
def test_topological_numbers_prune_what_cannot_lead_to_the_inputs(
    trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sequence numbers; by longest paths, where a program has set a sequence number."""
    monkeypatch.setattr(node_module.sequence_order, "trusted", trusted)
    x = leaf()
    below = x.exp().sin().cos()
    target = below.tan()
    root = (target * 2).sum()
    assert counted(root, target) == {"MulBackward0", "TanBackward0", "CosBackward0"}
    assert ut.autograd.grad(root, target, retain_graph=True)[0].tolist() == [2, 2]
    assert ut.autograd.grad(root, [x, below], retain_graph=True)[1].shape == (2,)


def test_longest_paths_prune_short_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module.sequence_order, "trusted", False)
    target = leaf().exp().sin().cos()
    short = leaf().tan().exp2()  # recorded later, but it has too few nodes to lead to the target
    assert counted((target * short).sum(), target) == {"MulBackward0", "CosBackward0", "SinBackward0", "Exp2Backward0"}


def test_a_node_with_a_changed_number_still_gets_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module.sequence_order, "trusted", True)
    x = leaf()
    y = x * 2
    z = (y * 3).sum()
    y.grad_fn._set_sequence_nr(10**12)
    assert ut.autograd.grad(z, y, retain_graph=True)[0].tolist() == [3, 3]
    assert ut.autograd.grad(z, x)[0].tolist() == [6, 6]


# ---- Identity


def test_an_unused_leaf_gets_no_accumulate_node() -> None:
    x, unused = leaf(), leaf()
    y = (x * 2).sum()
    first, second = ut.autograd.grad(y, [x, unused], allow_unused=True, retain_graph=True)
    assert first.tolist() == [2, 2] and second is None
    assert unused._extra is None or unused._extra.accumulate is None
    with pytest.raises(RuntimeError, match="no operation between it and the outputs"):
        ut.autograd.grad(y, unused, retain_graph=True)
    y.backward(inputs=[unused])
    assert unused.grad is None
    assert ut.autograd.grad(unused, unused, ut.ones(2))[0].tolist() == [1, 1]
    assert Identity(x).pull(cpu, 1.0, (), True) == [1.0]
    assert ut.autograd.grad((unused * 3).sum(), unused)[0].tolist() == [3, 3]


# ---- owner


def test_a_pass_knows_which_worker_started_it() -> None:
    owners: list[Any] = []
    inner = leaf()
    inner.register_hook(lambda g: owners.append(current_task().owner))
    loss = (inner * 2).sum()
    y = leaf(device="sim:0") * 2
    y.register_hook(lambda g: loss.backward(retain_graph=True))
    loss.backward(retain_graph=True)
    y.sum().backward()
    assert owners == [None, namespace_of("sim:0").device]


def test_a_thread_of_the_pool_takes_the_place_of_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nested pass moves there when half of the calls that Python allows are used up."""
    limit = sys.getrecursionlimit()
    monkeypatch.setattr(engine_module, "calls_left", lambda: limit // 2 - (current_task().reentrant_depth == 2))
    seen: list[Any] = []

    def descend(level: int) -> None:
        x = leaf(device="sim:0")
        y = x * 2

        @ut.enable_grad()
        def hook(grad: Any) -> None:
            if level:
                descend(level - 1)
            else:
                seen.append((current_task().owner, this_thread.device, threading.current_thread().name))

        y.register_hook(hook)
        y.sum().backward()
        assert x.grad.tolist() == [2, 2]

    descend(3)
    device = namespace_of("sim:0").device
    assert seen == [(device, device, "undertow-reentrant")]


# ---- exit_on_error


@pytest.mark.parametrize("exit_on_error", [True, False])
def test_exit_on_error_does_not_wait_for_nodes_that_run(exit_on_error: bool) -> None:
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(grad: Any) -> None:
        started.set()
        may_end.wait(60)
        ended.set()

    def fail(grad: Any) -> None:
        started.wait(60)
        if not exit_on_error:
            may_end.set()
        raise ValueError("as planned")

    x = leaf()
    a, b = x.to("sim:0") * 2, x.to("sim:1") * 2
    a.register_hook(slow)
    b.register_hook(fail)
    root = a.cpu() + b.cpu()
    with pytest.raises(ValueError, match="as planned"):
        engine.execute([gradient_edge(root)], [cpu.ones((2,), cpu.float32)], keep_graph=False, create_graph=False,
                       xp=cpu, exit_on_error=exit_on_error)  # fmt: skip
    assert ended.is_set() is not exit_on_error
    may_end.set()
    assert ended.wait(60) and x.grad is None
    (x.to("sim:0") * 2).sum().backward()  # the threads go on
    assert x.grad.tolist() == [2, 2]


# ---- checkpoints


def checkpoint(L: ModuleType, *args: Any) -> Any:
    module = L.utils.checkpoint if L.__name__ == "torch" else L.autograd.checkpoint
    return module.checkpoint(*args, use_reentrant=True)


def test_a_nested_pass_inherits_that_checkpoints_are_invalid(L: ModuleType) -> None:
    """An outer grad() has chosen inputs, so a re-entrant checkpoint in a backward() inside it raises, too."""

    class Outer(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            with L.enable_grad():
                inner = leaf(L)
                checkpoint(L, lambda t: t.exp(), inner).sum().backward()
            return grad

    x = leaf(L)
    Outer.apply(x).sum().backward()
    with pytest.raises(RuntimeError, match="incompatible"):
        L.autograd.grad(Outer.apply(x).sum(), x)
    Outer.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


# ---- Variable._execution_engine


def test_is_checkpoint_valid(L: ModuleType) -> None:
    valid = L.autograd.Variable._execution_engine.is_checkpoint_valid
    seen: list[bool] = []
    x = leaf(L)
    y = x * 2
    y.register_hook(lambda g: seen.append(valid()))
    y.sum().backward()
    L.autograd.grad((y * 1).sum(), y)
    assert valid() and seen == [True, False] if L.__name__ == "undertow" else valid()


def test_run_backward(L: ModuleType) -> None:
    run_backward = L.autograd.Variable._execution_engine.run_backward
    x, unused, one = leaf(L), leaf(L), L.tensor(1.0)
    y = (x * x).sum()
    assert run_backward((y,), (one,), True, False, accumulate_grad=True) is None and x.grad.tolist() == [2, 4]
    (found,) = run_backward((y,), (one,), True, False, (x,))
    assert found.tolist() == [2, 4] and x.grad.tolist() == [2, 4]
    assert run_backward((y,), (one,), True, False, (x,), True, accumulate_grad=True) is None
    assert x.grad.tolist() == [4, 8]
    assert run_backward((y,), (one,), True, False, (unused,), True) == (None,)
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        run_backward((y,), (one,), True, False, (unused,))
    with pytest.raises(RuntimeError, match="grad requires non-empty inputs"):
        run_backward((y,), (one,), True, False)
    (recorded,) = run_backward((y,), (one,), True, True, (x,))
    assert recorded.requires_grad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda y, g: ([y], (g,)), "tensors argument is expected to be a tuple, but got list"),
        (lambda y, g: ((y,), [g]), "grad_tensors argument is expected to be a tuple, but got list"),
        (lambda y, g: ((y,), (g, g)), "got 1 tensors and 2 gradients"),
        (lambda y, g: ((y,), (None,)), "element 0 of gradients tuple is None, but the corresponding Tensor requires"),
        (lambda y, g: ((g,), (g,)), "element 0 of tensors does not require grad and does not have a grad_fn"),
    ],
)
def test_run_backward_refuses(L: ModuleType, arguments: Any, message: str) -> None:
    y = leaf(L).sum()
    with pytest.raises(RuntimeError, match=message):
        L.autograd.Variable._execution_engine.run_backward(
            *arguments(y, L.tensor(1.0)), True, False, accumulate_grad=True
        )


def test_queue_callback(L: ModuleType) -> None:
    queue_callback = L.autograd.Variable._execution_engine.queue_callback
    log: list[Any] = []
    x = leaf(L)
    x.register_hook(lambda g: queue_callback(lambda: log.append(x.grad.tolist())))
    (x * 2).sum().backward()
    assert log == [[2, 2]]
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed during backward pass"):
        queue_callback(lambda: None)


# ---- names


def test_the_names_in_the_translation_table_are_there() -> None:
    """docs/engine.md says under which name, and in which file, what PyTorch's engine has is found here."""
    root = Path(__file__).parents[2]
    rows = re.findall(r"^\| .* \| (.*) \| `(.*\.py)` \|$", (root / "docs/engine.md").read_text(), re.MULTILINE)
    assert len(rows) > 30
    for names, file in rows:
        source = (root / "src/undertow" / file).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            assert re.search(rf"\b{name.split('.')[-1]}\b", source), (name, file)
