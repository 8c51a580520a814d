"""Exceptions in backward: they keep type and traceback, say which line is to blame, and leave everything usable."""

from __future__ import annotations

import traceback
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow.errors import GraphFreedError, UnreachableInputError


class Oops(Exception):
    pass


def fail(*arguments: Any) -> None:
    raise Oops("in a hook")


REGISTER = {
    "tensor hook": lambda a, b: b.register_hook(fail),
    "prehook": lambda a, b: b.grad_fn.register_prehook(fail),
    "post-hook": lambda a, b: b.grad_fn.register_hook(fail),
    "leaf hook": lambda a, b: a.register_hook(fail),
    "post-accumulate hook": lambda a, b: a.register_post_accumulate_grad_hook(fail),
}


@pytest.mark.parametrize("where", REGISTER)
@pytest.mark.parametrize("recorded", [False, True])
def test_a_hook_that_raises_ends_the_pass(L: ModuleType, where: str, recorded: bool) -> None:
    a = L.tensor([1.0, 2.0], requires_grad=True)
    b = a * a
    handle = REGISTER[where](a, b)
    with pytest.raises(Oops, match="in a hook") as caught:
        if recorded and where in ("tensor hook", "leaf hook"):
            L.autograd.grad(b.sum(), a, create_graph=True)
        else:
            b.sum().backward()
    assert caught.traceback[-1].name == "fail"
    assert L.is_grad_enabled()
    handle.remove()
    a.grad = None
    (a * 3).sum().backward()
    assert a.grad.tolist() == [3.0, 3.0]


def test_the_pass_is_over_after_an_error() -> None:
    a = ut.ones(2, requires_grad=True)
    a.register_hook(fail)
    with pytest.raises(Oops):
        (a * 2).sum().backward()
    assert ut.autograd.graph.current_graph_task_id() == -1
    assert ut.autograd.graph.current_node() is None


# ---- notes


def notes(error: BaseException) -> list[str]:
    return [note for note in getattr(error, "__notes__", ()) if note.startswith("undertow: ")]


def line_of(marker: str) -> int:
    """The line of this file that ends with the comment `# marker`."""
    with open(__file__, encoding="utf-8") as file:
        return next(nr for nr, line in enumerate(file, 1) if line.rstrip().endswith(f"# {marker}"))


class Failing(ut.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise Oops("in backward")


def test_the_exception_names_the_node_and_the_forward_line() -> None:
    x = ut.ones(2, requires_grad=True)
    y = Failing.apply(x)  # called here
    with pytest.raises(Oops) as caught:
        (y * 3).sum().backward()
    (note,) = notes(caught.value)
    place = f"{__file__}:{line_of('called here')} in"
    assert note.startswith(f"undertow: while running FailingBackward, recorded at {place}")
    assert note in "".join(traceback.format_exception(caught.value))


def test_a_saved_tensor_that_was_changed_names_the_node_that_needs_it() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 1
    z = y.sin()  # needs y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        z.sum().backward()
    (note,) = notes(caught.value)
    assert f"SinBackward0, recorded at {__file__}:{line_of('needs y')} in" in note


def test_an_error_of_a_leaf_hook_names_the_leaf() -> None:
    x = ut.ones(2, 3, requires_grad=True)
    x.register_hook(fail)
    with pytest.raises(Oops) as caught:
        (x * 2).sum().backward()
    (note,) = notes(caught.value)
    assert note == "undertow: while running undertow::autograd::AccumulateGrad of a leaf of shape [2, 3]"


def test_nested_passes_note_the_innermost_node_once() -> None:
    class Outer(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            with ut.enable_grad():
                Failing.apply(ut.ones(1, requires_grad=True)).backward()
            return grad

    with pytest.raises(Oops) as caught:
        Outer.apply(ut.ones(1, requires_grad=True)).backward()
    (note,) = notes(caught.value)
    assert "FailingBackward" in note


def test_an_exception_that_is_caught_inside_does_not_end_the_outer_pass() -> None:
    class Careful(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            with ut.enable_grad(), pytest.raises(Oops):
                Failing.apply(ut.ones(1, requires_grad=True)).backward()
            return grad * 2

    x = ut.ones(1, requires_grad=True)
    Careful.apply(x).backward()
    assert x.grad.item() == 2.0


def test_a_derivative_that_does_not_exist_can_be_asked_for_twice() -> None:
    @ut.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2

    once = type("Once", (ut.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * 2),
                                                   "backward": staticmethod(backward)})  # fmt: skip
    x = ut.ones(1, requires_grad=True)
    (g,) = ut.autograd.grad(once.apply(x) ** 2, x, create_graph=True)
    errors = []
    for _ in range(2):
        with pytest.raises(RuntimeError, match="differentiate twice") as caught:
            g.backward(retain_graph=True)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert [len(notes(error)) for error in errors] == [1, 1]


# ---- a second backward


def test_a_second_backward_names_the_first() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x.exp()  # shared
    one, two = y.sum(), (y * 2).sum()  # uses it
    one.backward()  # frees it
    with pytest.raises(GraphFreedError, match="retain_graph=True") as caught:
        two.backward()
    error = caught.value
    assert error.node_name == "ExpBackward0"
    assert f":{line_of('shared')} in" in error.created_at
    assert f":{line_of('frees it')} in" in error.freed_at
    use = f"MulBackward0, recorded at {__file__}:{line_of('uses it')}"
    assert f"is shared with that pass; in this one it feeds {use}" in notes(error)[1]


def test_the_same_output_twice() -> None:
    loss = ut.ones(2, requires_grad=True).exp().sum().sin()
    loss.backward()
    with pytest.raises(GraphFreedError, match="SinBackward0") as caught:
        loss.backward()
    assert "the same output was differentiated before" in notes(caught.value)[1]


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("make", [lambda x: x.exp(), lambda x: ut.einsum("i,i->i", x, x), lambda x: Saving.apply(x)])
def test_every_kind_of_node_names_the_pass_that_freed_it(make: Any, hooked: bool) -> None:
    x = ut.ones(2, requires_grad=True)
    y = make(x)
    if hooked:
        y.register_hook(lambda grad: None)
    y.sum().backward()  # freed by this
    with pytest.raises(GraphFreedError) as caught:
        y.sum().backward()
    assert caught.value.created_at is not None
    assert f":{line_of('freed by this')} in" in caught.value.freed_at


class Saving(ut.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 * ctx.saved_tensors[0]


def test_reading_a_freed_saved_tensor_names_the_pass() -> None:
    y = ut.ones(2, requires_grad=True).exp()
    y.sum().backward()
    with pytest.raises(GraphFreedError, match="after they have already been freed") as caught:
        y.grad_fn._saved_result
    assert caught.value.freed_at is not None


# ---- inputs that cannot be reached


def unreachable(outputs: Any, inputs: Any) -> UnreachableInputError:
    text = r"to not have been used in the graph.*Set allow_unused=True"
    with pytest.raises(UnreachableInputError, match=text) as caught:
        ut.autograd.grad(outputs, inputs)
    return caught.value


def test_an_unused_leaf() -> None:
    a, b = ut.ones(2, requires_grad=True), ut.ones(2, 3, requires_grad=True)
    error = unreachable((a * 2).sum(), [a, b])
    assert (error.index, error.shape) == (1, (2, 3))
    assert "no operation between it and the outputs was recorded" in error.reason


def test_a_leaf_that_was_used_detached() -> None:
    a, b = ut.ones(2, requires_grad=True), ut.ones(2, requires_grad=True)
    loss = (a.detach() * b).sum()  # cut here
    error = unreachable(loss, a)
    assert f"MulBackward0 (recorded at {__file__}:{line_of('cut here')} in" in error.reason
    assert "detach()" in error.reason


def test_a_tensor_that_was_changed_since() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 2
    loss = y.sum()
    y.mul_(3)  # the change
    error = unreachable(loss, y)
    assert "changed in place" in error.reason and f":{line_of('the change')}" in error.reason
    assert "get_gradient_edge" in error.reason


def test_a_tensor_of_another_branch_and_of_later() -> None:
    x = ut.ones(2, requires_grad=True)
    other = x * 2  # the other branch
    loss = x.sin().sum()
    later = x * 3
    error = unreachable(loss, other)
    assert f"the output of MulBackward0 (recorded at {__file__}:{line_of('the other branch')} in" in error.reason
    assert "not computed from" in error.reason
    assert "recorded after the outputs" in unreachable(loss, later).reason


def test_a_path_along_which_nothing_flows() -> None:
    class Stop(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None

    x = ut.ones(2, requires_grad=True)
    assert "returned None" in unreachable(Stop.apply(x).sum(), x).reason


def test_inputs_without_gradients_say_why() -> None:
    x = ut.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"does not require grad: input 1, of shape \[3\] and dtype int64; only"):
        ut.autograd.grad(x.sum(), [x, ut.arange(3)])
    with pytest.raises(RuntimeError, match=r"does not require grad: input 0.*requires_grad_\(\)"):
        ut.autograd.grad(x.sum(), ut.ones(3))
