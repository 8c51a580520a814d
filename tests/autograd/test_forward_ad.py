"""Forward mode: every sample against differences and against the second gradient, levels, views, in-place changes."""

from __future__ import annotations

import gc
import weakref
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import STEP, Case, as_array, cases, every, inner, is_float, leaf
from undertow import scopes
from undertow.autograd import Function
from undertow.autograd import forward_ad as fw
from undertow.autograd.forward_ad import dual_level, make_dual, unpack_dual
from undertow.tensor import Tensor

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SMOOTH = [c for c in cases() if c.differentiable and not c.sample.kink]


def duals_of(case: Case, requires_grad: bool = False) -> list[Tensor]:
    """The arguments of a row, moving along its directions."""
    tensors = [leaf(a.copy(), False) for a in case.arrays]
    for k, direction in zip(case.differentiable, case.directions, strict=True):
        tensors[k] = make_dual(tensors[k], leaf(direction.copy(), False))
        tensors[k].requires_grad_(requires_grad)
    return tensors


def moved(case: Case, step: float) -> list[Any]:
    arrays = list(case.arrays)
    for k, d in zip(case.differentiable, case.directions, strict=True):
        arrays[k] = arrays[k] + step * d
    return arrays


# ---- every operation


@every(SMOOTH)
def test_tangents_are_differences(case: Case) -> None:
    with dual_level():
        results = case.call(duals_of(case))
        tangents = [unpack_dual(r).tangent if isinstance(r, Tensor) else None for r in results]
    before, behind = (case.forward(moved(case, s)) for s in (-STEP, STEP))
    for k, (tangent, low, high) in enumerate(zip(tangents, before, behind, strict=True)):
        if tangent is None:
            assert k not in case.differentiable_results
            continue
        assert (tangent.shape, tangent.dtype) == (low.shape, low.dtype)
        slope = (high - low) / (2 * STEP)
        if np.all(np.isfinite(slope)):
            scale = max(1.0, abs(slope).max()) if slope.size else 1.0
            np.testing.assert_allclose(as_array(tangent), slope, rtol=3e-5, atol=3e-6 * scale)


@every([c for c in SMOOTH if c.sample.gradgrad and c.sample.note != "outside"])
def test_forward_over_reverse_is_reverse_over_reverse(case: Case) -> None:
    if not case.has_gradient():
        return
    wanted = case.second_gradient[: len(case.differentiable)]
    with dual_level():
        tensors = duals_of(case, requires_grad=True)
        results = case.call(tensors)
        roots = [results[k] for k in case.differentiable_results]
        seeds = [leaf(c, False) for c in case.cotangents]
        found = ut.autograd.grad(roots, case.chosen(tensors), seeds, allow_unused=True)
        tangents = [None if g is None else unpack_dual(g).tangent for g in found]
    for tangent, second in zip(tangents, wanted, strict=True):
        got = np.zeros_like(second) if tangent is None else as_array(tangent)
        if np.all(np.isfinite(second)):
            scale = max(1.0, abs(second).max()) if second.size else 1.0
            np.testing.assert_allclose(got, second, rtol=1e-7, atol=1e-9 * scale)


@every(SMOOTH)
def test_forward_and_reverse_are_transposed(case: Case) -> None:
    if not case.has_gradient():
        return
    with dual_level():
        results = case.call(duals_of(case))
        tangents = [as_array(unpack_dual(results[k]).tangent) for k in case.differentiable_results]
    forward, reverse = inner(case.cotangents, tangents), inner(case.gradient, case.directions)
    if np.isfinite(forward) or np.isfinite(reverse):
        size = sum(float(np.abs(t).sum()) for t in tangents if is_float(t))
        assert abs(forward - reverse) <= 1e-9 * max(1.0, size, abs(reverse))


# ---- levels


def test_levels_are_counted_and_left_in_order() -> None:
    assert fw.current_level() == -1
    with dual_level() as outer, dual_level() as inner_level:
        assert (outer, inner_level, fw.current_level()) == (0, 1, 1)
        with pytest.raises(RuntimeError, match="not the last one that was created"):
            fw.exit_dual_level(level=0)
    assert fw.current_level() == -1 and fw._current_level == -1
    with pytest.raises(RuntimeError, match="Dual level must be a positive number"):
        fw.exit_dual_level()
    with pytest.raises(RuntimeError, match="no level exists"):
        make_dual(ut.ones(2), ut.ones(2))


def test_nested_levels_give_higher_derivatives() -> None:
    x = ut.tensor(0.7, dtype=ut.float64)
    one = ut.ones_like(x)
    with dual_level(), dual_level(), dual_level():
        for level in range(3):
            x = make_dual(x, one, level=level)
        y = x.sin() * x
        first = unpack_dual(y).tangent
        second = unpack_dual(first, level=1).tangent
        third = unpack_dual(second, level=0).tangent
    v = 0.7
    assert first.item() == pytest.approx(np.sin(v) + v * np.cos(v))
    assert second.item() == pytest.approx(2 * np.cos(v) - v * np.sin(v))
    assert third.item() == pytest.approx(-3 * np.sin(v) - v * np.cos(v))


def test_an_inner_level_does_not_see_the_outer_tangent() -> None:
    """d/dx [x * d/dy (x + y)] is 1, not 2."""
    with dual_level():
        x = make_dual(ut.tensor(3.0), ut.tensor(1.0))
        with dual_level():
            y = make_dual(ut.tensor(5.0), ut.tensor(1.0))
            slope = unpack_dual(x + y).tangent
        assert unpack_dual(x * slope).tangent.item() == 1.0


def test_tangents_end_with_their_level() -> None:
    with dual_level():
        x = make_dual(ut.ones(2), ut.ones(2))
        y = (x * x).exp()
        gone = weakref.ref(unpack_dual(y).tangent)
    assert gone() is None
    assert unpack_dual(y).tangent is None
    with dual_level():
        assert unpack_dual(x).tangent is None


def test_no_graph_with_saved_outputs_outlives_its_level() -> None:
    gc.disable()
    try:
        with dual_level():
            x = make_dual(ut.ones(2, requires_grad=True), ut.ones(2))
            y = x.exp()
            node = weakref.ref(y.grad_fn)
        del x, y
        assert node() is None
    finally:
        gc.enable()


def test_switching_off() -> None:
    with dual_level():
        x = make_dual(ut.ones(2), ut.ones(2))
        with fw.set_fwd_grad_enabled(False):
            assert not fw.is_fwd_grad_enabled()
            y = x * 2
        assert fw.is_fwd_grad_enabled()
        with fw._set_fwd_grad_enabled(False):
            assert not fw._is_fwd_grad_enabled()
        assert unpack_dual(y).tangent is None and unpack_dual(x * 2).tangent is not None


def test_the_tangent_is_printed() -> None:
    with dual_level():
        x = make_dual(ut.ones(2), ut.zeros(2))
        assert repr(x) == "tensor([1., 1.], tangent=tensor([0., 0.]))"
        assert "tangent" not in repr(unpack_dual(x).primal)
    assert "tangent" not in repr(x)


# ---- what is refused


def test_tangents_must_fit() -> None:
    with dual_level():
        with pytest.raises(RuntimeError, match="different size than that of the original Tensor"):
            make_dual(ut.ones(2), ut.ones(3))
        with pytest.raises(ValueError, match="Expected tangent to be floating point or complex"):
            make_dual(ut.ones(2), ut.ones(2, dtype=ut.int64))
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            make_dual(ut.ones(2, dtype=ut.int64), ut.ones(2))
        dual = make_dual(ut.ones(2), ut.ones(2))
        with pytest.raises(RuntimeError, match="has a forward gradient at the same level"):
            make_dual(ut.ones(2), dual)
        with dual_level():
            inner_dual = make_dual(ut.ones(2), ut.ones(2))
            with pytest.raises(RuntimeError, match="has itself a tangent at an inner level"):
                make_dual(ut.ones(2), inner_dual, level=0)


def test_an_operation_without_jvp_is_refused() -> None:
    from undertow.ops.declare import REGISTRY, primitive

    lonely = primitive("_lonely", lambda xp, input: input * 2, {"input": lambda xp, g: g * 2}, None, None)
    try:
        with dual_level():
            x = make_dual(ut.ones(2), ut.ones(2))
            with pytest.raises(
                NotImplementedError, match="Trying to use forward AD with _lonely that does not support"
            ):
                lonely(x)
    finally:
        del REGISTRY["_lonely"]


@pytest.mark.parametrize("call", [scopes.call_with, scopes._call_with], ids=["core", "python"])
def test_a_function_called_in_another_state_may_have_any_keywords(call: Any) -> None:
    variable = ContextVar("variable", default=0)
    found = call(variable, 1, lambda **kwargs: (variable.get(), kwargs), variable=2, value=3, function=4)
    assert found == (1, {"variable": 2, "value": 3, "function": 4}) and variable.get() == 0
    with dual_level():
        x = make_dual(ut.ones(2), ut.ones(2))
        assert unpack_dual(x.addcdiv_(ut.ones(2), ut.ones(2), value=0.5)).tangent.tolist() == [1, 1]


def test_a_change_that_the_tangent_refuses_changes_nothing() -> None:
    shared = ut.ones(3)

    def moved(direction: Any) -> Any:
        with dual_level():
            found = make_dual(shared, ut.ones(3)).mul_(make_dual(ut.ones(3) * 2, direction))
            return unpack_dual(found).tangent

    with dual_level(), pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        make_dual(shared, ut.ones(3, requires_grad=True)).mul_(2)
    with pytest.raises(RuntimeError, match="vmap: inplace arithmetic"):
        ut.vmap(moved)(ut.ones(2, 3))
    assert shared.tolist() == [1, 1, 1] and shared._version == 0


def test_out_is_refused() -> None:
    with dual_level():
        x = make_dual(ut.ones(2), ut.ones(2))
        with pytest.raises(NotImplementedError, match="because it is an out= function"):
            ut.add(x, x, out=ut.ones(2))


# ---- aliases, views, in-place changes


def test_detach_drops_the_tangent_and_no_grad_keeps_it() -> None:
    with dual_level():
        x = make_dual(ut.ones(2), ut.ones(2))
        with ut.no_grad():
            assert unpack_dual(x * 2).tangent.tolist() == [2, 2]
        assert unpack_dual(x.detach() * 2).tangent is None
        y = x.clone()
        y.detach_()
        assert unpack_dual(y).tangent is None


def test_a_changed_result_leaves_the_tangents_of_its_inputs_alone() -> None:
    """y = x + c has the tangent of x, but not in the same memory."""
    with dual_level():
        x = make_dual(ut.ones(2), ut.ones(2))
        y = x + 1
        y.mul_(5)
        assert unpack_dual(x).tangent.tolist() == [1, 1]
        assert unpack_dual(y).tangent.tolist() == [5, 5]


def test_the_base_of_a_changed_view_gets_a_tangent() -> None:
    with dual_level():
        x = make_dual(ut.ones(2), ut.tensor([3.0, 4.0]))
        base = ut.zeros(2, 2)
        other = base[:, 1]
        base[0] = x
        assert unpack_dual(base).tangent.tolist() == [[3, 4], [0, 0]]
        assert unpack_dual(other).tangent.tolist() == [4, 0]
        other.mul_(10)
        assert unpack_dual(base).tangent.tolist() == [[3, 40], [0, 0]]


def test_in_place_changes_in_both_modes() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.clone()
        y[0] *= x[1]
        y.sin_()
        y[1:].mul_(y[:1].clone())
        return y

    x = ut.tensor([0.5, -0.3, 0.2], dtype=ut.float64, requires_grad=True)
    assert ut.autograd.gradcheck(f, x, check_forward_ad=True, check_batched_forward_grad=True, check_batched_grad=True)
    assert ut.autograd.gradgradcheck(f, x, check_fwd_over_rev=True)


def test_the_tangent_is_laid_out_as_the_primal() -> None:
    primal, tangent = ut.ones(2, 3).t(), ut.ones(3, 2)
    with dual_level():
        dual = make_dual(primal, tangent)
        assert unpack_dual(dual).tangent is not tangent
        assert unpack_dual(dual).tangent.stride() == primal.stride()
        assert unpack_dual(dual.t().view(6)).tangent.tolist() == [1] * 6


def test_reverse_over_forward() -> None:
    x = ut.tensor([0.3, 0.4], dtype=ut.float64, requires_grad=True)
    v = ut.tensor([1.0, 2.0], dtype=ut.float64)
    with dual_level():
        tangent = unpack_dual((make_dual(x, v) ** 3).sum()).tangent
        (found,) = ut.autograd.grad(tangent, x)
    np.testing.assert_allclose(found.numpy(), 6 * np.array([0.3, 0.4]) * [1, 2])


def test_gradients_accumulate_their_tangents() -> None:
    with dual_level():
        x = make_dual(ut.tensor([2.0]), ut.tensor([1.0])).requires_grad_()
        (x**3).sum().backward()
        assert unpack_dual(x.grad).tangent.tolist() == [12.0]


@pytest.mark.parametrize("function", [lambda x: x.exp(), lambda x: x.sin()], ids=["saved output", "saved input"])
def test_forward_over_reverse_with_saved_tensor_hooks(function: Any) -> None:
    def second(pack: Any, unpack: Any) -> Any:
        with dual_level(), ut.autograd.graph.saved_tensors_hooks(pack, unpack):
            x = make_dual(ut.tensor([0.3]), ut.tensor([1.0])).requires_grad_()
            (first,) = ut.autograd.grad(function(x).sum(), x)
            return unpack_dual(first).tangent.tolist()

    plain = second(lambda t: t, lambda t: t)
    assert plain[0] != 0
    assert second(lambda t: t.numpy(force=True).copy(), ut.from_numpy) == plain


# ---- custom Functions


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 3 * x**2

    @staticmethod
    def jvp(ctx: Any, t: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return t * 3 * x**2


def test_custom_functions_in_nested_levels() -> None:
    with dual_level(), dual_level():
        x = make_dual(make_dual(ut.tensor(2.0), ut.tensor(1.0), level=0), ut.tensor(1.0))
        first = unpack_dual(Cube.apply(x)).tangent
        assert first.item() == 12.0
        assert unpack_dual(first, level=0).tangent.item() == 12.0


def test_custom_functions_pass_gradcheck() -> None:
    x = ut.tensor([0.5, 1.5], dtype=ut.float64, requires_grad=True)
    assert ut.autograd.gradcheck(Cube.apply, x, check_forward_ad=True)
    assert ut.autograd.gradgradcheck(Cube.apply, x, check_fwd_over_rev=True)


def test_jvp_must_return_a_tangent_for_each_output() -> None:
    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            return x * 1, x * 2

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Any:
            return t

    with dual_level(), pytest.raises(RuntimeError, match=r"forward gradients \(expected 2 but got 1\)"):
        Two.apply(make_dual(ut.ones(2), ut.ones(2)))


@pytest.mark.parametrize("changes", [0, 1])
@pytest.mark.parametrize("kind", ["unchanged", "another", "itself"])
def test_jvp_of_a_function_that_changes_its_input_changes_the_tangent(kind: str, changes: int) -> None:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            return t * 2 if kind == "unchanged" else t.mul_(2) if kind == "itself" else t.mul_(2).clone()

    tangent = ut.ones(2)
    for _ in range(changes):  # whatever its version is
        tangent.mul_(1)
    with dual_level():
        x = make_dual(ut.ones(2), tangent).clone()
        message = {"unchanged": "not modifying the forward mode gradients", "another": "not returning .* as-is"}
        if kind == "itself":
            assert unpack_dual(Double.apply(x)).tangent.tolist() == [2, 2]
        else:
            with pytest.raises(RuntimeError, match=message[kind]):
                Double.apply(x)


def test_numpy_does_not_drop_a_tangent() -> None:
    with dual_level():
        dual = make_dual(ut.ones(2), ut.ones(2))
        for convert in (np.asarray, lambda t: np.array([t, t]), lambda t: np.r_[t, t], lambda t: np.mean([t, t])):
            with pytest.raises(RuntimeError, match="has a tangent"):
                convert(dual)
        assert np.asarray(dual.detach()).tolist() == dual.numpy().tolist() == [1, 1]
    assert np.asarray(dual).tolist() == [1, 1]


def test_tangents_without_history() -> None:
    weight = ut.tensor([2.0, 3.0], requires_grad=True)
    x, t = ut.tensor([1.0, 2.0]), ut.ones(2)

    def function(x: Tensor) -> Tensor:
        product = x * weight
        changed = product.clone()
        changed[0] = Cube.apply(product[1])
        return changed.sin() * weight

    def run(tracked: bool) -> tuple[Tensor, Tensor, int]:
        saved: list[Any] = []
        with ut.autograd.graph.saved_tensors_hooks(lambda s: saved.append(s) or s, lambda s: s):
            output, tangent = ut.func.jvp(function, (x,), (t,), track_tangent_grad=tracked)
        return output, tangent, len(saved)

    output, tangent, few = run(False)
    _, wanted, many = run(True)
    assert output.requires_grad and wanted.requires_grad and not tangent.requires_grad
    assert few < many / 2
    assert tangent.tolist() == wanted.tolist()
    (found,), (plain,) = (ut.autograd.grad(out.sum(), weight) for out in (output, function(x)))
    assert found.tolist() == plain.tolist()


# ---- views in place


def looked_at(name: str, tensor: Any) -> Any:
    arguments = {"t_": (), "transpose_": (0, 1), "swapaxes_": (0, 1), "unsqueeze_": (0,), "squeeze_": (0,)}
    return getattr(tensor, name)(*arguments[name])


@pytest.mark.parametrize("name", ["t_", "transpose_", "swapaxes_", "unsqueeze_", "squeeze_"])
@pytest.mark.parametrize("of", ["base", "view"])
def test_views_in_place_look_at_the_tangent_too(name: str, of: str) -> None:
    shape = (1, 3) if name == "squeeze_" else (3, 3)
    value = ut.arange(float(np.prod(shape)), dtype=ut.float64).reshape(shape)

    def changed(x: Any, in_place: bool) -> Any:
        y = x * x
        y = y[:] if of == "view" else y
        y = looked_at(name, y) if in_place else looked_at(name, y.clone())
        return y * ut.arange(3.0, dtype=ut.float64) + y.sin()

    matrix = [ut.func.jacfwd(lambda x, k=k: changed(x, k))(value).numpy() for k in (True, False)]
    assert np.allclose(*matrix)
    assert np.allclose(matrix[0], ut.func.jacrev(lambda x: changed(x, True))(value).numpy())
    batch = ut.func.vmap(lambda x: changed(x, True))(ut.stack([value, value + 1]))
    assert np.allclose(batch[1].numpy(), changed(value + 1, True).numpy())
    slopes = ut.func.vmap(ut.func.grad(lambda x: changed(x, True).sum()))(ut.stack([value, value + 1]))
    assert np.allclose(slopes[1].numpy(), ut.func.grad(lambda x: changed(x, True).sum())(value + 1).numpy())


def test_the_tangent_of_a_square_matrix_that_is_transposed_in_place() -> None:
    with fw.dual_level():
        x = fw.make_dual(ut.zeros(2, 2), ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
        y = x * 1
        row = y[0]
        y.t_()
        y[0].mul_(10)
        assert fw.unpack_dual(y).tangent.tolist() == [[10, 30], [2, 4]]
        assert fw.unpack_dual(row).tangent.tolist() == [10, 2]


def test_a_batch_that_is_looked_at_in_place_keeps_its_memory() -> None:
    def f(x: Any) -> Any:
        y = x.clone()
        row = y[0]
        y.t_()
        y[0].mul_(10)
        return y, row

    found, row = ut.vmap(f)(ut.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    assert found.tolist() == [[[10, 30], [2, 4]]]
    assert row.tolist() == [[10, 2]]


def test_a_dual_is_not_made_of_a_dual_of_its_level() -> None:
    with dual_level():
        dual = make_dual(ut.ones(2), ut.ones(2))
        with pytest.raises(RuntimeError, match="already has a forward gradient at the same level 0"):
            make_dual(dual, ut.ones(2))
        again = make_dual(unpack_dual(dual).primal, ut.zeros(2))
        assert unpack_dual(again).tangent.tolist() == [0, 0]


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # PyTorch compiles what it decomposes
@pytest.mark.parametrize("look", [lambda x: x[0], lambda x: x.unbind()[0], lambda x: x.t()[:, 0].view(3)])
@pytest.mark.parametrize("of_a_view", [False, True])
def test_a_primal_and_its_views_share_tangents(L: Any, look: Any, of_a_view: bool) -> None:
    forward_ad = L.autograd.forward_ad

    def tangent(t: Any) -> Any:
        found = forward_ad.unpack_dual(t).tangent
        return None if found is None else found.tolist()

    for change_the_view in (True, False):
        with forward_ad.dual_level():
            x = L.ones(4, 3)[1:3] if of_a_view else L.ones(2, 3)
            primal = forward_ad.unpack_dual(x).primal
            part = look(primal)
            changed = part if change_the_view else primal
            changed.mul_(forward_ad.make_dual(L.ones(3), L.arange(1.0, 4.0)))
            assert tangent(part) == [1, 2, 3]
            assert tangent(primal) == [[1, 2, 3], [0, 0, 0] if change_the_view else [1, 2, 3]]
            assert tangent(x) is None


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning", "ignore:Using backward:UserWarning")
def test_a_second_gradient_is_added_to_the_first_inside_of_a_level(L: Any) -> None:
    x = L.ones(2, requires_grad=True)
    with L.autograd.forward_ad.dual_level():
        factor = L.autograd.forward_ad.make_dual(L.ones(2), L.tensor([3.0, 4.0]))
        (x * 2).sum().backward()
        grad = x.grad
        (x * factor).sum().backward()
        assert x.grad is grad and grad.tolist() == [3, 3]
        assert L.autograd.forward_ad.unpack_dual(grad).tangent.tolist() == [3, 4]
        (x * x).sum().backward(create_graph=True)
        assert x.grad is not grad and grad.tolist() == [3, 3] and x.grad.tolist() == [5, 5]
    x.grad = None
