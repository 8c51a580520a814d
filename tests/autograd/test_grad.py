"""grad(): gradients as values, unused inputs, pruning, batches of gradients."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow.errors import UnreachableInputError


def leaf(L: ModuleType, *values: float) -> Any:
    return L.tensor(values or (1.0, 2.0), dtype=L.float32, requires_grad=True)


def must_not_run(L: ModuleType) -> Any:
    """A Function whose backward fails: it stands where no gradient may pass."""

    class MustNotRun(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise AssertionError("a node that leads to no input has run")

    return MustNotRun


# ---- results


def test_one_gradient_per_input_and_no_grad_is_written(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L, 3, 4)
    z = x * 2
    found = L.autograd.grad((z * y).sum(), [y, z, x])
    assert isinstance(found, tuple) and [g.tolist() for g in found] == [[2, 4], [3, 4], [6, 8]]
    assert x.grad is None and y.grad is None and not any(g.requires_grad for g in found)


@pytest.mark.parametrize("kind", [tuple, list, iter])
def test_inputs_and_outputs_may_be_any_sequence(L: ModuleType, kind: Callable[..., Any]) -> None:
    x, y = leaf(L), leaf(L)
    inputs = kind([x, y]) if kind is not iter else (x, y)
    found = L.autograd.grad(kind([x.sum(), y.sum()]), inputs)
    assert [g.tolist() for g in found] == [[1, 1], [1, 1]]


def test_a_dict_of_inputs_gives_a_dict_of_gradients(L: ModuleType) -> None:
    x, y, unused = leaf(L), leaf(L), leaf(L)
    found = L.autograd.grad((x * y).sum(), {"a": x, "b": y, "c": unused}, allow_unused=True)
    assert {k: g if g is None else g.tolist() for k, g in found.items()} == {"a": [1, 2], "b": [1, 2], "c": None}
    assert list(found) == ["a", "b", "c"]


def test_backward_takes_a_dict_of_inputs(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    (x * y).sum().backward(inputs={"a": x})
    assert x.grad.tolist() == [1, 2] and y.grad is None


def test_an_input_may_be_asked_for_twice(L: ModuleType) -> None:
    x = leaf(L)
    first, second = L.autograd.grad((x * x).sum(), [x, x])
    assert first.tolist() == second.tolist() == [2, 4]


def test_an_output_is_an_input_of_itself(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    assert L.autograd.grad(y, [y, x], L.tensor([3.0, 4.0]))[0].tolist() == [3, 4]
    assert L.autograd.grad(x, x, L.ones(2))[0].tolist() == [1, 1]


def test_an_input_above_another(L: ModuleType) -> None:
    """The gradient of the upper one is captured on its way to the lower one."""
    x = leaf(L)
    y = x * 2
    z = y * y
    assert [g.tolist() for g in L.autograd.grad(z.sum(), [z, y, x])] == [[1, 1], [4, 8], [8, 16]]


def test_one_output_of_several_is_captured(L: ModuleType) -> None:
    x = L.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    first, second = x.unbind()
    found = L.autograd.grad((first * second).sum(), [second, first, x])
    assert [g.tolist() for g in found] == [[1, 2], [3, 4], [[3, 4], [1, 2]]]


def test_the_result_of_one_call_does_not_change_with_the_next(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 3
    seed = L.ones(2)
    (first,) = L.autograd.grad(y, y, seed)
    first.mul_(5)
    (second,) = L.autograd.grad(x * 3, x, seed)
    second.mul_(7)
    assert L.autograd.grad(x * 3, x, L.ones(2))[0].tolist() == [3, 3]


def test_higher_orders(L: ModuleType) -> None:
    x = L.tensor(2.0, requires_grad=True)
    y = x**5
    values = []
    for _ in range(5):
        (y,) = L.autograd.grad(y, x, create_graph=True)
        values.append(y.item())
    assert values == [80, 160, 240, 240, 120]


# ---- unused inputs


@pytest.mark.parametrize("create_graph", [False, True])
def test_an_unused_input_is_an_error_a_none_or_zeros(L: ModuleType, create_graph: bool) -> None:
    x, unused = leaf(L), L.ones(2, 3, requires_grad=True)
    y = (x * x).sum()
    ask = {"create_graph": create_graph, "retain_graph": True}
    with pytest.raises(RuntimeError, match=r"to not have been used in the graph.*Set allow_unused=True"):
        L.autograd.grad(y, [x, unused], **ask)
    assert L.autograd.grad(y, [x, unused], allow_unused=True, **ask)[1] is None
    for extra in ({}, {"allow_unused": True}):
        zeros = L.autograd.grad(y, [x, unused], materialize_grads=True, **extra, **ask)[1]
        assert zeros.tolist() == [[0, 0, 0]] * 2 and zeros.requires_grad is create_graph


def test_materialized_zeros_take_the_dtype_of_the_input(L: ModuleType) -> None:
    x, unused = leaf(L), L.ones(2, dtype=L.float64, requires_grad=True)
    assert L.autograd.grad(x.sum(), [x, unused], materialize_grads=True)[1].dtype == L.float64


def test_a_non_leaf_may_be_unused(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    assert L.autograd.grad((x * x).sum(), y, allow_unused=True) == (None,)


def test_the_error_names_the_input() -> None:
    x, unused = leaf(ut), ut.ones(2, 3, requires_grad=True)
    with pytest.raises(UnreachableInputError, match=r"input 1 of shape \[2, 3\]") as caught:
        ut.autograd.grad(x.sum(), [x, unused])
    assert (caught.value.index, caught.value.shape) == (1, (2, 3))


REFUSED: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "no inputs": (lambda L, x, y: L.autograd.grad(y, []), RuntimeError, "cannot be empty"),
    "materialize but allow nothing": (
        lambda L, x, y: L.autograd.grad(y, x, allow_unused=False, materialize_grads=True),
        ValueError,
        "Expected allow_unused to be True or not passed when",
    ),
    "a constant input": (
        lambda L, x, y: L.autograd.grad(y, [x, L.ones(2)]),
        RuntimeError,
        "One of the differentiated Tensors does not require grad",
    ),
    "a number as input": (
        lambda L, x, y: L.autograd.grad(y, [x, 3]),
        RuntimeError,
        "all inputs have to be Tensors or GradientEdges, but got int",
    ),
    "zeros for an edge": (
        lambda L, x, y: L.autograd.grad(y, L.autograd.graph.get_gradient_edge(leaf(L) * 2), materialize_grads=True),
        RuntimeError,
        "materialize_grads cannot be used when the given input is a GradientEdge",
    ),
}


@pytest.mark.parametrize(("ask", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(L: ModuleType, ask: Callable[..., Any], error: type[Exception], words: str) -> None:
    x = leaf(L)
    y = (x * x).sum()
    with pytest.raises(error, match=words):
        ask(L, x, y)


def test_no_inputs_is_a_value_error_too() -> None:
    """As it was in PyTorch until 2.12."""
    with pytest.raises(ValueError, match="grad requires non-empty inputs"):
        ut.autograd.grad(leaf(ut).sum(), [])


def test_only_inputs_is_deprecated(L: ModuleType) -> None:
    x = leaf(L)
    with pytest.warns(FutureWarning, match="only_inputs argument is deprecated and is ignored now"):
        assert L.autograd.grad(x.sum(), x, only_inputs=False)[0].tolist() == [1, 1]


# ---- pruning


def test_nodes_that_lead_to_no_input_do_not_run(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    blocked = must_not_run(L).apply(y * 1)
    out = (x * blocked).sum()
    assert L.autograd.grad(out, x, retain_graph=True)[0].tolist() == [1, 2]
    out.backward(inputs=[x], retain_graph=True)
    with pytest.raises(AssertionError, match="a node that leads to no input has run"):
        out.backward()


def test_nodes_below_the_input_do_not_run(L: ModuleType) -> None:
    y = must_not_run(L).apply(leaf(L)) * 3
    assert L.autograd.grad((y * y).sum(), y)[0].tolist() == [6, 12]


@pytest.mark.parametrize("late", [False, True])
def test_pruning_does_not_depend_on_the_order_of_recording(L: ModuleType, late: bool) -> None:
    """An input that was recorded before, or after, a branch that is not wanted."""
    x, y = leaf(L), leaf(L)
    z = None if late else x * 2
    blocked = must_not_run(L).apply(y)
    z = x * 2 if late else z
    assert L.autograd.grad((z * blocked).sum(), [z, x])[0].tolist() == [1, 2]


def test_an_unreachable_input_runs_nothing(L: ModuleType) -> None:
    out = must_not_run(L).apply(leaf(L)).sum()
    assert L.autograd.grad(out, leaf(L), allow_unused=True) == (None,)
    assert L.autograd.grad(out, leaf(L) * 2, allow_unused=True) == (None,)
    out.backward(inputs=[leaf(L)])


def test_a_node_runs_whole_for_one_of_its_inputs(L: ModuleType) -> None:
    """needs_input_grad says what was so in the forward pass, not what this pass wants."""
    seen = []

    class Product(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return grad * 3, grad * 5

    x, y = leaf(L), leaf(L)
    assert L.autograd.grad(Product.apply(x, y).sum(), y)[0].tolist() == [5, 5]
    Product.apply(x, y).sum().backward()
    Product.apply(x, y.detach()).sum().backward()
    assert seen == [(True, True), (True, True), (True, False)]


# ---- batches of gradients


def test_batched_gradients_give_stacked_results(L: ModuleType) -> None:
    x, unused = leaf(L), leaf(L)
    y = x**2
    rows = L.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = L.autograd.grad(y, [x, unused], rows, is_grads_batched=True, allow_unused=True)
    assert found[0].tolist() == [[2, 0], [0, 4], [2, 4]] and found[1] is None


def test_batched_gradients_must_match_behind_the_first_dimension(L: ModuleType) -> None:
    x = leaf(L)
    with pytest.raises(RuntimeError, match="If `is_grads_batched=True`, we interpret the first"):
        L.autograd.grad(x * 2, x, L.ones(3, 3), is_grads_batched=True)


# ---- results in the memory of others

PASSED_ON: dict[str, Callable[[Any, ModuleType], Any]] = {
    "the tensor itself": lambda x, L: x,
    "x + 1": lambda x, L: x + 1,
    "view": lambda x, L: x.view(6),
    "t": lambda x, L: x.t(),
    "clone": lambda x, L: x.clone(),
    "cat": lambda x, L: L.cat([x]),
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_who_changes_a_result_changes_the_given_gradient_that_it_shows(L: ModuleType, name: str) -> None:
    x = L.ones(2, 3, requires_grad=True)
    y = PASSED_ON[name](x, L)
    given, w = L.full(y.shape, 3.0), L.ones(y.shape, requires_grad=True)
    saved_it = given * w
    (result,) = L.autograd.grad(y, x, given)
    result.mul_(2)
    assert given.tolist() == L.full(y.shape, 6.0).tolist()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved_it.sum().backward()


def test_a_given_gradient_that_arrives_as_it_was_is_the_result(L: ModuleType) -> None:
    x, given = leaf(L), L.tensor([3.0, 4.0], requires_grad=True)
    a, b = L.autograd.grad(x + 1, [x, x], given * 1)
    assert a is b
    (result,) = L.autograd.grad(x, x, given)
    assert result is given
    result.sum().backward()
    assert given.grad.tolist() == [1.0, 1.0]


def test_results_that_share_memory_share_a_version(L: ModuleType) -> None:
    a, b = L.ones(6, requires_grad=True), L.ones(2, 3, requires_grad=True)
    ga, gb = L.autograd.grad(((a.view(2, 3) + b) * 2).sum(), [a, b])
    saved_it = (gb * L.ones(2, 3, requires_grad=True)).sum()
    ga.zero_()
    assert gb.tolist() == [[0.0] * 3] * 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved_it.backward()


def test_a_result_is_not_the_tensor_that_a_function_keeps() -> None:
    kept = ut.full((2,), 5.0)

    class Kept(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return kept

    x, w = leaf(ut), leaf(ut)
    saved_it = (kept * w).sum()
    (result,) = ut.autograd.grad(Kept.apply(x), x, ut.ones(2))
    result.mul_(2)
    saved_it.backward()
    assert w.grad.tolist() == kept.tolist() == [5.0, 5.0]
