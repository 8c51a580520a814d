"""Intermediates that a custom Function keeps: first derivatives as ever, second derivatives right or an error."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import undertow as ut
from undertow.autograd.function import once_differentiable

WORDS = "cannot be differentiated twice through ctx.{}, an intermediate that Custom.forward computed"


class Pair(NamedTuple):
    first: Any
    second: Any


def function(forward: Any, backward: Any, **members: Any) -> Any:
    members = {"forward": forward, "backward": backward, **members}
    return type("Custom", (ut.autograd.Function,), {k: staticmethod(v) for k, v in members.items()})


def leaf(*values: float) -> Any:
    return ut.tensor(values or (0.25, 1.5), dtype=ut.float64, requires_grad=True)


def first_derivative(result: Any, x: Any) -> Any:
    return ut.autograd.grad(result.sum(), x, create_graph=True)[0]


def sine_keeping(keep: Callable[[Any, Any], None], found: Callable[[Any], Any]) -> Any:
    """sin, whose backward uses the cosine that forward kept."""

    def forward(ctx: Any, x: Any) -> Any:
        keep(ctx, x.cos())
        return x.sin()

    return function(forward, lambda ctx, grad: grad * found(ctx))


# ---- ways of keeping


KEPT: dict[str, tuple[Any, Any, str]] = {
    "saved": (lambda c, h: c.save_for_backward(None, h), lambda c: c.saved_tensors[1], r"saved_tensors\[1\]"),
    "attribute": (lambda c, h: setattr(c, "h", h), lambda c: c.h, "h"),
    "underscore": (lambda c, h: setattr(c, "_h", h), lambda c: c._h, "_h"),
    "list": (lambda c, h: setattr(c, "h", [1, h]), lambda c: c.h[1], r"h\[1\]"),
    "tuple": (lambda c, h: setattr(c, "h", (h, 1)), lambda c: c.h[0], r"h\[0\]"),
    "named tuple": (lambda c, h: setattr(c, "h", Pair(1, h)), lambda c: c.h.second, r"h\[1\]"),
    "dict": (lambda c, h: setattr(c, "h", {"cos": h}), lambda c: c.h["cos"], r"h\['cos'\]"),
}


@pytest.mark.parametrize("way", KEPT)
def test_the_second_derivative_is_refused(way: str) -> None:
    keep, found, place = KEPT[way]
    sine = sine_keeping(keep, found)
    for _ in range(2):
        x = leaf()
        g = first_derivative(sine.apply(x), x)
        assert np.allclose(g.detach().numpy(), np.cos(x.detach().numpy()))
        with pytest.raises(RuntimeError, match=WORDS.format(place)):
            g.sum().backward()
        assert x.grad is None


@pytest.mark.parametrize("way", KEPT)
def test_the_first_derivative_is_as_ever(way: str) -> None:
    keep, found, _ = KEPT[way]
    x = leaf()
    sine_keeping(keep, found).apply(x).sum().backward()
    assert np.allclose(x.grad.numpy(), np.cos(x.detach().numpy()))


def test_in_setup_context() -> None:
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0].cos())

    sine = function(lambda x: x.sin(), lambda ctx, g: g * ctx.saved_tensors[0], setup_context=setup_context)
    x = leaf()
    g = first_derivative(sine.apply(x), x)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        g.sum().backward()


def test_with_saved_tensor_hooks() -> None:
    x = leaf()
    with ut.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), ut.from_numpy):
        y = sine_keeping(*KEPT["saved"][:2]).apply(x)
    g = first_derivative(y, x)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        g.sum().backward()


# ---- what depends on the inputs, and what does not


def product_with(intermediate: Callable[[Any], Any]) -> Any:
    """x ** 2, whose backward multiplies with something that forward computed."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.h = intermediate(x)
        ctx.save_for_backward(x)
        return x * x

    return function(forward, lambda ctx, grad: grad * ctx.h * ctx.saved_tensors[0])


def assigned(x: Any) -> Any:
    buffer = ut.zeros(2, dtype=x.dtype)
    buffer[0] = x[1]
    return buffer


def multiplied_in_place(x: Any) -> Any:
    return ut.ones(2, dtype=x.dtype).mul_(x)


def written_to_out(x: Any) -> Any:
    out = ut.empty(2, dtype=x.dtype)
    ut.exp(x, out=out)
    return out


def view_changed(x: Any) -> Any:
    buffer = ut.zeros(4, dtype=x.dtype)
    buffer[:2].add_(x)
    return buffer[:2]


DEPENDENT: dict[str, Callable[[Any], Any]] = {
    "operation": lambda x: x * 2,
    "chain": lambda x: (x.exp() + 1).log().sum(),
    "view": lambda x: x.view(2),
    "reversed": lambda x: x.flip(0),
    "joined": lambda x: ut.cat([x[:1], ut.ones(1, dtype=x.dtype)]),
    "one of several": lambda x: ut.unbind(x.exp())[1],
    "values of max": lambda x: x.max(0).values,
    "function": lambda x: product_with(lambda x: 1.0).apply(x),
    "assigned": assigned,
    "in place": multiplied_in_place,
    "out": written_to_out,
    "part in place": view_changed,
    "chosen": lambda x: ut.where(x > 0, x, ut.zeros_like(x)),
    "softmax": lambda x: ut.softmax(x, 0),
    "matmul": lambda x: x @ x,
    "of another dtype": lambda x: x.to(ut.float32),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_what_depends_on_the_input_is_refused(name: str) -> None:
    x = leaf()
    g = first_derivative(product_with(DEPENDENT[name]).apply(x), x)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        g.sum().backward()


def overwritten(x: Any) -> Any:
    return (x * 2).zero_().add_(3)


def seeded(x: Any) -> Any:
    return ut.rand_like(x) + ut.empty_like(x).uniform_() + ut.bernoulli(ut.full_like(x, 0.5))


CONSTANT: dict[str, Callable[[Any], Any]] = {
    "detached": lambda x: x.exp().detach(),
    "mask": lambda x: (x > 1).to(x.dtype) / 0.5,
    "random": seeded,
    "drawn with the input": lambda x: ut.bernoulli(ut.sigmoid(x)) * 2,
    "sign": lambda x: x.sign() + x.sgn() + x.floor() + x.round() + x.trunc() + x.ceil() + 3,
    "whole quotient": lambda x: ut.div(x, 0.5, rounding_mode="floor"),
    "places": lambda x: ut.nn.functional.one_hot(x.argmax(), 2).to(x.dtype),
    "alike": lambda x: ut.ones_like(x) * 2 + ut.zeros_like(x),
    "of its own": lambda x: ut.arange(2, dtype=x.dtype).exp(),
    "number": lambda x: 3.0,
    "overwritten": overwritten,
    "integers": lambda x: (x * 10).to(ut.int64),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_constants_are_constants(name: str) -> None:
    kept: list[Any] = []

    def computed(x: Any) -> Any:
        kept.append(CONSTANT[name](x))
        return kept[0]

    x = leaf()
    g = first_derivative(product_with(computed).apply(x), x)
    g.sum().backward()
    assert np.allclose(x.grad.numpy(), np.broadcast_to(np.asarray(kept[0]), 2))


def test_an_input_without_gradient_is_a_constant() -> None:
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w.exp())
        return x * x * w.exp()

    square = function(forward, lambda ctx, g: (2 * g * ctx.saved_tensors[0] * ctx.saved_tensors[1], None))
    x, w = leaf(), ut.ones(2, dtype=ut.float64)
    first_derivative(square.apply(x, w), x).sum().backward()
    assert np.allclose(x.grad.numpy(), 2 * np.e)


def test_only_the_inputs_it_depends_on() -> None:
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(w, x.exp())
        return w * w * x.exp()

    def backward(ctx: Any, grad: Any) -> Any:
        w, e = ctx.saved_tensors
        return grad * w * w * e, 2 * grad * w * e

    scaled = function(forward, backward)
    x, w = leaf(), leaf(2.0, 3.0)
    g = first_derivative(scaled.apply(x, w), w)
    (second,) = ut.autograd.grad(g.sum(), w, retain_graph=True)
    assert np.allclose(second.numpy(), 2 * np.exp(x.detach().numpy()))
    with pytest.raises(RuntimeError, match="differentiated twice"):
        ut.autograd.grad(g.sum(), x)


def test_the_derivative_in_the_incoming_gradient_is_there() -> None:
    x, v = leaf(), leaf(1.0, 1.0)
    y = sine_keeping(*KEPT["saved"][:2]).apply(x)
    (g,) = ut.autograd.grad(y, x, v, create_graph=True)
    (forward,) = ut.autograd.grad(g.sum(), v)
    assert np.allclose(forward.numpy(), np.cos(x.detach().numpy()))


def test_inputs_and_outputs_are_no_intermediates() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        out, helper = x.exp(), x.cos()
        ctx.save_for_backward(x, out, helper)
        return out, helper

    def backward(ctx: Any, grad: Any, grad_helper: Any) -> Any:
        x, out, helper = ctx.saved_tensors
        return grad * (out + 0 * helper) - grad_helper * x.sin()

    x = leaf()
    g = first_derivative(function(forward, backward).apply(x)[0], x)
    g.sum().backward()
    assert np.allclose(x.grad.numpy(), np.exp(x.detach().numpy()))


def test_a_backward_with_a_derivative_of_its_own_may_use_it() -> None:
    """A Function for the first derivative, which knows how the intermediate depends on the input."""
    slope = function(
        lambda ctx, grad, x, h: (ctx.save_for_backward(grad, x, h), grad * h)[1],
        lambda ctx, g: (g * ctx.saved_tensors[2], -g * ctx.saved_tensors[0] * ctx.saved_tensors[1].sin(), None),
    )

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, x.cos())
        return x.sin()

    sine = function(forward, lambda ctx, grad: slope.apply(grad, *ctx.saved_tensors))
    x = leaf()
    first_derivative(sine.apply(x), x).sum().backward()
    assert np.allclose(x.grad.numpy(), -np.sin(x.detach().numpy()))


# ---- what forward and backward see


def test_forward_runs_without_recording() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.h = x.cos()
        assert not ut.is_grad_enabled()
        assert not ctx.h.requires_grad
        return x.sin()

    y = function(forward, lambda ctx, grad: grad * ctx.h).apply(leaf())
    assert not y.grad_fn.h.requires_grad


def test_a_backward_that_does_not_record_sees_the_tensors_themselves() -> None:
    kept: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.h = x.cos()
        kept[:] = [ctx.h, x.exp()]
        ctx.save_for_backward(kept[1])
        return x.sin()

    def backward(ctx: Any, grad: Any) -> Any:
        assert ctx.h is kept[0]
        assert ctx.saved_tensors[0] is kept[1]
        return grad * ut.from_numpy(ctx.h.numpy())

    function(forward, backward).apply(leaf()).sum().backward()


def test_once_differentiable_sees_the_tensors_themselves() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.h = x.cos()
        ctx.save_for_backward(ctx.h)
        return x.sin()

    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ut.from_numpy(ctx.h.numpy()) + 0 * ctx.saved_tensors[0]

    x = leaf()
    g = first_derivative(x * function(forward, once_differentiable(backward)).apply(x), x)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_a_list_stays_the_list_it_is() -> None:
    stack: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.stack = stack
        stack.append(x.cos())
        return x.sin()

    x = leaf()
    g = first_derivative(function(forward, lambda ctx, grad: grad * ctx.stack.pop()).apply(x), x)
    assert not stack
    with pytest.raises(RuntimeError, match="differentiated twice"):
        g.sum().backward()


def test_passes_inside_forward_run_as_ever() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        with ut.enable_grad():
            inner = x.detach().requires_grad_()
            (ctx.plain,) = ut.autograd.grad(inner.sin().sum(), inner)
            with ut.masked.nan_safe():
                (ctx.safe,) = ut.autograd.grad(ut.where(inner > 1, inner, inner.log()).sum(), inner)
        return x.sin()

    x = leaf(0.5, 1.5)
    function(forward, lambda ctx, grad: grad * ctx.plain + ctx.safe).apply(x).sum().backward()
    assert np.allclose(x.grad.numpy(), np.cos([0.5, 1.5]) + [2.0, 1.0])


def test_a_call_that_was_not_watched() -> None:
    """Only the first call of a Function that keeps no intermediates is watched."""

    def forward(ctx: Any, x: Any, scale: Any) -> Any:
        ctx.scale = scale and ut.full_like(x, scale)
        ctx.save_for_backward(x)
        return x * x * (scale or 1)

    def backward(ctx: Any, grad: Any) -> Any:
        return 2 * grad * ctx.saved_tensors[0] * (1 if ctx.scale is None else ctx.scale), None

    scaled = function(forward, backward)
    scaled.apply(leaf(), None)
    x = leaf()
    g = first_derivative(scaled.apply(x, 3.0), x)
    with pytest.raises(RuntimeError, match=r"not watched.*call the Function again"):
        g.sum().backward()
    first_derivative(scaled.apply(x, 3.0), x).sum().backward()
    assert np.allclose(x.grad.numpy(), 6)


# ---- lifetimes


@pytest.fixture
def no_collector() -> Any:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_what_forward_drops_is_gone_at_once() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        dropped = x.exp()
        gone = weakref.ref(dropped)
        ctx.h = dropped * 2
        del dropped
        assert gone() is None
        return x.sin()

    function(forward, lambda ctx, grad: grad * ctx.h).apply(leaf())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("way", KEPT)
def test_what_is_kept_dies_with_the_graph(way: str) -> None:
    keep, found, _ = KEPT[way]
    kept: list[Any] = []

    def keep_and_note(ctx: Any, h: Any) -> None:
        keep(ctx, h)
        kept.append(weakref.ref(h))

    x = leaf()
    middle = x * 1
    kept.append(weakref.ref(middle.grad_fn))
    y = sine_keeping(keep_and_note, found).apply(middle)
    kept.append(weakref.ref(y.grad_fn))
    g = first_derivative(y, x)
    with pytest.raises(RuntimeError) as error:
        g.sum().backward()
    del middle, y, g, error
    assert [r() for r in kept] == [None] * 3
