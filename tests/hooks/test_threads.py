"""Hooks when several threads run passes at once."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import undertow as ut


def run_in_threads(function: Callable[[], None], count: int = 4) -> None:
    """Run it in all threads at once, switching often; the first exception is raised here."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run() -> None:
        try:
            barrier.wait()
            function()
        except BaseException as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_every_pass_fires_the_hooks_of_a_shared_leaf() -> None:
    x = ut.ones(3, requires_grad=True)
    fired: Counter[str] = Counter()
    lock = threading.Lock()

    def counting(name: str) -> Callable[[Any], None]:
        def hook(argument: Any) -> None:
            with lock:
                fired[name] += 1

        return hook

    x.register_hook(counting("tensor"))
    x.register_post_accumulate_grad_hook(counting("accumulated"))
    run_in_threads(lambda: [(x * 2).sum().backward() for _ in range(25)] and None)
    assert fired == {"tensor": 100, "accumulated": 100}
    assert x.grad.tolist() == [200.0] * 3


def test_hooks_are_added_and_removed_while_passes_run() -> None:
    x = ut.ones(3, requires_grad=True)

    def change_and_run() -> None:
        for _ in range(25):
            with x.register_hook(lambda grad: None), x.register_post_accumulate_grad_hook(lambda leaf: None):
                (x * 2).sum().backward()

    run_in_threads(change_and_run)
    assert x.grad.tolist() == [200.0] * 3
    assert not x._backward_hooks


def test_a_hook_knows_the_pass_of_its_own_thread() -> None:
    x = ut.ones(2, requires_grad=True)
    seen: list[tuple[int, str]] = []

    def run() -> None:
        for _ in range(10):
            y = x * 2
            y.grad_fn.register_hook(
                lambda inputs, outputs: seen.append(
                    (ut.autograd.graph.current_graph_task_id(), ut.autograd.graph.current_node().name())
                )
            )
            y.sum().backward()

    run_in_threads(run)
    assert len({task for task, _ in seen}) == 40
    assert {name for _, name in seen} == {"MulBackward0"}
    assert ut.autograd.graph.current_graph_task_id() == -1


def test_retain_grad_on_graphs_of_their_own() -> None:
    x = ut.ones(2, requires_grad=True)

    def run() -> None:
        for factor in range(1, 11):
            y = x * 2
            y.retain_grad()
            (y * factor).sum().backward()
            assert y.grad.tolist() == [float(factor)] * 2

    run_in_threads(run)
    assert x.grad.tolist() == [4 * 2 * 55.0] * 2
