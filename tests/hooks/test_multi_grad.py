"""Hooks on several tensors: when they fire, with what, and that they own nothing."""

from __future__ import annotations

import gc
import threading
import weakref
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def leaves(L: ModuleType, count: int) -> list[Any]:
    return [L.tensor(float(k + 1), requires_grad=True) for k in range(count)]


def values(grads: Any) -> list[float | None]:
    return [None if g is None else g.item() for g in grads]


def test_all_fires_once_with_every_gradient(L: ModuleType) -> None:
    a, b, c = leaves(L, 3)
    product = a * b
    seen: list[Any] = []
    handle = L.autograd.graph.register_multi_grad_hook((a, product, c), lambda grads: seen.append(values(grads)))
    (product * c).backward()
    assert seen == [[6.0, 3.0, 2.0]]
    (a * b * c).backward()  # product is not part of this graph
    assert seen[1:] == [[6.0, None, 2.0]]
    handle.remove()
    (a * b * c).backward()
    assert len(seen) == 2


def test_all_gives_none_for_what_the_pass_does_not_reach(L: ModuleType) -> None:
    a, b = leaves(L, 2)
    seen: list[Any] = []
    L.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append(values(grads)))
    (a * 3).backward()
    assert seen == [[3.0, None]]


def test_all_does_not_fire_when_nothing_is_reached(L: ModuleType) -> None:
    a, b, other = leaves(L, 3)
    seen: list[Any] = []
    L.autograd.graph.register_multi_grad_hook((a, b), seen.append)
    (other * 3).backward()
    assert seen == []


def test_any_fires_at_the_first(L: ModuleType) -> None:
    a, b = leaves(L, 2)
    late = b * 5
    seen: list[float] = []
    L.autograd.graph.register_multi_grad_hook((a, late), lambda grad: seen.append(grad.item()), mode="any")
    loss = a * late
    loss.backward(retain_graph=True)
    loss.backward()
    assert seen == [10.0, 10.0]


def test_it_counts_for_each_pass_anew(L: ModuleType) -> None:
    a, b = leaves(L, 2)
    seen: list[Any] = []
    L.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append(values(grads)))
    loss = a * b
    loss.backward(retain_graph=True)
    loss.backward(inputs=[a], retain_graph=True)
    loss.backward(inputs=[b])
    assert seen == [[2.0, 1.0], [2.0, None], [None, 1.0]]


def test_the_hook_may_run_a_pass_that_fires_it(L: ModuleType) -> None:
    a, b = leaves(L, 2)
    seen: list[Any] = []

    def hook(grads: Any) -> None:
        seen.append(values(grads))
        if len(seen) == 1:
            with L.enable_grad():
                (a * 7).backward()

    L.autograd.graph.register_multi_grad_hook((a, b), hook)
    (a * b).backward()
    assert seen == [[2.0, 1.0], [7.0, None]]


@pytest.mark.parametrize("mode", ["all", "any"])
def test_passes_of_several_threads_count_apart(mode: str) -> None:
    a, b = leaves(ut, 2)
    fired: list[int] = []
    ut.autograd.graph.register_multi_grad_hook((a, b), lambda grads: fired.append(threading.get_ident()), mode=mode)
    barrier = threading.Barrier(4)

    def run() -> None:
        barrier.wait()
        for _ in range(5):
            (a * b).backward()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fired) == 20 and len(set(fired)) == 4


def test_a_pass_in_the_middle_of_its_bookkeeping() -> None:
    """As a destructor or a signal handler may start one: nothing that the hook does may wait for itself."""
    a, b = ut.ones(1, requires_grad=True), ut.ones(1, requires_grad=True)
    fired: list[int] = []
    hook = ut.autograd.graph.register_multi_grad_hook([a, b], lambda grads: fired.append(len(grads)))
    find, started = hook.nodes[0], []

    def interrupted() -> Any:
        if not started:
            started.append(True)
            with ut.enable_grad():
                (a * b).sum().backward()
        return find()

    hook.nodes[0] = interrupted
    thread = threading.Thread(target=lambda: (a * b).sum().backward(), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and fired == [2, 2]


@pytest.mark.parametrize("mode", ["all", "any"])
def test_it_is_removed_with_its_handle(L: ModuleType, mode: str) -> None:
    a, b = L.ones(2, requires_grad=True), L.ones(2, requires_grad=True)
    seen: list[Any] = []
    handle = L.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append("fired"), mode=mode)
    (a * b).sum().backward()
    handle.remove()
    handle.remove()
    (a * b).sum().backward()
    assert seen == ["fired"]


def test_another_mode_is_refused(L: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"Expects mode to be one of \('all', 'any'\) but got foo"):
        L.autograd.graph.register_multi_grad_hook(leaves(L, 1), print, mode="foo")


def test_leaves_whose_nodes_died_are_still_counted() -> None:
    gc.disable()
    a, b = leaves(ut, 2)
    seen: list[Any] = []
    ut.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append(values(grads)))
    for _ in range(2):  # every graph makes AccumulateGrad nodes of its own
        (a * b).backward()
    assert seen == [[2.0, 1.0]] * 2


def test_it_owns_neither_tensor_nor_graph() -> None:
    gc.disable()

    def make() -> list[Any]:
        a, b = leaves(ut, 2)
        product = a * b
        ut.autograd.graph.register_multi_grad_hook((a, product), lambda grads: None)
        (product * 2).backward()
        return [weakref.ref(x) for x in (a, b, product, product.grad_fn)]

    assert [reference() for reference in make()] == [None] * 4


def test_a_pass_that_failed_leaves_no_gradients_behind() -> None:
    gc.disable()
    a, b = leaves(ut, 2)
    product = a * b
    kept: list[Any] = []
    product.register_hook(lambda grad: kept.append(weakref.ref(grad)))
    hook = ut.autograd.graph.register_multi_grad_hook((product, a), lambda grads: None)

    def fail(grad: Any) -> None:
        raise ValueError("half-way")

    b.register_hook(fail)
    with pytest.raises(ValueError, match="half-way"):
        (product * 2).backward()
    assert len(hook.arrived) == 0
    assert [reference() for reference in kept] == [None]


def test_any_leaves_out_tensors_without_gradient(L: ModuleType) -> None:
    a, plain = L.tensor(2.0, requires_grad=True), L.tensor(3.0)
    seen: list[float] = []
    register = L.autograd.graph.register_multi_grad_hook
    register((plain, a), lambda grad: seen.append(grad.item()), mode="any")
    register((plain,), lambda grad: seen.append(-1.0), mode="any").remove()
    (a * plain).backward()
    assert seen == [3.0]
    with pytest.raises((RuntimeError, AssertionError)):
        register((plain, a), lambda grads: None)
