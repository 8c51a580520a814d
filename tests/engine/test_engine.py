"""The engine: order of execution, what runs and what does not, callbacks, errors, what can be asked meanwhile."""

from __future__ import annotations

import gc
import traceback
import weakref
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from tests.spellings import (
    current_graph_task_id,
    current_node,
    execution_order,
    is_graph_kept,
    queue_callback,
    single_threaded,
    will_execute_node,
)


def leaf(L: ModuleType) -> Any:
    return L.tensor([1.0, 2.0], requires_grad=True)


def tracer(L: ModuleType) -> tuple[Any, list[str]]:
    """A function `mark(tensor, name)` that lists names in the order in which gradients pass."""
    order: list[str] = []

    class Mark(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, name: str) -> Any:
            ctx.label = name
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            order.append(ctx.label)
            return grad, None

    return Mark.apply, order


def failing(L: ModuleType, error: BaseException) -> Any:
    class Failing(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise error

    return Failing.apply


def inside(L: ModuleType, question: Any) -> Any:
    """What `question(node)` answers in the middle of a backward pass."""
    answers = []
    x = leaf(L)
    y = x * 2
    y.grad_fn.register_prehook(lambda grads: answers.append(question(y.grad_fn)))
    y.sum().backward()
    return answers[0]


# ---- order


def test_what_was_recorded_last_runs_first(L: ModuleType) -> None:
    mark, order = tracer(L)
    x = leaf(L)
    a = mark(x * 1, "a")
    b = mark(x * 1, "b")
    c = mark(b, "c")
    d = mark(a, "d")
    (a + b + c + d).sum().backward()
    assert order == ["d", "c", "b", "a"]


def test_the_order_of_operands_and_roots_does_not_matter(L: ModuleType) -> None:
    mark, order = tracer(L)
    x = leaf(L)
    y = [mark(x * 1, name) for name in "abcd"]
    L.autograd.backward([y[1].sum(), y[3].sum(), y[0].sum(), y[2].sum()])
    assert order == ["d", "c", "b", "a"]


def test_a_node_waits_for_all_its_gradients(L: ModuleType) -> None:
    mark, order = tracer(L)
    x = leaf(L)
    shared = mark(x * 1, "shared")
    total = shared
    for i in range(5):
        total = total + mark(shared, str(i))
    total.sum().backward()
    assert order == ["4", "3", "2", "1", "0", "shared"] and x.grad.tolist() == [6, 6]


def test_a_leaf_accumulates_as_soon_as_it_can(L: ModuleType) -> None:
    mark, order = tracer(L)
    early, late = leaf(L), leaf(L)
    for name, tensor in (("early leaf", early), ("late leaf", late)):
        tensor.register_hook(lambda grad, name=name: order.append(name))
    first = mark(early * 1, "first")
    second = mark(late * 1, "second")
    (first + second).sum().backward()
    assert order == ["second", "late leaf", "first", "early leaf"]


def test_a_sequence_number_can_be_set(L: ModuleType) -> None:
    mark, order = tracer(L)
    x = leaf(L)
    a, b = mark(x * 1, "a"), mark(x * 1, "b")
    a.grad_fn._set_sequence_nr(b.grad_fn._sequence_nr() + 1)
    (a + b).sum().backward()
    assert order == ["a", "b"]


def test_sequence_numbers_rise(L: ModuleType) -> None:
    x = leaf(L)
    nodes = [(x * 1).grad_fn for _ in range(5)]
    numbers = [node._sequence_nr() for node in nodes]
    assert numbers == sorted(set(numbers))
    accumulate = nodes[0].next_functions[0][0]
    assert accumulate._sequence_nr() == 2**64 - 1


def test_the_order_can_be_asked_for_beforehand(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    product = x * y
    out = (product.exp() + product.sin()).sum()
    asked: list[Any] = []
    ran: list[Any] = []
    out.grad_fn.register_prehook(lambda grads: asked.extend(execution_order(L)))
    for node in graph_nodes(out.grad_fn):
        node.register_prehook(lambda grads, node=node: ran.append(node))
    with single_threaded(L):
        out.backward()
    assert asked == ran and [type(node).__name__ for node in asked] == [
        "SumBackward0", "AddBackward0", "SinBackward0", "ExpBackward0", "MulBackward0", "AccumulateGrad",
        "AccumulateGrad",
    ]  # fmt: skip


def graph_nodes(root: Any) -> list[Any]:
    found, stack = [], [root]
    while stack:
        node = stack.pop()
        if node is not None and not any(node is f for f in found):
            found.append(node)
            stack.extend(below for below, _ in node.next_functions)
    return found


def test_the_order_needs_one_thread(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="expects the current backward to be executed with multithreading disabled"):
        inside(L, lambda node: execution_order(L))


# ---- what can be asked meanwhile


def test_the_running_node_is_known(L: ModuleType) -> None:
    assert current_node(L) is None
    assert inside(L, lambda node: current_node(L) is node)
    assert current_node(L) is None


def test_the_running_node_is_known_in_a_function(L: ModuleType) -> None:
    seen = []

    class Ask(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(current_node(L) is ctx)
            return grad

    Ask.apply(leaf(L)).sum().backward()
    assert seen == [True]


def test_passes_are_numbered(L: ModuleType) -> None:
    assert current_graph_task_id(L) == -1
    numbers = [inside(L, lambda node: current_graph_task_id(L)) for _ in range(3)]
    assert numbers == list(range(numbers[0], numbers[0] + 3)) and numbers[0] >= 0
    assert current_graph_task_id(L) == -1


@pytest.mark.parametrize("keep", [True, False])
def test_whether_the_graph_is_kept(L: ModuleType, keep: bool) -> None:
    seen = []
    y = leaf(L) * 2
    y.register_hook(lambda grad: seen.append(is_graph_kept(L)))
    y.sum().backward(retain_graph=keep)
    assert seen == [keep]


def test_which_nodes_will_run(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    wanted, unwanted = x * 2, y * 3
    stranger = leaf(L) * 2
    out = (wanted + unwanted).sum()
    seen: list[bool] = []
    nodes = (wanted.grad_fn, unwanted.grad_fn, stranger.grad_fn)
    out.register_hook(lambda grad: seen.extend(will_execute_node(L, node) for node in nodes))
    out.backward(retain_graph=True)
    out.backward(inputs=[x], retain_graph=True)
    L.autograd.grad(out, wanted)
    assert seen == [True, True, False, True, False, False, True, False, False]


def test_asking_which_nodes_will_run_has_its_limits(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    with pytest.raises(RuntimeError, match="should only be called during the backward pass"):
        will_execute_node(L, y.grad_fn)
    with pytest.raises(RuntimeError, match="expects an grad_fn"):
        inside(L, lambda node: will_execute_node(L, "no node"))
    accumulate = y.grad_fn.next_functions[0][0]
    y.register_hook(lambda grad: will_execute_node(L, accumulate))
    with pytest.raises(RuntimeError, match=r"are currently running autograd.grad\(\)"):
        L.autograd.grad(y.sum(), x)


# ---- final callbacks


def test_callbacks_run_when_everything_else_has(L: ModuleType) -> None:
    x = leaf(L)
    seen: list[Any] = []
    y = x * 2
    y.register_hook(lambda grad: queue_callback(L, lambda: seen.append(x.grad.tolist())))
    y.sum().backward()
    assert seen == [[2, 2]]
    (x * 1).sum().backward()
    assert len(seen) == 1, "a callback belongs to one pass"


def test_callbacks_run_in_order_and_may_queue_more(L: ModuleType) -> None:
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        queue_callback(L, lambda: seen.append("queued by first"))

    def hook(grad: Any) -> None:
        queue_callback(L, first)
        queue_callback(L, lambda: seen.append("second"))

    y = leaf(L) * 2
    y.register_hook(hook)
    y.sum().backward()
    assert seen == ["first", "second", "queued by first"]


def test_callbacks_of_a_nested_pass_run_at_its_own_end(L: ModuleType) -> None:
    seen: list[str] = []

    def nested(grad: Any) -> None:
        queue_callback(L, lambda: seen.append("outer callback"))
        with L.enable_grad():
            inner = leaf(L) * 2
            inner.register_hook(lambda g: queue_callback(L, lambda: seen.append("inner callback")))
            inner.sum().backward()
        seen.append("after the inner pass")

    y = leaf(L) * 2
    y.register_hook(nested)
    y.sum().backward()
    assert seen == ["inner callback", "after the inner pass", "outer callback"]


def test_a_callback_of_the_outermost_pass_waits_for_all_of_it() -> None:
    """Whatever the depth, and whichever thread the nested pass has moved to."""
    seen: list[str] = []

    @ut.enable_grad()
    def nest(grad: Any, depth: int) -> None:
        inner = leaf(ut) * 2
        if depth:
            inner.register_hook(lambda g: nest(g, depth - 1))
        else:
            inner.register_hook(lambda g: ut.autograd.graph.queue_callback(lambda: seen.append("callback"), True))
        inner.sum().backward()
        seen.append(f"after depth {depth}")

    x = leaf(ut)
    y = x * 2
    y.register_hook(lambda g: nest(g, 2))
    (y * (x * 3)).sum().backward()
    assert seen == ["after depth 0", "after depth 1", "after depth 2", "callback"] and x.grad is not None
    y = leaf(ut) * 2
    y.register_hook(lambda g: ut.autograd.graph.queue_callback(lambda: seen.append("its own"), outermost=True))
    y.sum().backward()
    assert seen[-1] == "its own"


def test_callbacks_need_a_pass(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed during backward pass"):
        queue_callback(L, lambda: None)


def test_an_error_in_a_callback_comes_out(L: ModuleType) -> None:
    def boom() -> None:
        raise ValueError("Boom!")

    x = leaf(L)
    y = x * 2
    y.register_hook(lambda grad: queue_callback(L, boom))
    with pytest.raises(ValueError, match="Boom!"):
        y.sum().backward()
    assert x.grad.tolist() == [2, 2] and current_graph_task_id(L) == -1


def test_callbacks_of_a_failed_pass_do_not_run(L: ModuleType) -> None:
    seen: list[str] = []
    y = failing(L, ValueError("Boom!"))(leaf(L)) * 2
    y.register_hook(lambda grad: queue_callback(L, lambda: seen.append("callback")))
    with pytest.raises(ValueError, match="Boom!"):
        y.sum().backward()
    (leaf(L) * 2).sum().backward()
    assert seen == []


# ---- errors

ERRORS = [ValueError("Simulate error"), KeyError("a"), StopIteration("b"), KeyboardInterrupt(), SystemExit(3)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_an_error_leaves_the_engine_usable(L: ModuleType, error: BaseException) -> None:
    """It comes out as it was raised, with the line that raised it, and the next pass knows nothing of it."""
    x = leaf(L)
    with pytest.raises(type(error)) as caught:
        failing(L, error)(x * 1).sum().backward()
    assert caught.value is error
    assert any(frame.name == "backward" and "raise error" in (frame.line or "") for frame in
               traceback.extract_tb(caught.value.__traceback__))  # fmt: skip
    assert current_node(L) is None and current_graph_task_id(L) == -1 and L.is_grad_enabled()
    assert x.grad is None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_an_error_in_a_hook_comes_out(L: ModuleType) -> None:
    def hook(grad: Any) -> None:
        raise ZeroDivisionError("in a hook")

    x = leaf(L)
    x.register_hook(hook)
    with pytest.raises(ZeroDivisionError, match="in a hook"):
        (x * 2).sum().backward()
    assert x.grad is None and current_graph_task_id(L) == -1


def test_after_an_error_the_rest_of_the_graph_can_still_run(L: ModuleType) -> None:
    """What the failed pass had not reached is not freed."""
    x = leaf(L)
    below = (x * x).exp()
    top = failing(L, ValueError("Boom!"))(below)
    with pytest.raises(ValueError, match="Boom!"):
        top.sum().backward()
    below.sum().backward()
    assert x.grad is not None


def test_a_failed_pass_holds_nothing() -> None:
    gc.disable()
    x = leaf(ut)
    y = failing(ut, ValueError("Boom!"))(x * 1)
    node = weakref.ref(y.grad_fn.next_functions[0][0])
    try:
        y.sum().backward()
    except ValueError as error:
        error.__traceback__ = None
    del y
    assert node() is None


def test_floating_point_errors_of_a_pass_are_not_raised(L: ModuleType) -> None:
    x = L.tensor([0.0, 1.0], requires_grad=True)
    L.sqrt(x).sum().backward()
    assert x.grad.tolist() == [float("inf"), 0.5]


# ---- gradients on their way


def test_the_sum_of_two_gradients_does_not_change_either(L: ModuleType) -> None:
    """A gradient that goes to two places is not the place where a sum is made."""
    x = leaf(L)
    kept: list[Any] = []
    y = x * 1
    first, second = y.view(2), y.view(2)
    first.register_hook(kept.append)
    second.register_hook(kept.append)
    (first + second + y).sum().backward()
    assert [g.tolist() for g in kept] == [[1, 1], [1, 1]] and x.grad.tolist() == [3, 3]


def test_a_gradient_kept_by_a_hook_stays_what_it_was(L: ModuleType) -> None:
    x = leaf(L)
    kept: list[Any] = []
    x.register_hook(kept.append)
    for _ in range(3):
        (x * 2).sum().backward()
    assert [g.tolist() for g in kept] == [[2, 2]] * 3 and x.grad.tolist() == [6, 6]


def test_gradients_are_summed_per_output(L: ModuleType) -> None:
    x = L.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    a, b = x.unbind()
    (a * 2 + a * 3 + b * 5 + a * b).sum().backward()
    assert x.grad.tolist() == [[5 + 3, 5 + 4], [5 + 1, 5 + 2]]


def test_a_wide_graph(L: ModuleType) -> None:
    """Ten thousand uses of one leaf, and of one tensor that is none."""
    x = L.ones(2, dtype=L.float64, requires_grad=True)
    y = x * 1
    L.autograd.backward([x + i for i in range(10_000)] + [y] * 10_000, [L.ones(2, dtype=L.float64)] * 20_000)
    assert x.grad.tolist() == [20_000, 20_000]


def test_a_node_with_ten_thousand_inputs(L: ModuleType) -> None:
    leaves = [L.ones((), requires_grad=True) for _ in range(10_000)]
    (L.stack(leaves) * 3).sum().backward()
    assert {x.grad.item() for x in leaves} == {3}


def test_a_node_with_ten_thousand_outputs(L: ModuleType) -> None:
    x = L.ones(10_000, requires_grad=True)
    L.autograd.backward([part * 2 for part in x.unbind()])
    assert x.grad.tolist() == [2] * 10_000


def test_exponentially_many_paths_are_walked_once(L: ModuleType) -> None:
    x = L.tensor(1.0, dtype=L.float64, requires_grad=True)
    y = x
    for _ in range(200):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**200
    (found,) = L.autograd.grad(y, x)
    assert found.item() == 2.0**200
