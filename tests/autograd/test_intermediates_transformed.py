"""Intermediates that a custom Function keeps, in second derivatives of every direction, and under vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.autograd.test_intermediates import CONSTANT, DEPENDENT, KEPT
from tests.rows import rows
from undertow.autograd import forward_ad, functional
from undertow.autograd.function import once_differentiable
from undertow.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vmap

POINT = np.array([0.25, 1.5])


def point() -> Any:
    return ut.tensor(POINT)


def function(rule: str, **members: Any) -> Any:
    """A Function with jvp and a rule for vmap: "made" from the others, or its "own"."""
    kind: Any = type("Custom", (ut.autograd.Function,), {k: staticmethod(v) for k, v in members.items()})
    if rule == "made":
        kind.generate_vmap_rule = True
    else:
        kind.vmap = staticmethod(lambda info, in_dims, x: (kind.apply(x), in_dims[0]))
    return kind


def sine(rule: str, keep: Callable[[Any, Any], None], found: Callable[[Any], Any]) -> Any:
    """sin, whose backward and jvp use something that forward kept."""

    def forward(ctx: Any, x: Any) -> Any:
        keep(ctx, x)
        return x.sin()

    multiplied = lambda ctx, t: t * found(ctx)
    return function(rule, forward=forward, backward=multiplied, jvp=multiplied)


def keep_input(ctx: Any, x: Any) -> None:
    ctx.save_for_backward(x)
    ctx.save_for_forward(x)


def keep_cosine(ctx: Any, x: Any) -> None:
    cosine = x.cos()
    ctx.save_for_backward(cosine)
    ctx.save_for_forward(cosine)


def along_ones(f: Any, x: Any) -> Any:
    return jvp(f, (x,), (ut.ones_like(x),))[1]


def eager_over_vmap(f: Any) -> Any:
    x = point().requires_grad_()
    (slope,) = ut.autograd.grad(vmap(f)(x).sum(), x, create_graph=True)
    return ut.autograd.grad(slope.sum(), x)[0]


def eager_forward_over_reverse(f: Any) -> Any:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(point().requires_grad_(), ut.ones(2, dtype=ut.float64))
        (slope,) = ut.autograd.grad(f(x).sum(), x, create_graph=True)
        return forward_ad.unpack_dual(slope).tangent


def total(f: Any) -> Any:
    return lambda x: f(x).sum()


#: second derivatives of an elementwise function, summed over rows where they are matrices
DIRECTIONS: dict[str, Callable[[Any], Any]] = {
    "reverse over reverse": lambda f: grad(lambda x: grad(total(f))(x).sum())(point()),
    "forward over reverse": lambda f: along_ones(grad(total(f)), point()),
    "reverse over forward": lambda f: grad(lambda x: along_ones(f, x).sum())(point()),
    "forward over forward": lambda f: along_ones(lambda x: along_ones(f, x), point()),
    "eager forward over reverse": eager_forward_over_reverse,
    "hessian": lambda f: hessian(total(f))(point()).sum(1),
    "jacrev of jacrev": lambda f: jacrev(jacrev(total(f)))(point()).sum(1),
    "jacfwd of jacfwd": lambda f: jacfwd(jacfwd(total(f)))(point()).sum(1),
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(total(f)))(point()).sum(1),
    "linearize": lambda f: linearize(grad(total(f)), point())[1](ut.ones(2, dtype=ut.float64)),
    "hvp": lambda f: functional.hvp(total(f), point(), ut.ones(2, dtype=ut.float64))[1],
    "functional": lambda f: functional.hessian(
        total(f), point(), vectorize=True, outer_jacobian_strategy="forward-mode"
    ).sum(1),
    "vmap: reverse over reverse": lambda f: vmap(grad(grad(f)))(point()),
    "vmap: forward over reverse": lambda f: vmap(lambda x: along_ones(grad(f), x))(point()),
    "vmap: reverse over forward": lambda f: vmap(grad(lambda x: along_ones(f, x)))(point()),
    "vmap: forward over forward": lambda f: vmap(lambda x: along_ones(lambda x: along_ones(f, x), x))(point()),
    "vmap: hessian": lambda f: vmap(hessian(f))(point()),
    "vmap of vmap": lambda f: vmap(vmap(grad(grad(f))))(point()[None])[0],
    "vmap: not of the batch": lambda f: vmap(lambda a: a * grad(lambda x: grad(total(f))(x).sum())(point()))(
        ut.ones(3, dtype=ut.float64)
    )[0],
    "reverse over vmap": lambda f: grad(lambda x: vmap(grad(f))(x).sum())(point()),
    "forward over vmap": lambda f: along_ones(vmap(grad(f)), point()),
    "eager over vmap": eager_over_vmap,
}


@pytest.mark.parametrize("rule", ["made", "own"])
@pytest.mark.parametrize("direction", DIRECTIONS)
class TestDirections:
    def test_an_input_is_differentiated(self, direction: str, rule: str) -> None:
        custom = sine(rule, keep_input, lambda ctx: ctx.saved_tensors[0].cos())
        for _ in range(2):
            assert np.allclose(DIRECTIONS[direction](custom.apply).detach().numpy(), -np.sin(POINT))

    def test_a_saved_intermediate_is_refused(self, direction: str, rule: str) -> None:
        custom = sine(rule, keep_cosine, lambda ctx: ctx.saved_tensors[0])
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"twice through ctx.saved_tensors\[0\], an intermediate"):
                DIRECTIONS[direction](custom.apply)

    @rows("way", [w for w in KEPT if w != "saved"])
    def test_an_intermediate_in_an_attribute_is_refused(self, direction: str, rule: str, way: str) -> None:
        keep, found, place = KEPT[way]
        custom = sine(rule, lambda ctx, x: keep(ctx, x.cos()), found)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=f"twice through ctx.{place}, an intermediate that Custom"):
                DIRECTIONS[direction](custom.apply)

    def test_a_constant_is_none(self, direction: str, rule: str) -> None:
        custom = sine(rule, lambda ctx, x: setattr(ctx, "h", x.cos().detach()), lambda ctx: ctx.h)
        found = DIRECTIONS[direction](lambda x: custom.apply(x) + x * x)
        assert np.allclose(found.detach().numpy(), 2)


# ---- what depends on the inputs, and what does not


def product_with(intermediate: Callable[[Any], Any]) -> Any:
    """x ** 2, whose backward and jvp multiply with something that forward computed."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.h = intermediate(x)
        keep_input(ctx, x)
        return x * x

    multiplied = lambda ctx, t: t * ctx.h * ctx.saved_tensors[0]
    return function("made", forward=forward, backward=multiplied, jvp=multiplied)


def in_a_batch(transformed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A second derivative at each of two examples of two elements."""
    return lambda f: vmap(lambda x: transformed(f)(x), randomness="different")(ut.tensor([POINT, POINT + 1]))


SECOND: dict[str, Callable[[Any], Any]] = {
    "reverse": lambda f: grad(lambda x: grad(total(f))(x).sum()),
    "forward": lambda f: lambda x: along_ones(grad(total(f)), x),
    "forward twice": lambda f: lambda x: along_ones(lambda x: along_ones(f, x), x),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop because one_hot")
@pytest.mark.parametrize("batch", ["alone", "batch"])
@pytest.mark.parametrize("second", SECOND)
class TestDependence:
    def run(self, second: str, batch: str, custom: Any) -> Any:
        derivative = SECOND[second]
        found = in_a_batch(derivative)(custom.apply)[0] if batch == "batch" else derivative(custom.apply)(point())
        return found.detach().numpy()

    @rows("name", DEPENDENT)
    def test_what_depends_on_the_input_is_refused(self, second: str, batch: str, name: str) -> None:
        refused = batch == "batch" and name in ("out", "assigned", "in place", "part in place", "function")
        with pytest.raises(RuntimeError, match="vmap" if refused else "differentiated twice"):
            self.run(second, batch, product_with(DEPENDENT[name]))

    @rows("name", CONSTANT)
    def test_constants_are_constants(self, second: str, batch: str, name: str) -> None:
        if name in ("random", "drawn with the input"):
            computed = lambda x: CONSTANT[name](x) * 0 + 7  # what was drawn is not known here
        else:
            computed = CONSTANT[name]
        expected = np.broadcast_to(np.asarray(computed(point())), 2)
        assert np.allclose(self.run(second, batch, product_with(computed)), expected)


def changed_in_place(x: Any) -> Any:
    buffer = ut.zeros_like(x)
    buffer[:1] += x[1:]
    return buffer


@pytest.mark.parametrize("second", SECOND)
def test_changes_in_place_of_a_batch_are_followed(second: str) -> None:
    with pytest.raises(RuntimeError, match="differentiated twice"):
        in_a_batch(SECOND[second])(product_with(changed_in_place).apply)


# ---- closer looks


def test_only_the_inputs_it_depends_on() -> None:
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(w, x.exp())
        return w * w * x.exp()

    def backward(ctx: Any, grad: Any) -> Any:
        w, e = ctx.saved_tensors
        return grad * w * w * e, 2 * grad * w * e

    def forward_mode(ctx: Any, tx: Any, tw: Any) -> Any:
        return tx * 0 + tw * 0

    scaled = function("made", forward=forward, backward=backward, jvp=forward_mode)
    x, w = point(), ut.tensor([2.0, 3.0], dtype=ut.float64)
    by_w = grad(lambda x, w: scaled.apply(x, w).sum(), argnums=1)
    assert np.allclose(along_ones(lambda w: by_w(x, w), w).numpy(), 2 * np.exp(POINT))
    assert np.allclose(vmap(lambda x, w: along_ones(lambda w: by_w(x, w), w))(x, w).numpy(), 2 * np.exp(POINT))
    with pytest.raises(RuntimeError, match="differentiated twice"):
        along_ones(lambda x: by_w(x, w), x)


def test_the_derivative_in_the_incoming_gradient_is_there() -> None:
    custom = sine("made", keep_cosine, lambda ctx: ctx.saved_tensors[0])
    _, pull = ut.func.vjp(custom.apply, point())
    assert np.allclose(along_ones(lambda v: pull(v)[0], point()).numpy(), np.cos(POINT))


def test_what_nobody_wants_the_tangent_of_is_no_error() -> None:
    """Comparisons, signs and detached copies of an intermediate, and results that are dropped."""

    def backward(ctx: Any, g: Any) -> Any:
        h, x = ctx.h, ctx.saved_tensors[0]
        _ = (h * 2).exp()
        return g * x.cos() * (h > 0) * h.sign() * (h.detach() / h.detach())

    def forward(ctx: Any, x: Any) -> Any:
        ctx.h = x.exp()
        keep_input(ctx, x)
        return x.sin()

    custom = function("made", forward=forward, backward=backward, jvp=lambda ctx, t: t * ctx.saved_tensors[0].cos())
    for direction in ("forward over reverse", "hessian", "vmap: forward over reverse", "vmap: hessian"):
        assert np.allclose(DIRECTIONS[direction](custom.apply).numpy(), -np.sin(POINT))


def test_a_backward_with_a_derivative_of_its_own_may_use_it() -> None:
    slope = function(
        "made",
        forward=lambda ctx, grad, x, h: (ctx.save_for_forward(grad, x, h), grad * h)[1],
        jvp=lambda ctx, tg, tx, th: tg * ctx.saved_tensors[2] - ctx.saved_tensors[0] * ctx.saved_tensors[1].sin() * tx,
    )

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, x.cos())
        ctx.save_for_forward(x)
        return x.sin()

    custom = function(
        "made",
        forward=forward,
        backward=lambda ctx, g: slope.apply(g, *ctx.saved_tensors),
        jvp=lambda ctx, t: t * ctx.saved_tensors[0].cos(),
    )
    assert np.allclose(along_ones(grad(total(custom.apply)), point()).numpy(), -np.sin(POINT))


def test_once_differentiable_in_forward_mode() -> None:
    """Its operations have tangents; an intermediate has none that is known."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.h = x.cos()
        keep_input(ctx, x)
        return x.sin()

    by_input = once_differentiable(lambda ctx, g: g * ctx.saved_tensors[0].cos())
    kept = once_differentiable(lambda ctx, g: g * ctx.h)
    members = {"forward": forward, "jvp": lambda ctx, t: t * ctx.saved_tensors[0].cos()}
    for rule in ("made", "own"):
        right = function(rule, backward=by_input, **members)
        assert np.allclose(along_ones(grad(total(right.apply)), point()).numpy(), -np.sin(POINT))
        with pytest.raises(RuntimeError, match="differentiated twice"):
            along_ones(grad(total(function(rule, backward=kept, **members).apply)), point())


def test_one_graph_in_several_passes() -> None:
    """Each pass guards the intermediates anew, in the way it is differentiated."""
    custom = sine("made", lambda ctx, x: setattr(ctx, "h", [x.cos()]), lambda ctx: ctx.h[0])
    with forward_ad.dual_level():
        x = forward_ad.make_dual(point().requires_grad_(), ut.ones(2, dtype=ut.float64))
        y = custom.apply(x).sum()
        (recorded,) = ut.autograd.grad(y, x, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiated twice"):
            ut.autograd.grad(recorded.sum(), x)
        (plain,) = ut.autograd.grad(y, x, retain_graph=True)
        with pytest.raises(RuntimeError, match="differentiated twice"):
            forward_ad.unpack_dual(plain)
        assert "tangent" not in repr(plain)
    (slope,) = ut.autograd.grad(y, x)
    assert np.allclose(slope.numpy(), np.cos(POINT))


def test_an_unknown_tangent_goes_into_no_memory() -> None:
    def backward(ctx: Any, g: Any) -> Any:
        buffer = ut.zeros_like(g)
        buffer[:1] = ctx.h[:1]
        return g * buffer

    custom = function(
        "made", forward=lambda ctx, x: (setattr(ctx, "h", x.cos()), x.sin())[1], backward=backward, jvp=lambda c, t: t
    )
    with pytest.raises(RuntimeError, match="differentiated twice"):
        along_ones(grad(total(custom.apply)), point())


INSIDE: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda x: vmap(lambda e: e.cos())(x),
    "jvp": lambda x: along_ones(ut.sin, x),
    "grad": lambda x: grad(lambda x: x.sin().sum())(x),
}


@pytest.mark.parametrize("inner", INSIDE)
def test_transformations_inside_forward_are_followed(inner: str) -> None:
    computed = INSIDE[inner]
    for name, direction in DIRECTIONS.items():
        if inner != "vmap" or "vmap" not in name or "not of" in name:  # an example has no dimension to map over
            custom = sine("made", lambda ctx, x: setattr(ctx, "h", computed(x)), lambda ctx: ctx.h)
            with pytest.raises(RuntimeError, match="differentiated twice"):
                direction(custom.apply)


def test_functions_with_jvp_and_backward_under_vmap_read_what_was_saved_for_each() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, x)
        ctx.save_for_forward(x)
        return x.sin()

    custom = function(
        "made",
        forward=forward,
        backward=lambda ctx, g: g * ctx.saved_tensors[1].cos(),
        jvp=lambda ctx, t: t * ctx.saved_tensors[0].cos(),
    )
    assert np.allclose(vmap(lambda x: along_ones(grad(custom.apply), x))(point()).numpy(), -np.sin(POINT))


def test_under_selective_checkpointing() -> None:
    from functools import partial

    from undertow.autograd.checkpoint import checkpoint, create_selective_checkpoint_contexts

    custom = sine("made", lambda ctx, x: setattr(ctx, "h", x.cos()), lambda ctx: ctx.h)
    x = point().requires_grad_()
    contexts = partial(create_selective_checkpoint_contexts, ["sin"])
    y = checkpoint(lambda x: custom.apply(x * 1), x, use_reentrant=False, context_fn=contexts)
    (slope,) = ut.autograd.grad(y.sum(), x, create_graph=True)
    assert np.allclose(slope.detach().numpy(), np.cos(POINT))
    with pytest.raises(RuntimeError, match="differentiated twice"):
        slope.sum().backward()
