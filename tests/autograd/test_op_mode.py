"""Operation modes: what they are shown, what they may do instead, and how they stand to everything else."""

from __future__ import annotations

import contextlib
import threading

import pytest

import undertow as ut
from undertow.autograd import forward_ad
from undertow.autograd.checkpoint import checkpoint, create_selective_checkpoint_contexts


class Log(ut.OpMode):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_operation(self, op, args, kwargs):
        self.names.append(str(op))
        return op(*args, **kwargs)


class Calls(ut.OpMode):
    """Keeps all that it is shown."""

    def __init__(self) -> None:
        self.seen: list = []

    def on_operation(self, op, args, kwargs):
        self.seen.append((op, args, kwargs))
        return op(*args, **kwargs)


class Replace(ut.OpMode):
    """Computes one operation as another."""

    def __init__(self, name: str, function) -> None:
        self.name, self.function = name, function

    def on_operation(self, op, args, kwargs):
        return self.function(*args) if op == self.name else op(*args, **kwargs)


# ---- what is shown


def test_operations_are_shown_by_pytorchs_names() -> None:
    x = ut.randn(2, 3)
    with Log() as log:
        ((x @ x.t()) / 2.0).exp().sum(dim=0)
    assert log.names == ["t", "mm", "div", "exp", "sum"]


def test_names_with_digits_are_pytorchs() -> None:
    x, images = ut.rand(3), ut.rand(1, 1, 4, 4)
    f = ut.nn.functional
    with Log() as log:
        x.log1p(), x.deg2rad(), ut.heaviside(x, x), ut.diagonal_copy(images[0, 0]), ut.fft.rfft(x)
        f.max_pool2d(images, 2), f.avg_pool2d(images, 2), f.grid_sample(images, ut.rand(1, 2, 2, 2), align_corners=True)
    wanted = {"log1p", "deg2rad", "heaviside", "diagonal_copy", "fft_r2c", "max_pool2d_with_indices", "avg_pool2d"}
    assert {*wanted, "grid_sampler_2d"} <= {*log.names}, log.names


def test_arguments_are_those_that_say_something() -> None:
    x, y = ut.ones(2, 3), ut.ones(2, 3)
    with Calls() as calls:
        ut.add(x, y)
        ut.add(x, y, alpha=2)
        x.sum()
        x.sum(dim=1, keepdim=True)
    (_, plain, nothing), (_, scaled, alpha), (_, everything, _), (_, reduced, _) = calls.seen
    assert plain == (x, y) and plain[0] is x and nothing == {}
    assert scaled[0] is x and alpha == {"alpha": 2}
    assert len(everything) == 1
    assert reduced[1:] == (1, True)


@pytest.mark.parametrize(
    ("call", "name", "kind"),
    [
        (lambda x: x.exp(), "exp", "primitive"),
        (lambda x: x > 0, "gt", "nondifferentiable"),
        (lambda x: ut.cat([x, x]), "cat", "variadic"),
        (lambda x: x[0], "select", "view"),
        (lambda x: x.detach(), "detach", "view"),
        (lambda x: ut.detach(x), "detach", "view"),
        (lambda x: x.add_(1), "add_", "in_place"),
        (lambda x: x.relu_(), "relu_", "in_place"),
        (lambda x: ut.rand(3), "rand", "random"),
        (lambda x: x.normal_(), "normal_", "in_place"),
    ],
)
def test_kinds(call, name: str, kind: str) -> None:
    with Calls() as calls:
        call(ut.ones(2, 2))
    assert [(str(op), op.kind) for op, _, _ in calls.seen] == [(name, kind)]


def test_backward_passes_are_shown() -> None:
    x = ut.ones(3, requires_grad=True)
    y = (x.exp() * 2.0).sum()
    with Log() as log:
        y.backward()
    assert log.names[:3] == ["expand", "mul", "mul"]
    assert ut.allclose(x.grad, 2 * x.detach().exp())


def test_what_a_custom_function_does_is_shown() -> None:
    class Square(ut.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos()

    x = ut.ones(2, requires_grad=True)
    for _ in range(3):  # the first call of a Function is watched, and must not differ
        with Log() as log:
            Square.apply(x).sum().backward()
        assert log.names[:5] == ["mul", "sum", "expand", "cos", "mul"]


def test_a_function_that_keeps_intermediates_is_still_refused_a_second_derivative() -> None:
    class Kept(ut.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slope = x.cos()
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.slope

    x = ut.ones(2, requires_grad=True)
    with ut.OpMode():
        (first,) = ut.autograd.grad(Kept.apply(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
            ut.autograd.grad(first.sum(), x)


def test_modules_and_losses_are_shown_as_what_they_are_made_of() -> None:
    model = ut.nn.Sequential(ut.nn.Linear(3, 4), ut.nn.ReLU(), ut.nn.Linear(4, 2))
    x, labels = ut.randn(5, 3), ut.tensor([0, 1, 0, 1, 0])
    with Log() as log:
        ut.nn.functional.cross_entropy(model(x), labels).backward()
    assert log.names[:3] == ["linear", "relu", "linear"]
    assert all(p.grad is not None for p in model.parameters())


# ---- doing something else


def test_a_replaced_operation_has_the_gradient_of_what_was_done() -> None:
    x = ut.tensor([0.5, 1.0], requires_grad=True)
    with Replace("sin", lambda t: t * 3.0):
        y = x.sin()
    y.sum().backward()
    assert y.tolist() == [1.5, 3.0]
    assert x.grad.tolist() == [3.0, 3.0]


def test_inside_the_mode_is_off() -> None:
    class Recursive(ut.OpMode):
        depth = 0

        def on_operation(self, op, args, kwargs):
            self.depth += 1
            args[0].exp()
            return op(*args, **kwargs)

    with Recursive() as mode:
        ut.ones(2).sin()
    assert mode.depth == 1


def test_an_error_in_a_mode_leaves_no_trace() -> None:
    def refuse(*args):
        raise ValueError("no sine today")

    x = ut.ones(2)
    with pytest.raises(ValueError, match="no sine today"), Replace("sin", refuse):
        x.sin()
    with Log() as log:
        x.sin()
    assert log.names == ["sin"]


def test_the_default_changes_nothing() -> None:
    x = ut.randn(3, requires_grad=True)
    with ut.OpMode():
        y = x.sin()
        z = y.clone().mul_(2)
    assert type(y.grad_fn).__name__ == "SinBackward0"
    (gradient,) = ut.autograd.grad(z.sum(), x)
    assert ut.allclose(gradient, 2 * x.cos())


# ---- nesting


def test_the_inner_mode_is_asked_first_and_its_operations_go_to_the_outer() -> None:
    x = ut.ones(2)
    with Log() as outer, Replace("sin", lambda t: t.cos().exp()):
        x.sin()
    assert outer.names == ["cos", "exp"]


def test_one_mode_entered_twice() -> None:
    with Log() as log, log:
        ut.ones(2).sin()
    assert log.names == ["sin", "sin"]
    ut.ones(2).sin()
    assert log.names == ["sin", "sin"]


def test_modes_belong_to_their_thread() -> None:
    with Log() as log:
        thread = threading.Thread(target=lambda: ut.ones(2).sin())
        thread.start()
        thread.join()
    assert log.names == []


def test_no_grad_inside_and_outside() -> None:
    x = ut.ones(2, requires_grad=True)
    with Log() as log:
        with ut.no_grad():
            assert not x.sin().requires_grad
        assert x.sin().requires_grad
    with ut.no_grad(), Log():
        assert not x.sin().requires_grad
    assert log.names == ["sin", "sin"]


# ---- transformations


def test_vmap_inside_and_outside() -> None:
    x = ut.randn(4, 3)
    with Log() as log:
        inside = ut.vmap(lambda row: row.sin().sum())(x)
    assert [n for n in log.names if n in ("sin", "sum")] == ["sin", "sum"]

    inner = Log()

    def function(row):
        with inner:
            return row.sin().sum()

    outside = ut.vmap(function)(x)
    assert inner.names == ["sin", "sum"]
    assert ut.allclose(inside, outside) and ut.allclose(inside, x.sin().sum(1))


def test_forward_mode_inside_and_outside() -> None:
    x, t = ut.randn(3), ut.randn(3)
    with Log() as log:
        with forward_ad.dual_level():
            y = forward_ad.make_dual(x, t).sin()
            assert ut.allclose(forward_ad.unpack_dual(y).tangent, t * x.cos())
        log.names.clear()
        x.sin()  # the level is gone, the mode is not
    assert log.names == ["sin"]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        with Log() as log:
            y = dual.sin()
        assert log.names == ["sin"]
        assert ut.allclose(forward_ad.unpack_dual(y).tangent, t * x.cos())


def test_a_replacement_has_its_own_tangent() -> None:
    x, t = ut.randn(3), ut.randn(3)
    with Replace("sin", lambda a: a.exp()):
        _, tangent = ut.func.jvp(lambda a: a.sin(), (x,), (t,))
        slope = ut.func.vmap(ut.func.grad(lambda a: a.sin()))(x)
    assert ut.allclose(tangent, t * x.exp())
    assert ut.allclose(slope, x.exp())


def test_custom_functions_under_vmap() -> None:
    class Double(ut.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * 2

    with Log():
        assert ut.vmap(Double.apply)(ut.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_passes_that_are_safe_from_nan() -> None:
    x = ut.tensor([0.0, 1.0], requires_grad=True)
    with Log() as log, ut.masked.nan_safe():
        ut.where(x > 0, x.sqrt(), x).sum().backward()
    assert "where" in log.names and "expand" in log.names
    assert x.grad.tolist() == [1.0, 0.5]


# ---- checkpoints


def test_modes_as_contexts_of_a_checkpoint() -> None:
    x = ut.tensor(1.0, requires_grad=True)
    first, again = Log(), Log()
    out = checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False, context_fn=lambda: (first, again))
    assert first.names == ["exp", "sin"] and again.names == []
    out.backward()
    assert again.names[:2] == ["exp", "sin"] and first.names == ["exp", "sin"]


def test_recomputation_is_shown_to_the_mode_of_the_backward_pass() -> None:
    x = ut.tensor(1.0, requires_grad=True)
    with Log() as log:
        out = checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False, early_stop=False)
    assert log.names == ["exp", "sin"]
    with Log() as log:
        out.backward()
    assert {"exp", "sin"} <= set(log.names)
    assert ut.allclose(x.grad, x.exp() * x.exp().cos())


def test_detach_can_be_replaced_and_goes_through_other_modes_and_transforms() -> None:
    x = ut.tensor([2.0], requires_grad=True)
    with Log() as outer, Replace("detach", lambda t: t * 1.0):
        y = x.detach()
    assert outer.names == ["mul"] and y.requires_grad
    with Log() as log, ut.autocast("cpu", dtype=ut.float16):
        assert not x.detach().requires_grad
    assert log.names == ["detach"]
    with Log() as log:
        assert ut.equal(ut.vmap(lambda t: t.detach() * 2)(x), 2 * x)
        ut.func.grad(lambda t: (t * t.detach()).sum())(x)  # the library's own aliases are not shown
    assert log.names.count("detach") == 2


@pytest.mark.parametrize("mode_outside", [True, False])
def test_selective_checkpoints(mode_outside: bool) -> None:
    x = ut.randn(3, 3, requires_grad=True)
    log = Log()

    def function(t):
        with contextlib.nullcontext() if mode_outside else log:
            return (t @ t).sin()

    def contexts():
        return create_selective_checkpoint_contexts(["mm"])

    with log if mode_outside else contextlib.nullcontext():
        out = checkpoint(function, x, use_reentrant=False, context_fn=contexts)
    assert log.names[:2] == ["mm", "sin"]
    out.sum().backward()
    (expected,) = ut.autograd.grad((x @ x).sin().sum(), x)
    assert ut.allclose(x.grad, expected)
