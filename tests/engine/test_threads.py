"""Backward passes in several threads at once: shared leaves, shared graphs, Hogwild, and everything kept apart."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from tests.spellings import current_graph_task_id, current_node, queue_callback

THREADS = 8


def in_threads(f: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """`f(0)`, `f(1)`, ... in threads that start together; what each returned, or the exception it raised."""
    results: list[Any] = [None] * count
    start = threading.Barrier(count, timeout=30)

    def work(i: int) -> None:
        start.wait()
        try:
            results[i] = f(i)
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a thread hangs"
    return results


def raise_errors(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.fixture
def L() -> ModuleType:
    """undertow alone: with thread switches this frequent, PyTorch itself blocks for ever now and then.

    (A thread that holds a leaf's lock waits for the interpreter's, which a thread that waits for the leaf's holds.)
    """
    return ut


@pytest.fixture(autouse=True)
def frequent_switches() -> None:
    """The interpreter switches threads as often as it can; conftest undoes it."""
    sys.setswitchinterval(1e-6)


# ---- shared leaves


def test_gradients_of_all_threads_are_summed(L: ModuleType) -> None:
    """Nothing is lost, whether the gradient is the first, added in place, or comes from a graph of its own."""
    x = L.ones(3, dtype=L.float64, requires_grad=True)

    def work(i: int) -> None:
        for _ in range(50):
            (x * float(i) + x.exp() * 0).sum().backward()

    raise_errors(in_threads(work))
    assert x.grad.tolist() == [50.0 * sum(range(THREADS))] * 3


@pytest.mark.parametrize("size", [1, 100_000])
def test_nothing_is_lost_when_gradients_meet_at_a_leaf(L: ModuleType, size: int) -> None:
    """Threads arrive together, at a leaf without gradient and at one with; NumPy adds large arrays unlocked."""
    leaves = [L.zeros(size, dtype=L.float64, requires_grad=True) for _ in range(300 if size == 1 else 10)]
    one = L.ones(size, dtype=L.float64)
    meeting = threading.Barrier(THREADS, timeout=30)

    def work(i: int) -> None:
        for x in leaves:
            meeting.wait()
            x.backward(one)
            x.backward(one)

    raise_errors(in_threads(work))
    for x in leaves:
        assert (x.grad.min().item(), x.grad.max().item()) == (2 * THREADS, 2 * THREADS)


def test_one_graph_above_a_shared_leaf_per_thread(L: ModuleType) -> None:
    """The example of the documentation: threads with leaves of their own disturb each other in nothing."""

    def train(i: int) -> Any:
        x = L.ones(5, 5, requires_grad=True)
        y = (x + 3) * (x + 4) * 0.5
        y.sum().backward()
        return x.grad.tolist()

    assert raise_errors(in_threads(train, 10)) == [[[4.5] * 5] * 5] * 10


def test_the_node_of_a_leaf_is_made_once() -> None:
    for _ in range(20):
        x = ut.ones(2, requires_grad=True)
        outputs = raise_errors(in_threads(lambda i, x=x: x * 2))
        assert len({id(y.grad_fn.next_functions[0][0]) for y in outputs}) == 1
        ut.autograd.backward([y.sum() for y in outputs])
        assert x.grad.tolist() == [2 * THREADS] * 2


def test_grad_gives_every_thread_its_own_result(L: ModuleType) -> None:
    x = L.ones(3, requires_grad=True)
    y = x.exp() * 0 + x

    def work(i: int) -> list[Any]:
        return [L.autograd.grad((y * float(i)).sum(), x, retain_graph=True)[0].tolist() for _ in range(20)]

    results = raise_errors(in_threads(work))
    assert results == [[[float(i)] * 3] * 20 for i in range(THREADS)] and x.grad is None


# ---- a shared graph


def test_a_shared_graph_that_is_retained(L: ModuleType) -> None:
    x = L.ones(3, dtype=L.float64, requires_grad=True)
    y = (x.exp() * x.sin()).sum()
    (expected,) = L.autograd.grad(y, x, retain_graph=True)
    raise_errors(in_threads(lambda i: y.backward(retain_graph=True)))
    assert x.grad.tolist() == pytest.approx((expected * THREADS).tolist())


def test_a_shared_graph_that_is_not_retained(L: ModuleType) -> None:
    """At least one pass succeeds; the others succeed or are told to retain the graph; no gradient is partly there."""
    for _ in range(20):
        x = L.ones(3, dtype=L.float64, requires_grad=True)
        y = x.exp().exp().sum()
        (one,) = L.autograd.grad(y, x, retain_graph=True)
        results = in_threads(lambda i, y=y: y.backward())
        failed = [r for r in results if r is not None]
        assert len(failed) < THREADS
        for error in failed:
            assert isinstance(error, RuntimeError) and "Specify retain_graph=True" in str(error), error
        times = x.grad.tolist()[0] / one.tolist()[0]
        assert times == pytest.approx(round(times)) and 1 <= round(times) <= THREADS - len(failed)


def test_a_shared_lower_half_with_an_upper_half_per_thread(L: ModuleType) -> None:
    x = L.ones(3, dtype=L.float64, requires_grad=True)
    shared = x * 1 + x

    def work(i: int) -> None:
        for _ in range(20):
            (shared * float(i)).sum().backward(retain_graph=True)

    raise_errors(in_threads(work))
    assert x.grad.tolist() == [20 * 2.0 * sum(range(THREADS))] * 3


def test_saved_values_read_while_a_pass_frees_them() -> None:
    for _ in range(20):
        x = ut.ones(3, requires_grad=True)
        y = x.exp()
        total = y.sum()

        def work(i: int, y: Any = y, total: Any = total) -> Any:
            return total.backward() if i == 0 else y.grad_fn._saved_result.tolist()

        for result in in_threads(work):
            freed = isinstance(result, RuntimeError) and "already been freed" in str(result)
            assert freed or result is None or result == pytest.approx([2.718281828] * 3)


# ---- Hogwild


def test_hogwild() -> None:
    """Threads compute gradients of shared parameters and update them without agreement; the loss goes down."""
    target = ut.tensor([1.0, -2.0, 3.0], dtype=ut.float64)
    w = ut.zeros(3, dtype=ut.float64, requires_grad=True)

    def train(i: int) -> None:
        for _ in range(30):
            (gradient,) = ut.autograd.grad(((w - target) ** 2).sum(), w)
            with ut.no_grad():
                w.data.sub_(gradient, alpha=0.02)

    raise_errors(in_threads(train, 4))
    assert ((w - target) ** 2).sum().item() < 1e-2


# ---- what is a thread's own


def test_the_running_task_and_node_are_the_threads_own(L: ModuleType) -> None:
    barrier = threading.Barrier(THREADS, timeout=30)

    def work(i: int) -> tuple[int, bool]:
        seen: list[tuple[int, bool]] = []
        x = L.ones(2, requires_grad=True)
        y = x * 2

        def hook(grads: Any) -> None:
            barrier.wait()  # all threads are in their passes now
            seen.append((current_graph_task_id(L), current_node(L) is y.grad_fn))
            barrier.wait()

        y.grad_fn.register_prehook(hook)
        y.sum().backward()
        return seen[0]

    results = raise_errors(in_threads(work))
    assert len({number for number, _ in results}) == THREADS and all(own for _, own in results)
    assert current_graph_task_id(L) == -1


def test_callbacks_belong_to_the_pass_that_queued_them(L: ModuleType) -> None:
    def work(i: int) -> list[int]:
        seen: list[int] = []
        x = L.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda grad: queue_callback(L, lambda: seen.append(threading.get_ident())))
        for _ in range(10):
            y.sum().backward(retain_graph=True)
        return [ident - threading.get_ident() for ident in seen]

    assert raise_errors(in_threads(work)) == [[0] * 10] * THREADS


def test_a_cpu_pass_runs_on_the_thread_that_asked_for_it(L: ModuleType) -> None:
    seen = []

    class Ask(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(threading.get_ident())
            return grad

    y = Ask.apply(L.ones(2, requires_grad=True)).sum()
    in_threads(lambda i: seen.append(threading.get_ident()) or y.backward(), 1)
    assert seen[0] == seen[1] != threading.get_ident()


def test_an_error_in_one_thread_does_not_reach_another(L: ModuleType) -> None:
    class Failing(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise ValueError("something")

    x = L.ones(2, requires_grad=True)

    def work(i: int) -> None:
        for _ in range(10):
            if i % 2:
                x.sum().backward()
            else:
                with pytest.raises(ValueError, match="something"):
                    Failing.apply(x).sum().backward()

    raise_errors(in_threads(work))
    assert x.grad.tolist() == [10 * THREADS / 2] * 2


def test_an_error_keeps_the_line_of_its_thread(L: ModuleType) -> None:
    def hook(grad: Any) -> None:
        raise ValueError("something")

    def work(i: int) -> str:
        y = L.ones(2, requires_grad=True) * 2
        y.register_hook(hook)
        try:
            y.sum().backward()
        except ValueError:
            return traceback.format_exc()
        return ""

    assert all('raise ValueError("something")' in text for text in raise_errors(in_threads(work)))


def test_grad_modes_of_threads_do_not_mix_in_a_pass() -> None:
    def work(i: int) -> list[Any]:
        found = []
        x = ut.ones(2, requires_grad=True)
        for _ in range(20):
            (g,) = ut.autograd.grad((x * x).sum(), x, create_graph=bool(i % 2))
            found.append(g.requires_grad)
        return found

    assert raise_errors(in_threads(work)) == [[bool(i % 2)] * 20 for i in range(THREADS)]


def test_recording_in_many_threads_gives_every_node_a_number_of_its_own() -> None:
    def work(i: int) -> list[int]:
        x = ut.ones(1, requires_grad=True)
        return [(x * 2).grad_fn._sequence_nr() for _ in range(100)]

    numbers = [n for own in raise_errors(in_threads(work)) for n in own]
    assert len(set(numbers)) == len(numbers)


def test_in_place_changes_in_many_threads_are_all_counted() -> None:
    """A check of saved values that misses a change would let a wrong gradient through."""
    tensors = [ut.zeros(1) for _ in range(100)]
    meeting = threading.Barrier(THREADS, timeout=30)

    def work(i: int) -> None:
        for x in tensors:
            meeting.wait()  # so that all come to a tensor that has no counter yet
            x.add_(1)

    raise_errors(in_threads(work))
    assert [x._version for x in tensors] == [THREADS] * 100


def test_hooks_run_in_the_thread_of_the_pass(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    seen: list[int] = []
    x.register_hook(lambda grad: seen.append(threading.get_ident()))

    def work(i: int) -> int:
        for _ in range(10):
            x.sum().backward()
        return threading.get_ident()

    idents = raise_errors(in_threads(work))
    assert sorted(seen) == sorted(idents * 10)


FIRST_CALLS = """
import sys, threading
import undertow as ut
sys.setswitchinterval(1e-6)
names = "sin cos tan exp log sqrt tanh sigmoid abs neg square reciprocal relu cumsum cumprod".split()
errors = []
def work():
    barrier.wait()
    try:
        for name in names:
            x = ut.ones(3, requires_grad=True)
            y = getattr(ut, name)(x, 0) if name.startswith("cum") else getattr(ut, name)(x)
            y.sum().backward()
    except BaseException as error:
        errors.append(error)
barrier = threading.Barrier(8)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
sys.exit(repr(errors) if errors else 0)
"""


def test_operations_called_for_the_first_time_by_several_threads_at_once() -> None:
    """Their plans are made then. In a process of its own, where none has been called."""
    finished = subprocess.run([sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
