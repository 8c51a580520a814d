"""Hooks and retain_grad on tensors that are later changed in place."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def test_earlier_hooks_stay_with_the_old_version(L: ModuleType) -> None:
    a, seen = L.tensor([1.0], requires_grad=True), []
    b = a * 2
    b.register_hook(lambda grad: seen.append(("before", grad.item())))
    b.mul_(5)
    b.register_hook(lambda grad: seen.append(("after", grad.item())))
    (b * 3).backward()
    assert seen == [("after", 3.0), ("before", 15.0)]


def test_retain_grad_moves_to_the_newest_version(L: ModuleType) -> None:
    a = L.tensor([1.0], requires_grad=True)
    b = a * 2
    b.retain_grad()
    b.mul_(5)
    b.add_(1)
    assert b.retains_grad
    (b * 3).backward()
    assert (b.grad.item(), a.grad.item()) == (3.0, 30.0)


def test_retain_grad_of_a_base_moves_with_a_change_through_a_view(L: ModuleType) -> None:
    a = L.tensor([1.0, 2.0], requires_grad=True)
    base = a * 2
    base.retain_grad()
    base[:1].mul_(5)
    (base * L.tensor([3.0, 7.0])).sum().backward()
    assert base.grad.tolist() == [3.0, 7.0]
    assert a.grad.tolist() == [30.0, 14.0]


def test_retain_grad_of_a_view_survives_a_change_of_the_base(L: ModuleType) -> None:
    a = L.tensor([1.0, 2.0], requires_grad=True)
    base = a * 1
    view = base[:]
    view.retain_grad()
    base.mul_(2)
    (view * 3).sum().backward()
    assert view.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("change", ["mul_", "setitem"])
def test_retain_grad_of_a_changed_view_leaves_its_former_value(L: ModuleType, change: str) -> None:
    if L is not ut and change == "setitem":
        return  # PyTorch leaves it as soon as somebody looks at the view
    a = L.tensor([1.0, 2.0], requires_grad=True)
    base = a * 1
    view = base[:]
    view.retain_grad()
    of_former = view * 2
    if change == "mul_":
        view.mul_(3)
    else:
        view[0] = 3.0
    (of_former.sum() + base.sum()).backward(retain_graph=True)
    assert view.grad is None
    (of_former.sum() + view.sum()).backward()
    assert view.grad.tolist() == [1.0, 1.0]


def test_a_hook_on_the_old_base_sees_the_gradient_before_the_change(L: ModuleType) -> None:
    a, seen = L.tensor([1.0, 2.0], requires_grad=True), []
    base = a * 1
    base.register_hook(lambda grad: seen.append(("old", grad.tolist())))
    base[0] = 5.0
    base.register_hook(lambda grad: seen.append(("new", grad.tolist())))
    base.sum().backward()
    assert seen == [("new", [1.0, 1.0]), ("old", [0.0, 1.0])]


@pytest.mark.parametrize("changed", ["base", "other view"])
def test_hooks_of_a_view_are_lost_when_its_history_is_made_anew(L: ModuleType, changed: str) -> None:
    a, seen = L.tensor([1.0, 2.0], requires_grad=True), []
    base = a * 1
    view, other = base[:1], base[:]
    view.register_hook(lambda grad: seen.append(grad.tolist()))
    (base if changed == "base" else other).mul_(3)
    (view * 2).sum().backward()
    assert seen == [] and a.grad.tolist() == [6.0, 0.0]


def test_hooks_that_are_registered_on_the_new_history_fire(L: ModuleType) -> None:
    a, seen = L.tensor([1.0, 2.0], requires_grad=True), []
    base = a * 1
    view = base[:1]
    base.mul_(3)
    assert view.grad_fn is not None  # PyTorch makes it anew only now, and crashes without
    view.register_hook(lambda grad: seen.append(grad.tolist()))
    (view * 2).sum().backward()
    assert seen == [[2.0]]


def test_hooks_of_a_function_that_changes_its_input(L: ModuleType) -> None:
    class Double(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            x.mul_(2)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    a, seen = L.tensor([1.0], requires_grad=True), []
    b = a * 3
    b.register_hook(lambda grad: seen.append(("old", grad.item())))
    assert Double.apply(b) is b
    b.register_hook(lambda grad: seen.append(("new", grad.item())))
    (b * 5).backward()
    assert seen == [("new", 5.0), ("old", 10.0)]
    assert a.grad.item() == 30.0


def test_a_batch_of_gradients_leaves_retained_gradients_as_they_are() -> None:
    """`.grad` has room for one; PyTorch puts something there that cannot be read."""
    x = ut.ones(2, requires_grad=True)
    y = x * 3
    y.retain_grad()
    z = y * y
    z.sum().backward(retain_graph=True)
    rows = ut.autograd.grad(z, x, ut.eye(2), is_grads_batched=True, retain_graph=True)[0]
    assert rows.tolist() == [[18, 0], [0, 18]]
    assert y.grad.tolist() == [6, 6]
    z.sum().backward()
    assert y.grad.tolist() == [12, 12]
