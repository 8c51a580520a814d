"""Custom Functions that change their inputs, or return views."""

from __future__ import annotations

from typing import Any

import pytest


def make(L: Any, forward: Any, backward: Any = None, **attributes: Any) -> Any:
    """A Function from two lambdas."""

    class Custom(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            return forward(ctx, *args)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(ctx, *grads)

    for name, value in attributes.items():
        setattr(Custom, name, value)
    return Custom


def add_dirty(ctx: Any, x: Any, y: Any) -> Any:
    ctx.mark_dirty(x)
    return x.add_(y)


def start(L: Any, *shape: int) -> tuple[Any, Any]:
    leaf = L.ones(*shape, requires_grad=True)
    return leaf, leaf * 1


def test_a_dirty_input_is_returned_as_the_object_it_is_and_marking_it_counts(L: Any) -> None:
    leaf, x = start(L, 2)
    other = L.ones(2, requires_grad=True)
    out = make(L, add_dirty, lambda ctx, g: (g * 2, g * 3)).apply(x, other)
    assert out is x and x.grad_fn.name() == "CustomBackward" and x._version == 2
    out.sum().backward()
    assert leaf.grad.tolist() == [2, 2] and other.grad.tolist() == [3, 3]


@pytest.mark.parametrize("position", [0, 1])
def test_a_dirty_view_moves_its_base_to_copy_slices(L: Any, position: int) -> None:
    if position and L.__name__ == "torch":
        pytest.skip("PyTorch takes the first input for the one that was changed")

    def forward(ctx: Any, a: Any, b: Any) -> Any:
        changed, other = (b, a) if position else (a, b)
        ctx.mark_dirty(changed)
        return changed.mul_(other)

    def backward(ctx: Any, g: Any) -> Any:
        return (g * 10, g * 7) if position else (g * 7, g * 10)

    leaf, x = start(L, 3)
    other = L.full((2,), 3.0, requires_grad=True)
    args = (other, x[:2]) if position else (x[:2], other)
    make(L, forward, backward).apply(*args)
    assert type(x.grad_fn).__name__ == "CopySlices"
    x.sum().backward()
    assert leaf.grad.tolist() == [7, 7, 1] and other.grad.tolist() == [10, 10]


def test_a_dirty_view_may_be_saved_and_differentiated_twice(L: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        x.exp_()
        ctx.save_for_backward(x)
        return x

    Exp = make(L, forward, lambda ctx, g: g * ctx.saved_tensors[0])

    def f(w: Any) -> Any:
        x = w * 1
        Exp.apply(x[1:])
        return (x * x).sum()

    w = L.tensor([0.1, 0.2, 0.3], dtype=L.float64, requires_grad=True)
    assert L.autograd.gradcheck(f, (w,)) and L.autograd.gradgradcheck(f, (w,))


REFUSALS = {
    "a leaf": (
        "a leaf Variable that requires grad has been used in an in-place operation",
        lambda L, F: F.apply(L.ones(2, requires_grad=True), L.ones(2)),
    ),
    "a view of a leaf": (
        "a view of a leaf Variable that requires grad",
        lambda L, F: F.apply(L.ones(2, requires_grad=True)[:1], L.ones(1)),
    ),
    "one of several views": (
        "This view is the output of a function that returns multiple views",
        lambda L, F: F.apply(start(L, 2)[1].unbind()[0], L.ones(())),
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_may_not_be_marked_dirty(L: Any, what: str) -> None:
    message, call = REFUSALS[what]
    with pytest.raises(RuntimeError, match=message):
        call(L, make(L, add_dirty, lambda ctx, g: (g, g)))


def test_a_dirty_view_beside_another_output_is_refused(L: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.add_(1), x.clone()

    _, x = start(L, 3)
    with pytest.raises(RuntimeError, match="your Function modifies inplace an input that is a view of another Tensor"):
        make(L, forward).apply(x[:2])


def test_a_dirty_input_must_be_returned(L: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.clone()

    with pytest.raises(RuntimeError, match="Some elements marked as dirty during the forward method were not returned"):
        make(L, forward).apply(start(L, 2)[1])


def test_only_inputs_are_marked_dirty(L: Any) -> None:
    def forward(ctx: Any, x: Any, view: bool) -> Any:
        new = x * 3
        new = new[:1] if view else new
        ctx.mark_dirty(new)
        return new

    Function = make(L, forward, lambda ctx, g: (g, None))
    with pytest.warns(UserWarning, match="received a tensor that was not an input"):
        Function.apply(start(L, 2)[1], False)
    with pytest.raises(RuntimeError, match="received a tensor that was not an input"):
        Function.apply(start(L, 2)[1], True)


def test_a_saved_input_that_a_function_changed_behind_its_back_is_an_error(L: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        x.data.mul_(2)
        return x

    _, x = start(L, 2)
    y = x * x
    make(L, forward, lambda ctx, g: g * 2).apply(x)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


def test_an_input_returned_as_it_is_becomes_a_view_of_itself(L: Any) -> None:
    leaf, x = start(L, 2)
    out = make(L, lambda ctx, x: x, lambda ctx, g: g * 5).apply(x)
    assert out is not x and out._is_view() and out._base is x and out.grad_fn.name() == "CustomBackward"
    with pytest.raises(RuntimeError, match=r"Output 0 of Custom is a view and is being modified inplace\. This view"):
        out.mul_(2)
    out.sum().backward()
    assert leaf.grad.tolist() == [5, 5]


def test_the_same_output_twice_is_the_same_object_twice(L: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        return y, y

    a, b = make(L, forward, lambda ctx, g, h: g + h).apply(start(L, 2)[1])
    assert a is b


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_view_made_in_forward_refuses_recorded_changes(L: Any, requires_grad: bool) -> None:
    x = L.ones(3, requires_grad=requires_grad) * 1
    out = make(L, lambda ctx, x: x[:2], lambda ctx, g: L.cat([g, g[:1]])).apply(x)
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        out.mul_(L.ones(2, requires_grad=True))


def test_a_view_of_something_made_in_forward_refuses_changes_too(L: Any) -> None:
    out = make(L, lambda ctx, x: (x * 2)[:2], lambda ctx, g: L.cat([g, g[:1]])).apply(start(L, 3)[1])
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        out.mul_(2)


def test_several_views_are_refused_as_such(L: Any) -> None:
    a, _ = make(L, lambda ctx, x: (x[:1], x[1:]), lambda ctx, g, h: L.cat([g, h])).apply(start(L, 3)[1])
    with pytest.raises(RuntimeError, match="This view is the output of a function that returns multiple views"):
        a.mul_(2)


def test_a_pure_view_is_replayed(L: Any) -> None:
    called = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx._is_pure_view = True
        return x[1:]

    def backward(ctx: Any, g: Any) -> Any:
        called.append(1)
        return L.cat([g[:1] * 0, g])

    leaf, x = start(L, 3)
    out = make(L, forward, backward).apply(x)
    out.mul_(2)
    out.sum().backward()
    assert leaf.grad.tolist() == [0, 2, 2] and not called


def test_a_pure_view_has_one_input_and_one_output(L: Any) -> None:
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx._is_pure_view = True
        return x[1:]

    with pytest.raises(RuntimeError, match="Pure view custom Function can only have one input Tensor and one output"):
        make(L, forward).apply(start(L, 3)[1], start(L, 3)[1])


def test_changes_to_what_forward_made_are_its_own_business(L: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        local = x * 2
        local[:1].mul_(10)
        local[1].zero_()
        return local

    leaf, x = start(L, 2)
    out = make(L, forward, lambda ctx, g: g * 4).apply(x)
    assert out.tolist() == [20, 0]
    out.sum().backward()
    assert leaf.grad.tolist() == [4, 4]


def test_an_instance_answers_what_its_node_would(L: Any) -> None:
    Function = make(L, lambda ctx, x: x, lambda ctx, g: g)
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = Function()
    assert instance.name().startswith("Custom") and tuple(instance.next_functions) == () and instance.metadata == {}
    with pytest.raises(RuntimeError, match="non-static forward method is deprecated"):
        instance(L.ones(1))


def test_a_tensor_changed_as_two_arguments_is_the_last_output(L: Any) -> None:
    class Both(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.mark_dirty(x, y)
            return x.mul_(2), y.mul_(3)

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 10, h * 100

    w = L.ones(2, requires_grad=True)
    x = w * 1
    one, two = Both.apply(x, x)
    assert one is x and two is x and x.output_nr == 1
    x.sum().backward()
    assert w.grad.tolist() == [100, 100]
