"""Selective checkpointing and memory budgets: the same gradients, fewer operations done again, no more bytes kept."""

from __future__ import annotations

import functools
import gc
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.autograd import forward_ad as fwAD
from undertow.autograd.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)
from undertow.autograd.checkpoint import memory_budget as budgets
from undertow.autograd.interceptors.op_mode import operation_name
from undertow.modes import current, set_state
from undertow.ops import REGISTRY


def selective(policy: Any, **options: Any) -> Any:
    return functools.partial(create_selective_checkpoint_contexts, policy, **options)


def run_selective(function: Any, *args: Any, policy: Any, **options: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=False, context_fn=selective(policy, **options))


def leaf(*shape: int, seed: int = 0) -> ut.Tensor:
    return ut.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


def layers(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = ut.tanh(x @ w + 0.5)
    return x


POLICIES: dict[str, Any] = {
    "nothing": [],
    "products": ["mm"],
    "functions": [ut.mm, ut.tanh],
    "everything": lambda ctx, op, *args: True,
    "every other": lambda ctx, op, *args: CheckpointPolicy.PREFER_SAVE if op == "add" else False,
}


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_are_those_of_the_plain_call(name: str) -> None:
    x, w = leaf(4, 4), leaf(4, 4, seed=1)
    expected = ut.autograd.grad(layers(x, w).sum(), (x, w))
    found = ut.autograd.grad(run_selective(layers, x, w, policy=POLICIES[name]).sum(), (x, w))
    for mine, plain in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.numpy(), plain.numpy())


def filled(x: Any) -> Any:
    """An array filled row by row, each from the one before."""
    rows = ut.zeros(4, 4, dtype=ut.float64)
    rows[0] = x[0].sin()
    for k in range(1, 4):
        rows[k, 1:] = rows[k - 1, :-1].exp() * x[k, 1:]
        rows[k] *= 0.5
    return rows.tanh()


ut.manual_seed(0)
RECURRENT = ut.nn.LSTM(4, 3, batch_first=True, dtype=ut.float64)
ATTENTION = ut.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dtype=ut.float64)

PROGRAMS: dict[str, Any] = {
    "filled in place": filled,
    "recurrent": lambda x: RECURRENT(x[None])[0].exp(),
    "attention with dropout": lambda x: ATTENTION(x[None]),
    "loss": lambda x: ut.cross_entropy(x.sin() * 3, ut.tensor([0, 3, 1, 1])).exp(),
    "several outputs": lambda x: sum(ut.var_mean(x, dim=0)).exp(),
    "indices": lambda x: x.sin().max(dim=1).values.exp(),
    "joined": lambda x: ut.cat([x.sin(), x.cos()], 0).exp(),
    "views": lambda x: x.sin().t().reshape(-1)[1:].exp(),
    "in place": lambda x: x.cos().exp().clone().mul_(x).sin(),
    "numbers": lambda x: ((x * 2.5 + 1) / 3 - x).exp(),
    "promotion": lambda x: (x.float() * x).exp() * ut.arange(4),
    "batch norm": lambda x: ut.batch_norm(x, None, None, training=True).tanh(),
    "convolution": lambda x: ut.conv1d(x.reshape(1, 1, 16), x[:1].reshape(1, 1, 4)).tanh(),
    "keyword arguments": lambda x: ut.add(x.sin(), x, alpha=2).exp(),
    "conditions": lambda x: ut.where(x > 0, x.exp(), x.sin()).tanh(),
    "complex": lambda x: ut.complex(x.sin(), x.cos()).exp().abs(),
    "reductions": lambda x: x.exp().logsumexp(1) * x.softmax(0).prod(1),
    "linear algebra": lambda x: ut.linalg.inv(x @ x.t() + 5 * ut.eye(4, dtype=ut.float64)).exp(),
}


@pytest.mark.parametrize("budget", [None, 1.0, 0.5])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kind_of_operation_can_be_kept(name: str, budget: float | None) -> None:
    function, x = PROGRAMS[name], leaf(4, 4)
    ut.manual_seed(5)
    (expected,) = ut.autograd.grad(function(x).sum(), x)
    ut.manual_seed(5)
    if budget is None:
        y = run_selective(function, x, policy=lambda ctx, op, *args: op != "clone")
    else:
        y = checkpoint(function, x, budget=budget)
    (found,) = ut.autograd.grad(y.sum(), x)
    exactly = 1e-12 if name == "recurrent" else 0  # its fused form is not used inside, and rounds otherwise
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=exactly)


def test_second_derivatives_and_a_gradient_inside_the_function() -> None:
    def function(x):
        y = x.sin().exp()
        (g,) = ut.autograd.grad(y.sum(), x, create_graph=True)
        return g * y

    x = leaf(3)
    (first,) = ut.autograd.grad(function(x).sum(), x, create_graph=True)
    (second,) = ut.autograd.grad(first.sum(), x)
    for run in (
        lambda: run_selective(function, x, policy=lambda ctx, op, *args: True),
        lambda: checkpoint(function, x, budget=0.6),
    ):
        (g,) = ut.autograd.grad(run().sum(), x)
        np.testing.assert_allclose(g.numpy(), first.detach().numpy())
    y = checkpoint(function, x, budget=0.6).sum()
    (g,) = ut.autograd.grad(y, x, create_graph=True)
    (h,) = ut.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.numpy(), second.numpy())


# ---- what is done again


class observed:
    """The names of the operations that are computed inside."""

    def __enter__(self) -> list[str]:
        names: list[str] = []
        outer = current()

        def intercept(function: Any, args: tuple[Any, ...]) -> Any:
            names.append(operation_name(function.op))
            state = current()
            set_state(state.with_intercept(outer.intercept))
            try:
                return function.op.by_position(*args)
            finally:
                set_state(state)

        set_state(outer.with_intercept(intercept))
        return names

    def __exit__(self, *exc: object) -> None:
        set_state(current().with_intercept(None))


def recomputed(y: Any) -> list[str]:
    """What the recomputation computes: the operations that are asked for below it."""
    with observed() as names:
        y.grad_fn._saved_result if y.grad_fn.name() == "ExpBackward0" else y.grad_fn._saved_self
    return names


def test_what_is_kept_is_not_computed_again() -> None:
    def function(x, w):
        return (x.cos() @ w).sin()

    x, w = leaf(3, 3), leaf(3, 3, seed=1)
    assert recomputed(checkpoint(function, x, w, use_reentrant=False)) == ["cos", "mm", "sin"]
    assert recomputed(run_selective(function, x, w, policy=["mm"])) == ["cos", "sin"]
    assert recomputed(run_selective(function, x, w, policy=["cos", "mm", "sin"])) == []
    assert recomputed(checkpoint(function, x, w, budget=0.0)) == ["cos", "mm", "sin"]
    assert recomputed(checkpoint(function, x, w, budget=1.0)) in (
        ["cos"],
        ["sin"],
        ["mm"],
    )  # two are saved, so two kept


def test_the_policy_is_asked_once_per_operation_and_sees_the_result() -> None:
    seen = []

    def policy(ctx, op, *args):
        seen.append((op, ctx.op_output.shape, ctx.is_recompute))
        return False

    y = run_selective(lambda x: x.view(2, 2).sin().sum(0), leaf(4), policy=policy)
    y.sum().backward()
    assert seen == [("sin", (2, 2), False), ("sum", (2,), False)]


def test_random_draws_are_repeated_and_not_kept() -> None:
    def function(x):
        return ut.dropout(x.exp(), 0.5, True).sin() * ut.rand(100, dtype=ut.float64)

    for run in (
        lambda x: run_selective(function, x, policy=lambda ctx, op, *args: True),
        lambda x: checkpoint(function, x, budget=1.0),
    ):
        x = leaf(100)
        ut.manual_seed(3)
        (expected,) = ut.autograd.grad(function(x).sum(), x)
        ut.manual_seed(3)
        (found,) = ut.autograd.grad(run(x).sum(), x)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_custom_functions_are_run_with_what_was_kept_inside() -> None:
    class Sine(ut.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos()

    x = leaf(3)
    run_selective(lambda t: Sine.apply(t.exp()).exp(), x, policy=["sin", "exp"]).sum().backward()
    plain = x.detach().exp()
    np.testing.assert_allclose(x.grad.numpy(), (plain.sin().exp() * plain.cos() * plain).numpy())


def test_module_hooks_run_as_without_a_budget() -> None:
    model = ut.nn.Sequential(ut.nn.Linear(3, 3), ut.nn.Tanh())
    seen = []
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_output[0].shape))
    x = ut.randn(2, 3, requires_grad=True)
    for options in ({"budget": 0.5}, {"use_reentrant": False, "debug": True}):
        checkpoint(model, x, **options).sum().backward()
    assert seen == [(2, 3), (2, 3)]


def test_selective_checkpoints_nest() -> None:
    def inner(x):
        return x.sin().exp()

    def outer(x):
        return run_selective(inner, x.cos(), policy=["sin"]).tanh()

    x = leaf(3)
    (expected,) = ut.autograd.grad(outer(x).sum(), x)
    (found,) = ut.autograd.grad(run_selective(outer, x, policy=["exp", "cos"]).sum(), x)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


# ---- errors


def test_a_kept_result_that_was_changed_is_an_error() -> None:
    def function(x):
        return x.sin().mul_(2).cos().exp()

    with pytest.raises(RuntimeError, match="has been mutated"):
        run_selective(function, leaf(3), policy=["sin"]).sum().backward()
    run_selective(function, leaf(3), policy=["sin"], allow_cache_entry_mutation=True).sum().backward()


def test_a_function_that_differs_is_an_error() -> None:
    def differing(first: Any, again: Any) -> Any:
        calls = []

        def function(x):
            calls.append(1)
            return (first if len(calls) == 1 else again)(x)

        return function

    another = differing(lambda x: x.sin().exp(), lambda x: x.cos().exp())
    with pytest.raises(RuntimeError, match="cos encountered during backward but not found in storage"):
        run_selective(another, leaf(3), policy=["sin"]).sum().backward()
    once_more = differing(lambda x: x.sin().exp(), lambda x: x.sin().sin().exp())
    with pytest.raises(RuntimeError, match="sin invocation index 1 encountered during backward but not found"):
        run_selective(once_more, leaf(3), policy=["sin"]).sum().backward()
    another = differing(lambda x: x.sin().exp(), lambda x: x.cos().exp())
    with pytest.raises(CheckpointError, match="operation 0 of the recomputation is cos, and was sin"):
        checkpoint(another, leaf(3), budget=1.0).sum().backward()


def test_what_was_kept_serves_one_backward_pass() -> None:
    y = run_selective(lambda x: x.sin().cos().exp(), leaf(3), policy=["sin"]).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        y.backward()


@pytest.mark.parametrize("op", [2, "matmul", ut.matmul, "no such thing", None])
def test_what_is_not_one_operation_is_refused(op: Any) -> None:
    with pytest.raises(ValueError, match="Expected op in `op_list` to be an OpOverload"):
        create_selective_checkpoint_contexts([op])


def test_what_is_not_a_policy_is_refused() -> None:
    with pytest.raises(TypeError, match=r"either a function or a list of ops\."):
        create_selective_checkpoint_contexts(2)
    with pytest.raises(TypeError, match="must return a CheckpointPolicy or a bool, not int"):
        run_selective(lambda x: x.sin(), leaf(2), policy=lambda ctx, op, *args: 1)
    with pytest.raises(RuntimeError, match="cannot run inside vmap or forward-mode AD"), fwAD.dual_level():
        run_selective(lambda t: t.sin(), leaf(2), policy=["sin"])


@rows("op", [op for op in REGISTRY.values() if op.kind != "composite"], ids=lambda op: op.name)
def test_operations_have_lower_case_names(op: Any) -> None:
    assert operation_name(op).islower() and operation_name(op).isidentifier()


# ---- budgets


def deep(x: Any, w: Any) -> Any:
    for k in range(6):
        x = ut.tanh(x @ w) if k % 2 else (x @ w).exp().log1p()
    return x


def held_bytes(run: Any) -> int:
    """The memory that is held by a result and its graph."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        y = run()  # noqa: F841  (it is alive while the memory is counted)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("budget", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_no_more_than_the_budget_is_kept(budget: float) -> None:
    x, w = leaf(200, 100), leaf(100, 100, seed=1) * 0.1
    w = w.detach().requires_grad_()
    result = 200 * 100 * 8
    slack = 80_000  # the graph's own objects
    saved = held_bytes(lambda: deep(x, w))  # the result among it, because tanh saves it
    for _ in range(3):  # the first run measures, the others follow its plan
        kept = held_bytes(lambda: checkpoint(deep, x, w, budget=budget)) - result
        assert kept <= budget * saved + slack
        assert kept >= budget * saved - 2 * result  # and the budget is used


@pytest.mark.parametrize("budget", [0.0, 0.3, 1.0])
def test_gradients_do_not_depend_on_the_budget(budget: float) -> None:
    x, w = leaf(20, 10), leaf(10, 10, seed=1)
    expected = ut.autograd.grad(deep(x, w).sum(), (x, w))
    for _ in range(3):
        found = ut.autograd.grad(checkpoint(deep, x, w, budget=budget).sum(), (x, w))
        for mine, plain in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine.numpy(), plain.numpy())


@pytest.mark.parametrize(
    ("seconds", "again"),
    [((1, 5, 1, 5), ["sin", "cos"]), ((5, 1, 5, 1), ["exp", "tanh"]), ((9, 8, 1, 1), ["cos", "tanh"])],
)
def test_the_slow_results_are_kept(seconds: Any, again: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([tick for k, duration in enumerate(seconds) for tick in (100 * k, 100 * k + duration)])
    monkeypatch.setattr(budgets, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    y = checkpoint(lambda x: x.sin().exp().cos().tanh(), leaf(3), budget=1.0)  # those of exp and tanh would be saved
    with observed() as names:
        y.grad_fn._saved_result
    assert names == again


def test_another_shape_is_another_plan_and_another_course_measures_again() -> None:
    turns = [2]

    def function(x):
        for _ in range(turns[0]):
            x = x.sin().exp()
        return x

    def check(size: int) -> None:
        x = leaf(size)
        (expected,) = ut.autograd.grad(function(x).sum(), x)
        (found,) = ut.autograd.grad(checkpoint(function, x, budget=0.5).sum(), x)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())

    for size, count in ((3, 2), (5, 2), (3, 4), (3, 4), (3, 1), (3, 1)):
        turns[0] = count
        check(size)


def test_a_budget_allows_changes_and_several_passes() -> None:
    x = leaf(4)
    y = checkpoint(lambda t: (t.exp() + 1).sin(), x, budget=1.0)
    y.mul_(2)  # sin does not need its result, so this is allowed without a checkpoint, and is with one
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    z = x.detach().exp() + 1
    np.testing.assert_allclose(x.grad.numpy(), (4 * z.cos() * (z - 1)).numpy())


def test_a_budget_without_gradients_is_a_plain_call() -> None:
    with ut.no_grad():
        assert checkpoint(lambda x: x.exp(), ut.zeros(2), budget=0.5).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "options",
    [{"budget": 1.5}, {"budget": -0.1}, {"budget": 0.5, "use_reentrant": True}, {"budget": 0.5, "debug": True}],
)
def test_impossible_budgets_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="budget"):
        checkpoint(lambda x: x.sin(), leaf(2), **options)


def test_a_sequence_takes_a_budget_and_modules() -> None:
    ut.manual_seed(0)
    model = ut.nn.Sequential(ut.nn.Linear(4, 8), ut.nn.Tanh(), ut.nn.Linear(8, 8), ut.nn.Tanh(), ut.nn.Linear(8, 1))
    x = ut.randn(3, 4)
    expected = ut.autograd.grad(model(x).sum(), list(model.parameters()))
    for options in ({"use_reentrant": False}, {"use_reentrant": False, "budget": 0.5}):
        y = checkpoint_sequential(model, 2, x, **options)
        found = ut.autograd.grad(y.sum(), list(model.parameters()))
        for mine, plain in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine.numpy(), plain.numpy())
