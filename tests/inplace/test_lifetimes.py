"""Reference counting alone frees what in-place changes leave behind: every test runs with the collector off."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import undertow as ut


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def recorded(*shape: int) -> Any:
    return ut.ones(*shape, requires_grad=True) * 1


PROGRAMS: dict[str, Callable[[], Any]] = {
    "a change": lambda: recorded(3).mul_(2),
    "a saved output": lambda: recorded(3).exp_(),
    "a saved input": lambda: recorded(3).sin_(),
    "an assignment": lambda: assigned(),
    "a change through a view": lambda: through_view(lambda v: v.mul_(2)),
    "a saved output of a view": lambda: through_view(lambda v: v.exp_()),
    "a saved input of a view": lambda: through_view(lambda v: v.sin_()),
    "an in-place view": lambda: recorded(2, 3).t_(),
    "a view of a changed base": lambda: view_of_changed(),
    "itself times itself": lambda: times_itself(),
    "retain_grad": lambda: retained(),
    "a custom Function": lambda: dirty(),
}


def assigned() -> Any:
    x = recorded(3)
    x[0] = ut.ones((), requires_grad=True) * 2
    return x


def through_view(change: Callable[[Any], Any]) -> Any:
    x = recorded(3)
    v = x[1:]
    change(v)
    assert v.grad_fn is not None
    return v


def view_of_changed() -> Any:
    x = recorded(3)
    v = x[1:]
    x.mul_(2)
    assert v.grad_fn is not None
    return v


def times_itself() -> Any:
    x = recorded(3)
    x.mul_(x)
    return x


def retained() -> Any:
    x = recorded(3)
    x.retain_grad()
    x[0].mul_(3)
    x.mul_(2)
    return x


def dirty() -> Any:
    class Double(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            x.mul_(2)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = recorded(3)
    Double.apply(x[1:])
    return x


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_changed_tensor_and_its_history_die_with_it(program: str) -> None:
    x = PROGRAMS[program]()
    references = [weakref.ref(x), weakref.ref(x.grad_fn)]
    if x._is_view():
        references += [weakref.ref(x._base), weakref.ref(x._base.grad_fn)]
    del x
    assert [r() for r in references] == [None] * len(references)


@pytest.mark.parametrize("change", ["exp_", "sin_", "mul_"])
def test_saved_values_die_when_their_node_has_run(change: str) -> None:
    x = recorded(3)
    v = x[1:]
    other = recorded(2)
    getattr(v, change)(*([other] if change == "mul_" else []))
    saved = [weakref.ref(other)]
    node = x.grad_fn
    y = x.sum()
    del other, v, x
    y.backward()
    assert node.name().endswith("::CopySlices") and saved[0]() is None


def test_a_base_does_not_keep_its_views() -> None:
    x = recorded(3)
    v = x[1:]
    v.mul_(2)
    reference = weakref.ref(v)
    del v
    assert reference() is None and x.grad_fn.name().endswith("::CopySlices")


def test_a_view_keeps_its_base_and_detach_does_not() -> None:
    x = recorded(3)
    v, d = x[1:], x[1:].detach()
    reference = weakref.ref(x)
    del x
    assert reference() is not None and v._base is reference()
    del v
    assert reference() is None and d.tolist() == [1, 1]


def test_allowing_mutation_keeps_nothing_alive() -> None:
    with ut.autograd.graph.allow_mutation_on_saved_tensors() as context:
        x = recorded(3)
        y = x * x
        x.zero_()
        copy = weakref.ref(next(iter(context.cloned.values())))
        reference = weakref.ref(x)
        del x, y
        assert reference() is None and copy() is None


def test_a_long_chain_of_changes_is_freed() -> None:
    x = recorded(3)
    for k in range(20_000):
        x[k % 3] = 0.5
    node = weakref.ref(x.grad_fn)
    x.sum().backward()
    del x
    assert node() is None
