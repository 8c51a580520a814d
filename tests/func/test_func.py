"""undertow.func: transformations nested in each other, as PyTorch's; trees; complex numbers; identities."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import func, pytree

# what PyTorch says of its own parts when forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

RNG = np.random.default_rng(1)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2))


def f(x: Any, w: Any) -> Any:
    return ((x @ w).tanh() * x[:2].exp()).sum()


def g(x: Any, w: Any) -> Any:
    return {"a": (x @ w).sin(), "b": x * w[:, 0]}


def inner_product(a: Any, b: Any) -> Any:
    return (a * b.sin()).sum()


NESTED = {
    "grad": lambda F, x, w: F.grad(f, (0, 1))(x[0], w),
    "grad_and_value": lambda F, x, w: F.grad_and_value(f)(x[0], w),
    "aux": lambda F, x, w: F.grad(lambda a: (f(a, w), a * 2), has_aux=True)(x[0]),
    "vmap grad": lambda F, x, w: F.vmap(F.grad(f, (0, 1)), (0, None))(x, w),
    "grad vmap": lambda F, x, w: F.grad(lambda b: F.vmap(f, (0, None))(x, b).sum())(w),
    "grad grad": lambda F, x, w: F.grad(lambda a: (F.grad(f)(a, w) ** 2).sum())(x[0]),
    "vmap vmap grad": lambda F, x, w: F.vmap(F.vmap(F.grad(inner_product), (None, 0)), (0, None))(x, x),
    "jacrev": lambda F, x, w: F.jacrev(g, (0, 1))(x[0], w),
    "jacfwd": lambda F, x, w: F.jacfwd(g, (0, 1))(x[0], w),
    "jacrev chunks": lambda F, x, w: F.jacrev(g, chunk_size=1)(x[0], w),
    "vmap jacrev": lambda F, x, w: F.vmap(F.jacrev(g), (0, None))(x, w),
    "vmap jacfwd": lambda F, x, w: F.vmap(F.jacfwd(g), (0, None))(x, w),
    "hessian": lambda F, x, w: F.hessian(f, (0, 1))(x[0], w),
    "vmap hessian": lambda F, x, w: F.vmap(F.hessian(f), (0, None))(x, w),
    "jacrev jacrev": lambda F, x, w: F.jacrev(F.jacrev(f))(x[0], w),
    "jacfwd jacfwd": lambda F, x, w: F.jacfwd(F.jacfwd(f))(x[0], w),
    "jacrev jacfwd": lambda F, x, w: F.jacrev(F.jacfwd(f))(x[0], w),
    "jacfwd jacrev jacfwd": lambda F, x, w: F.jacfwd(F.jacrev(F.jacfwd(f)))(x[0], w),
    "jvp": lambda F, x, w: F.jvp(lambda a: g(a, w), (x[0],), (x[1],)),
    "jvp grad": lambda F, x, w: F.jvp(lambda a: F.grad(f)(a, w), (x[0],), (x[1],)),
    "grad jvp": lambda F, x, w: F.grad(lambda a: F.jvp(lambda b: f(b, w), (a,), (x[1],))[1])(x[0]),
    "vmap jvp grad": lambda F, x, w: F.vmap(lambda a, t: F.jvp(lambda b: F.grad(f)(b, w), (a,), (t,)))(x, x),
    "jvp vmap": lambda F, x, w: F.jvp(lambda a: F.vmap(lambda r: f(r, w))(a), (x,), (x,)),
    "vjp": lambda F, x, w: F.vjp(lambda a: (a @ w).sin(), x[0])[1](x[0][:2])[0],
}  # fmt: skip


@pytest.mark.parametrize("name", NESTED)
def test_as_in_pytorch(torch: ModuleType, name: str) -> None:
    found = NESTED[name](func, ut.tensor(X), ut.tensor(W))
    wanted = NESTED[name](torch.func, torch.tensor(X), torch.tensor(W))
    leaves, spec = pytree.flatten(found)
    expected, other = pytree.flatten(wanted)
    assert repr(spec) == repr(other)
    for got, array in zip(leaves, expected, strict=True):
        assert not got.requires_grad
        np.testing.assert_allclose(got.numpy(), array.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_gradients_reach_tensors_outside() -> None:
    w = ut.tensor(W, requires_grad=True)
    func.grad(f)(ut.tensor(X)[0], w).sum().backward()
    (wanted,) = ut.autograd.grad(func.grad(f)(ut.tensor(X)[0], w).sum(), w)
    assert abs(w.grad).sum() > 0 and np.array_equal(w.grad.numpy(), wanted.numpy())
    with ut.no_grad():
        assert not func.grad(f)(ut.tensor(X)[0], w).requires_grad


def test_inner_derivatives_do_not_mix_with_outer_ones() -> None:
    one = ut.tensor(1.0)
    assert func.grad(lambda a: a * func.grad(lambda b: a + b)(one))(one).item() == 1.0
    slope = func.jvp(lambda a: a * func.jvp(lambda b: a + b, (one,), (one,))[1], (one,), (one,))[1]
    assert slope.item() == 1.0


def test_values_and_gradients_of_trees() -> None:
    params = {"w": ut.tensor(W), "b": [ut.zeros(2, dtype=ut.float64)]}
    x = ut.tensor(X)

    def loss(p: Any) -> Any:
        return ((x @ p["w"] + p["b"][0]) ** 2).sum()

    value, found = func.value_and_grad(loss)(params)
    assert value.item() == pytest.approx(((X @ W) ** 2).sum())
    np.testing.assert_allclose(found["w"].numpy(), 2 * X.T @ (X @ W))
    np.testing.assert_allclose(found["b"][0].numpy(), 2 * (X @ W).sum(0))


def test_per_sample_gradients_sum_to_the_gradient() -> None:
    def loss(w: Any, x: Any) -> Any:
        return f(x, w)

    rows = func.per_sample_grad(loss)(ut.tensor(W), ut.tensor(X))
    total = func.grad(lambda w: ut.vmap(loss, (None, 0))(w, ut.tensor(X)).sum())(ut.tensor(W))
    assert rows.shape == (4, 3, 2)
    np.testing.assert_allclose(rows.numpy().sum(0), total.numpy())


def test_linearize_and_vjp_can_be_called_again() -> None:
    calls = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return (x @ ut.tensor(W)).sin()

    x, t, c = ut.tensor(X[0]), ut.tensor(X[1]), ut.tensor(X[2, :2])
    output, push = func.linearize(counted, x)
    same, pull = func.vjp(counted, x)
    assert output.tolist() == same.tolist()
    for scale in (1.0, 2.0):
        forward, (reverse,) = push(t * scale), pull(c)
        assert (forward * c).sum().item() == pytest.approx(scale * (reverse * t).sum().item())
    assert len(calls) == 2
    np.testing.assert_allclose(push(t).numpy(), func.jvp(counted, (x,), (t,))[1].numpy())


@pytest.mark.parametrize("transform", [func.jacrev, func.jacfwd])
def test_complex_jacobians(transform: Any) -> None:
    z = ut.tensor(X[0] + 1j * X[1])
    w = ut.tensor(W + 0j)
    holomorphic = transform(lambda a: (a @ w).exp())(z).numpy()
    np.testing.assert_allclose(holomorphic, np.exp((X[0] + 1j * X[1]) @ W)[:, None] * W.T)
    real = transform(lambda a: (a * a.conj()).real)(z).numpy()
    np.testing.assert_allclose(real, np.diag(2 * z.numpy()))
    into = transform(lambda a: a * (1 + 2j))(ut.tensor(X[0])).numpy()
    np.testing.assert_allclose(into, np.eye(3) * (1 + 2j))
    with pytest.raises(RuntimeError, match="not holomorphic"):
        transform(lambda a: a.conj())(z)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: func.grad(lambda a: a)(x), "to return a scalar tensor, got tensor with 1 dims"),
        (lambda x: func.grad(lambda a: 3)(x), "Expected f\\(\\*args\\) to return a tensor, got"),
        (lambda x: func.grad(lambda a: a.sum(), has_aux=True)(x), "output of function f should be a tuple"),
        (lambda x: func.grad(ut.sum, 1)(x), "Got argnum=1, but only 1 positional inputs"),
        (lambda x: func.grad(ut.sum, ())(x), "argnums must be non-empty"),
        (lambda x: func.grad(ut.sum, (0, -1))(x), "argnums elements must be unique"),
        (lambda x: func.jvp(ut.sin, x, x), "Expected primals to be a tuple"),
        (lambda x: func.jvp(ut.sin, (x,), (x, x)), "same python structure"),
        (lambda x: func.jvp(lambda a: ut.ones(2), (x,), (x,), strict=True), "The output of f is independent"),
        (lambda x: func.vjp(ut.sin, x)[1]({"a": x}), "Expected pytree structure of cotangents"),
        (lambda x: func.linearize(ut.sin, x)[1](ut.ones(2)), "a tangent has shape"),
    ],
)
def test_what_is_refused(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call(ut.ones(3))


def test_a_jacobian_by_columns_calls_its_function_once(torch: ModuleType) -> None:
    found = []
    for L in (ut, torch):
        x, y, calls = L.tensor(X[0]), L.tensor(X[1]), []

        def product(a: Any, b: Any, calls: Any = calls) -> Any:
            calls.append(0)
            value = a * b
            b.mul_(a)
            a.zero_()
            return value

        by_a, by_b = L.func.jacfwd(product, (0, 1))(x, y)
        found.append([by_a.tolist(), by_b.tolist(), x.tolist(), y.tolist(), len(calls)])
    assert found[0] == found[1]


@pytest.mark.parametrize("options", [{"chunk_size": 1}, {"sparsity": ut.eye(3)}])
def test_a_function_that_is_called_again_may_change_its_argument(options: Any) -> None:
    def square(a: Any) -> Any:
        value = a * a
        a.add_(1)
        return value

    found = func.jacfwd(square, **options)(ut.tensor(X[0]))
    found = found.numpy() if isinstance(found, ut.Tensor) else found.toarray()
    np.testing.assert_allclose(found, np.diag(2 * X[0]))


def test_functionalize_gives_what_the_function_gives() -> None:
    def change(x: Any) -> Any:
        y = x * 1
        y.mul_(x)
        return y.sum()

    x = ut.tensor([2.0, 3.0])
    assert ut.func.grad(ut.func.functionalize(change))(x).tolist() == [4, 6]
    with pytest.raises(RuntimeError, match="Valid options"):
        ut.func.functionalize(change, remove="all")


def doubled_in_place(x: Any) -> Any:
    return (x.mul_(2) ** 2).sum()


def scaled_after_use(x: Any) -> Any:
    y = x * 3
    with ut.no_grad():
        x.mul_(2)
    return (y * x.detach()).sum()


@pytest.mark.parametrize("function", [doubled_in_place, scaled_after_use])
def test_arguments_changed_in_place_inside_of_another_gradient(function: Any) -> None:
    """Their history is another then, and a gradient by it would be that of what they have become."""
    inner = func.grad(function)
    with pytest.raises(RuntimeError, match="being used in an in-place operation: the function changed an argument"):
        func.grad(lambda x: inner(x * 1).sum())(ut.ones(2))


def test_a_copy_of_an_argument_may_be_changed_inside_of_another_gradient() -> None:
    inner = func.grad(lambda x: doubled_in_place(x.clone()))
    assert func.grad(lambda x: inner(x * 1).sum())(ut.ones(2)).tolist() == [8, 8]


def rows_of_turned(x: Any) -> Any:
    return (x * x).t().contiguous().view(-1)


def written_by_memory(x: Any) -> Any:
    y = (x * x).t().contiguous()
    y.as_strided((3,), (1,)).mul_(2)
    return y


def seen_by_memory(x: Any) -> Any:
    y = (x * x).t().contiguous()
    y.as_strided_((3,), (1,))
    return y


def written_in_a_turned_base(x: Any) -> Any:
    y = ut.ones(3, 2, dtype=ut.float64).t()
    y.as_strided((3,), (1,)).mul_(x.flatten()[1:4])
    return y * 2


@pytest.mark.parametrize("function", [rows_of_turned, written_by_memory, seen_by_memory, written_in_a_turned_base])
def test_tangents_of_all_directions_lie_in_memory_as_the_tensor(function: Any) -> None:
    x = ut.arange(1.0, 7.0, dtype=ut.float64).view(2, 3)
    expected = ut.autograd.functional.jacobian(function, x)
    np.testing.assert_allclose(ut.func.jacfwd(function)(x), expected)
    direction = ut.ones(2, 3, dtype=ut.float64)
    product = ut.func.jvp(function, (x,), (direction,))[1]
    np.testing.assert_allclose(product, (expected * direction).sum((-2, -1)))
