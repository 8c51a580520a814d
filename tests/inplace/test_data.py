"""`x.data = other`: what stays (the history, the version, the base of a view), and what is refused afterwards.

An assignment to `.data` is hidden from autograd. Where PyTorch then goes on with a history that does not fit the
values, undertow raises.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def start(L: ModuleType, n: int) -> tuple[Any, Any]:
    w = L.ones(n, requires_grad=True)
    return w, w * 1


GRAPHS: dict[str, Callable[[Any, Any], Any]] = {
    "one tensor": lambda L, x: x.sin(),
    "both factors": lambda L, x: x * x,
    "a factor": lambda L, x: x * L.ones(3, requires_grad=True),
    "a power": lambda L, x: x**3,
}


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("how", GRAPHS)
def test_a_saved_tensor_that_got_data_of_another_shape_is_an_error(L: Any, how: str, is_leaf: bool) -> None:
    w, x = start(L, 3)
    x = w if is_leaf else x
    y = GRAPHS[how](L, x).sum()
    x.data = L.ones(5)
    with pytest.raises(RuntimeError, match=r"The size of tensor .* must match"):
        y.backward()


def test_the_error_names_the_node_the_argument_and_the_shape() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x.sin().sum()
    x.data = ut.ones(5)
    with pytest.raises(RuntimeError, match=r"'input' .* SinBackward0 saved: its \.data was .* \[5\]"):
        y.backward()


def test_it_is_an_error_though_the_shapes_would_broadcast() -> None:
    """PyTorch computes a gradient of the old shape, from the new values."""
    x, w = ut.ones(3, requires_grad=True), ut.ones(3, requires_grad=True)
    y = (x * w).sum()
    x.data = ut.ones(1)
    with pytest.raises(RuntimeError, match="must match"):
        y.backward()


def test_custom_functions_notice_it_too() -> None:
    class Square(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g * ctx.saved_tensors[0]

    _, x = start(ut, 3)
    y = Square.apply(x).sum()
    x.data = ut.ones(1)
    with pytest.raises(RuntimeError, match="must match the one that SquareBackward saved"):
        y.backward()


def test_a_leaf_of_another_shape_takes_no_gradient_of_the_old_one(L: Any) -> None:
    x = L.ones(3, requires_grad=True)
    y = (x + 1).sum()
    x.data = L.ones(5)
    with pytest.raises(RuntimeError):
        y.backward()
    assert x.grad is None


def test_what_is_computed_afterwards_is_not_concerned(L: Any) -> None:
    x = L.ones(3, requires_grad=True)
    x.data = L.full((5,), 2.0)
    (x * x).sum().backward()
    assert x.grad.tolist() == [4] * 5


def test_data_of_the_same_shape_is_used(L: Any) -> None:
    x = L.ones(3, requires_grad=True)
    y = (x * x).sum()
    x.data = L.full((3,), 5.0)
    y.backward()
    assert x.grad.tolist() == [10] * 3


# ---- views


def test_a_view_stays_a_view_and_shares_the_counter(L: Any) -> None:
    x = L.zeros(4)
    v = x[:2]
    v.data = L.ones(2)
    assert v._is_view() and v._base is x and v.tolist() == [1, 1]
    v.add_(1)
    assert v._version == x._version == 1 and x.tolist() == [0, 0, 0, 0]
    assert v[:1]._base is x
    with pytest.raises(RuntimeError, match="view"):
        v.detach_()


def test_the_history_of_a_view_stays(L: Any) -> None:
    w, x = start(L, 4)
    v = x[:2]
    v.data = L.full((2,), 5.0)
    (v[:1] * v[:1]).sum().backward()
    assert w.grad.tolist() == [10, 0, 0, 0]


def test_a_view_that_got_another_part_of_its_base_is_found_there(L: Any) -> None:
    w, x = start(L, 4)
    v = x[:2]
    v.data = x.data[2:]
    v.mul_(3)
    x.sum().backward()
    assert x.tolist() == [1, 1, 3, 3] and w.grad.tolist() == [1, 1, 3, 3]


def test_a_change_of_the_base_is_found_by_a_view_that_got_another_part(L: Any) -> None:
    w, x = start(L, 4)
    v = x[:2]
    v.data = x.data[2:]
    x.mul_(3)
    v.sum().backward()
    assert w.grad.tolist() == [0, 0, 3, 3]


def test_views_taken_after_the_base_got_other_memory_are_followed(L: Any) -> None:
    w, x = start(L, 4)
    x.data = L.full((4,), 2.0)
    v = x[1:][:2]
    v.mul_(3)
    x.sum().backward()
    assert x.tolist() == [2, 6, 6, 2] and w.grad.tolist() == [1, 3, 3, 1]


def assign_first(v: Any) -> None:
    v[0] = 7.0


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "the view": lambda x, v: v.mul_(3),
    "a view of the view": lambda x, v: v[:1].mul_(3),
    "a row of the view": lambda x, v: assign_first(v),
    "the base": lambda x, v: x.mul_(3),
}


@pytest.mark.parametrize("moved", ["the view", "the base"])
@pytest.mark.parametrize("how", CHANGES)
def test_recorded_changes_of_views_with_memory_of_their_own_are_refused(how: str, moved: str) -> None:
    """PyTorch gives the base a history of changes that its memory has not seen."""
    _, x = start(ut, 4)
    v = x[:2]
    if moved == "the view":
        v.data = ut.ones(2)
    else:
        x.data = ut.ones(4)
    with pytest.raises(RuntimeError, match="was given other memory"):
        CHANGES[how](x, v)
        v.sum().backward()
    if how != "the base":
        assert v.tolist() == [1, 1]


def test_without_recording_they_may_be_changed(L: Any) -> None:
    _, x = start(L, 4)
    v = x[:2]
    v.data = L.ones(2)
    with L.no_grad():
        v.mul_(3)
    assert v.tolist() == [3, 3] and x.tolist() == [1, 1, 1, 1]


# ---- leaves whose shape changes between a graph and its backward pass


def assigned(L: Any, x: Any) -> None:
    x.data = L.ones(3)


def turned(L: Any, x: Any) -> None:
    with L.no_grad():
        x.t_()


def put_elsewhere(L: Any, x: Any) -> None:
    with L.no_grad():
        x.set_(L.ones(3))


@pytest.mark.parametrize("change", [assigned, turned, put_elsewhere])
def test_a_gradient_of_the_former_shape_is_not_made_to_fit(change: Any) -> None:
    """PyTorch refuses it too, and then those of the present shape."""
    x = ut.ones(2, 3, requires_grad=True)
    y = (x * 2).sum()
    change(ut, x)
    with pytest.raises(RuntimeError, match="The shape of a leaf must match"):
        y.backward()
    assert x.grad is None
    (x * 2).sum().backward()
    assert x.grad.tolist() == ut.full(x.shape, 2.0).tolist()


def test_a_gradient_of_the_former_order_is_refused() -> None:
    """PyTorch stores it as it was before."""
    x = ut.ones(2, 2, requires_grad=True)
    y = (x * ut.tensor([[1.0, 2.0], [3.0, 4.0]])).sum()
    turned(ut, x)
    with pytest.raises(RuntimeError, match=r"changed by t_ since"):
        y.backward()
    assert x.grad is None


def test_a_gradient_is_not_added_to_one_of_another_shape() -> None:
    """PyTorch adds what can be broadcast."""
    x = ut.ones(2, 3, requires_grad=True)
    (x * 2).sum().backward()
    assigned(ut, x)
    with pytest.raises(RuntimeError, match=r"shape of a leaf's \.grad, \[2, 3\]"):
        (x * 2).sum().backward()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2] * 3


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: setattr(x, "data", ut.ones(3, 2))])
@pytest.mark.parametrize("used_again", [False, True])
def test_no_gradient_of_a_former_shape_is_left_out(change: Any, used_again: bool) -> None:
    x = ut.ones(2, 3, requires_grad=True)
    y = (x + 1).sum()
    with ut.no_grad():
        change(x)
    if used_again:
        y = y + (x * 3).sum()
    for ask in (
        lambda: ut.autograd.grad(y, x, retain_graph=True, allow_unused=True),
        lambda: y.backward(inputs=[x], retain_graph=True),
        lambda: y.backward(retain_graph=True),
    ):
        with pytest.raises(RuntimeError, match="The shape of a leaf must match"):
            ask()
    (g,) = ut.autograd.grad((x * 3).sum(), x)
    assert g.tolist() == [[3, 3]] * 3
