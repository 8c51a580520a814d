"""Graphs too deep for recursion, and what is left of a graph when it is dropped."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.graph.node import Node

DEPTH = 150_000


def chain(depth: int, step: Callable[[Any], Any] = lambda y: y + 1) -> tuple[Any, Any]:
    x = ut.ones(1, requires_grad=True)
    y = x
    for _ in range(depth):
        y = step(y)
    return x, y


STEPS: dict[str, Callable[[Any], Any]] = {
    "one edge": lambda y: y + 1,
    "two edges to the same node": lambda y: y / 2 + y / 2,
    "views": lambda y: (y + 1).view(1),
    "several outputs": lambda y: (y + 1).expand(2, 1).unbind()[1],
    "in place": lambda y: y.add_(1) if not y.is_leaf else y * 1,
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_deep_chain_is_built_run_and_freed(step: Callable[[Any], Any]) -> None:
    x, y = chain(10_000, step)
    node = weakref.ref(y.grad_fn)
    y.sum().backward(retain_graph=True)
    assert ut.autograd.grad(y.sum(), x)[0].tolist() == [1] == x.grad.tolist()
    del y
    assert node() is None


def test_a_chain_of_150_000() -> None:
    x, y = chain(DEPTH)
    nodes = [weakref.ref(y.grad_fn), weakref.ref(y.grad_fn.next_functions[0][0])]
    y.backward()
    assert x.grad.tolist() == [1]
    del y
    assert [node() for node in nodes] == [None, None]


@pytest.mark.slow
def test_a_chain_of_a_million() -> None:
    x, y = chain(1_000_000)
    node = weakref.ref(y.grad_fn)
    y.backward()
    assert x.grad.tolist() == [1]
    del y
    assert node() is None


def test_a_deep_chain_is_freed_without_having_run() -> None:
    gc.disable()
    x, y = chain(DEPTH)
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None and x.grad is None


def test_a_deep_chain_is_freed_in_another_order() -> None:
    """From the lower end, from the middle, by a second holder."""
    x, y = chain(20_000)
    middle = y
    for _ in range(10_000):
        middle = middle + 1
    lower, upper = weakref.ref(y.grad_fn), weakref.ref(middle.grad_fn)
    del y
    assert lower() is not None
    del middle
    assert upper() is None and lower() is None and x.is_leaf


def test_a_deep_chain_of_custom_functions() -> None:
    class Step(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x + 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    x, y = chain(20_000, Step.apply)
    node = weakref.ref(y.grad_fn)
    y.backward()
    assert x.grad.tolist() == [1]
    del y
    gc.collect()
    assert node() is None


def test_a_deep_recorded_pass() -> None:
    x, y = chain(10_000, lambda y: y * 1.0)
    (first,) = ut.autograd.grad(y * y, x, create_graph=True)
    (second,) = ut.autograd.grad(first, x)
    assert (first.item(), second.item()) == (2, 2)


def test_the_graph_can_be_looked_at_in_full() -> None:
    _, y = chain(20_000)
    node, length = y.grad_fn, 0
    while node is not None and node.next_functions:
        node, length = node.next_functions[0][0], length + 1
    assert length == 20_000 and type(node).__name__ == "AccumulateGrad"


def test_the_recursion_limit_is_not_touched() -> None:
    before = sys.getrecursionlimit()
    chain(2_000)[1].backward()
    assert sys.getrecursionlimit() == before


# ---- what is left


def left_behind(program: Callable[[], Any]) -> tuple[int, int]:
    """How many tensors and nodes, and how many bytes of arrays, a run of the program leaves, without the collector."""
    gc.disable()
    gc.freeze()  # what is there already is not looked at again
    program()  # whatever is made once is made now
    tracemalloc.start()
    try:
        return sorted(_left_by_one_run(program) for _ in range(3))[1]  # what leaks does so every time
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def _left_by_one_run(program: Callable[[], Any]) -> tuple[int, int]:
    before, bytes_before = _objects(), _bytes_in_arrays()
    program()
    return _objects() - before, _bytes_in_arrays() - bytes_before


def _objects() -> int:
    return sum(issubclass(type(o), ut.Tensor | Node) for o in gc.get_objects())


def _bytes_in_arrays() -> int:
    arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([arrays]).traces)


def forward_only() -> None:
    x, y = ut.ones(3, requires_grad=True), ut.ones(3, requires_grad=True)
    (x * y).exp().sum()


def with_backward() -> None:
    x, y = ut.ones(3, requires_grad=True), ut.ones(3, requires_grad=True)
    (x * y).exp().sum().backward()


def with_double_backward() -> None:
    x = ut.ones(3, requires_grad=True)
    (first,) = ut.autograd.grad((x**3).sum(), x, create_graph=True)
    first.sum().backward()


def with_views_and_in_place() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x * 1
    y[0].mul_(2)
    y.view(3).exp_()
    y.sum().backward()


def with_hooks() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda grad: grad * 2)
    x.register_hook(lambda grad: None)
    y.grad_fn.register_hook(lambda inputs, outputs: None)
    y.sum().backward()


def with_several_outputs() -> None:
    x = ut.ones(3, 2, requires_grad=True)
    a, b, _ = x.unbind()
    (a * b).sum().backward()


def with_retained_graph() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)


def with_saved_attributes() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x.exp()
    assert y.grad_fn._saved_result is not y and y.grad_fn._raw_saved_result is not None
    y.sum().backward()


PROGRAMS = [
    forward_only, with_backward, with_double_backward, with_views_and_in_place, with_hooks, with_several_outputs,
    with_retained_graph, with_saved_attributes,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_is_left(program: Callable[[], Any]) -> None:
    """Neither nodes nor tensors nor arrays, by reference counting alone."""
    assert left_behind(program) == (0, 0)


def test_the_count_sees_what_is_left() -> None:
    kept = []
    tensors, size = left_behind(lambda: kept.append(ut.ones(100) * 2))
    assert tensors == 1 and size >= 400


def test_every_piece_of_a_product_dies_with_it() -> None:
    gc.disable()
    x, y = ut.ones(3, requires_grad=True), ut.ones(3, requires_grad=True)
    z = x * y
    pieces = [weakref.ref(o) for o in (z, z.grad_fn, z._array, z.grad_fn.next_functions[0][0])]
    del z
    assert [piece() for piece in pieces] == [None] * 4
    inputs = [weakref.ref(o) for o in (x, y, x._array, y._array)]
    del x, y
    assert [piece() for piece in inputs] == [None] * 4


def test_an_intermediate_lives_as_long_as_it_is_saved() -> None:
    gc.disable()
    x = ut.ones(3, requires_grad=True)
    middle = x * 2
    array, tensor = weakref.ref(middle._array), weakref.ref(middle)
    out = middle.sin().sum()
    del middle
    assert tensor() is not None and array() is not None, "sin saved it"
    out.backward()
    assert tensor() is None and array() is None


def test_an_intermediate_that_nobody_saved_dies_at_once() -> None:
    gc.disable()
    x = ut.ones(3, requires_grad=True)
    middle = x * 2
    array = weakref.ref(middle._array)
    out = (middle + 1).sum()
    del middle
    assert array() is None and out.requires_grad


def test_saved_values_die_when_their_node_has_run_and_not_at_the_end() -> None:
    """The upper node's values are gone when the lower node runs."""
    gc.disable()
    x = ut.ones(3, requires_grad=True)
    lower = x * 2
    upper = lower.exp()
    saved = weakref.ref(upper._array)
    seen: list[bool] = []
    lower.register_hook(lambda grad: seen.append(saved() is None))
    out = upper.sum()
    del upper
    assert saved() is not None
    out.backward()
    assert seen == [True]


def test_retained_values_stay() -> None:
    gc.disable()
    x = ut.ones(3, requires_grad=True)
    y = x.exp()
    saved = weakref.ref(y._array)
    out = y.sum()
    del y
    out.backward(retain_graph=True)
    assert saved() is not None
    del out
    assert saved() is None


def test_a_view_keeps_its_base_and_not_the_other_way_round() -> None:
    gc.disable()
    base = ut.ones(4)
    view = base[1:]
    base_alive, view_alive = weakref.ref(base), weakref.ref(view)
    del base
    assert base_alive() is view._base
    del view
    assert base_alive() is None and view_alive() is None


def test_a_detached_tensor_keeps_memory_but_no_graph() -> None:
    gc.disable()
    y = ut.ones(3, requires_grad=True) * 2
    node, tensor = weakref.ref(y.grad_fn), weakref.ref(y)
    z = y.detach()
    del y
    assert node() is None and tensor() is None and z.tolist() == [2, 2, 2]


def test_a_gradient_dies_with_its_leaf() -> None:
    gc.disable()
    x = ut.ones(3, requires_grad=True)
    x.exp().sum().backward()
    grad, array = weakref.ref(x.grad), weakref.ref(x.grad._array)
    del x
    assert grad() is None and array() is None


def test_gradients_on_their_way_die_as_soon_as_they_are_used() -> None:
    """At most a few arrays of a long chain are alive at any time."""
    gc.disable()
    x = ut.ones(1000, requires_grad=True)
    y = x
    alive: list[weakref.ref[Any]] = []
    most = [0]

    def watch(grad: Any) -> None:
        alive.append(weakref.ref(grad._array))
        most[0] = max(most[0], sum(reference() is not None for reference in alive))

    for _ in range(50):
        y = y * 1.5
        y.register_hook(watch)
    y.sum().backward()
    assert len(alive) == 50 and most[0] <= 3


@pytest.mark.slow
def test_a_cycle_of_the_users_is_collected_with_the_graph() -> None:
    """A hook that holds its own tensor; metadata that holds the output."""
    x = ut.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad, kept=y: None)
    y.grad_fn.metadata["output"] = y
    node = weakref.ref(y.grad_fn)
    gc.collect()
    assert node() is not None
    del y
    gc.collect()
    assert node() is None
