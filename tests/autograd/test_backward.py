"""backward(): roots and their gradients, retaining and freeing, chosen inputs, what may not be touched."""

from __future__ import annotations

import gc
import re
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow import errors


def leaf(L: ModuleType, *values: float) -> Any:
    return L.tensor(values or (1.0, 2.0), dtype=L.float32, requires_grad=True)


# ---- implicit gradients

IMPLICIT = {
    "0-d": lambda L, x: x.sum(),
    "(1,)": lambda L, x: x.sum().reshape(1),
    "(1, 1)": lambda L, x: x.sum().reshape(1, 1),
    "float64": lambda L, x: x.sum().double(),
}


@pytest.mark.parametrize("root", IMPLICIT.values(), ids=IMPLICIT)
def test_a_single_real_number_needs_no_gradient(L: ModuleType, root: Callable[..., Any]) -> None:
    x = leaf(L)
    root(L, x).backward()
    assert x.grad.tolist() == [1, 1]
    edge = L.autograd.graph.get_gradient_edge(root(L, x))
    L.autograd.backward(edge)
    assert x.grad.tolist() == [2, 2]


NOT_IMPLICIT = {
    "vector": (lambda x: x * 2, "grad can be implicitly created only for scalar outputs"),
    "empty": (lambda x: x[:0], "grad can be implicitly created only for scalar outputs"),
    "complex": (lambda x: (x * 1j).sum(), "grad can be implicitly created only for real scalar outputs"),
    "constant": (lambda x: x.detach().sum(), "element 0 of tensors does not require grad and does not have a grad_fn"),
    "integer": (lambda x: x.argmax(), "element 0 of tensors does not require grad and does not have a grad_fn"),
}


@pytest.mark.parametrize(("root", "words"), NOT_IMPLICIT.values(), ids=NOT_IMPLICIT)
def test_other_roots_without_gradient_are_refused(L: ModuleType, root: Callable[..., Any], words: str) -> None:
    x = leaf(L)
    for ask in (lambda y: y.backward(), L.autograd.backward, lambda y: L.autograd.grad(y, x)):
        with pytest.raises(RuntimeError, match=words):
            ask(root(x))
    assert x.grad is None


def test_a_root_is_named_by_its_place(L: ModuleType) -> None:
    x = leaf(L)
    with pytest.raises(RuntimeError, match="element 1 of tensors does not require grad"):
        L.autograd.backward([x.sum(), L.ones(())])
    assert x.grad is None


def test_a_leaf_is_a_root(L: ModuleType) -> None:
    x = L.tensor(3.0, requires_grad=True)
    x.backward()
    x.backward(L.tensor(5.0))
    assert x.grad.item() == 6


# ---- given gradients


def test_shapes_of_root_and_gradient_must_agree(L: ModuleType) -> None:
    x = leaf(L)
    for root, given in ((x, L.ones(2, 1)), (x.sum(), L.ones(1)), (x[:0], L.ones(2))):
        text = (
            f"Mismatch in shape: grad_output[0] has a shape of {given.shape!r} and output[0] has a shape of "
            f"{root.shape!r}."
        )
        with pytest.raises(RuntimeError, match=re.escape(text)):
            root.backward(given)


def test_a_gradient_that_does_not_fit_is_named_by_its_place() -> None:
    x = leaf(ut)  # PyTorch compares the gradients elementwise to find the place, and fails
    with pytest.raises(RuntimeError, match=re.escape("grad_output[1] has a shape of undertow.Size([2, 1])")):
        ut.autograd.backward([x, x], [ut.ones(2), ut.ones(2, 1)])


@pytest.mark.parametrize("swap", [False, True])
def test_real_and_complex_do_not_mix(L: ModuleType, swap: bool) -> None:
    real, imaginary = leaf(L), L.ones(2, dtype=L.complex64, requires_grad=True)
    root, gradient = (imaginary, real.detach()) if swap else (real, imaginary.detach())
    with pytest.raises(RuntimeError, match="both grad_output and output are required to have the same dtype"):
        (root * 2).backward(gradient)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64"])
def test_a_gradient_of_another_dtype_is_cast(L: ModuleType, dtype: str) -> None:
    x = leaf(L)
    for root in (x, x * 1, x.unbind()[0].reshape(1).expand(2)):
        root.backward(L.ones(2, dtype=getattr(L, dtype)))
    assert x.grad.dtype == L.float32 and x.grad.tolist() == [4, 2]


GIVEN_WRONGLY = {
    "number": ((2.0,), TypeError, "gradients can be either Tensors or None"),
    "list of numbers": (([2.0],), TypeError, "gradients can be either Tensors or None"),
    "too few": ((), RuntimeError, "got 1 tensors and 0 gradients"),
}


@pytest.mark.parametrize(("gradients", "error", "words"), GIVEN_WRONGLY.values(), ids=GIVEN_WRONGLY)
def test_gradients_are_tensors_one_per_root(
    L: ModuleType, gradients: tuple[Any, ...], error: type[Exception], words: str
) -> None:
    x = leaf(L)
    with pytest.raises(error, match=words):
        L.autograd.backward([x * 2], gradients)


def test_a_gradient_too_many_is_an_error() -> None:
    x = leaf(ut)  # PyTorch does not notice
    with pytest.raises(RuntimeError, match="got 1 tensors and 2 gradients"):
        ut.autograd.backward([x * 2], [ut.ones(2)] * 2)


def test_some_gradients_may_be_left_out(L: ModuleType) -> None:
    x = leaf(L)
    L.autograd.backward([x.sum(), x * 2], [None, L.tensor([1.0, 10.0])])
    assert x.grad.tolist() == [3, 21]


def test_grad_variables_is_the_old_name_of_grad_tensors(L: ModuleType) -> None:
    x = leaf(L)
    with pytest.warns(FutureWarning, match="`grad_variables` is deprecated. Use `grad_tensors` instead."):
        L.autograd.backward([x * 2], grad_variables=[L.ones(2)])
    assert x.grad.tolist() == [2, 2]
    with (
        pytest.warns(FutureWarning),
        pytest.raises(RuntimeError, match="`grad_tensors` and `grad_variables` \\(deprecated\\) arguments both passed"),
    ):
        L.autograd.backward([x * 2], [L.ones(2)], grad_variables=[L.ones(2)])


def test_a_given_gradient_is_never_changed(L: ModuleType) -> None:
    """It is the only gradient of three consumers, the first summand of a sum, and what arrives at a leaf."""
    x, given = leaf(L), L.tensor([1.0, 10.0])
    y = x * 1
    L.autograd.backward([y, y, y.clone(), x, x], [given] * 5)
    (x + x + x).backward(given)
    x.view(2).backward(given)
    x.backward(given)
    assert given.tolist() == [1, 10] and x.grad.tolist() == [10, 100]
    x.grad.add_(1)
    assert given.tolist() == [1, 10]


def test_a_given_gradient_is_not_kept_as_the_gradient_of_a_leaf(L: ModuleType) -> None:
    x, given = leaf(L), L.ones(2)
    x.backward(given)
    assert x.grad is not given
    given.zero_()
    assert x.grad.tolist() == [1, 1]


# ---- several roots


def test_a_root_given_twice_counts_twice(L: ModuleType) -> None:
    x = leaf(L)
    y = (x * x).sum()
    L.autograd.backward([y, y])
    assert x.grad.tolist() == [4, 8]


def test_roots_may_depend_on_each_other(L: ModuleType) -> None:
    x = leaf(L)
    y = x * x
    z = y * 3
    L.autograd.backward([y, z, y.sum()], [L.ones(2), L.ones(2), None])
    assert x.grad.tolist() == [(1 + 3 + 1) * 2, (1 + 3 + 1) * 4]


def test_roots_of_unconnected_graphs(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    L.autograd.backward([x.sum(), (y * y).sum()])
    assert x.grad.tolist() == [1, 1] and y.grad.tolist() == [2, 4]


def test_no_roots_at_all(L: ModuleType) -> None:
    L.autograd.backward([])


# ---- retaining and freeing

SAVES_NOTHING = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "add a number": lambda x, y: x + 1,
    "neg": lambda x, y: -x,
    "sum": lambda x, y: x.sum(),
    "view": lambda x, y: x.view(1, 2),
    "expand": lambda x, y: x.expand(3, 2),
    "select": lambda x, y: x[0],
    "slice": lambda x, y: x[1:],
    "clone": lambda x, y: x.clone(),
    "to another dtype": lambda x, y: x.double(),
    "what a constant needs": lambda x, y: x.addcmul(y.detach(), y.detach()),
    "where a constant goes": lambda x, y: x.scatter_add(0, y.detach().long() * 0, y.detach()),
}
SAVES = {
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "exp": lambda x, y: x.exp(),
    "pow": lambda x, y: x**2,
    "index by a tensor": lambda x, y: x[y.long() * 0],
    "deep down": lambda x, y: (x.sin() + 1).sum() + 2,
}


@pytest.mark.parametrize("f", SAVES_NOTHING.values(), ids=SAVES_NOTHING)
def test_a_graph_without_saved_values_runs_any_number_of_times(L: ModuleType, f: Callable[..., Any]) -> None:
    x, y = leaf(L), leaf(L)
    root = f(x, y).sum()
    for _ in range(3):
        root.backward()
    first = L.autograd.grad(f(x, y).sum(), x)[0]
    assert x.grad.tolist() == (first * 3).tolist()


@pytest.mark.parametrize("f", SAVES.values(), ids=SAVES)
def test_a_graph_with_saved_values_runs_once(L: ModuleType, f: Callable[..., Any]) -> None:
    x, y = leaf(L), leaf(L)
    root = f(x, y).sum()
    root.backward()
    before = x.grad.clone()
    with pytest.raises(RuntimeError, match=r"backward through the graph a second time.*Specify retain_graph=True"):
        root.backward()
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        L.autograd.grad(root, x)
    assert x.grad.tolist() == before.tolist()


@pytest.mark.parametrize("f", SAVES.values(), ids=SAVES)
def test_retain_graph_keeps_it_for_one_pass_more(L: ModuleType, f: Callable[..., Any]) -> None:
    x, y = leaf(L), leaf(L)
    root = f(x, y).sum()
    root.backward(retain_graph=True)
    first = x.grad.clone()
    root.backward(retain_graph=True)
    root.backward()
    assert x.grad.tolist() == pytest.approx((first * 3).tolist())
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        root.backward()


def test_only_what_a_pass_went_through_is_freed(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    shared = x * 2 + 0
    a, b = shared.sin(), y.exp()
    L.autograd.backward((a + b).sum(), inputs=[y])
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        b.sum().backward()
    a.sum().backward()
    assert x.grad is not None
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        a.sum().backward()


def test_create_graph_retains_unless_told_otherwise(L: ModuleType) -> None:
    x = leaf(L)
    y = (x * x).sum()
    L.autograd.grad(y, x, create_graph=True)
    L.autograd.grad(y, x, create_graph=True, retain_graph=False)
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        L.autograd.grad(y, x)


# ---- create_graph


def test_gradients_of_a_recorded_pass_can_be_differentiated(L: ModuleType) -> None:
    x = leaf(L)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad and x.grad.tolist() == [3, 12]
    assert L.autograd.grad(x.grad.sum(), x)[0].tolist() == [6, 12]
    x.grad = None


def test_backward_with_create_graph_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_already_warned", set())
    x = leaf(ut)
    with pytest.warns(UserWarning, match=r"Using backward\(\) with create_graph=True"):
        (x * x).sum().backward(create_graph=True)
    (x * x).sum().backward(create_graph=True)
    ut.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match=r"Using backward\(\) with create_graph=True"):
            (x * x).sum().backward(create_graph=True)
    finally:
        ut.set_warn_always(False)
    x.grad = None


def test_grad_with_create_graph_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_already_warned", set())
    x = leaf(ut)
    assert ut.autograd.grad((x * x).sum(), x, create_graph=True)[0].tolist() == [2, 4]


@pytest.mark.parametrize("create_graph", [False, True])
def test_grad_mode_in_the_pass_is_create_graph(L: ModuleType, create_graph: bool) -> None:
    seen = []
    x = leaf(L)
    y = (x * x).sum()
    y.register_hook(lambda grad: seen.append(L.is_grad_enabled()))
    for outer in (True, False):
        with L.set_grad_enabled(outer):
            L.autograd.grad(y, x, create_graph=create_graph, retain_graph=True)
            assert L.is_grad_enabled() is outer
    assert seen == [create_graph] * 2


# ---- chosen inputs


def test_only_the_chosen_leaves_accumulate(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    (x * y).sum().backward(inputs=[x])
    assert x.grad.tolist() == [1, 2] and y.grad is None
    (x * y).sum().backward(inputs=y)
    assert x.grad.tolist() == [1, 2] and y.grad.tolist() == [1, 2]


def test_a_chosen_tensor_that_is_no_leaf_gets_a_grad(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 3
    z = (y * y).sum()
    z.backward(inputs=[y], retain_graph=True)
    assert y.grad.tolist() == [6, 12] and x.grad is None
    z.backward(inputs=[y, x], retain_graph=True)
    assert y.grad.tolist() == [12, 24] and x.grad.tolist() == [18, 36]


def test_an_unreachable_input_is_left_alone(L: ModuleType) -> None:
    x, other = leaf(L), leaf(L)
    y = other * 2
    (x * x).sum().backward(inputs=[x, other, y])
    assert x.grad.tolist() == [2, 4] and other.grad is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert y.grad is None


def test_an_input_given_twice_accumulates_once(L: ModuleType) -> None:
    x = leaf(L)
    (x * x).sum().backward(inputs=[x, x])
    assert x.grad.tolist() == [2, 4]


BAD_INPUTS = {
    "none": (lambda L: [], RuntimeError, r"`inputs` argument to `backward\(\)` cannot be empty"),
    "constant": (lambda L: [L.ones(2)], RuntimeError, "require"),
}


@pytest.mark.parametrize(("inputs", "error", "words"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_inputs_that_cannot_be(L: ModuleType, inputs: Callable[..., Any], error: type[Exception], words: str) -> None:
    x = leaf(L)
    with pytest.raises(error, match=words):
        (x * x).sum().backward(inputs=inputs(L))
    assert x.grad is None


# ---- undefined gradients


def half_defined(L: ModuleType) -> Any:
    """A Function of two arguments whose backward gives the second one no gradient."""

    class HalfDefined(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, None

    return HalfDefined


def test_an_undefined_gradient_stays_undefined(L: ModuleType) -> None:
    """It passes through nodes of one output and of several, and leaves `.grad` alone."""
    x, y, z = leaf(L), leaf(L), leaf(L)
    through = (y * 2).exp().unbind()[1] * z.sum()
    half_defined(L).apply(x, through.expand(2)).sum().backward()
    assert x.grad.tolist() == [1, 1] and y.grad is None and z.grad is None


def test_an_undefined_gradient_adds_nothing(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    z = y * 2
    (half_defined(L).apply(x, z) + z).sum().backward()
    assert y.grad.tolist() == [2, 2]


def test_an_undefined_gradient_is_an_unused_input(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    out = half_defined(L).apply(x, y * 2).sum()
    assert L.autograd.grad(out, y, allow_unused=True, retain_graph=True) == (None,)
    with pytest.raises(RuntimeError, match="Set allow_unused=True"):
        L.autograd.grad(out, y, retain_graph=True)
    out.backward(inputs=[y])
    assert y.grad is None


def test_nodes_below_an_undefined_gradient_are_freed_all_the_same(L: ModuleType) -> None:
    x, y = leaf(L), leaf(L)
    z = (y * 2).exp()
    half_defined(L).apply(x, z).sum().backward()
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        z.sum().backward()


def test_an_output_that_is_not_used_adds_nothing(L: ModuleType) -> None:
    x = L.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    first, _ = x.unbind()
    first.sum().backward()
    assert x.grad.tolist() == [[1, 1], [0, 0]]


# ---- what is not touched


def test_the_value_and_grad_of_non_leaves_stay(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    y.exp().sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert y.grad is None
    assert x.tolist() == [1, 2] and y.tolist() == [2, 4]


def test_a_pass_needs_no_grad_mode(L: ModuleType) -> None:
    x = leaf(L)
    y = (x * x).sum()
    with L.no_grad():
        y.backward()
    assert x.grad.tolist() == [2, 4] and not x.grad.requires_grad


def test_the_arguments_are_not_changed(L: ModuleType) -> None:
    x = leaf(L)
    roots, gradients, inputs = [x * 1, x * 2], [L.ones(2), L.ones(2)], [x]
    L.autograd.backward(roots, gradients, inputs=inputs)
    assert (len(roots), len(gradients), len(inputs)) == (2, 2, 1)
    assert [g.tolist() for g in gradients] == [[1, 1], [1, 1]]


def test_a_pass_keeps_no_reference_to_what_it_was_given() -> None:
    gc.disable()
    x = leaf(ut)
    y, given = x * 2, ut.ones(2)
    arrays = weakref.ref(given)
    y.backward(given)
    del given
    assert arrays() is None
