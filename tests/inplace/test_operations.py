"""Every in-place form against its out-of-place operation: values, first and second gradients, on bases and views."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, cases, every, leaf


def has_in_place_form(case: Case) -> bool:
    """Whether the operation writes a result of its first argument's shape and kind over it."""
    sample = case.sample
    if sample.call is not None or not case.specs or not sample.args or sample.args[0] is not case.specs[0]:
        return False
    if not hasattr(ut.Tensor, sample.op + "_") or sample.op == "detach":  # detach_ changes the history alone
        return False
    with np.errstate(all="ignore"):
        results, first = case.result, case.arrays[0]
    if len(results) != 1:
        return False
    result = results[0]
    if sample.op in ("abs", "absolute") and first.dtype.kind == "c":  # refused, as in PyTorch
        return False
    return result.shape == first.shape and np.can_cast(result.dtype, first.dtype, "same_kind")


def is_repeatable(case: Case) -> bool:
    """Whether the operation draws nothing at random."""
    return case.sample.op not in ("bernoulli", "normal")


CASES = [case for case in cases() if has_in_place_form(case) and is_repeatable(case)]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


# ---- three ways to compute the same: the first argument is always a copy, so that it may be changed


def out_of_place(case: Case, leaves: list[Any]) -> Any:
    args, kwargs = case.fill([leaves[0].clone(), *leaves[1:]])
    return getattr(ut.ops, case.sample.op)(*args, **kwargs)


def in_place(case: Case, leaves: list[Any]) -> Any:
    args, kwargs = case.fill([leaves[0].clone(), *leaves[1:]])
    assert getattr(args[0], case.sample.op + "_")(*args[1:], **kwargs) is args[0]
    return args[0]


def through_a_view(case: Case, leaves: list[Any]) -> Any:
    base = ut.stack([leaves[0], leaves[0]], -1)
    args, kwargs = case.fill([base[..., 1], *leaves[1:]])
    getattr(args[0], case.sample.op + "_")(*args[1:], **kwargs)
    return base[..., 1]


WAYS: dict[str, Callable[[Case, list[Any]], Any]] = {"base": in_place, "view": through_a_view}


#: the out-of-place forms give booleans and have no gradient; the in-place forms' is zero
WITHOUT_SLOPE = {"eq", "ne", "lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal", "not_equal",
                 "logical_and", "logical_or", "logical_xor", "logical_not"}  # fmt: skip


def gradients(case: Case, way: Callable[[Case, list[Any]], Any], order: int) -> list[Any]:
    """The result's values, and its gradients (of its gradients) with respect to all inputs that have one."""
    leaves = [leaf(a, k in case.differentiable) for k, a in enumerate(case.arrays)]
    wanted = case.chosen(leaves)
    result = way(case, leaves)
    found = [result.detach().numpy()]
    for step in range(order):
        if not result.requires_grad:
            break
        seed = ut.tensor(case.rng(f"seed {step}").standard_normal(result.shape), dtype=result.dtype)
        grads = ut.autograd.grad(result, wanted, seed, create_graph=True, allow_unused=True, materialize_grads=True)
        found += [g.detach().numpy() for g in grads]
        result = sum((g * g.conj()).sum() for g in grads)
    return found


def compare(case: Case, way: str, order: int) -> None:
    expected, got = gradients(case, out_of_place, order), gradients(case, WAYS[way], order)
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_allclose(b, a.astype(b.dtype), rtol=1e-9, atol=1e-12)


@every(CASES)
@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients(case: Case, way: str) -> None:
    compare(case, way, 0 if case.sample.op in WITHOUT_SLOPE else 1)


@every([c for c in CASES if c.sample.gradgrad and c.differentiable and c.sample.op not in WITHOUT_SLOPE])
@pytest.mark.parametrize("way", WAYS)
def test_second_gradients(case: Case, way: str) -> None:
    compare(case, way, 2)


@every(CASES)
def test_without_recording_the_memory_is_the_same_and_one_version_newer(case: Case) -> None:
    args, kwargs = case.fill([ut.tensor(a) for a in case.arrays])
    memory = args[0].data_ptr()
    with ut.no_grad():
        getattr(args[0], case.sample.op + "_")(*args[1:], **kwargs)
    assert args[0].data_ptr() == memory and args[0]._version == 1
    np.testing.assert_array_equal(args[0].numpy(), case.result[0].astype(args[0].dtype))


def test_most_operations_have_rows_here() -> None:
    names = {case.sample.op for case in CASES}
    assert len(names) > 90, f"only {sorted(names)}"


AUGMENTED: dict[str, Callable[[Any, Any], Any]] = {
    "+=": lambda x, y: x.__iadd__(y),
    "-=": lambda x, y: x.__isub__(y),
    "*=": lambda x, y: x.__imul__(y),
    "/=": lambda x, y: x.__itruediv__(y),
    "**=": lambda x, y: x.__ipow__(y),
    "%=": lambda x, y: x.__imod__(y),
    "//=": lambda x, y: x.__ifloordiv__(y),
}


@pytest.mark.parametrize("name", AUGMENTED)
@pytest.mark.parametrize("other", ["tensor", "number"])
def test_augmented_assignment_is_in_place(L: Any, name: str, other: str) -> None:
    x = L.tensor([5.0, 7.0])
    alias = x[:]
    y = L.tensor([2.0, 3.0]) if other == "tensor" else 2.0
    result = AUGMENTED[name](x, y)
    assert result is x and alias.tolist() == x.tolist() and x._version == 1
    expected = {"+=": 7, "-=": 3, "*=": 10, "/=": 2.5, "**=": 25, "%=": 1, "//=": 2}
    assert x.tolist()[0] == expected[name]


RANDOM = ["uniform_", "normal_", "bernoulli_", "exponential_", "cauchy_", "log_normal_", "geometric_", "random_"]


@pytest.mark.parametrize("name", RANDOM)
def test_random_fills_forget_what_was_there(L: Any, name: str) -> None:
    w = L.ones(3, requires_grad=True)
    x = w * 2
    getattr(x, name)(*([0.5] if name == "geometric_" else []))
    x.sum().backward()
    assert w.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["gt", "eq", "logical_not", "floor", "round", "sign"])
def test_operations_without_slope_leave_no_gradient(L: Any, name: str) -> None:
    if name == "logical_not" and L is not ut:
        pytest.skip("PyTorch does not record it and passes the gradient on")
    w = L.full((3,), 0.4, requires_grad=True)
    x = w * 2
    getattr(x, name + "_")(*([0.5] if name in ("gt", "eq") else []))
    x.sum().backward()
    assert w.grad.tolist() == [0, 0, 0]


def test_each_element_by_a_python_function(L: Any) -> None:
    x = L.tensor([1.0, 2.0])
    assert x.apply_(lambda v: v + 1).tolist() == [2, 3]
    assert x.map_(L.ones(2), lambda a, b: a * 10 + b).tolist() == [21, 31]
    assert x.map2_(L.ones(2), L.full((2,), 5.0), lambda a, b, c: a + b * c).tolist() == [26, 36]
    assert L.ones(2, 2).map_(L.tensor([2.0, 3.0]), lambda a, b: a + b).tolist() == [[3, 4], [3, 4]]


REFUSED_FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "apply_ of a leaf": (lambda L, x: L.ones(2, requires_grad=True).apply_(abs), RuntimeError, "that requires grad"),
    "map_ of a leaf": (lambda L, x: x.map_(L.ones(2, requires_grad=True), max), RuntimeError, "that requires grad"),
    "map2_ of a leaf": (
        lambda L, x: x.map2_(x, L.ones(2, requires_grad=True), max),
        RuntimeError,
        "that requires grad",
    ),
    "another shape": (lambda L, x: x.map_(L.ones(3), max), RuntimeError, "must match the existing size"),
    "another dtype": (lambda L, x: x.map_(L.ones(2, dtype=L.int64), max), TypeError, "map_: expected"),
    "no number": (lambda L, x: x.map_(L.ones(2), lambda a, b: "text"), TypeError, "must be real number, not str"),
}


@pytest.mark.parametrize(("call", "error", "words"), REFUSED_FUNCTIONS.values(), ids=REFUSED_FUNCTIONS)
def test_functions_that_cannot_be_applied_change_nothing(L: Any, call: Any, error: Any, words: str) -> None:
    x = L.ones(2)
    with pytest.raises(error, match=words):
        call(L, x)
    assert x.tolist() == [1, 1] and x._version == 0


@pytest.mark.parametrize("wrap", [True, False])
def test_fill_diagonal(L: Any, wrap: bool) -> None:
    w = L.ones(7, 3, requires_grad=True)
    x = w * 1
    x.fill_diagonal_(5.0, wrap=wrap)
    x.sum().backward()
    assert float(w.grad.sum()) == 21 - (6 if wrap else 3) and float(x.detach().sum()) == 21 + 4 * (6 if wrap else 3)


FOREACH: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda L, x: L._foreach_exp(x),
    "add": lambda L, x: L._foreach_add(x, 1.0),
    "add list": lambda L, x: L._foreach_add(x, x, alpha=2),
    "mul": lambda L, x: L._foreach_mul(x, [2.0, 3.0]),
    "maximum": lambda L, x: L._foreach_maximum(x, 1.5),
    "minimum list": lambda L, x: L._foreach_minimum(x, [a * 0.5 for a in x]),
    "addcmul": lambda L, x: L._foreach_addcmul(x, x, x, value=0.5),
    "lerp": lambda L, x: L._foreach_lerp(x, [a * 3 for a in x], 0.5),
    "sqrt": lambda L, x: L._foreach_sqrt(x),
    "norm": lambda L, x: L._foreach_norm(x),
    "norm 1": lambda L, x: L._foreach_norm(x, 1),
    "sub": lambda L, x: L._foreach_sub(x, [a * 2 for a in x], alpha=3),
    "div": lambda L, x: L._foreach_div(x, [a * a for a in x]),
    "div number": lambda L, x: L._foreach_div(x, 2),
    "neg": lambda L, x: L._foreach_neg(x),
    "add a tensor": lambda L, x: L._foreach_add(x, L.tensor(2.0), alpha=2),
    "lerp weights": lambda L, x: L._foreach_lerp(x, [a * 3 for a in x], [a * 0.1 for a in x]),
    "lerp numbers": lambda L, x: L._foreach_lerp(x, [a * 3 for a in x], [0.25, 0.5]),
    "addcmul numbers": lambda L, x: L._foreach_addcmul(x, x, x, [0.5, 2.0]),
    "pow": lambda L, x: L._foreach_pow(x, 3),
    "pow of a number": lambda L, x: L._foreach_pow(2.0, x),
    "max": lambda L, x: L._foreach_max(x),
    "clone": lambda L, x: L._foreach_clone(x),
    "sqrt_": lambda L, x: L._foreach_sqrt_([a * 1 for a in x]),
    "exp_": lambda L, x: L._foreach_exp_([a * 1 for a in x]),
    "neg_": lambda L, x: L._foreach_neg_([a * 1 for a in x]),
    "sub_": lambda L, x: L._foreach_sub_([a * 1 for a in x], x, alpha=3),
    "mul_": lambda L, x: L._foreach_mul_([a * 1 for a in x], x),
    "div_": lambda L, x: L._foreach_div_([a * 1 for a in x], [2.0, 4.0]),
    "lerp_": lambda L, x: L._foreach_lerp_([a * 1 for a in x], [a * a for a in x], 0.5),
    "addcmul_": lambda L, x: L._foreach_addcmul_([a * 1 for a in x], x, x, value=2),
    "addcdiv_": lambda L, x: L._foreach_addcdiv_([a * 1 for a in x], x, [a + 1 for a in x], [0.5, 2.0]),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", FOREACH)
def test_foreach(torch: Any, name: str) -> None:
    def run(L: Any) -> Any:
        leaves = [L.tensor([1.0, 4.0], requires_grad=True), L.tensor([[2.0]], requires_grad=True)]
        results = FOREACH[name](L, leaves)
        sum(r.sum() for r in results).backward()
        return [r.tolist() for r in results], [a.grad.tolist() for a in leaves]

    mine, theirs = run(ut), run(torch)
    for a, b in zip(mine[0] + mine[1], theirs[0] + theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_foreach_in_place_changes_every_tensor(L: Any) -> None:
    x = [L.ones(2), L.ones(1)]
    assert L._foreach_add_(x, [1.0, 2.0])[0] is x[0]
    L._foreach_mul_(x, 3.0)
    assert [a.tolist() for a in x] == [[6, 6], [9]] and [a._version for a in x] == [2, 2]
    L._foreach_zero_(x)
    assert [a.tolist() for a in x] == [[0, 0], [0]]


def test_foreach_without_derivatives_in_pytorch(L: Any) -> None:
    x = [L.tensor([1.0, 4.0]), L.tensor([[2.0]])]
    assert [a.tolist() for a in L._foreach_powsum(x, 3)] == [65, 8]
    assert [a.tolist() for a in L._foreach_mm(x[1:], x[1:])] == [[[4]]]
    row = L.tensor([0.5, 2.0])
    assert [a.tolist() for a in L._foreach_addcdiv(x, x, x, row)] == [[1.5, 4.5], [[4]]]
    assert [a.tolist() for a in L._foreach_addcmul_(x, x, x, row)] == [[1.5, 12], [[10]]]


FOREACH_ERRORS: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "lists": (lambda L, x: L._foreach_add_(x, [L.ones(2)]), RuntimeError, "must have the same number of tensors"),
    "second list": (
        lambda L, x: L._foreach_addcmul_(x, x, x[:1]),
        RuntimeError,
        "must have the same number of tensors",
    ),
    "numbers": (lambda L, x: L._foreach_mul_(x, [2.0]), RuntimeError, "same number of elements as scalar list"),
    "none": (lambda L, x: L._foreach_zero_([]), RuntimeError, "Tensor list must have at least one tensor"),
    "no list": (lambda L, x: L._foreach_add(x[0], 1.0), TypeError, "_foreach_add"),
    "no tensors": (lambda L, x: L._foreach_add([1.0], 1.0), TypeError, "expected Tensor as element 0 in argument 0"),
    "no number": (lambda L, x: L._foreach_mul_(x, L.ones(2)), RuntimeError, "scalar tensor expected to be 0 dim"),
    "a leaf": (lambda L, x: L._foreach_exp_([L.ones(2, requires_grad=True)]), RuntimeError, "a leaf Variable"),
    "a dtype": (lambda L, x: L._foreach_exp_([L.ones(2, dtype=L.int64)]), RuntimeError, "can't be cast"),
}


@pytest.mark.parametrize(("call", "error", "words"), FOREACH_ERRORS.values(), ids=FOREACH_ERRORS)
def test_foreach_refuses_before_anything_changes(L: Any, call: Any, error: Any, words: str) -> None:
    x = [L.ones(2), L.ones(1)]
    with pytest.raises(error, match=words):
        call(L, x)
    assert [a.tolist() for a in x] == [[1, 1], [1]] and [a._version for a in x] == [0, 0]


def test_what_is_not_recorded_is_written_without_a_copy() -> None:
    """A sparse gradient of a few rows changes these rows: nothing of the table's size is made."""
    table = ut.zeros(100_000, 64)
    index, rows = ut.tensor([[5, 7, 5]]), ut.ones(3, 64)
    gradient = ut.sparse_coo_tensor(index, rows, table.shape)
    tracemalloc.start()
    try:
        table.sub_(gradient, alpha=0.5)
        table.add_(gradient)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < table.nbytes / 100
    assert table[5].unique().tolist() == [1.0]
    assert table[7].unique().tolist() == [0.5]
    assert table.sum().item() == 1.5 * 64
    assert table._version == 2


@pytest.mark.parametrize("other", [2, 0.5, "tensor"])
@pytest.mark.parametrize("name", ["add_", "sub_"])
def test_alpha_with_numbers_and_tensors(name: str, other: Any) -> None:
    x = ut.tensor([1.0, 2.0], dtype=ut.float64)
    y = ut.tensor([3.0, 5.0], dtype=ut.float64) if other == "tensor" else other
    expected = x.numpy() + {"add_": 0.25, "sub_": -0.25}[name] * (y.numpy() if other == "tensor" else y)
    getattr(x, name)(y, alpha=0.25)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_a_list_is_not_changed_in_part(L: Any) -> None:
    """The second tensor is a leaf: what refuses one of them refuses all, before the first is changed."""
    first, leaf = L.ones(2), L.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        L._foreach_mul_([first, leaf], 2.0)
    assert first.tolist() == [1.0, 1.0]
    assert first._version == 0


def test_complex_numbers_where_an_operation_has_none(L: Any) -> None:
    x = L.tensor([1j])
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        x.atan2_(x.clone())
    assert x.tolist() == [1j]
