"""Passes that go on when more gradients come, in one process: the same gradients as a pass that gets all at once."""

from __future__ import annotations

from typing import Any

import pytest

import undertow as ut
from undertow.distributed.autograd.nodes import SendRpcBackward
from undertow.engine import resumable
from undertow.engine.tasks import GraphTask
from undertow.graph.accumulate import AccumulateGrad, gradient_edge
from undertow.ops.declare.recorded_namespace import recorded


class Pass:
    """A pass that starts at outputs, which are given gradients one after another, and keeps what comes to leaves."""

    def __init__(self, *groups: list[ut.Tensor]) -> None:
        self.starts = [SendRpcBackward([gradient_edge(t) for t in group], group) for group in groups]
        self.grads: dict[Any, Any] = {}

        def choose(nodes: Any) -> Any:
            leaves = [n for n in nodes if type(n) is AccumulateGrad]
            return leaves, {k: (lambda g, leaf=leaf: self.keep(leaf, g),) for k, leaf in enumerate(leaves)}, []

        self.task: GraphTask = resumable.prepare([], self.starts, keep_graph=False, xp=recorded.arrays, choose=choose)

    def keep(self, leaf: AccumulateGrad, grad: Any) -> Any:
        if grad is not None:
            assert leaf.variable not in self.grads
            self.grads[leaf.variable] = ut.from_numpy(grad.copy())
        return grad

    def give(self, number: int, *grads: ut.Tensor | None) -> None:
        arrays = [None if g is None else g._array for g in grads]
        nothing = all([a is None for a in arrays])
        resumable.execute_graph_task_until_ready_queue_empty(
            self.task, self.starts[number], None if nothing else arrays
        )


@pytest.fixture
def graph() -> Any:
    ut.manual_seed(0)
    x, w = [ut.randn(3, 3).requires_grad_() for _ in range(2)]
    h = ut.sin(x @ w)
    return x, w, h, [h * 2, ut.tanh(h) @ w], [(h**2).sum(0)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_starts_in_any_order(graph: Any, order: tuple[int, int]) -> None:
    x, w, _, first, second = graph
    given = [[ut.randn(3, 3), ut.randn(3, 3)], [ut.randn(3)]]
    expected = ut.autograd.grad([*first, *second], [x, w], [g for part in given for g in part], retain_graph=True)
    run = Pass(first, second)
    for number in order:
        assert not run.grads or w not in run.grads
        run.give(number, *given[number])
    assert not resumable.unfinished(run.task)
    assert all([ut.allclose(run.grads[leaf], want) for leaf, want in zip((x, w), expected, strict=True)])


def test_a_gradient_of_nothing(graph: Any) -> None:
    x, w, _, first, second = graph
    given = ut.randn(3, 3)
    expected = ut.autograd.grad(first[0], [x, w], given, retain_graph=True)
    run = Pass(first, second)
    run.give(0, given, None)
    assert resumable.unfinished(run.task) and not run.grads
    run.give(1, None)
    assert all([ut.allclose(run.grads[leaf], want) for leaf, want in zip((x, w), expected, strict=True)])


def test_without_a_start_that_never_comes(graph: Any) -> None:
    """Nodes that only such a start leads to do not run at all."""
    x, w, h, first, second = graph
    ran = []
    useless = h.exp()
    useless.register_hook(ran.append)
    given = [ut.randn(3, 3), ut.randn(3, 3)]
    expected = ut.autograd.grad(first, [x, w], given, retain_graph=True)
    run = Pass(first, [*second, useless])
    run.give(0, *given)
    assert resumable.unfinished(run.task) and not run.grads.get(x)
    resumable.go_on_without(run.task, [run.starts[1]], [])
    assert not resumable.unfinished(run.task) and not ran
    assert all([ut.allclose(run.grads[leaf], want) for leaf, want in zip((x, w), expected, strict=True)])


def test_callbacks_wait_for_the_end(graph: Any) -> None:
    *_, first, second = graph
    called = []
    first[0].register_hook(lambda g: ut.autograd.graph.queue_callback(lambda: called.append(1)))
    run = Pass(first, second)
    run.give(0, ut.ones(3, 3), None)
    run.give(1, ut.ones(3))
    assert not called
    resumable.finish(run.task)
    assert called == [1]


def test_other_devices_are_refused() -> None:
    x = ut.ones(2, device="sim:0", requires_grad=True)
    with pytest.raises(RuntimeError, match="runs on CPUs, and a part of this graph is on another device"):
        Pass([(x * 2).cpu()])
