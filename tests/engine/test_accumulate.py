"""AccumulateGrad: whose memory a gradient ends in, when it is added in place, how it is laid out, and its dtype."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut


def leaf(L: ModuleType) -> Any:
    return L.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


def returning(L: ModuleType, make: Callable[..., Any]) -> Any:
    """A Function of any number of tensors whose gradients are `make(grad)`, one or a tuple."""

    class Returning(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            return sum(x.sum() for x in inputs)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return make(grad)

    return Returning.apply


# ---- the first gradient


def test_a_fresh_gradient_is_taken_without_a_copy(L: ModuleType) -> None:
    pointers = []

    def make(grad: Any) -> Any:
        fresh = L.ones(2, 2)
        pointers.append(fresh.data_ptr())
        return fresh

    x = leaf(L)
    returning(L, make)(x).backward()
    assert x.grad.data_ptr() == pointers[0]


def test_a_gradient_that_the_function_keeps_is_copied(L: ModuleType) -> None:
    kept = L.ones(2, 2)
    x = leaf(L)
    returning(L, lambda grad: kept)(x).backward()
    assert x.grad.data_ptr() != kept.data_ptr()
    x.grad.zero_()
    assert kept.tolist() == [[1, 1], [1, 1]]


def test_of_two_leaves_with_one_gradient_at_most_one_keeps_it(L: ModuleType) -> None:
    pointers = []

    def make(grad: Any) -> Any:
        fresh = L.ones(2, 2)
        pointers.append(fresh.data_ptr())
        return fresh, fresh

    x, y = leaf(L), leaf(L)
    returning(L, make)(x, y).backward()
    assert x.grad.data_ptr() != y.grad.data_ptr()
    assert pointers[0] in (x.grad.data_ptr(), y.grad.data_ptr())
    x.grad.zero_()
    assert y.grad.tolist() == [[1, 1], [1, 1]]


SHARED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "chain": lambda x, y: (x + y) + (y + x),
    "product by one": lambda x, y: x * 1 + y,
}


@pytest.mark.parametrize("f", SHARED.values(), ids=SHARED)
def test_gradients_of_two_leaves_never_share_memory(L: ModuleType, f: Callable[..., Any]) -> None:
    x, y = leaf(L), leaf(L)
    seed = L.ones(2, 2)
    f(x, y).backward(seed)
    assert len({x.grad.data_ptr(), y.grad.data_ptr(), seed.data_ptr()}) == 3
    for _ in range(2):
        f(x, y).backward(seed)
    (one,) = L.autograd.grad(f(x, y), x, seed)
    assert x.grad.tolist() == (one * 3).tolist() and seed.tolist() == [[1, 1], [1, 1]]


def test_gradients_that_pass_through_views_never_share_memory() -> None:
    x, y, seed = leaf(ut), leaf(ut), ut.ones(2, 2)  # in PyTorch all three become one piece of memory
    for _ in range(2):
        (x.view(4).view(2, 2) + y.t().t()).backward(seed)
    assert x.grad.tolist() == y.grad.tolist() == [[2, 2], [2, 2]] and seed.tolist() == [[1, 1], [1, 1]]
    assert len({x.grad.data_ptr(), y.grad.data_ptr(), seed.data_ptr()}) == 3


EXPANDED: dict[str, Callable[..., Any]] = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(0).sum(),
    "mean": lambda x: x.mean() * 4,
    "expand": lambda x: x.expand(3, 2, 2).sum() / 3,
}


@pytest.mark.parametrize("f", EXPANDED.values(), ids=EXPANDED)
def test_an_expanded_gradient_gets_memory_of_its_own(L: ModuleType, f: Callable[..., Any]) -> None:
    x = leaf(L)
    f(x).backward()
    assert x.grad.stride() == (2, 1)
    x.grad[0, 0] = 7
    assert x.grad.tolist() == [[7, 1], [1, 1]]


def test_a_gradient_seen_by_a_hook_is_copied_if_the_hook_keeps_it(L: ModuleType) -> None:
    kept = []
    x = leaf(L)
    x.register_hook(kept.append)
    (x * 2).sum().backward()
    x.grad.zero_()
    assert kept[0].tolist() == [[2, 2], [2, 2]]


def test_the_gradient_is_a_leaf_without_history(L: ModuleType) -> None:
    x = leaf(L)
    (x * x).sum().backward()
    assert not x.grad.requires_grad and x.grad.is_leaf and x.grad.grad_fn is None and not x.grad._is_view()


# ---- later gradients


def test_later_gradients_are_added_in_place(L: ModuleType) -> None:
    x = leaf(L)
    (x * 2).sum().backward()
    first, pointer = x.grad, x.grad.data_ptr()
    (x * 3).sum().backward()
    assert x.grad is first and x.grad.data_ptr() == pointer and first.tolist() == [[5, 5], [5, 5]]


def test_under_create_graph_the_sum_is_a_new_tensor(L: ModuleType) -> None:
    x = leaf(L)
    (x * 2).sum().backward()
    first = x.grad
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x * x).sum().backward(create_graph=True)
    assert x.grad is not first and first.tolist() == [[2, 2], [2, 2]]
    assert x.grad.requires_grad and x.grad.tolist() == [[4, 6], [8, 10]]
    x.grad = None


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_with_a_history_keeps_it_when_one_is_added(L: ModuleType) -> None:
    x = leaf(L)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    (x * 2).sum().backward()
    assert x.grad is first and first.requires_grad and first.tolist() == [[5, 14], [29, 50]]
    assert L.autograd.grad(first.sum(), x)[0].tolist() == [[6, 12], [18, 24]]
    x.grad = None


def test_adding_in_place_counts_as_a_change(L: ModuleType) -> None:
    """A graph that saved the gradient notices that it has changed."""
    x, w = leaf(L), leaf(L)
    (x * 2).sum().backward()
    penalty = (x.grad * w).sum()
    (x * 3).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        penalty.backward()


def test_a_gradient_that_was_assigned_is_added_to(L: ModuleType) -> None:
    x, own = leaf(L), L.full((2, 2), 10.0)
    x.grad = own
    (x * 2).sum().backward()
    assert x.grad is own and own.tolist() == [[12, 12], [12, 12]]


def test_clearing_the_gradient_starts_anew(L: ModuleType) -> None:
    x = leaf(L)
    (x * 2).sum().backward()
    first = x.grad
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad is not first and first.tolist() == [[2, 2], [2, 2]] and x.grad.tolist() == [[3, 3], [3, 3]]


def test_every_use_of_a_leaf_counts(L: ModuleType) -> None:
    x = leaf(L)
    (x * x * x + x + x.sum()).sum().backward()
    assert x.grad.tolist() == [[3 + 5, 12 + 5], [27 + 5, 48 + 5]]


# ---- layout


def transposed(L: ModuleType) -> Any:
    return L.arange(6.0).reshape(3, 2).t().detach().requires_grad_()


@pytest.mark.parametrize(
    "f", [lambda x: x.sum(), lambda x: (x * 2).sum(), lambda x: (x * x).sum(), lambda x: x.t().exp().sum()]
)
def test_the_gradient_of_a_dense_leaf_has_its_strides(L: ModuleType, f: Callable[..., Any]) -> None:
    for x in (transposed(L), L.ones(2, 3, 4, 5).permute(0, 2, 3, 1).detach().requires_grad_()):
        f(x).backward() if x.ndim == 2 else (x * 2).sum().backward()
        assert x.grad.stride() == x.stride()


def test_the_gradient_of_a_leaf_with_gaps_is_row_major(L: ModuleType) -> None:
    x = L.arange(16.0).reshape(4, 4)[::2, ::2].detach().requires_grad_()
    assert x.stride() == (8, 2)
    (x * 2).sum().backward()
    assert x.grad.stride() == (2, 1)


def test_the_layout_policy_can_be_switched_off(L: ModuleType) -> None:
    """Then a fresh gradient is taken as it comes."""
    contiguous = returning(L, lambda grad: L.ones(2, 3))

    def strides_of_grad() -> Any:
        x = transposed(L)
        contiguous(x).backward()
        return x.grad.stride()

    policy = L.autograd.enforce_grad_layout_policy
    assert strides_of_grad() == (1, 2)
    with policy(False):
        assert strides_of_grad() == (3, 1)
    assert strides_of_grad() == (1, 2)
    assert policy(False)(strides_of_grad)() == (3, 1)
    assert strides_of_grad() == (1, 2)
    policy(False)
    try:
        assert strides_of_grad() == (3, 1)
    finally:
        policy(True)


# ---- dtype


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_gradient_of_another_dtype_is_cast_to_the_leafs(L: ModuleType, dtype: str) -> None:
    x = leaf(L)
    for _ in range(2):
        returning(L, lambda grad: L.ones(2, 2, dtype=getattr(L, dtype)))(x).backward()
    assert x.grad.dtype == L.float32 and x.grad.tolist() == [[2, 2], [2, 2]]


def test_grad_dtype_says_what_it_is_cast_to(L: ModuleType) -> None:
    wide = returning(L, lambda grad: L.ones(2, 2, dtype=L.float64))
    for chosen, expected in ((L.float16, L.float16), (L.float32, L.float32), (None, L.float64)):
        x = leaf(L)
        x.grad_dtype = chosen
        for _ in range(2):
            wide(x).backward()
        assert x.grad.dtype == expected and x.grad.tolist() == [[2, 2], [2, 2]]


def test_grad_dtype_concerns_graphs_recorded_before_it_was_set(L: ModuleType) -> None:
    x = leaf(L)
    y = returning(L, lambda grad: L.ones(2, 2, dtype=L.float64))(x)
    x.grad_dtype = None
    y.backward()
    assert x.grad.dtype == L.float64


def test_an_existing_gradient_of_another_dtype_is_added_to_in_place(L: ModuleType) -> None:
    x = leaf(L)
    x.grad_dtype = None
    x.grad = own = L.ones(2, 2, dtype=L.float64)
    (x * 2).sum().backward()
    assert x.grad is own and own.dtype == L.float64 and own.tolist() == [[3, 3], [3, 3]]
    x.grad = own = L.ones(2, 2, dtype=L.float16)
    (x * 2).sum().backward()
    assert x.grad is own and own.dtype == L.float16 and own.tolist() == [[3, 3], [3, 3]]


# ---- the node


def test_there_is_one_node_per_leaf_while_a_graph_holds_it(L: ModuleType) -> None:
    x = leaf(L)
    y, z = x * 2, x + 1
    (first, _), (second, _) = y.grad_fn.next_functions[0], z.grad_fn.next_functions[0]
    assert first is second and first.variable is x
    assert type(first).__name__ == "AccumulateGrad" and first.name().endswith("::autograd::AccumulateGrad")
    assert first.next_functions == ()


def test_a_leaf_does_not_own_its_node() -> None:
    gc.disable()
    x = leaf(ut)
    y = x * 2
    node = weakref.ref(y.grad_fn.next_functions[0][0])
    del y
    assert node() is None
    assert (x * 2).grad_fn.next_functions[0][0].variable is x


def test_the_node_owns_its_leaf() -> None:
    gc.disable()
    x = leaf(ut)
    alive, y = weakref.ref(x), x * 2
    del x
    assert alive() is not None and y.grad_fn.next_functions[0][0].variable is alive()
    del y
    assert alive() is None


def test_a_leaf_that_no_longer_requires_grad_accumulates_nothing(L: ModuleType) -> None:
    x = leaf(L)
    y = (x * 2).sum()
    x.requires_grad_(False)
    y.backward()
    assert x.grad is None


def test_data_of_another_shape_or_dtype_takes_gradients_of_that_kind(L: ModuleType) -> None:
    x = leaf(L)
    x.data = L.ones(3, dtype=L.float64)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2] and x.grad.dtype == L.float64


def test_a_leaf_over_numpys_memory(L: ModuleType) -> None:
    array = np.array([1.0, 2.0])
    x = L.from_numpy(array).requires_grad_()
    (x * x).sum().backward()
    x.grad.zero_()
    assert array.tolist() == [1, 2]


@pytest.mark.parametrize("stop", [lambda x: x.requires_grad_(False), lambda x: x.detach_()])
@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_leaf_that_was_moved_into_the_graph_gets_no_gradient(L: Any, stop: Any, has_gradient: bool) -> None:
    x = L.ones((), requires_grad=True)
    y = x * 2
    if has_gradient:
        (x * 3).backward()
    stop(x)
    x.add_(y)
    with pytest.raises(RuntimeError, match="leaf variable has been moved into the graph interior"):
        y.backward(retain_graph=True)
    assert L.autograd.grad(y, x, allow_unused=True) == (None,)


# ---- whose it is


MAKERS: dict[str, Callable[..., Any]] = {
    "an operation": lambda L, x: x * 3,
    "a list of tensors": lambda L, x: L.cat([x, x]),
    "a custom Function": lambda L, x: returning(L, lambda grad: grad.expand(2, 2))(x),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_the_node_of_a_leaf_lives_as_long_as_any_graph_with_it(L: ModuleType, maker: str) -> None:
    x, called = leaf(L), []
    first = x * 2
    second = MAKERS[maker](L, x)
    second.grad_fn.next_functions[0][0].register_prehook(lambda grads: called.append(maker))
    del second
    first.sum().backward()
    assert called == [maker]


def test_a_graph_that_is_older_than_the_shape_of_a_leaf_keeps_its_own_node() -> None:
    x = leaf(ut)
    first = x * 2
    x.data = ut.ones(3)
    second = x * 3
    assert second.grad_fn.next_functions[0][0] is not first.grad_fn.next_functions[0][0]
    with pytest.raises(RuntimeError, match="shape of a leaf"):
        first.sum().backward()
