"""The library end to end, in small: run at every save (`make tiny`), so it imports nothing heavy."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import undertow as ut


def test_a_product_and_its_gradients() -> None:
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    y = ut.tensor([3.0, 4.0], requires_grad=True)
    (x * y + x.sin()).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [3 + np.cos(1), 4 + np.cos(2)], rtol=1e-6)
    np.testing.assert_allclose(y.grad.numpy(), [1, 2])


def test_broadcasting_is_undone() -> None:
    row = ut.ones(3, requires_grad=True)
    column = ut.ones(2, 1, requires_grad=True)
    (row * column).sum().backward()
    assert tuple(row.grad.shape) == (3,) and row.grad.tolist() == [2, 2, 2]
    assert tuple(column.grad.shape) == (2, 1) and column.grad.tolist() == [[3], [3]]


def test_matmul() -> None:
    a = ut.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    b = ut.tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    (a @ b).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), np.ones((2, 4)) @ b.detach().numpy().T)
    np.testing.assert_allclose(b.grad.numpy(), a.detach().numpy().T @ np.ones((2, 4)))


def test_second_derivative() -> None:
    x = ut.tensor(2.0, requires_grad=True)
    (first,) = ut.autograd.grad(x**3, x, create_graph=True)
    (second,) = ut.autograd.grad(first, x)
    assert (first.item(), second.item()) == (12, 12)


def test_gradients_accumulate_until_cleared() -> None:
    x = ut.tensor(1.0, requires_grad=True)
    for _ in range(3):
        (x * 2).backward()
    assert x.grad.item() == 6
    x.grad = None
    (x * 2).backward()
    assert x.grad.item() == 2


def test_writing_into_a_view_is_differentiated() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x * 1
    y[0] = x[1] * 5
    y[2:].mul_(7)
    y.sum().backward()
    assert x.grad.tolist() == [0, 6, 7]


def test_a_saved_value_changed_in_place_is_an_error() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x.exp()
    z = y.sin()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_an_in_place_operation_on_a_leaf_is_an_error() -> None:
    x = ut.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.add_(1)
    assert x.tolist() == [1, 1, 1]


def test_a_freed_graph_is_an_error() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_no_grad_records_nothing() -> None:
    x = ut.ones(3, requires_grad=True)
    with ut.no_grad():
        y = x * 2
    assert not y.requires_grad and y.grad_fn is None
    assert (x * 2).requires_grad


def test_a_hook_changes_the_gradient() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 3
    y.register_hook(lambda gradient: gradient * 10)
    y.sum().backward()
    assert x.grad.tolist() == [30, 30]


def test_a_custom_function() -> None:
    class Cube(ut.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 3 * x * x

    x = ut.tensor(2.0, requires_grad=True)
    Cube.apply(x).backward()
    assert x.grad.item() == 12


def test_a_complex_gradient() -> None:
    z = ut.tensor([3 + 4j], requires_grad=True)
    z.abs().sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), [0.6 + 0.8j], rtol=1e-6)


def test_the_graph_is_visible() -> None:
    x = ut.ones(2, requires_grad=True)
    y = (x * x).sum()
    assert y.grad_fn.name() == "SumBackward0"
    ((product, input_nr),) = y.grad_fn.next_functions
    assert product.name() == "MulBackward0" and input_nr == 0
    assert [type(node).__name__ for node, _ in product.next_functions] == ["AccumulateGrad"] * 2
    assert product.next_functions[0][0].variable is x


def test_reference_counting_frees_a_graph() -> None:
    gc.disable()
    x = ut.ones(2, requires_grad=True)
    y = (x * 2).exp()
    alive = weakref.ref(y.grad_fn)
    del y
    assert alive() is None


def test_importing_changes_no_global_state() -> None:
    assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
