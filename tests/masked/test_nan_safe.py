"""nan_safe: what was not chosen contributes nothing; what was chosen, what it always does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import undertow as ut
from tests.ops.systems import Case, assert_same, cases, every
from undertow.autograd.checkpoint import checkpoint
from undertow.masked import nan_safe
from undertow.ops.declare import REGISTRY
from undertow.ops.declare.rules import ELEMENTWISE

NAN, INF = float("nan"), float("inf")

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value|overflow):RuntimeWarning")


def gradient(f: Callable[..., Any], *arrays: Any, safe: bool = True) -> list[Any]:
    leaves = [ut.tensor(np.asarray(a, dtype=np.float64), requires_grad=True) for a in arrays]
    total = f(*leaves).sum()
    if not safe:
        return [g.numpy() for g in ut.autograd.grad(total, leaves)]
    with nan_safe():
        return [g.numpy() for g in ut.autograd.grad(total, leaves)]


def check(f: Callable[..., Any], x: Any, expected: Any) -> None:
    """The gradient is as expected inside nan_safe and only there: outside, the case would prove nothing."""
    assert np.isnan(gradient(f, x, safe=False)[0]).any()
    np.testing.assert_allclose(gradient(f, x)[0], expected, rtol=1e-12)


# ---- where absence begins

X = [0.0, 4.0]

CHOICES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "where": (lambda x: ut.where(x > 0, x.sqrt(), x), [1, 0.25]),
    "where-other": (lambda x: ut.where(x <= 0, x, x.sqrt()), [1, 0.25]),
    "where-number": (lambda x: ut.where(x > 0, x.sqrt(), 7.0), [0, 0.25]),
    "where-nested": (lambda x: ut.where(x > 0, ut.where(x > 1, x.sqrt(), x.log()), 0.0), [0, 0.25]),
    "index-mask": (lambda x: x.sqrt()[x > 0], [0, 0.25]),
    "index-list": (lambda x: x.sqrt()[[1, 1]], [0, 0.5]),
    "index-integer": (lambda x: x.sqrt()[1], [0, 0.25]),
    "slice": (lambda x: x.sqrt()[1:], [0, 0.25]),
    "narrow": (lambda x: x.sqrt().narrow(0, 1, 1), [0, 0.25]),
    "index_select": (lambda x: x.sqrt().index_select(0, ut.tensor([1])), [0, 0.25]),
    "gather": (lambda x: x.sqrt().gather(0, ut.tensor([1, 1])), [0, 0.5]),
    "take": (lambda x: x.sqrt().take(ut.tensor([1])), [0, 0.25]),
    "unbind": (lambda x: x.sqrt().unbind()[1], [0, 0.25]),
    "split": (lambda x: x.sqrt().split([1, 1])[1], [0, 0.25]),
    "chunk": (lambda x: x.sqrt().chunk(2)[1], [0, 0.25]),
    "diagonal": (lambda x: (x.sqrt().expand(2, 2) * ut.tensor([[0.0, 0.0], [0.0, 1.0]])).diagonal(), [0, 0.25]),
    "masked_select": (lambda x: x.sqrt().masked_select(x > 0), [0, 0.25]),
    "masked_fill": (lambda x: x.sqrt().masked_fill(x <= 0, 3.0), [0, 0.25]),
    "masked_fill-tensor": (lambda x: x.sqrt().masked_fill(x <= 0, x[1]), [0, 1.25]),
    "masked_scatter": (lambda x: x.sqrt().masked_scatter(x <= 0, x), [1, 0.25]),
    "scatter": (lambda x: x.sqrt().scatter(0, ut.tensor([0]), 5.0), [0, 0.25]),
    "index_fill": (lambda x: x.sqrt().index_fill(0, ut.tensor([0]), 5.0), [0, 0.25]),
    "times-bool": (lambda x: x.sqrt() * (x > 0), [0, 0.25]),
    "times-float": (lambda x: (x > 0).double() * x.sqrt(), [0, 0.25]),
    "times-zero": (lambda x: x.sqrt() * 0.0 + x, [1, 1]),
    "times-weights": (lambda x: x.sqrt() * ut.tensor([0.0, 3.0]), [0, 0.75]),
    "matmul": (lambda x: ut.tensor([[0.0, 1.0], [0.0, 2.0]], dtype=ut.float64) @ x.sqrt(), [0, 0.75]),
    "einsum": (lambda x: ut.einsum("i,i->", x.sqrt(), ut.tensor([0.0, 1.0], dtype=ut.float64)), [0, 0.25]),
    "clamp": (lambda x: x.log().clamp(min=-1.0), [0, 0.25]),
    "maximum": (lambda x: ut.maximum(x.log(), x), [1, 1]),
    "max": (lambda x: x.sqrt().max(), [0, 0.25]),
    "max-dim": (lambda x: x.sqrt().max(0).values, [0, 0.25]),
    "amax": (lambda x: x.sqrt().amax(0), [0, 0.25]),
    "relu": (lambda x: (x.log() - 1).relu(), [0, 0.25]),
    "assignment": (lambda x: overwritten(x.sqrt()), [0, 0.25]),
    "copy_": (lambda x: copied(x.sqrt(), x), [1, 0.25]),
    "pad": (lambda x: ut.pad(x.sqrt(), (-1, 0)), [0, 0.25]),
}


def overwritten(y: Any) -> Any:
    y = y.clone()
    y[0] = 5.0
    return y


def copied(y: Any, x: Any) -> Any:
    y = y.clone()
    y[:1].copy_(x[:1])
    return y


@pytest.mark.parametrize("name", CHOICES)
def test_what_was_not_chosen_contributes_nothing(name: str) -> None:
    f, expected = CHOICES[name]
    check(f, X, expected)


def test_the_two_programs_of_the_division_by_zero() -> None:
    div = ut.tensor([0.0, 1.0], dtype=ut.float64)
    check(lambda x: (x / div)[div != 0], [1.0, 1.0], [0, 1])
    check(lambda x: (x / div) * (div != 0), [1.0, 1.0], [0, 1])  # the value is nan all the same


# ---- how it spreads


SPREADING: dict[str, Callable[[Any], Any]] = {
    "chain": lambda x: (1 / x.sqrt().log()).exp()[1:],
    "softmax": lambda x: x.log().reshape(2, 1).expand(2, 3).softmax(1)[1],
    "reshape": lambda x: x.sqrt().reshape(2, 1).t().flip(1).roll(1, 1)[:, 1],
    "cumsum": lambda x: x.sqrt().flip(0).cumsum(0)[0],
    "stack": lambda x: ut.stack([x.sqrt(), x])[:, 1],
    "cat": lambda x: ut.cat([x.sqrt()[1:], x]),
    "complex": lambda x: ut.complex(x.sqrt(), x).abs()[1:],
    "matmul": lambda x: (ut.ones(2, 2, dtype=ut.float64) * x.rsqrt())[:, 1:].sum(0),
    "outer": lambda x: ut.outer(x.rsqrt(), x)[1:],
    "norm": lambda x: x.rsqrt()[1:].norm(),
    "mean": lambda x: x.rsqrt()[1:].mean(),
    "var": lambda x: ut.cat([x.rsqrt()[1:], x]).var(),
    "prod": lambda x: x.rsqrt()[1:].prod(),
    "diff": lambda x: ut.cat([x.sqrt(), x])[1:].diff()[:1],
}


@pytest.mark.parametrize("name", SPREADING)
def test_absence_spreads_through_everything_below(name: str) -> None:
    """At [0, 4], the first element taken out of what is singular there: compare with finite differences."""
    f = SPREADING[name]
    assert not np.isfinite(gradient(f, X, safe=False)[0]).all()
    found = gradient(f, X)[0]
    step = 1e-6
    for k in range(2):
        moved = [np.array(X), np.array(X)]
        moved[0][k] += step
        moved[1][k] -= step * k  # 0 is the end of the domain
        values = [f(ut.tensor(m)).sum().item() for m in moved]
        slope = (values[0] - values[1]) / (step * (1 + k))
        np.testing.assert_allclose(found[k], slope, rtol=1e-4, atol=1e-5)


def test_sums_of_products_leave_out_what_is_absent() -> None:
    """g @ B.T with an infinite B where g is absent, and where it is not."""
    b = np.array([[INF, 1.0], [2.0, 3.0]])
    found = gradient(lambda x: (x @ ut.tensor(b))[:, 1], np.ones((2, 2)))[0]
    np.testing.assert_array_equal(found, [[1, 3], [1, 3]])
    found = gradient(lambda x: (x @ ut.tensor(b))[:, 0], np.ones((2, 2)))[0]
    assert not np.isfinite(found[:, 0]).any()
    np.testing.assert_array_equal(found[:, 1], [2, 2])


# ---- what stays as it is


def test_a_zero_by_arithmetic_is_no_absence() -> None:
    """sqrt(x) ** 2 is x: its slope at 0 is 1, and 0 * inf must not become 0."""
    assert np.isnan(gradient(lambda x: x.sqrt() ** 2, [0.0])[0]).all()
    assert np.isnan(gradient(lambda x: x.sqrt() * x.sqrt(), [0.0])[0]).all()
    assert np.isnan(gradient(lambda x: x.sqrt() * x.detach().requires_grad_(), [0.0])[0]).all()


def test_zeros_of_a_given_gradient_are_ordinary_zeros() -> None:
    """They may be those of the test above, in two steps: the gradient of y ** 2 is 2 * y."""
    x = ut.tensor([0.0], requires_grad=True)
    y = x.sqrt()
    with nan_safe():
        y.backward(2 * y.detach())
    assert np.isnan(x.grad.numpy()).all()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints(use_reentrant: bool) -> None:
    def slope(f: Callable[[Any], Any]) -> Any:
        x = ut.tensor(X, requires_grad=True)
        with nan_safe():
            f(x).sum().backward()
        return x.grad.numpy()

    run = lambda f, x: checkpoint(f, x, use_reentrant=use_reentrant)
    np.testing.assert_array_equal(slope(lambda x: run(lambda x: x.sqrt(), x) ** 2), [NAN, 1])
    np.testing.assert_array_equal(slope(lambda x: run(lambda x: x.sqrt()[1:] * 3, x)), [0, 0.75])
    np.testing.assert_array_equal(slope(lambda x: run(lambda x: ut.where(x > 0, x.sqrt(), x), x)), [1, 0.25])


def test_a_taken_branch_keeps_its_infinity() -> None:
    np.testing.assert_array_equal(gradient(lambda x: ut.where(x >= 0, x.sqrt(), x), X)[0], [INF, 0.25])


def test_the_default_is_unchanged_inside_and_after() -> None:
    f = CHOICES["where"][0]
    with nan_safe():
        pass
    assert np.isnan(gradient(f, X, safe=False)[0]).any()


def test_other_threads_are_not_affected() -> None:
    found: list[Any] = []
    with nan_safe():
        thread = threading.Thread(target=lambda: found.extend(gradient(CHOICES["where"][0], X, safe=False)))
        thread.start()
        thread.join()
    assert np.isnan(found[0]).any()


def test_custom_functions_and_hooks_are_not_taken_for_constants() -> None:
    """A zero that a backward computes by its own means is an ordinary zero."""

    class Square(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return ut.tensor(g.numpy() * 2 * x.numpy())

    class ByNumber(Square):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * (2 * x.item())

    for function in (Square, ByNumber):
        assert np.isnan(gradient(lambda x, function=function: function.apply(x.sqrt()), [0.0])[0]).all()

    def hooked(x: Any) -> Any:
        y = x.sqrt()
        y.register_hook(lambda g: ut.tensor(g.numpy() * 0))
        return y

    assert np.isnan(gradient(hooked, [0.0])[0]).all()


def test_a_custom_function_passes_absence_on() -> None:
    class Twice(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    check(lambda x: Twice.apply(x.sqrt())[1:], X, [0, 0.5])


def test_a_gradient_written_to_in_place_is_believed() -> None:
    def hooked(x: Any) -> Any:
        y = x * 3
        y.register_hook(lambda g: g.clone().add_(1.0))
        return y[1:]

    np.testing.assert_array_equal(gradient(hooked, [1.0, 1.0])[0], [3, 6])


def test_graphs_of_the_gradient() -> None:
    """Second derivatives, with both passes inside."""
    x = ut.tensor(X, dtype=ut.float64, requires_grad=True)
    with nan_safe():
        (first,) = ut.autograd.grad(ut.where(x > 0, x.sqrt(), x * x * x).sum(), x, create_graph=True)
        (second,) = ut.autograd.grad((first * ut.tensor([1.0, 2.0])).sum(), x)
    np.testing.assert_allclose(first.detach().numpy(), [0, 0.25])
    np.testing.assert_allclose(second.numpy(), [0, 2 * -1 / 32])


def test_backward_accumulates_plain_tensors() -> None:
    x = ut.tensor(X, requires_grad=True)
    for _ in range(2):
        with nan_safe():
            ut.where(x > 0, x.sqrt(), x).sum().backward()
    assert type(x.grad) is ut.Tensor
    assert x.grad.tolist() == [2.0, 0.5]
    assert not x.grad.requires_grad


def test_as_a_decorator() -> None:
    @nan_safe()
    def slope(x: Any) -> Any:
        return ut.autograd.grad(x.sqrt()[1:].sum(), x)[0]

    assert slope(ut.tensor(X, requires_grad=True)).tolist() == [0.0, 0.25]


def test_a_failing_pass_leaves_nothing_behind() -> None:
    x = ut.tensor(X, requires_grad=True)
    y = x.sqrt()
    y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError), nan_safe():
        y.sum().backward()
    check(CHOICES["where"][0], X, CHOICES["where"][1])


def test_function_transforms() -> None:
    """One pass for the whole batch is an ordinary pass."""
    f = lambda x: ut.where(x > 0, x.sqrt(), x).sum()
    x = ut.tensor(X)
    with nan_safe():
        assert ut.func.grad(f)(x).tolist() == [1.0, 0.25]
        assert ut.func.vmap(ut.func.grad(f))(x.reshape(2, 1)).tolist() == [[1.0], [0.25]]
        rows = ut.autograd.functional.jacobian(lambda x: ut.where(x > 0, x.sqrt(), x), x)
    assert rows.tolist() == [[1.0, 0.0], [0.0, 0.25]]


def test_devices_other_than_the_cpu_run_as_by_default() -> None:
    x = ut.tensor([1.0, 4.0]).to("sim:0").requires_grad_()
    with nan_safe():
        ut.where(x > 2, x.sqrt(), x).sum().backward()
    assert x.grad.to("cpu").tolist() == [1.0, 0.25]


def test_transformed_tensors_are_refused() -> None:
    x = ut.tensor(X, requires_grad=True)
    y = x.sqrt()
    with nan_safe(), pytest.raises(RuntimeError, match="nan_safe"):
        ut.autograd.grad(y, x, ut.eye(2), is_grads_batched=True)


# ---- the whole library: where nothing is absent, nothing changes


CASES = [c for c in cases() if not c.sample.op.endswith("_")]


@every(CASES)
def test_gradients_of_every_operation_are_what_they_are(case: Case) -> None:
    if not case.has_gradient() or not all(np.isfinite(g).all() for g in case.gradient if g is not None):
        return
    with nan_safe():
        found = case.gradient_at(case.arrays, case.cotangents)
    for k, (got, expected) in enumerate(zip(found, case.gradient, strict=True)):
        assert (got is None) == (expected is None)
        if expected is not None:
            assert_same(np.asarray(got), np.asarray(expected), 1e-9, 1e-12, f"{case.id}, input {k}")


def masked_gradient(case: Case) -> list[Any]:
    """Of the results, of which half of the elements are chosen, by `where`."""
    rng = case.rng("chosen elements")
    leaves, results = case.recorded(case.arrays, case.differentiable)
    roots = [ut.where(ut.tensor(rng.random(r.shape) < 0.5), r, 0.0) for r in results.values()]
    seeds = [ut.tensor(c) for c in case.cotangents]
    return list(ut.autograd.grad(roots, case.chosen(leaves), seeds, allow_unused=True))


@every(CASES)
def test_absence_never_takes_what_is_there(case: Case) -> None:
    """With half of the results absent, what the other half sends back through the operation is complete."""
    if not case.has_gradient():
        return
    expected = masked_gradient(case)
    if not all(np.isfinite(g.numpy()).all() for g in expected if g is not None):
        return
    with nan_safe():
        found = masked_gradient(case)
    for k, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        assert (got is None) == (wanted is None)
        if wanted is not None:
            assert_same(got.numpy(), wanted.numpy(), 1e-9, 1e-12, f"{case.id}, input {k}")


def is_elementwise(case: Case) -> bool:
    op = REGISTRY[case.sample.op]
    one = len(case.specs) == 1 and not case.sample.call
    return one and op.batch is ELEMENTWISE and op.kind == "primitive" and op.name != "_complex_from_pairs"


@every([c for c in CASES if is_elementwise(c)])
def test_absence_goes_through_every_elementwise_operation(case: Case) -> None:
    """f(x + sqrt(t)) at t = 0, where half of the results are not chosen: these have no gradient, not 0 * inf."""
    (array,) = case.arrays
    if not case.has_gradient() or np.isnan(array).any():
        return
    chosen = np.asarray(case.rng("chosen elements").random(array.shape) < 0.5)
    t = ut.tensor(np.zeros(array.shape), requires_grad=True)
    result, *_ = case.call([ut.tensor(array) + t.sqrt()])
    roots = ut.where(ut.tensor(chosen), result, 0.0)
    with nan_safe():
        (found,) = ut.autograd.grad(roots, t, ut.ones_like(roots))
    assert (found.numpy()[~chosen] == 0).all()


# ---- any program: choosing afterwards is choosing beforehand

SINGULAR: dict[str, Callable[[Any], Any]] = {
    "sqrt": lambda x: x.sqrt(),
    "log": lambda x: x.log(),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: x.rsqrt(),
    "power": lambda x: x**0.3,
    "xlogx": lambda x: x * x.log(),
    "chain": lambda x: (x.log() * 0.5).exp(),
    "norm": lambda x: (x / x.abs().sqrt()).sin(),
}
SELECT: dict[str, Callable[[Any, Any], Any]] = {
    "where": lambda y, m: ut.where(m, y, 0.0),
    "index": lambda y, m: y[m],
    "positions": lambda y, m: y[m.nonzero(as_tuple=True)],
    "masked_select": lambda y, m: y.masked_select(m),
    "masked_fill": lambda y, m: y.masked_fill(~m, 0.0),
    "select": lambda y, m: y.index_select(0, m.nonzero()[:, 0]),
    "matrix": lambda y, m: ut.where(m, y, 0.0) @ m.double(),
}
AFTER: dict[str, Callable[[Any], Any]] = {
    "sum": lambda y: y.sum(),
    "square": lambda y: (y * y).sum(),
    "sine": lambda y: y.sin().sum(),
    "logarithm": lambda y: (y * y).sum().log1p(),
}


@given(
    values=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5]), min_size=1, max_size=6),
    before=st.booleans(),
    singular=st.sampled_from(sorted(SINGULAR)),
    select=st.sampled_from(sorted(SELECT)),
    after=st.sampled_from(sorted(AFTER)),
)
def test_choosing_afterwards_is_choosing_beforehand(
    values: list[float], before: bool, singular: str, select: str, after: str
) -> None:
    x = np.array(values)
    mask = ut.tensor(x > 0)
    scale = (lambda t: t * 2.0) if before else (lambda t: t)
    found = gradient(lambda t: AFTER[after](SELECT[select](SINGULAR[singular](scale(t)), mask)), x)[0]
    keep = x > 0
    expected = np.zeros_like(x)
    (inside,) = gradient(
        lambda t: AFTER[after](SELECT[select](SINGULAR[singular](scale(t)), ut.ones(len(t)).bool())),
        x[keep],
        safe=False,
    )
    expected[keep] = inside
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@given(
    rows=st.integers(1, 3),
    columns=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
def test_absorbing_products_by_definition(rows: int, columns: int, seed: int) -> None:
    """A chain of products with random zeros for good, against the definition: a sum over the paths that exist."""
    rng = np.random.default_rng(seed)
    a = rng.choice([0.0, 1.0, -2.0], (columns, rows))
    x = rng.choice([0.0, 1.0, 4.0], rows)
    found = gradient(lambda t: ut.tensor(a) @ t.sqrt(), x)[0]
    with np.errstate(divide="ignore"):
        slope = 0.5 / np.sqrt(x)
    weight = a.sum(0)
    used = (a != 0).any(0)
    expected = np.where(used, np.where(used, weight, 1) * np.where(used, slope, 0), 0)
    np.testing.assert_allclose(found, expected)
