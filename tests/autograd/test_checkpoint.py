"""Checkpointing: the same gradients from recomputed values, and errors where the recomputation differs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.autograd.checkpoint import (
    CheckpointError,
    GraphExecGroup,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)


def leaf(*shape: int) -> ut.Tensor:
    return ut.tensor(np.linspace(0.1, 1.0, int(np.prod(shape))).reshape(shape), requires_grad=True)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradients_are_those_of_the_plain_call(use_reentrant: bool) -> None:
    def function(x, w):
        return (x * w).sin().exp()

    x, w = leaf(3), leaf(3)
    expected = ut.autograd.grad(function(x, w).sum(), (x, w))
    checkpoint(function, x, w, use_reentrant=use_reentrant).sum().backward()
    for tensor, grad in zip((x, w), expected, strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), grad.numpy())


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_the_function_runs_once_more_per_backward_pass(use_reentrant: bool) -> None:
    function = Counted(lambda x: x.exp().sin().exp())
    y = checkpoint(function, leaf(3), use_reentrant=use_reentrant).sum()
    assert function.calls == 1
    y.backward()
    assert function.calls == 2


def test_nothing_of_the_inside_is_kept_until_backward() -> None:
    inside = []

    def function(x):
        hidden = x.exp()
        inside.append(weakref.ref(hidden))
        return hidden.sin()

    gc.disable()
    try:
        y = checkpoint(function, leaf(3), use_reentrant=False)
        assert inside[0]() is None
        y.sum().backward()
        assert all(reference() is None for reference in inside)
    finally:
        gc.enable()


def test_early_stop_leaves_the_rest_of_the_function_out() -> None:
    reached = []

    def function(x):
        y = x.exp()
        reached.append("exp")
        y = y.sin()
        reached.append("sin")
        return y * 2

    checkpoint(function, leaf(2), use_reentrant=False).sum().backward()
    assert reached == ["exp", "sin", "exp"]
    reached.clear()
    checkpoint(function, leaf(2), use_reentrant=False, early_stop=False).sum().backward()
    assert reached == ["exp", "sin", "exp", "sin"]
    reached.clear()
    with set_checkpoint_early_stop(False):
        y = checkpoint(function, leaf(2), use_reentrant=False)
    y.sum().backward()
    assert reached == ["exp", "sin", "exp", "sin"]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_random_numbers_are_the_same_in_both_runs(use_reentrant: bool) -> None:
    masks = []

    def function(x):
        mask = ut.rand(4, dtype=ut.float64)
        masks.append(mask.numpy().copy())
        return (x * mask).exp()

    x = leaf(4)
    checkpoint(function, x, use_reentrant=use_reentrant).sum().backward()
    np.testing.assert_array_equal(masks[0], masks[1])
    np.testing.assert_allclose(x.grad.numpy(), masks[0] * np.exp(x.detach().numpy() * masks[0]))
    assert not np.array_equal(ut.rand(4, dtype=ut.float64).numpy(), masks[0])  # the generator went on


def test_keyword_arguments_structures_and_constants() -> None:
    def function(x, scale=1.0, *, names=None):
        return {"out": (x * scale).exp(), "names": names}

    x = leaf(2)
    found = checkpoint(function, x, scale=2.0, names=["a"], use_reentrant=False)
    assert found["names"] == ["a"]
    found["out"].sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(2 * x.detach().numpy()))


def test_nested_checkpoints_and_second_derivatives() -> None:
    def inner(x):
        return x.sin().exp()

    def outer(x):
        return checkpoint(inner, x * x, use_reentrant=False).cos()

    x = leaf(3)
    y = checkpoint(outer, x, use_reentrant=False).sum()
    (first,) = ut.autograd.grad(y, x, create_graph=True)
    (second,) = ut.autograd.grad(first.sum(), x)
    z = (x * x).sin().exp().cos().sum()
    (plain,) = ut.autograd.grad(z, x, create_graph=True)
    (plain_second,) = ut.autograd.grad(plain.sum(), x)
    np.testing.assert_allclose(first.detach().numpy(), plain.detach().numpy())
    np.testing.assert_allclose(second.numpy(), plain_second.numpy())


def alternating(first, again):
    """A function that is not the same the second time."""
    calls = []

    def function(x):
        calls.append(1)
        return (first if len(calls) == 1 else again)(x)

    return function


def three(x):
    return x.sin().exp().sin()


def two(x):
    return x.sin().exp()


def other_shape(x):
    return x.sin() * ut.ones(2, 1, dtype=ut.float64)


MISMATCHES = [
    (three, two, {}, "A different number of tensors was saved"),
    (two, three, {"early_stop": False}, "trying to save more tensors during recomputation"),
    (two, other_shape, {}, "tensors have different metadata"),
    (two, other_shape, {"debug": True}, "You are seeing this error because you passed `debug=True`"),
]


@pytest.mark.parametrize(("first", "again", "options", "words"), MISMATCHES)
def test_a_recomputation_that_differs_raises(first, again, options, words) -> None:
    y = checkpoint(alternating(first, again), leaf(1), use_reentrant=False, **options)
    with pytest.raises(CheckpointError, match=words):
        y.sum().backward()


def test_the_debug_error_lists_the_operations_of_both_runs() -> None:
    with set_checkpoint_debug_enabled(True):
        y = checkpoint(alternating(two, other_shape), leaf(1), use_reentrant=False)
    with pytest.raises(CheckpointError) as caught:
        y.sum().backward()
    assert "exp(" in str(caught.value) and "mul(" in str(caught.value)


def test_debug_changes_nothing_where_both_runs_agree() -> None:
    x = leaf(3)
    checkpoint(lambda t: ut.add(t.exp(), t, alpha=2).sin(), x, use_reentrant=False, debug=True).sum().backward()
    plain = x.detach()
    np.testing.assert_allclose(x.grad.numpy(), ((plain.exp() + 2 * plain).cos() * (plain.exp() + 2)).numpy())


def test_determinism_check_none_trusts_the_function() -> None:
    x = leaf(1)
    y = checkpoint(alternating(two, other_shape), x, use_reentrant=False, determinism_check="none", early_stop=False)
    y.sum().backward()
    assert x.grad is not None


def test_a_graph_exec_group_recomputes_once() -> None:
    function = Counted(lambda x: (x.sin().cos(), x.sin().cos().sin().cos()))
    x = leaf(3)
    y, z = checkpoint(function, x, use_reentrant=False)
    with GraphExecGroup():
        y.sum().backward(retain_graph=True)
        with pytest.raises(CheckpointError, match="Performing two backward calls that overlap"):
            y.sum().backward()
    assert function.calls == 2
    del z


def test_reentrant_refuses_grad_and_explains() -> None:
    x = leaf(2)
    y = checkpoint(ut.exp, x, use_reentrant=True).sum()
    with pytest.raises(RuntimeError, match=r"checkpoint is incompatible with .grad\(\)"):
        ut.autograd.grad(y, x)
    checkpoint(ut.exp, x, use_reentrant=True).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.detach().numpy()))


def test_arguments_that_cannot_work_are_refused_before_anything_runs() -> None:
    function = Counted(ut.exp)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(function, leaf(1), use_reentrant=True, debug=True)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: scale"):
        checkpoint(function, leaf(1), use_reentrant=True, scale=2)
    with pytest.raises(ValueError, match="determinism_check must be one of"):
        checkpoint(function, leaf(1), use_reentrant=False, determinism_check="strict")
    assert function.calls == 0
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(function, leaf(1))


def test_a_failing_function_leaves_the_hooks_as_they_were() -> None:
    def fails(x):
        raise KeyError("no")

    with pytest.raises(KeyError):
        checkpoint(fails, leaf(1), use_reentrant=False)
    x = leaf(2)
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy())


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_sequential(use_reentrant: bool) -> None:
    steps = [Counted(f) for f in (ut.sin, ut.exp, ut.cos, ut.tanh)]
    x = leaf(3)
    checkpoint_sequential(steps, 2, x, use_reentrant=use_reentrant).sum().backward()
    assert [s.calls for s in steps] == [2, 2, 1, 1]
    (expected,) = ut.autograd.grad(x.sin().exp().cos().tanh().sum(), x)
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy())


def test_options_of_a_sequence(recwarn: pytest.WarningsRecorder) -> None:
    """A budget decides the form, as for one function; what is no option is refused."""
    x = leaf(3)
    checkpoint_sequential([ut.sin, ut.exp, ut.cos], 3, x, budget=0.5).sum().backward()
    (expected,) = ut.autograd.grad(x.sin().exp().cos().sum(), x)
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy())
    assert not recwarn
    with pytest.raises(ValueError, match="Unexpected keyword arguments: factor"):
        checkpoint_sequential([ut.sin, ut.exp], 2, x, use_reentrant=False, factor=2)


def test_without_recording_it_is_a_plain_call() -> None:
    function = Counted(ut.exp)
    with ut.no_grad():
        y = checkpoint(function, leaf(2), use_reentrant=False)
    assert not y.requires_grad and function.calls == 1


# ---- under transformations


def curve(x):
    return (x.exp() * x).sin().cos()


def checkpointed(x):
    return checkpoint(curve, x, use_reentrant=False).sum()


TRANSFORMS = {
    "jacrev of jacrev": lambda f: ut.func.jacrev(ut.func.jacrev(f)),
    "jacfwd of jacrev": lambda f: ut.func.jacfwd(ut.func.jacrev(f)),
    "jacfwd of jacfwd": lambda f: ut.func.jacfwd(ut.func.jacfwd(f)),
    "grad per example": lambda f: ut.vmap(ut.func.grad(f)),
    "vmap of vmap of grad": lambda f: lambda x: ut.vmap(ut.vmap(ut.func.grad(f)))(x[None]),
    "tangent of grad": lambda f: lambda x: ut.func.jvp(ut.func.grad(f), (x,), (x,))[1],
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transformed(transform: str) -> None:
    x = ut.tensor([0.5, 0.7, 0.9], dtype=ut.float64)
    found, expected = (TRANSFORMS[transform](f)(x) for f in (checkpointed, lambda x: curve(x).sum()))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


def test_a_vmap_that_has_ended_is_had_again() -> None:
    x, y = leaf(3, 2), leaf(3, 2)
    ut.vmap(lambda row: checkpoint(curve, row, use_reentrant=False))(x).sum().backward()
    curve(y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-12)


def test_a_level_of_forward_mode_that_has_ended_is_named() -> None:
    x = ut.tensor([0.5, 0.7], dtype=ut.float64)
    with pytest.raises(CheckpointError, match=r"inside a level of forward mode .* which has ended"):
        ut.func.jacrev(ut.func.jacfwd(checkpointed))(x)


@pytest.mark.parametrize("transform", ["grad per example", "tangent of grad"])
def test_reentrant_is_refused_under_transformations(transform: str) -> None:
    def reentrant(x):
        return checkpoint(curve, x, use_reentrant=True).sum()

    with pytest.raises(RuntimeError, match=r"cannot run inside vmap or forward-mode AD.*Pass use_reentrant=False"):
        TRANSFORMS[transform](reentrant)(ut.ones(3))


# ---- what the function does with transformations, and to tensors that it needs


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("unused", [True, False])
def test_a_jacobian_inside_is_that_of_the_function_alone(unused: bool, early_stop: bool) -> None:
    """Its passes for all rows are one pass, in a vmap that the function was not called in."""

    def function(x: Any) -> Any:
        y = x.exp()
        rows = ut.func.jacrev(lambda t: t.sin() * t)(y)
        return y if unused else rows.sum(0) * y

    def gradient(call: Any) -> tuple[Any, Any]:
        x = ut.tensor([0.1, 0.5, 0.9], dtype=ut.float64, requires_grad=True)
        out = call(x)
        return out.tolist(), ut.autograd.grad(out.sum(), x)[0].tolist()

    expected = gradient(function)
    found = gradient(lambda x: checkpoint(function, x, use_reentrant=False, early_stop=early_stop))
    assert found == (pytest.approx(expected[0]), pytest.approx(expected[1]))


def test_a_changed_input_is_noticed_under_vmap() -> None:
    def function(x: Any) -> Any:
        x = x * 1
        y = checkpoint(lambda t: t.sin(), x, use_reentrant=False)
        x[0] = 0.0
        return y.sum()

    for gradient in (ut.func.grad(function), ut.func.vmap(ut.func.grad(function))):
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            gradient(ut.ones(2, 2))


def test_what_the_function_needs_and_changes_is_an_error_as_without_checkpoint() -> None:
    """PyTorch computes with the changed values."""

    def function(x: Any) -> Any:
        y = x.exp()
        y[0] = 7.0
        return y.sin()

    x = ut.ones(2, requires_grad=True)
    y = checkpoint(function, x, use_reentrant=False)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*\[2\].*made by"):
        y.sum().backward()


def test_what_is_changed_after_it_was_saved_for_the_last_time_is_not_recomputed() -> None:
    def function(x: Any) -> Any:
        y = x.exp()
        z = y * 2
        y.zero_()
        return z

    x = ut.ones(2, requires_grad=True)
    checkpoint(function, x, use_reentrant=False).sum().backward()
    assert x.grad.tolist() == pytest.approx((2 * ut.ones(2).exp()).tolist())


def test_a_reentrant_checkpoint_runs_in_a_level_that_does_not_concern_it() -> None:
    x = ut.ones(2, requires_grad=True)
    with ut.autograd.forward_ad.dual_level():
        y = checkpoint(ut.sin, x, use_reentrant=True)
        assert type(y.grad_fn).__name__ == "CheckpointFunctionBackward"
        with pytest.raises(RuntimeError, match="cannot run inside vmap or forward-mode"):
            checkpoint(ut.sin, ut.autograd.forward_ad.make_dual(x, ut.ones(2)), use_reentrant=True)
    y.sum().backward()
    assert x.grad is not None
