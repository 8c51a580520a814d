"""What the garbage collector sees of graphs, and when: Note [Nodes apart] in csrc/call/nodes_apart.c."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import undertow as ut
from undertow.compiled import core
from undertow.graph.node import Node

if core is None or sys.version_info >= (3, 14):
    pytest.skip("nodes are objects like all others", allow_module_level=True)


@pytest.fixture(autouse=True)
def unwary() -> None:
    """The collector goes when it is told to; no earlier test has made nodes stay where they are made."""
    gc.disable()
    for _ in range(2):
        gc.collect()


def is_known(thing: Any) -> bool:
    return any(found is thing for found in gc.get_objects())


def test_nodes_and_the_results_that_they_save_are_apart_until_a_full_collection() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x * 2.0
    z = y.sin().exp()
    made = [y, y.grad_fn, z.grad_fn]
    gc.collect(1)
    assert [is_known(thing) for thing in [*made, x, z]] == [False] * 3 + [True] * 2
    gc.collect()
    assert all(is_known(thing) for thing in made)
    z.sum().backward()
    assert x.grad.tolist() == pytest.approx([2 * ut.cos(y[0]).item() * z[0].item()] * 3)


def test_a_growing_graph_brings_no_full_collection() -> None:
    gc.enable()
    before = gc.get_stats()[2]["collections"]
    y = ut.ones(1, requires_grad=True)
    for _ in range(60_000):
        y = (y * 1.0).sin()
    assert gc.get_stats()[2]["collections"] - before <= 1


def test_nodes_of_changes_in_place_are_apart_too() -> None:
    x, table = ut.ones(3, requires_grad=True), ut.zeros(2, 3)
    table[0] = x
    node = weakref.ref(table.grad_fn)
    assert not is_known(node()) and not is_known(node().recorded_edges)  # type: ignore[union-attr]
    gc.collect()
    assert is_known(node())
    table[1] = 2 * x
    table.sum().backward()
    assert x.grad.tolist() == [3, 3, 3]
    del table
    assert node() is None


def with_an_attribute() -> Any:
    x = ut.ones(2, requires_grad=True)
    y = x * 2.0
    z = y.sin()
    y.tag = z
    return z.grad_fn


def with_a_hook_at_the_end() -> Any:
    x = ut.ones(2, requires_grad=True)
    z = (x * 2.0).sin()
    x.register_hook(lambda grad: grad * z)
    return z.grad_fn


def with_a_hook_at_the_beginning() -> Any:
    x = ut.ones(2, requires_grad=True)
    seen: list[Any] = []
    x.register_hook(seen.append)
    z = (x * 2.0).sin()
    seen.append(z)
    return z.grad_fn


def with_metadata() -> Any:
    z = (ut.ones(2, requires_grad=True) * 2.0).sin()
    z.grad_fn.metadata["result"] = z.exp()
    return z.grad_fn


def with_a_gradient_that_has_a_history() -> Any:
    x = ut.ones(2, requires_grad=True)
    y = x * 2.0
    (x.grad,) = ut.autograd.grad(y.sin().sum(), x, create_graph=True)
    return y.grad_fn


@pytest.mark.parametrize(
    ("cycle", "generation"),
    [(with_an_attribute, 2), (with_a_hook_at_the_end, 0), (with_a_hook_at_the_beginning, 0), (with_metadata, 0),
     (with_a_gradient_that_has_a_history, 0)],
)  # fmt: skip
def test_cycles_are_found(cycle: Callable[[], Any], generation: int) -> None:
    node = weakref.ref(cycle())
    assert isinstance(node(), Node)
    if generation == 2:
        gc.collect(1)
        assert node() is not None
    gc.collect(generation)
    assert node() is None


def test_nodes_are_apart_again_after_two_collections_of_the_middle_generation() -> None:
    x = ut.ones(2, requires_grad=True)
    x.register_hook(lambda grad: None)
    found = []
    for _ in range(3):
        node = (x * 2.0).grad_fn
        found.append(is_known(node))
        gc.collect(0)
        gc.collect(1)
    assert found == [True, True, False]


def test_a_tensor_is_moved_to_shared_memory_although_a_node_saves_it() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 2.0
    kept = y.sin()
    shown = y.detach()
    shown.share_memory_()
    shown[0] = 7.0
    assert y.tolist() == [7, 2] and kept.shape == (2,)


def test_results_saved_while_the_collector_works() -> None:
    """By the finalizer of an object that it has found: what it looks at stays where it is."""
    x, made = ut.ones(2, requires_grad=True), []

    class Ending:
        result: Any

        def __del__(self) -> None:
            made.append(self.result.sin())

    thing: Any = Ending()
    thing.itself, thing.result = thing, x * 2.0
    del thing
    gc.collect()
    made[0].sum().backward()
    assert x.grad.tolist() == [2 * ut.cos(ut.tensor(2.0)).item()] * 2
    node = weakref.ref(made.pop().grad_fn)
    gc.collect()
    assert node() is None
