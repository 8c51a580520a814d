"""Functions of tensors under SciPy's optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.interop import value_and_jac

optimize = pytest.importorskip("scipy.optimize")

START = np.array([1.3, 0.7, 0.8, 1.9])


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


# ---- derivatives


def test_value_gradient_and_hessian() -> None:
    function = value_and_jac(rosenbrock)
    value, gradient = function(START)
    assert type(value) is float and value == function.fun(START)
    np.testing.assert_allclose(value, optimize.rosen(START))
    np.testing.assert_allclose(gradient, optimize.rosen_der(START))
    np.testing.assert_allclose(function.jac(START), gradient)
    np.testing.assert_allclose(function.hess(START), optimize.rosen_hess(START))
    v = np.arange(4.0)
    np.testing.assert_allclose(function.hessp(START, v), optimize.rosen_hess_prod(START, v))


@pytest.mark.parametrize("rows", [2, 7])
def test_the_jacobian_of_a_vector(rows: int) -> None:
    matrix = np.random.default_rng(0).standard_normal((rows, 4))
    function = value_and_jac(lambda x: ut.sin(ut.tensor(matrix) @ x))
    value, jacobian = function(START)
    np.testing.assert_allclose(value, np.sin(matrix @ START))
    np.testing.assert_allclose(jacobian, np.cos(matrix @ START)[:, None] * matrix)
    weights = np.arange(1.0, rows + 1)
    wanted = -(matrix.T * (weights * np.sin(matrix @ START))) @ matrix
    np.testing.assert_allclose(function.hess(START, weights), wanted)


def test_a_linear_function_has_no_curvature() -> None:
    function = value_and_jac(lambda x: x.sum())
    assert function.hess(START).tolist() == np.zeros((4, 4)).tolist()
    assert function.hessp(START, START).tolist() == [0, 0, 0, 0]


def test_a_parameter_that_is_not_used_has_a_zero_gradient() -> None:
    function = value_and_jac(lambda p: (p["a"] ** 2).sum(), {"a": np.ones(2), "b": np.ones(3)})
    assert function.jac(np.ones(5)).tolist() == [2, 2, 0, 0, 0]


# ---- optimizers


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "CG", "TNC", "SLSQP"])
def test_first_order_methods(method: str) -> None:
    result = optimize.minimize(value_and_jac(rosenbrock), START, jac=True, method=method, tol=1e-9)
    np.testing.assert_allclose(result.x, 1, atol=1e-3)


@pytest.mark.parametrize("method", ["trust-ncg", "Newton-CG", "trust-krylov", "trust-constr"])
def test_methods_with_products(method: str) -> None:
    function = value_and_jac(rosenbrock)
    result = optimize.minimize(function, START, jac=True, hessp=function.hessp, method=method)
    np.testing.assert_allclose(result.x, 1, atol=1e-4)


@pytest.mark.parametrize("method", ["dogleg", "trust-exact"])
def test_methods_with_a_hessian(method: str) -> None:
    function = value_and_jac(rosenbrock)
    start = np.array([1.02, 1.04, 1.08, 1.17])  # where the Hessian is positive definite, as dogleg needs it
    result = optimize.minimize(function.fun, start, jac=function.jac, hess=function.hess, method=method)
    np.testing.assert_allclose(result.x, 1, atol=1e-4)


def test_several_parameters_and_further_arguments() -> None:
    rng = np.random.default_rng(0)
    inputs, wanted = rng.standard_normal((30, 3)), {"weight": np.array([1.0, -2.0, 0.5]), "bias": 0.7}
    targets = ut.tensor(inputs @ wanted["weight"] + wanted["bias"])

    def loss(params: Any, inputs: Any, targets: Any) -> Any:
        return ((inputs @ params["weight"] + params["bias"] - targets) ** 2).mean()

    function = value_and_jac(loss, {"weight": ut.zeros(3), "bias": 0.0})
    data = ut.tensor(inputs, dtype=ut.float32), targets.to(ut.float32)
    result = optimize.minimize(function, function.x0, args=data, jac=True, hessp=function.hessp, method="trust-ncg")
    found = function.unflatten(result.x)
    assert found["weight"].dtype == np.float32 and found["bias"].shape == ()
    np.testing.assert_allclose(found["weight"], wanted["weight"], atol=1e-4)
    np.testing.assert_allclose(found["bias"], wanted["bias"], atol=1e-4)


def test_least_squares() -> None:
    times = np.linspace(0, 3, 25)
    observed = 2.5 * np.exp(-1.3 * times) + 0.5

    def residuals(p: Any) -> Any:
        return p["scale"] * ut.exp(-p["rate"] * ut.tensor(times)) + p["floor"] - ut.tensor(observed)

    function = value_and_jac(residuals, {"scale": 1.0, "rate": 1.0, "floor": 0.0})
    result = optimize.least_squares(function.fun, function.x0, jac=function.jac)
    np.testing.assert_allclose(result.x, [2.5, 1.3, 0.5], atol=1e-6)
    assert result.njev < 20 and result.optimality < 1e-8


def test_roots() -> None:
    function = value_and_jac(lambda x: ut.stack([x[0] * ut.cos(x[1]) - 4, x[1] * x[0] - x[1] - 5]))
    for method in ("hybr", "lm"):
        result = optimize.root(function, [1.0, 1.0], jac=True, method=method)
        np.testing.assert_allclose(result.x, [6.50409711, 0.90841421])
    one = value_and_jac(lambda x: x**3 - 2)
    newton = optimize.newton(lambda x: one.fun([x])[0], 1.0, fprime=lambda x: one.jac([x])[0, 0])
    np.testing.assert_allclose(newton, 2 ** (1 / 3))


def test_constraints() -> None:
    function, circle = value_and_jac(lambda x: x.sum()), value_and_jac(lambda x: (x**2).sum(0, keepdim=True))
    nonlinear = optimize.NonlinearConstraint(circle.fun, -np.inf, 1.0, jac=circle.jac, hess=circle.hess)
    result = optimize.minimize(
        function, [0.1, -0.3], jac=True, hess=function.hess, method="trust-constr", constraints=[nonlinear]
    )
    np.testing.assert_allclose(result.x, [-(0.5**0.5)] * 2, atol=1e-4)
    as_dict = {"type": "ineq", "fun": lambda x: 1 - circle.fun(x), "jac": lambda x: -circle.jac(x)}
    result = optimize.minimize(function, [0.1, -0.3], jac=True, method="SLSQP", constraints=[as_dict])
    np.testing.assert_allclose(result.x, [-(0.5**0.5)] * 2, atol=1e-6)


def test_a_hessian_for_newton_agrees_with_finite_differences() -> None:
    function = value_and_jac(rosenbrock)
    assert optimize.check_grad(function.fun, function.jac, START) < 1e-4


# ---- errors


@pytest.mark.parametrize(
    ("f", "error", "words"),
    [
        (lambda x: ut.log(x - 5).sum(), FloatingPointError, "the value is NaN"),
        (lambda x: ut.sqrt(x * 0).sum(), FloatingPointError, "the gradient is NaN"),
        (lambda x: 3.0, TypeError, "returned float, not a tensor"),
        (lambda x: x.detach().numpy().sum(), TypeError, "not a tensor"),
        (lambda x: x.detach().sum(), RuntimeError, "does not require grad"),
        (lambda x: ut.outer(x, x), ValueError, r"shape \(4, 4\)"),
        (lambda x: (x * 1j).sum(), ValueError, "complex128"),
    ],
)
def test_what_no_optimizer_can_use(f: Any, error: Any, words: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(error, match=words):
        value_and_jac(f)(START)


def test_nan_may_be_allowed() -> None:
    with np.errstate(all="ignore"):
        value, _ = value_and_jac(lambda x: ut.log(x - 5).sum(), allow_nan=True)(START)
    assert np.isnan(value)


def test_wrong_shapes() -> None:
    function = value_and_jac(lambda p: p["a"].sum() ** 2, {"a": np.ones((2, 2))})
    for call in (
        lambda: function(np.ones(3)),
        lambda: function.fun(np.ones((2, 2))),
        lambda: function.unflatten([1.0]),
    ):
        with pytest.raises(ValueError, match="must be a flat vector of 4 elements"):
            call()
    with pytest.raises(ValueError, match="v has shape"):
        function.hessp(np.ones(4), np.ones(3))
    with pytest.raises(ValueError, match="returns 4 numbers"):
        value_and_jac(lambda x: x * 2).hessp(START, START)
    with pytest.raises(TypeError, match="complex128"):
        value_and_jac(lambda z: z.real.sum(), np.ones(2) + 0j)


def test_it_works_where_gradients_are_switched_off() -> None:
    with ut.no_grad():
        assert value_and_jac(lambda x: (x**2).sum()).jac(np.ones(2)).tolist() == [2, 2]
