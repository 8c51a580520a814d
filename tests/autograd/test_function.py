"""Custom Functions: their two forms, what ctx offers, what may be returned, and what is refused."""

from __future__ import annotations

import functools
import gc
import inspect
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def leaf(L: ModuleType, *values: float) -> Any:
    return L.tensor(values or (1.0, 2.0), dtype=L.float32, requires_grad=True)


def function(L: ModuleType, name: str = "Custom", base: Any = None, **members: Any) -> Any:
    """A Function class made of plain functions: `function(L, forward=..., backward=...)`."""
    wrapped = {k: staticmethod(v) if callable(v) else v for k, v in members.items()}
    return type(L.autograd.Function)(name, (base or L.autograd.Function,), wrapped)


def save_and_square(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x


def twice_saved(ctx: Any, grad: Any) -> Any:
    return grad * 2 * ctx.saved_tensors[0]


def square(L: ModuleType, **members: Any) -> Any:
    return function(L, "Square", **{"forward": save_and_square, "backward": twice_saved, **members})


# ---- the two forms


def test_forward_with_ctx(L: ModuleType) -> None:
    x = leaf(L)
    y = square(L).apply(x)
    assert y.tolist() == [1, 4] and y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_forward_without_ctx_and_setup_context(L: ModuleType) -> None:
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, factor = inputs
        ctx.save_for_backward(x)
        ctx.factor = factor
        assert output.tolist() == [3, 12]

    scaled = function(
        L,
        forward=lambda x, factor: x * x * factor,
        setup_context=setup_context,
        backward=lambda ctx, grad: (grad * 2 * ctx.factor * ctx.saved_tensors[0], None),
    )
    x = leaf(L)
    scaled.apply(x, 3).sum().backward()
    assert x.grad.tolist() == [6, 12]


def test_defaults_of_forward_are_among_the_inputs(L: ModuleType) -> None:
    seen = []
    scaled = function(
        L,
        forward=lambda x, factor=3: x * factor,
        setup_context=lambda ctx, inputs, output: seen.append(inputs[1:]),
        backward=lambda ctx, grad: (grad, None),
    )
    scaled.apply(leaf(L))
    scaled.apply(leaf(L), 5)
    assert seen == [(3,), (5,)]


def test_a_signature_is_made_only_where_it_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen, signature = [], [], inspect.signature
    monkeypatch.setattr(inspect, "signature", lambda function: made.append(1) or signature(function))

    def scaled(x: Any, factor: Any = 3) -> Any:
        return x * factor

    @functools.wraps(scaled)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return scaled(*args, **kwargs)

    def given(forward: Callable[..., Any], *args: Any) -> tuple[Any, int]:
        before = len(made)
        made_here = function(
            ut,
            forward=forward,
            setup_context=lambda ctx, inputs, output: seen.append(inputs[1:]),
        )
        made_here.apply(leaf(ut), *args)
        return seen.pop(), len(made) - before

    assert given(scaled, 5) == ((5,), 0)
    assert given(lambda x, *factors: x * factors[0], 5, 6) == ((5, 6), 0)
    assert given(scaled) == ((3,), 1)
    assert given(wrapped) == ((3,), 1)
    with pytest.raises(TypeError, match="too many positional arguments"):
        given(scaled, 5, 6)
    with pytest.raises(TypeError, match="missing a required argument: 'more'"):
        given(lambda x, factor, more: x, 5)


def test_class_methods_will_do(L: ModuleType) -> None:
    class Scaled(L.autograd.Function):
        factor = 3

        @classmethod
        def forward(cls, ctx: Any, x: Any) -> Any:
            return x * cls.factor

        @classmethod
        def backward(cls, ctx: Any, grad: Any) -> Any:
            return grad * cls.factor

    x = leaf(L)
    Scaled.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_vjp_is_another_name_of_backward(L: ModuleType) -> None:
    x = leaf(L)
    function(L, forward=save_and_square, vjp=twice_saved).apply(x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_the_class_says_how_it_can_be_mapped(L: ModuleType) -> None:
    custom = square(L)
    assert custom.generate_vmap_rule is False and callable(custom.vmap) and callable(custom.jvp)


# ---- missing and surplus rules

INCOMPLETE: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no forward": ({}, NotImplementedError, "must implement the forward"),
    "no backward": (
        {"forward": lambda ctx, x: x * 2},
        NotImplementedError,
        "must implement either the backward or vjp method",
    ),
    "backward and vjp": (
        {"forward": lambda ctx, x: x * 2, "backward": lambda ctx, g: g, "vjp": lambda ctx, g: g},
        RuntimeError,
        "Implementing both 'backward' and 'vjp'",
    ),
}


@pytest.mark.parametrize(("members", "error", "words"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_incomplete(L: ModuleType, members: dict[str, Any], error: type[Exception], words: str) -> None:
    custom = function(L, **members)
    with pytest.raises(error, match=words):
        custom.apply(leaf(L)).sum().backward()


def test_legacy_use_is_refused(L: ModuleType) -> None:
    class Legacy(L.autograd.Function):
        def forward(self, x: Any) -> Any:
            return x

        def backward(self, grad: Any) -> Any:
            return grad

    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = Legacy()
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method is deprecated"):
        instance(leaf(L))


# ---- no graph


def test_without_an_input_that_requires_grad_nothing_is_recorded(L: ModuleType) -> None:
    made = function(L, forward=lambda ctx, n: L.ones(n), backward=lambda ctx, g: None)
    assert not made.apply(3).requires_grad
    assert not square(L).apply(L.ones(2)).requires_grad
    with L.no_grad():
        assert not square(L).apply(leaf(L)).requires_grad


def test_forward_records_nothing_of_its_own(L: ModuleType) -> None:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        seen.append((L.is_grad_enabled(), y.requires_grad, x.requires_grad))
        return y

    function(L, forward=forward, backward=lambda ctx, g: g).apply(leaf(L))
    assert seen == [(False, False, True)] and L.is_grad_enabled()


def test_an_exception_in_forward_restores_grad_mode(L: ModuleType) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        raise ValueError("intentional failure")

    with pytest.raises(ValueError, match="intentional failure"):
        function(L, forward=forward).apply(leaf(L))
    assert L.is_grad_enabled()


# ---- arguments and results of any kind


def test_non_tensors_pass_through(L: ModuleType) -> None:
    seen = []

    def forward(ctx: Any, nothing: Any, text: str, x: Any, flag: bool, n: int, array: list[int]) -> Any:
        seen.append((nothing, text, flag, n, array))
        return None, x * 2, text, flag, n

    custom = function(L, forward=forward, backward=lambda ctx, *g: (None, None, g[1], None, None, None))
    x = leaf(L)
    nothing, y, text, flag, n = custom.apply(None, "a", x, True, 7, [1])
    assert (nothing, text, flag, n) == (None, "a", True, 7) and seen == [(None, "a", True, 7, [1])]
    y.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_gradients_of_non_tensor_outputs_are_none(L: ModuleType) -> None:
    seen = []

    def backward(ctx: Any, *grads: Any) -> Any:
        seen.append([g if g is None else g.tolist() for g in grads])
        return grads[0]

    y, _ = function(L, forward=lambda ctx, x: (x * 2, "text"), backward=backward).apply(leaf(L))
    y.sum().backward()
    assert seen == [[[1, 1], None]]


def test_integer_tensors_pass_through_without_gradient(L: ModuleType) -> None:
    x, index = leaf(L), L.tensor([1, 0])
    custom = function(L, forward=lambda ctx, x, i: (x[i], i.clone()), backward=lambda ctx, g, gi: (g * 10, None))
    y, i = custom.apply(x, index)
    assert y.requires_grad and not i.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [10, 10]


def test_a_tuple_of_one_stays_a_tuple(L: ModuleType) -> None:
    out = function(L, forward=lambda ctx, x: (x * 2,), backward=lambda ctx, g: g).apply(leaf(L))
    assert isinstance(out, tuple) and len(out) == 1 and out[0].requires_grad


def test_several_outputs_share_a_node(L: ModuleType) -> None:
    x = leaf(L)
    custom = function(L, forward=lambda ctx, x: (x * 2, x * 3), backward=lambda ctx, a, b: a * 2 + b * 3)
    a, b = custom.apply(x)
    assert a.grad_fn is b.grad_fn and (a.output_nr, b.output_nr) == (0, 1)
    (a + b * 10).sum().backward()
    assert x.grad.tolist() == [32, 32]


# ---- what backward returns


def returning(L: ModuleType, result: Callable[..., Any]) -> Any:
    return function(L, forward=lambda ctx, x, y: x + y, backward=lambda ctx, grad: result(L, grad))


WRONG_RESULTS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "too few": (lambda L, g: g, RuntimeError, r"returned an incorrect number of gradients \(expected 2, got 1\)"),
    "too many": (lambda L, g: (g, g, g), RuntimeError, r"incorrect number of gradients \(expected 2, got 3\)"),
    "a shape that cannot be": (
        lambda L, g: (g, L.ones(5)),
        RuntimeError,
        r"returned an invalid gradient at index 1 - got \[5\] but expected shape compatible with \[2\]",
    ),
    "a number": (lambda L, g: (g, 2.0), RuntimeError, "expected Variable or None"),
    "a shape that is too small": (
        lambda L, g: (g.sum(), g),
        RuntimeError,
        r"returned an invalid gradient at index 0 - got \[\] but expected shape compatible with \[2\]",
    ),
}


@pytest.mark.parametrize(("result", "error", "words"), WRONG_RESULTS.values(), ids=WRONG_RESULTS)
def test_wrong_results(L: ModuleType, result: Callable[..., Any], error: type[Exception], words: str) -> None:
    x, y = leaf(L), leaf(L)
    with pytest.raises(error, match=words):
        returning(L, result).apply(x, y).sum().backward()
    assert x.grad is None and y.grad is None


FITTING_RESULTS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "one each": (lambda L, g: (g, g * 2), [1, 1], [2, 2]),
    "none for one": (lambda L, g: (None, g), None, [1, 1]),
    "none for both": (lambda L, g: (None, None), None, None),
    "surplus nones": (lambda L, g: (g, g, None, None), [1, 1], [1, 1]),
    "another dtype": (lambda L, g: (g.double(), g.half()), [1, 1], [1, 1]),
    "to be summed": (lambda L, g: (L.ones(3, 2), L.ones(4, 1, 2)), [3, 3], [4, 4]),
}


@pytest.mark.parametrize(("result", "for_x", "for_y"), FITTING_RESULTS.values(), ids=FITTING_RESULTS)
def test_fitting_results(L: ModuleType, result: Callable[..., Any], for_x: Any, for_y: Any) -> None:
    x, y = leaf(L), leaf(L)
    returning(L, result).apply(x * 1, y).sum().backward()
    for tensor, expected in ((x, for_x), (y, for_y)):
        assert (tensor.grad if tensor.grad is None else tensor.grad.tolist()) == expected
        assert tensor.grad is None or (tensor.grad.dtype, tensor.grad.shape) == (L.float32, tensor.shape)


def test_a_gradient_for_a_non_tensor_must_be_none(L: ModuleType) -> None:
    custom = function(L, forward=lambda ctx, x, n: x * n, backward=lambda ctx, g: (g, g))
    with pytest.raises(RuntimeError, match="None at position 2, but the corresponding forward input was not"):
        custom.apply(leaf(L), 2).sum().backward()


def test_a_gradient_for_a_constant_tensor_is_ignored(L: ModuleType) -> None:
    x, constant = leaf(L), L.ones(2)
    returning(L, lambda L, g: (g, L.ones(17))).apply(x, constant).sum().backward()
    assert x.grad.tolist() == [1, 1] and constant.grad is None


def test_a_complex_gradient_for_a_real_input_loses_its_imaginary_part() -> None:
    x, y = leaf(ut), leaf(ut)  # PyTorch refuses it when a custom Function returns it
    returning(ut, lambda L, g: (g * (2 + 3j), g)).apply(x * 1, y).sum().backward()
    assert x.grad.tolist() == [2, 2] and x.grad.dtype == ut.float32


def test_a_gradient_returned_twice_reaches_both(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    for _ in range(2):
        returning(L, lambda L, g: (g, g)).apply(x, y).sum().backward()
    x.grad.add_(1)
    assert x.grad.tolist() == [3, 3] and y.grad.tolist() == [2, 2]


# ---- ctx


def test_any_attribute_can_be_kept(L: ModuleType) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.factor, ctx.note = 3, {"a": 1}
        return x * 3

    x = leaf(L)
    y = function(L, forward=forward, backward=lambda ctx, g: g * ctx.factor).apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert y.grad_fn.note == {"a": 1}, "attributes outlive the pass"


def test_saved_may_be_none_inputs_outputs_and_intermediates(L: ModuleType) -> None:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        half = x / 2
        y = half * 4
        ctx.save_for_backward(None, x, half, y)
        return y

    def backward(ctx: Any, grad: Any) -> Any:
        seen.append([t if t is None else t.tolist() for t in ctx.saved_tensors])
        assert ctx.saved_tensors[1] is x
        return grad * 2

    x = leaf(L)
    function(L, forward=forward, backward=backward).apply(x).sum().backward()
    assert seen == [[None, [1, 2], [0.5, 1], [2, 4]]] and x.grad.tolist() == [2, 2]


def test_only_tensors_can_be_saved(L: ModuleType) -> None:
    custom = function(L, forward=lambda ctx, x: ctx.save_for_backward(3) or x * 2)
    with pytest.raises(TypeError, match="save_for_backward can only save variables, but argument"):
        custom.apply(leaf(L))


def test_a_saved_output_belongs_to_the_graph(L: ModuleType) -> None:
    """exp in terms of its own output, twice differentiable."""

    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    x = L.tensor(0.5, dtype=L.float64, requires_grad=True)
    y = function(L, forward=forward, backward=lambda ctx, g: g * ctx.saved_tensors[0]).apply(x)
    (first,) = L.autograd.grad(y, x, create_graph=True)
    (second,) = L.autograd.grad(first, x)
    assert second.item() == pytest.approx(y.item())


def test_saved_tensors_are_gone_after_the_pass(L: ModuleType) -> None:
    y = square(L).apply(leaf(L))
    y.sum().backward()
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        y.grad_fn.saved_tensors


def test_a_function_that_saves_nothing_runs_again(L: ModuleType) -> None:
    x = leaf(L)
    y = function(L, forward=lambda ctx, x: x * 2, backward=lambda ctx, g: g * 2).apply(x).sum()
    for _ in range(3):
        y.backward()
    assert x.grad.tolist() == [6, 6]


def test_a_saved_tensor_changed_in_place_is_an_error(L: ModuleType) -> None:
    x = leaf(L) * 1
    y = square(L).apply(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        y.sum().backward()


def test_saved_variables_is_the_old_name(L: ModuleType) -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 * ctx.saved_variables[0]

    x = leaf(L)
    with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated; use 'saved_tensors'"):
        square(L, backward=backward).apply(x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_needs_input_grad(L: ModuleType) -> None:
    seen = []

    def forward(ctx: Any, *args: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return args[0] * 2

    custom = function(L, forward=forward, backward=lambda ctx, g: (g, None, None))
    custom.apply(leaf(L), L.ones(2), 3)
    assert seen == [(True, False, False)]


def test_ctx_is_a_node(L: ModuleType) -> None:
    seen = []

    def remember(ctx: Any, x: Any) -> Any:
        seen.append(ctx)
        return x * 2

    y = function(L, forward=remember, backward=remember).apply(leaf(L))
    y.sum().backward()
    assert all(isinstance(ctx, L.autograd.graph.Node) for ctx in seen)
    assert seen[0] is seen[1] is y.grad_fn


def test_names(L: ModuleType) -> None:
    custom = square(L)
    node = custom.apply(leaf(L)).grad_fn
    assert type(node) is custom._backward_cls and type(node).__name__ == node.name() == "SquareBackward"
    assert isinstance(node, L.autograd.graph.Node) and L.autograd.graph.Node not in type(node).mro()
    assert issubclass(type(node), L.autograd.graph.Node)


def test_a_node_can_be_applied_by_hand(L: ModuleType) -> None:
    node = square(L).apply(leaf(L)).grad_fn
    assert node.apply(L.ones(2)).tolist() == [2, 4]
    assert node.apply(L.ones(2)).tolist() == [2, 4], "the saved values are kept"


# ---- undefined gradients


@pytest.mark.parametrize(("materialize", "expected"), [(True, [0, 0]), (False, None)])
def test_materialized_gradients(L: ModuleType, materialize: bool, expected: Any) -> None:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(materialize)
        return x * 2, x * 3

    def backward(ctx: Any, a: Any, b: Any) -> Any:
        seen.append(b if b is None else b.tolist())
        return a

    function(L, forward=forward, backward=backward).apply(leaf(L))[0].sum().backward()
    assert seen == [expected]


def test_backward_runs_although_every_gradient_is_undefined(L: ModuleType) -> None:
    nothing = function(L, "Nothing", forward=lambda ctx, x: x * 1, backward=lambda ctx, g: None)
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2

    def backward(ctx: Any, grad: Any) -> Any:
        seen.append(grad)
        return L.ones(2)

    x = leaf(L)
    nothing.apply(function(L, forward=forward, backward=backward).apply(x)).sum().backward()
    assert seen == [None] and x.grad.tolist() == [1, 1]


@pytest.mark.parametrize("materialize", [True, False])
def test_non_differentiable_outputs(L: ModuleType, materialize: bool) -> None:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        mask = x * 3
        ctx.mark_non_differentiable(mask)
        ctx.set_materialize_grads(materialize)
        return x * 2, mask

    def backward(ctx: Any, a: Any, b: Any) -> Any:
        seen.append(b if b is None else b.tolist())
        return a * 2

    x = leaf(L)
    y, mask = function(L, forward=forward, backward=backward).apply(x)
    assert not mask.requires_grad and mask.grad_fn is None
    (y * mask).sum().backward()
    assert x.grad.tolist() == [6, 12] and seen == [[0, 0] if materialize else None]


# ---- inputs and outputs that are the same tensor


def test_an_input_returned_as_it_is_becomes_a_view(L: ModuleType) -> None:
    x = leaf(L) * 1
    y = function(L, forward=lambda ctx, x: x, backward=lambda ctx, g: g * 10).apply(x)
    assert y is not x and y._is_view() and y.grad_fn.name() == "CustomBackward"
    assert x.grad_fn.name() == "MulBackward0"


def test_a_leaf_returned_as_it_is(L: ModuleType) -> None:
    x = leaf(L)
    y = function(L, forward=lambda ctx, x: x, backward=lambda ctx, g: g * 10).apply(x)
    y.sum().backward()
    assert y is not x and x.is_leaf and x.grad.tolist() == [10, 10]


def test_an_input_returned_as_it_is_without_recording(L: ModuleType) -> None:
    x = L.ones(2)
    y = function(L, forward=lambda ctx, x: x, backward=lambda ctx, g: g).apply(x)
    assert not y.requires_grad and y.data_ptr() == x.data_ptr()


def test_the_same_tensor_returned_twice_is_one_object(L: ModuleType) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        return y, y

    x = leaf(L)
    a, b = function(L, forward=forward, backward=lambda ctx, a, b: a * 2 + b * 2).apply(x)
    assert a is b
    (a + b).sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_a_dirty_input_is_returned_as_the_same_object(L: ModuleType) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    x = leaf(L)
    y = x * 1
    z = function(L, forward=forward, backward=lambda ctx, g: g * 2).apply(y)
    assert z is y and y.tolist() == [2, 4] and y._version > 0
    z.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_dirty_leaf_is_refused(L: ModuleType) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x

    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        function(L, forward=forward, backward=lambda ctx, g: g).apply(leaf(L))


# ---- differentiating twice


def test_backward_is_differentiated(L: ModuleType) -> None:
    x = leaf(L)
    (first,) = L.autograd.grad(square(L).apply(x).sum(), x, create_graph=True)
    assert L.autograd.grad(first.sum(), x)[0].tolist() == [2, 2]


def once(L: ModuleType) -> Any:
    return square(L, backward=L.autograd.function.once_differentiable(twice_saved))


def test_once_differentiable_gives_a_first_derivative(L: ModuleType) -> None:
    x = leaf(L)
    once(L).apply(x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_once_differentiable_refuses_the_second(L: ModuleType) -> None:
    x = leaf(L)
    y = once(L).apply(x)
    (first,) = L.autograd.grad(y, x, L.ones(2, requires_grad=True), create_graph=True)
    assert first.requires_grad and first.tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with @once_diff"):
        first.sum().backward()


def test_once_differentiable_runs_without_recording(L: ModuleType) -> None:
    seen = []

    def backward(ctx: Any, grad: Any) -> Any:
        seen.append(L.is_grad_enabled())
        return grad

    x = leaf(L)
    y = square(L, backward=L.autograd.function.once_differentiable(backward)).apply(x)
    L.autograd.grad(y.sum(), x, create_graph=True)
    assert seen == [False]


def graph_of(node: Any) -> str:
    if node is None:
        return "None"
    below = ", ".join(graph_of(n) for n, _ in node.next_functions)
    return f"{type(node).__name__}({below})"


def test_the_graph_of_a_once_differentiable_result(L: ModuleType) -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, None, grad

    x, y = leaf(L), leaf(L)
    custom = function(
        L,
        forward=lambda ctx, x, n, y: x + y * n,
        backward=L.autograd.function.once_differentiable(backward),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        custom.apply(x, 2, y).backward(L.ones(2, requires_grad=True), create_graph=True)
    assert graph_of(x.grad.grad_fn) == "CopyBackwards(None, Error(AccumulateGrad(), None, AccumulateGrad()))"
    x.grad = y.grad = None


# ---- class attributes that change how backward is called


def test_boxed_gradients_are_one_list_that_may_be_emptied(L: ModuleType) -> None:
    seen = []

    def backward(ctx: Any, grads: list[Any]) -> Any:
        seen.append((type(grads), len(grads)))
        first = grads[0]
        reference = weakref.ref(first)
        grads.clear()
        result = first * 2
        del first
        seen.append(reference() is None)
        return result

    x = leaf(L)
    function(L, forward=lambda ctx, x: x * 2, backward=backward, boxed_grads_call=True).apply(x).sum().backward()
    assert seen == [(list, 1), True] and x.grad.tolist() == [2, 2]


def test_saved_tensors_cleared_on_access(L: ModuleType) -> None:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        half = x / 2
        seen.append(weakref.ref(half))
        ctx.save_for_backward(half)
        return x * x

    def backward(ctx: Any, grad: Any) -> Any:
        (half,) = ctx.saved_tensors
        result = grad * 4 * half
        del half
        seen.append(seen[0]() is None)
        with pytest.raises(RuntimeError, match="can only be accessed once"):
            ctx.saved_tensors
        return result

    x = leaf(L)
    y = function(L, forward=forward, backward=backward, clear_saved_tensors_on_access=True).apply(x)
    y.sum().backward()
    assert seen[1] is True and x.grad.tolist() == [2, 4]


def test_saved_tensors_are_not_cleared_while_the_graph_is_kept() -> None:
    x = leaf(ut)  # PyTorch clears them all the same
    y = square(ut, clear_saved_tensors_on_access=True).apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8]


# ---- errors in backward


def test_an_error_in_backward_keeps_type_and_line(L: ModuleType) -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        raise ValueError("Simulate error on backward pass")

    with pytest.raises(ValueError, match="Simulate error on backward pass") as caught:
        function(L, forward=lambda ctx, x: x * 2, backward=backward).apply(leaf(L)).sum().backward()
    assert any(entry.name == "backward" and "test_function" in str(entry.path) for entry in caught.traceback)


def test_a_function_in_a_function(L: ModuleType) -> None:
    inner = square(L)
    x = leaf(L)
    outer = function(
        L,
        "Outer",
        forward=lambda ctx, x: ctx.save_for_backward(x) or inner.apply(x) * 3,
        backward=lambda ctx, g: inner.apply(g) * 6 * ctx.saved_tensors[0],
    )
    outer.apply(x).sum().backward()
    assert x.grad.tolist() == [6, 12]


def test_a_subclass_has_a_node_of_its_own(L: ModuleType) -> None:
    base = square(L)
    derived = function(L, "Derived", base=base, backward=lambda ctx, g: g * 0)
    x = leaf(L)
    y = derived.apply(x)
    assert y.grad_fn.name() == "DerivedBackward"
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]


def test_keyword_arguments_of_setup_context_forms() -> None:
    seen: list[Any] = []
    custom = function(
        ut,
        forward=lambda x, factor: x * factor,
        setup_context=lambda ctx, inputs, output: seen.append(inputs[1]),
        backward=lambda ctx, g: (g * 3, None),
    )
    x = leaf(ut)
    custom.apply(x, factor=3).sum().backward()
    assert seen == [3] and x.grad.tolist() == [3, 3]


# ---- lifetimes


def test_the_node_dies_with_the_last_output() -> None:
    gc.disable()
    x = leaf(ut)
    y = square(ut).apply(x)
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_a_saved_output_makes_no_cycle() -> None:
    gc.disable()

    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    y = function(ut, forward=forward, backward=lambda ctx, g: g * ctx.saved_tensors[0]).apply(leaf(ut))
    node, tensor = weakref.ref(y.grad_fn), weakref.ref(y)
    y.sum().backward()
    del y
    assert node() is None and tensor() is None


def test_a_cycle_through_ctx_is_collected_once_the_graph_is_dropped(L: ModuleType) -> None:
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    x = leaf(L)
    y = function(L, forward=lambda ctx, x: x * 2, backward=lambda ctx, g: g * 2).apply(x)
    y.grad_fn.kept = (y.grad_fn, thing)
    del thing
    gc.collect()
    assert alive() is not None
    y.sum().backward()
    del y
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("forward", "same", "expected"),
    [(lambda ctx, x: (x, x), False, 23), (lambda ctx, x: (lambda y: (y, y))(x * 1), True, 33)],
)
def test_a_tensor_returned_twice(L, forward, same, expected) -> None:
    x = leaf(L)
    a, b = function(L, forward=forward, backward=lambda ctx, g, h: g * 2 + h * 3).apply(x)
    (a * 10 + b).sum().backward()
    assert (a is b) is same and x.grad.tolist() == [expected] * 2


def test_which_gradients_a_pass_wants() -> None:
    seen: list[Any] = []

    class Product(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y * scale

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen[:] = [ctx.wants_gradient(0), ctx.wants_gradient(1)]
            x, y = ctx.saved_tensors
            return g * y, None, g * x

    x, y = ut.ones(2, requires_grad=True), ut.ones(2, requires_grad=True)
    for create_graph in (False, True):
        for inputs, wanted in [([x], [True, False]), ([y], [False, True]), ([x, y], [True, True])]:
            ut.autograd.grad(Product.apply(x, 1.0, y).sum(), inputs, create_graph=create_graph)
            assert seen == wanted
    Product.apply(x, 1.0, y.detach()).sum().backward()
    assert seen == [True, False]
    node = Product.apply(x, 1.0, y).grad_fn
    node.apply(ut.ones(2))
    assert seen == [True, True]


# ---- the order of nodes


class SquareSavedLater(ut.autograd.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * g * ctx.saved_tensors[0]


class SquareSaved(ut.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * g * ctx.saved_tensors[0]


def squares_of_a_changed_view(square: Any, x: Any) -> Any:
    base = x.clone()
    view = base.view(-1)
    base.mul_(3)
    return square.apply(view)


@pytest.mark.parametrize("square", [SquareSaved, SquareSavedLater])
def test_a_view_whose_memory_has_changed_comes_before_the_function(square: Any) -> None:
    """Its node is made when the Function is called: gradients of what is below that node went lost."""
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    inner = x * 1
    out = squares_of_a_changed_view(square, inner)
    node = out.grad_fn
    assert node.next_functions[0][0]._sequence_nr() < node._sequence_nr()
    (gradient,) = ut.autograd.grad(out.sum(), inner, create_graph=True)
    assert gradient.tolist() == [18.0, 36.0]
    assert ut.autograd.grad(gradient.sum(), x)[0].tolist() == [18.0, 18.0]


@pytest.mark.parametrize("square", [SquareSaved, SquareSavedLater])
def test_a_changed_view_inside_two_gradients(square: Any) -> None:
    once = ut.func.grad(lambda x: squares_of_a_changed_view(square, x).sum())
    twice = ut.func.grad(lambda x: (once(x) ** 2).sum())
    assert twice(ut.tensor([1.0, 2.0])).tolist() == [648.0, 1296.0]


def weighted(ctx: Any, x: Any, y: Any = 0.0, scale: Any = 1.0) -> Any:
    return (x + 2 * y) * scale


def ones_by_need(ctx: Any, g: Any) -> Any:
    return tuple([(n + 1) * g if needed else None for n, needed in enumerate(ctx.needs_input_grad)])


def test_tensors_given_by_name_get_their_gradients(torch: ModuleType) -> None:
    """They were not recorded: the gradient was lost without a word."""
    found = []
    for L in (ut, torch):
        x, y, custom = leaf(L), leaf(L), function(L, forward=weighted, backward=ones_by_need)
        for args, named in (((), {"x": x}), ((x,), {"y": y, "scale": 2.0}), ((), {"y": y, "x": 1})):
            x.grad = y.grad = None
            custom.apply(*args, **named).sum().backward()
            found.append([None if t.grad is None else t.grad.tolist() for t in (x, y)])
    assert found[:3] == found[3:] == [[[1.0, 1.0], None], [[1.0, 1.0], [2.0, 2.0]], [None, [2.0, 2.0]]]


def test_a_name_behind_one_left_out() -> None:
    x, scale, custom = leaf(ut), leaf(ut), function(ut, forward=weighted, backward=ones_by_need)
    custom.apply(x, scale=scale).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0] and scale.grad.tolist() == [3.0, 3.0]


def test_what_has_only_a_name_has_no_gradient() -> None:
    def forward(ctx: Any, x: Any, *, shift: Any) -> Any:
        return x + shift

    x, custom = leaf(ut), function(ut, forward=forward, backward=ones_by_need)
    assert custom.apply(x, shift=1.0).grad_fn is not None
    assert custom.apply(x, shift=x.detach()).tolist() == [2.0, 4.0]
    with pytest.raises(TypeError, match="takes shift by name only"):
        custom.apply(x, shift=x)
    with ut.no_grad():
        assert custom.apply(x, shift=x).tolist() == [2.0, 4.0]
    custom.generate_vmap_rule = True
    with pytest.raises(NotImplementedError, match="takes shift by name only"):
        ut.vmap(lambda t: custom.apply(t, shift=1.0))(x.detach())
