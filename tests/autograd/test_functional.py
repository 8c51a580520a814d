"""autograd.functional: the same calls in undertow and in PyTorch; chunks; what strict mode says."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import pytree
from undertow.autograd import functional


def two_outputs(x: Any, y: Any) -> Any:
    return (x.sin() * y[0]).sum(0), (x[0] * y).exp()


def scalar(x: Any, y: Any) -> Any:
    return (x.sin().sum() * y**2).sum() + (x**3).sum()


# what PyTorch says of its own parts when forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 3)), RNG.standard_normal(3)
VX, VY = RNG.standard_normal((2, 3)), RNG.standard_normal(3)


def arrays(value: Any) -> list[Any]:
    return [t.detach().numpy() for t in pytree.flatten(value)[0]]


CALLS = {
    "vjp": lambda f, x, v: f.vjp(two_outputs, x, (v[1], v[1])),
    "jvp": lambda f, x, v: f.jvp(two_outputs, x, v),
    "vhp": lambda f, x, v: f.vhp(scalar, x, v),
    "hvp": lambda f, x, v: f.hvp(scalar, x, v),
    "hvp-strict": lambda f, x, v: f.hvp(scalar, x, v, strict=True),
    "jacobian": lambda f, x, v: f.jacobian(two_outputs, x),
    "jacobian-vectorize": lambda f, x, v: f.jacobian(two_outputs, x, vectorize=True),
    "jacobian-forward": lambda f, x, v: f.jacobian(two_outputs, x, vectorize=True, strategy="forward-mode"),
    "jacobian-graph": lambda f, x, v: f.jacobian(two_outputs, x, create_graph=True),
    "hessian": lambda f, x, v: f.hessian(scalar, x),
    "hessian-vectorize": lambda f, x, v: f.hessian(scalar, x, vectorize=True),
    "hessian-forward": lambda f, x, v: f.hessian(scalar, x, vectorize=True, outer_jacobian_strategy="forward-mode"),
    "single": lambda f, x, v: (f.jacobian(lambda a: a.sum(), x[0]), f.hessian(lambda a: a.prod(), x[1])),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_in_pytorch(torch: ModuleType, name: str) -> None:
    call = CALLS[name]
    found = call(functional, (ut.tensor(X), ut.tensor(Y)), (ut.tensor(VX), ut.tensor(VY)))
    points, vectors = (torch.tensor(X), torch.tensor(Y)), (torch.tensor(VX), torch.tensor(VY))
    wanted = call(torch.autograd.functional, points, vectors)
    if not name.endswith("-forward"):  # there PyTorch returns lists, where its documentation says tuples
        assert repr(pytree.flatten(found)[1]) == repr(pytree.flatten(wanted)[1])
    for got, expected in zip(arrays(found), arrays(wanted), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("chunk_size", [1, 2, 100])
def test_chunks(strategy: str, chunk_size: int) -> None:
    points = (ut.tensor(X), ut.tensor(Y))
    whole = functional.jacobian(two_outputs, points)
    parts = functional.jacobian(two_outputs, points, vectorize=True, strategy=strategy, chunk_size=chunk_size)
    for got, expected in zip(arrays(parts), arrays(whole), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


def test_forward_mode_without_vectorize_and_with_graph() -> None:
    x = ut.tensor(Y, requires_grad=True)
    plain = functional.jacobian(lambda a: a**3, x, strategy="forward-mode")
    np.testing.assert_allclose(plain.numpy(), np.diag(3 * Y**2))
    graph = functional.jacobian(lambda a: a**3, x, strategy="forward-mode", create_graph=True)
    (second,) = ut.autograd.grad(graph.sum(), x)
    np.testing.assert_allclose(second.numpy(), 6 * Y)


def test_forward_mode_of_a_function_that_changes_its_argument() -> None:
    def square(a: Any) -> Any:
        value = a * a
        a.add_(1)
        return value

    for options in ({}, {"vectorize": True}, {"vectorize": True, "chunk_size": 2}):
        found = functional.jacobian(square, ut.tensor(Y), strategy="forward-mode", **options)
        np.testing.assert_allclose(found.numpy(), np.diag(2 * Y))


def test_results_have_history_only_when_asked() -> None:
    x = ut.tensor(Y, requires_grad=True)
    assert not functional.jacobian(lambda a: a**2, x).requires_grad
    assert functional.jacobian(lambda a: a**2, x, create_graph=True).requires_grad
    assert not functional.vjp(lambda a: a**2, x, ut.ones(3, dtype=ut.float64))[1].requires_grad


def test_inside_vmap_and_grad() -> None:
    x = ut.tensor(X)
    rows = ut.vmap(lambda a: functional.jacobian(lambda b: b**2, a))(x)
    np.testing.assert_allclose(rows.numpy(), np.stack([np.diag(2 * r) for r in X]))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: functional.vjp(ut.sin, 3), TypeError, "The inputs given to vjp must be either a Tensor"),
        (lambda x: functional.jvp(lambda a: 3, x, x), TypeError, "outputs of the user-provided function given to jvp"),
        (lambda x: functional.vjp(ut.sin, x), RuntimeError, "The vector v can only be None if the user-provided"),
        (lambda x: functional.jvp(ut.sin, x, ut.ones(2)), RuntimeError, "v has invalid size: should be undertow.Size"),
        (lambda x: functional.jvp(ut.sin, x, (x, x)), RuntimeError, "The given v should contain a single Tensor"),
        (lambda x: functional.jacobian(ut.sin, x, strategy="sideways"), AssertionError, "Expected strategy to be"),
        (lambda x: functional.jacobian(ut.sin, x, strict=True, vectorize=True), RuntimeError, "not supported together"),
        (lambda x: functional.hessian(ut.sin, x), RuntimeError, "should contain a single element"),
        (lambda x: functional.jacobian(lambda a: a.detach(), x, strict=True), RuntimeError, "does not require gradi"),
        (lambda x: functional.hvp(lambda a: a.sum(), x, x, strict=True), RuntimeError, "with respect to input 0 is"),
    ],
)
def test_what_is_refused(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call(ut.ones(3))
