"""Inference mode: tensors without version counters, and what becomes of them outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import undertow as ut


def inference_tensor(L: Any, *shape: int, requires_grad: bool = False) -> Any:
    with L.inference_mode():
        return L.ones(*shape, requires_grad=requires_grad)


def normal_view(L: Any, requires_grad: bool = True) -> tuple[Any, Any, Any]:
    leaf = L.ones(2, 3, requires_grad=requires_grad)
    x = leaf * 1
    with L.inference_mode():
        return leaf, x, x.view(-1)


MAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "creation": lambda L, x: L.zeros(2),
    "from data": lambda L, x: L.tensor([1.0]),
    "random": lambda L, x: L.rand(2),
    "like": lambda L, x: L.zeros_like(x),
    "arithmetic": lambda L, x: x * 2,
    "composite": lambda L, x: L.cat([x, x]),
    "several results": lambda L, x: x.max(0)[0],
    "comparison": lambda L, x: x > 0,
    "a copy": lambda L, x: x.clone(),
    "indexing": lambda L, x: x[[0]],
}


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_made_inside_is_an_inference_tensor(L: Any, maker: str) -> None:
    x = L.ones(2, requires_grad=True)
    with L.inference_mode():
        made = MAKERS[maker](L, x)
    assert made.is_inference() and L.is_inference(made) and not made.requires_grad
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        made._version


def test_it_is_a_context_manager_and_a_decorator_and_takes_a_mode(L: Any) -> None:
    seen = []

    @L.inference_mode()
    def with_parentheses() -> None:
        seen.append(L.is_inference_mode_enabled())

    @L.inference_mode
    def without() -> None:
        seen.append(L.is_inference_mode_enabled())

    @L.inference_mode(mode=False)
    def off() -> None:
        seen.append(L.is_inference_mode_enabled())

    with_parentheses()
    without()
    with L.inference_mode():
        off()
        seen.append(L.is_inference_mode_enabled())
        with L.inference_mode(False):
            seen.append(L.is_inference_mode_enabled())
            assert L.is_grad_enabled()
    assert seen == [True, True, False, True, False] and not L.is_inference_mode_enabled() and L.is_grad_enabled()


def test_grad_mode_is_off_inside_and_switching_it_on_records_nothing(L: Any) -> None:
    x = L.ones(2, requires_grad=True)
    with L.inference_mode():
        assert not L.is_grad_enabled()
        with L.enable_grad():
            assert L.is_grad_enabled()
            y = x * 2
            assert y.is_inference() and not y.requires_grad
    with L.no_grad(), L.inference_mode(False):
        assert L.is_grad_enabled() and (x * 2).requires_grad


def test_generators_leave_it_at_every_yield(L: Any) -> None:
    @L.inference_mode()
    def numbers() -> Any:
        yield L.is_inference_mode_enabled()
        yield L.is_inference_mode_enabled()

    for inside in numbers():
        assert inside and not L.is_inference_mode_enabled()


def test_a_leaf_may_ask_for_a_gradient_and_get_one(L: Any) -> None:
    c = inference_tensor(L, 2, requires_grad=True)
    s = L.ones(2, requires_grad=True)
    assert c.requires_grad and c.is_inference()
    out = c.add(s)
    assert not out.is_inference() and out.requires_grad
    out.sum().backward()
    assert c.grad.tolist() == [1, 1]


def test_inference_tensors_cannot_be_saved_for_backward(L: Any) -> None:
    c, s = inference_tensor(L, 2), L.ones(2, requires_grad=True)
    for save in (lambda: c * s, lambda: (s * 1).mul_(c), lambda: L.addcmul(s, s, c)):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            save()
    (c + s).sum().backward()
    (c.clone() * s).sum().backward()
    assert s.grad.tolist() == [2, 2]


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda L, x: x.add_(1),
    "zero_": lambda L, x: x.zero_(),
    "copy_": lambda L, x: x.copy_(L.ones(2, 3)),
    "assignment": lambda L, x: x.__setitem__(0, 1.0),
    "transpose_": lambda L, x: x.transpose_(0, 1),
    "masked_fill_": lambda L, x: x.masked_fill_(x > 0, 0.0),
    "out=": lambda L, x: L.exp(L.ones(2, 3), out=x),
    "random": lambda L, x: x.uniform_(),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("no_grad", [False, True])
def test_inference_tensors_are_changed_inside_only(L: Any, how: str, no_grad: bool) -> None:
    x = inference_tensor(L, 2, 3)
    message = "Inplace update to inference tensor outside InferenceMode is not allowed"
    with L.set_grad_enabled(not no_grad), pytest.raises(RuntimeError, match=message):
        CHANGES[how](L, x)
    if L is ut:  # PyTorch refuses when it has changed the tensor
        assert x.tolist() == [[1] * 3] * 2
    with L.inference_mode():
        x = L.ones(2, 3)
        CHANGES[how](L, x)
        assert x.is_inference()


@pytest.mark.parametrize("how", CHANGES)
def test_normal_tensors_stay_normal_and_are_counted(L: Any, how: str) -> None:
    leaf = L.ones(2, 3, requires_grad=True)
    x = leaf * 1
    with L.inference_mode():
        if how == "out=":
            return
        CHANGES[how](L, x)
    assert not x.is_inference() and x._version == 1 and x.requires_grad


def test_a_saved_tensor_changed_inside_is_an_error(L: Any) -> None:
    x = L.ones(2, requires_grad=True) * 1
    out = (x * x).sum()
    with L.inference_mode():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_views_of_inference_tensors_are_inference_tensors_and_no_views(L: Any) -> None:
    x = inference_tensor(L, 2, 3, requires_grad=True)
    for view in (x.view(-1), x[0], x.unbind()[0], x.detach(), x.data):
        assert view.is_inference() and not view._is_view() and not view.requires_grad


def test_views_of_normal_tensors_are_normal_but_may_not_be_changed_outside(L: Any) -> None:
    _, x, v = normal_view(L)
    assert not v.is_inference() and v._is_view() and v.requires_grad and v.is_leaf
    assert (v * v).requires_grad and not (v * v).is_inference()
    with pytest.raises(RuntimeError, match="A view was created in inference mode and is being modified inplace"):
        v.add_(1)
    with L.inference_mode():
        v.add_(1)
    assert x._version == v._version == 1
    assert normal_view(L, requires_grad=False)[2].add_(1).tolist() == [2] * 6


def test_a_normal_view_made_inside_notices_that_its_base_was_changed(L: Any) -> None:
    _, x, v = normal_view(L)
    x.add_(1)
    with pytest.raises(RuntimeError, match="A view was created in inference mode and its base or another view "):
        v.grad_fn


def test_a_view_of_a_normal_view_made_inside_refuses_changes(L: Any) -> None:
    x = L.zeros(2)
    with L.inference_mode():
        y = x.view(2)
    z = y.requires_grad_().view(2)
    with pytest.raises(RuntimeError, match=r"a view of a view .* is being .* inside the inference_mode"):
        z /= 2


def test_a_gradient_cannot_be_asked_for_outside(L: Any) -> None:
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode"):
        inference_tensor(L, 2).requires_grad_()


def test_out_of_a_normal_call_may_not_be_an_inference_tensor(L: Any) -> None:
    c, s = inference_tensor(L, 2), L.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"out=\.\.\. arguments don't support automatic differentiation"):
        L.mul(s, s, out=c)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        L.mul(s.detach(), s.detach(), out=c)


def test_other_threads_are_not_concerned(L: Any) -> None:
    from threading import Thread

    seen = []
    with L.inference_mode():
        thread = Thread(target=lambda: seen.append(L.is_inference_mode_enabled()))
        thread.start()
        thread.join()
    assert seen == [False]
