"""Backward passes started inside a backward pass."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from tests.spellings import current_graph_task_id, current_node
from undertow.autograd.checkpoint import checkpoint


def leaf(L: ModuleType) -> Any:
    return L.tensor([1.0, 2.0], requires_grad=True)


def calling(L: ModuleType, inside: Callable[[Any], Any]) -> Any:
    """A Function that does `inside(grad)` in its backward, with recording on, and passes the gradient through."""

    class Calling(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            with L.enable_grad():
                result = inside(grad)
            return grad if result is None else result

    return Calling.apply


def test_a_function_differentiates_inside_its_backward(L: ModuleType) -> None:
    """The derivative of x**3 * 2, computed when it is needed."""

    class Cubed(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return 2 * x**3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with L.enable_grad():
                y = 2 * x**3
            y.backward(grad)
            return x.grad

    x = leaf(L)
    (Cubed.apply(x * 1) * 10).sum().backward()
    assert x.grad.tolist() == [60, 240]


@pytest.mark.parametrize("place", ["tensor hook", "leaf hook", "pre-hook", "post-hook"])
def test_a_hook_starts_a_pass(L: ModuleType, place: str) -> None:
    x, other = leaf(L), leaf(L)

    def nested(*args: Any) -> None:
        with L.enable_grad():
            (other * 3).sum().backward()

    y = x * 2
    register = {
        "tensor hook": y.register_hook,
        "leaf hook": x.register_hook,
        "pre-hook": y.grad_fn.register_prehook,
        "post-hook": y.grad_fn.register_hook,
    }
    register[place](nested)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2] and other.grad.tolist() == [3, 3]


def test_a_nested_pass_may_end_in_the_same_leaf(L: ModuleType) -> None:
    x = leaf(L)
    (calling(L, lambda grad: (x * 5).sum().backward())(x * 1) * 2).sum().backward()
    assert x.grad.tolist() == [7, 7]


def test_a_nested_pass_may_run_the_same_graph(L: ModuleType) -> None:
    x = leaf(L)
    shared = x * x
    nested = calling(L, lambda grad: shared.sum().backward(retain_graph=True))
    (nested(x * 1) + shared).sum().backward()
    assert x.grad.tolist() == [2 + 1 + 2, 4 + 1 + 4]


def test_nested_passes_have_numbers_and_nodes_of_their_own(L: ModuleType) -> None:
    seen: list[Any] = []

    def ask(grad: Any) -> None:
        seen.append((current_graph_task_id(L), current_node(L).name()))

    def nested(grad: Any) -> None:
        ask(grad)
        y = leaf(L).exp()
        y.grad_fn.register_prehook(ask)
        y.sum().backward()
        ask(grad)

    calling(L, nested)(leaf(L)).sum().backward()
    (outer, own), (inner, exp), (again, own_again) = seen
    assert inner == outer + 1 and again == outer
    assert own == own_again == "CallingBackward" and exp == "ExpBackward0"


@pytest.mark.parametrize("create_graph", [False, True])
def test_grad_mode_is_restored_after_a_nested_pass(L: ModuleType, create_graph: bool) -> None:
    seen: list[bool] = []

    def hook(grad: Any) -> None:
        seen.append(L.is_grad_enabled())
        with L.enable_grad():
            y = (leaf(L) * 2).sum()
            L.autograd.grad(y, y.grad_fn and [y], create_graph=not create_graph)
            seen.append(L.is_grad_enabled())
        seen.append(L.is_grad_enabled())

    x = leaf(L)
    y = x * x
    y.register_hook(hook)
    L.autograd.grad(y.sum(), x, create_graph=create_graph)
    assert seen == [create_graph, True, create_graph] and L.is_grad_enabled()


def test_grad_mode_is_restored_after_a_nested_pass_failed(L: ModuleType) -> None:
    seen: list[bool] = []

    def inner(grad: Any) -> None:
        raise ValueError("Boom!")

    def hook(grad: Any) -> None:
        with L.enable_grad():
            y = leaf(L) * 2
            y.register_hook(inner)
            with pytest.raises(ValueError, match="Boom!"):
                y.sum().backward()
        seen.append(L.is_grad_enabled())

    x = leaf(L)
    y = x * 2
    y.register_hook(hook)
    y.sum().backward()
    assert seen == [False] and x.grad.tolist() == [2, 2] and L.is_grad_enabled()


def test_an_error_in_a_nested_pass_ends_both(L: ModuleType) -> None:
    def inner(grad: Any) -> None:
        raise ValueError("Simulate error")

    def nested(grad: Any) -> None:
        y = leaf(L) * 2
        y.register_hook(inner)
        y.sum().backward()

    x = leaf(L)
    with pytest.raises(ValueError, match="Simulate error") as caught:
        calling(L, nested)(x).sum().backward()
    names = [entry.name for entry in caught.traceback]
    assert names.index("nested") < names.index("inner")
    assert x.grad is None and current_graph_task_id(L) == -1 and current_node(L) is None
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_the_outer_pass_waits(L: ModuleType) -> None:
    """Whatever the nested pass has to do is done when backward() returns."""
    order: list[str] = []

    def nested(grad: Any) -> None:
        y = leaf(L)
        for i in range(3):
            y = calling(L, lambda grad, i=i: order.append(f"inner {i}"))(y)
        y.sum().backward()
        order.append("nested has returned")

    x = leaf(L)
    late = calling(L, lambda grad: order.append("outer"))(x)
    calling(L, nested)(late).sum().backward()
    assert order == ["inner 2", "inner 1", "inner 0", "nested has returned", "outer"]


def descend(L: ModuleType, depth: int, at_the_bottom: Callable[[], Any]) -> Any:
    """The result of a Function that starts, in its backward, a pass through one like it, `depth` times."""

    class Down(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, left: int) -> Any:
            ctx.left = left
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            if ctx.left == 0:
                at_the_bottom()
                return grad, None
            with L.enable_grad():
                x = L.ones(1, requires_grad=True)
                y = Down.apply(x, ctx.left - 1)
            y.backward(grad)
            return x.grad + 1, None

    x = L.ones(1, requires_grad=True)
    Down.apply(x, depth).backward()
    return x.grad.item()


def test_five_hundred_levels(L: ModuleType) -> None:
    assert descend(L, 500, lambda: None) == 501


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_two_thousand_levels(device: str) -> None:
    def pass_through(depth: int) -> int:
        """Start a pass whose hook starts the next; how many have run, counted from below."""
        x, below = ut.ones(1, device=device, requires_grad=True), []
        x.register_hook(lambda g: below.append(pass_through(depth - 1) if depth else 0))
        with ut.enable_grad():
            y = x * 1
        y.backward(ut.ones(1, device=device))
        return below[0] + 1

    assert pass_through(2000) == 2001


# ---- started by what a node has saved


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_an_unpack_hook_starts_a_pass(device: str) -> None:
    inner = ut.full((1,), 3.0, device=device, requires_grad=True)

    def unpack(packed: Any) -> Any:
        with ut.enable_grad():
            square = inner * inner
        square.backward(ut.ones(1, device=device))
        return packed

    x = ut.full((1,), 2.0, device=device, requires_grad=True)
    with ut.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = x.exp()
    y.backward(ut.ones(1, device=device))
    assert inner.grad.item() == 6 and x.grad.item() == y.item()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_a_checkpoint_inside_a_checkpoint_starts_passes(device: str, use_reentrant: bool) -> None:
    def run(function: Callable[[Any], Any], x: Any) -> Any:
        return checkpoint(function, x, use_reentrant=use_reentrant)

    x = ut.full((2,), 0.5, device=device, requires_grad=True)
    run(lambda a: run(lambda b: b.sin(), a * 2).exp(), x).sum().backward()
    plain = x.detach().clone().requires_grad_()
    (plain * 2).sin().exp().sum().backward()
    assert x.grad.tolist() == plain.grad.tolist()


def test_an_error_comes_up_from_three_hundred_levels(L: ModuleType) -> None:
    def fail() -> None:
        raise KeyError("down there")

    with pytest.raises(KeyError, match="down there"):
        descend(L, 300, fail)
    assert descend(L, 3, lambda: None) == 4 and current_graph_task_id(L) == -1


def test_modes_follow_a_pass_to_other_threads() -> None:
    """Deep down the pass runs in another thread, with the modes of the one that asked for it."""
    seen: list[Any] = []

    def ask() -> None:
        seen.append((threading.get_ident(), ut.is_grad_enabled(), ut.autograd.is_multithreading_enabled()))

    with ut.autograd.set_multithreading_enabled(False):
        descend(ut, 100, ask)
    ((ident, recording, multithreading),) = seen
    assert (recording, multithreading) == (False, False) and ident != threading.get_ident()


def test_threads_for_deep_passes_are_used_again() -> None:
    descend(ut, 200, lambda: None)
    before = threading.active_count()
    for _ in range(5):
        descend(ut, 200, lambda: None)
    assert threading.active_count() == before


def test_an_idle_thread_holds_nothing_of_the_pass_it_ran() -> None:
    alive: list[weakref.ref[Any]] = []

    def at_the_bottom() -> None:
        alive.append(weakref.ref(ut.autograd.graph.current_node()))

    descend(ut, 60, at_the_bottom)
    deadline = time.monotonic() + 60
    while alive[0]() is not None and time.monotonic() < deadline:
        time.sleep(0.01)  # the thread lets go of it when it is its turn
    assert alive[0]() is None


def test_deep_passes_of_several_threads_at_once() -> None:
    results: list[float] = []
    threads = [threading.Thread(target=lambda: results.append(descend(ut, 150, lambda: None))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results == [151] * 4


def test_a_nested_pass_with_create_graph(L: ModuleType) -> None:
    """A gradient penalty inside backward: the second derivative of x**3 in place of the first."""

    class Second(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with L.enable_grad():
                (first,) = L.autograd.grad((x**3).sum(), x, create_graph=True)
                (second,) = L.autograd.grad(first.sum(), x)
            return grad * second

    x = leaf(L)
    Second.apply(x).sum().backward()
    assert x.grad.tolist() == [6, 12]


# ---- depth


def nested_passes(levels: int, user_frames: int, device: str) -> int:
    """Start so many passes inside each other, each through so many frames of the user's; how many threads took part."""
    threads = set()

    def through(frames: int, left: int) -> None:
        if frames:
            through(frames - 1, left)
        else:
            start(left)

    class Nested(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, left: int) -> Any:
            ctx.left = left
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            threads.add(threading.get_ident())
            if ctx.left:
                with ut.enable_grad():
                    through(user_frames, ctx.left - 1)
            return grad, None

    def start(left: int) -> None:
        x = ut.ones(2, device=device, requires_grad=True)
        Nested.apply(x, left).sum().backward()
        assert x.grad.tolist() == [1, 1]

    start(levels)
    return len(threads)


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("user_frames", [0, 1, 7, 40, 200])
def test_depth_is_counted_in_calls_not_in_levels(user_frames: int, device: str) -> None:
    """However many calls lie between two passes, no thread comes to the end of its stack."""
    assert nested_passes(150 if user_frames < 100 else 20, user_frames, device) > 1


def test_a_pass_that_starts_deep_in_a_program() -> None:
    def deep(frames: int) -> int:
        return deep(frames - 1) if frames else nested_passes(3, 0, "cpu")

    assert deep(650) > 1
