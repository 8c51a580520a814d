"""Complex autograd: the derivations of the note "Autograd mechanics", each as a test, and gradcheck for every sample.

The gradient of a real loss L with respect to z = x + yj is dL/dx + j dL/dy, twice the conjugate Wirtinger derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import undertow as ut
from tests.ops.systems import Case, all_finite, cases, every
from undertow.autograd import gradcheck

Function = Callable[[Any], Any]
STEP = 1e-6

numbers = st.floats(-3, 3).filter(lambda v: abs(v) > 0.1)
complexes = st.builds(complex, numbers, numbers)


def gradient(f: Function, z: complex | float, grad_output: complex | float | None = None) -> Any:
    x = ut.tensor(np.array(z), requires_grad=True)
    out = f(x)
    seed = None if grad_output is None else ut.tensor(np.array(grad_output, dtype=out.dtype))
    return ut.autograd.grad(out, x, seed)[0].item()


def along(f: Function, z: complex, direction: complex) -> complex:
    """The derivative in a direction, by central differences."""
    up, down = [f(ut.tensor(np.array(z + s * direction))).item() for s in (STEP, -STEP)]
    return complex(up - down) / (2 * STEP)


def wirtinger(f: Function, z: complex) -> tuple[complex, complex]:
    """ds/dz and ds/dz*, from the derivatives by x and y."""
    by_x, by_y = along(f, z, 1), along(f, z, 1j)
    return (by_x - 1j * by_y) / 2, (by_x + 1j * by_y) / 2


HOLOMORPHIC: dict[str, Function] = {
    "exp": lambda z: z.exp(), "sin": lambda z: z.sin(), "tanh": lambda z: z.tanh(), "square": lambda z: z * z,
    "reciprocal": lambda z: 1 / z, "sqrt": lambda z: z.sqrt(), "log": lambda z: z.log(),
    "power": lambda z: z ** (1.5 + 0.5j), "polynomial": lambda z: (2 + 1j) * z * z - 3j * z,
}  # fmt: skip
OTHER: dict[str, Function] = {
    "conj": lambda z: z.conj(), "z * conj(z)": lambda z: z * z.conj(), "sgn": lambda z: z.sgn(),
    "conj of exp": lambda z: z.exp().conj(), "z * |z|": lambda z: z * z.abs(),
    "parts": lambda z: ut.complex(z.imag, z.real * z.imag),
}  # fmt: skip
REAL_VALUED: dict[str, Function] = {
    "abs": lambda z: z.abs(), "angle": lambda z: z.angle(), "real": lambda z: z.real, "imag": lambda z: z.imag,
    "|z| ** 2": lambda z: (z * z.conj()).real, "view_as_real": lambda z: ut.view_as_real(z).prod(),
}  # fmt: skip
OF_REALS: dict[str, Function] = {
    "complex": lambda x: ut.complex(x.sin(), x * x), "polar": lambda x: ut.polar(x, x * 2),
    "times a number": lambda x: x * (2 - 3j), "exp(jx)": lambda x: (1j * x).exp(), "to complex": lambda x: x + 0j,
}  # fmt: skip


# ---- definitions


@given(z=complexes)
def test_parts_in_terms_of_z_and_its_conjugate(z: complex) -> None:
    t = ut.tensor(np.array(z))
    assert abs(((t + t.conj()) / 2).item() - t.real.item()) < 1e-12
    assert abs(((t - t.conj()) / 2j).item() - t.imag.item()) < 1e-12


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_cauchy_and_riemann(name: str) -> None:
    """The derivative by z* of a holomorphic function is zero; the gradient is grad_output * conj(f')."""
    f, z, g = HOLOMORPHIC[name], 0.7 - 0.4j, 1.5 + 0.5j
    by_z, by_conjugate = wirtinger(f, z)
    assert abs(by_conjugate) < 1e-8
    assert abs(gradient(f, z, g) - g * by_z.conjugate()) < 1e-7


# ---- the boxed formula: conj(grad_output) * ds/dz* + grad_output * conj(ds/dz)


@pytest.mark.parametrize("name", [*HOLOMORPHIC, *OTHER])
@given(z=complexes, g=complexes)
def test_the_formula_for_derivatives(name: str, z: complex, g: complex) -> None:
    f = {**HOLOMORPHIC, **OTHER}[name]
    by_z, by_conjugate = wirtinger(f, z)
    expected = g.conjugate() * by_conjugate + g * by_z.conjugate()
    assert abs(gradient(f, z, g) - expected) <= 1e-5 * (1 + abs(expected) + abs(by_z) + abs(by_conjugate))


@pytest.mark.parametrize("c", [2.0, -0.5, 3.0])
def test_the_worked_example(c: float) -> None:
    """f(z) = c * z with a real c: ds/dz = c, ds/dz* = 0, and with grad_output 1 the gradient is c."""
    by_z, by_conjugate = wirtinger(lambda z: z * c, 1 + 2j)
    assert abs(by_z - c) < 1e-8
    assert abs(by_conjugate) < 1e-8
    assert gradient(lambda z: z * c, 1 + 2j, 1.0) == c


# ---- cross-domain functions


@pytest.mark.parametrize("name", REAL_VALUED)
@given(z=complexes, g=numbers)
def test_from_complex_to_real(name: str, z: complex, g: float) -> None:
    """2 * grad_output * ds/dz*"""
    f = REAL_VALUED[name]
    if name == "angle" and abs(z.imag) < 0.2 and z.real < 0:
        return  # where the angle jumps, there are no differences
    expected = 2 * g * wirtinger(f, z)[1]
    assert abs(gradient(f, z, g) - expected) <= 1e-5 * (1 + abs(expected))


@pytest.mark.parametrize("name", OF_REALS)
@given(x=numbers, g=complexes)
def test_from_real_to_complex(name: str, x: float, g: complex) -> None:
    """2 * Re(conj(grad_output) * ds/dz*), where ds/dz* is half of ds/dx; and it is real."""
    f = OF_REALS[name]
    expected = 2 * (g.conjugate() * along(f, x, 1.0) / 2).real
    found = gradient(f, x, g)
    assert isinstance(found, float)
    assert abs(found - expected) <= 1e-5 * (1 + abs(expected) + abs(g))


@pytest.mark.parametrize(
    "f",
    [lambda c: (c * (1 + 2j)).abs(), lambda c: (c - 3j).abs(), lambda c: ((1 + 1j) / c).real, lambda c: (2j**c).imag],
)
def test_real_parameters_of_complex_operations_get_real_gradients(f: Function) -> None:
    found = gradient(f, 1.5)
    assert isinstance(found, float)
    assert abs(found - along(f, 1.5, 1.0)) < 1e-6


# ---- what it is good for


@given(z=complexes)
def test_the_step_of_steepest_descent(z: complex) -> None:
    """z - alpha * dL/dz* is the step (x, y) - alpha / 2 * (dL/dx, dL/dy); the gradient is dL/dx + j dL/dy."""
    loss = lambda z: (z * z.conj()).real + (z * z).real + z.exp().abs()
    found = gradient(loss, z)
    assert abs(found - (along(loss, z, 1) + 1j * along(loss, z, 1j))) <= 1e-5 * (1 + abs(found))
    if abs(found) > 1e-2:
        step = 1e-5
        values = [loss(ut.tensor(np.array(z - step * d * found))).item() for d in (1, 0)]
        assert values[0] < values[1]


def test_descent_with_complex_parameters_finds_the_minimum() -> None:
    target = ut.tensor([1 - 2j, 0.5j])
    z = ut.zeros(2, dtype=ut.complex64, requires_grad=True)
    for _ in range(200):
        (g,) = ut.autograd.grad(((z - target) * (z - target).conj()).real.sum(), z)
        with ut.no_grad():
            z -= 0.1 * g
    assert ut.allclose(z, target, atol=1e-4)


@given(x=numbers)
def test_real_functions_that_use_complex_numbers_inside(x: float) -> None:
    """The convention makes no difference to them."""
    inside = gradient(lambda t: ((1j * t).exp() ** 2).imag, x)  # sin(2 x)
    assert abs(inside - 2 * np.cos(2 * x)) < 1e-10


@given(z=complexes)
def test_jax_gives_the_conjugate(z: complex) -> None:
    """dL/dx - j dL/dy: the row of partial derivatives, in one number. (JAX's own answers, by its definition.)"""
    loss = lambda z: (z * z * (1 + 2j)).real + z.abs()
    jax = along(loss, z, 1) - 1j * along(loss, z, 1j)
    assert abs(gradient(loss, z).conjugate() - jax) <= 1e-5 * (1 + abs(jax))


# ---- conventions at zero

AT_ZERO: dict[str, tuple[Function, complex]] = {
    "abs": (lambda z: z.abs(), 0),  # convex: the subgradient of least norm
    "sgn": (lambda z: z.sgn().real, 0),  # no limit: 0 was chosen
    "angle": (lambda z: z.angle(), 0),  # no limit: 0 was chosen
    "norm": (lambda z: ut.linalg.vector_norm(z.reshape(1)), 0),
    "square": (lambda z: (z * z).abs(), 0),
    "view_as_real": (lambda z: ut.view_as_real(z).sum(), 1 + 1j),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_gradients_at_zero(name: str) -> None:
    f, expected = AT_ZERO[name]
    assert gradient(f, 0j) == expected


@pytest.mark.torch
@pytest.mark.parametrize("name", [n for n in AT_ZERO if n != "view_as_real"])
def test_they_are_those_of_pytorch(name: str, torch: Any) -> None:
    z = torch.zeros((), dtype=torch.complex128, requires_grad=True)
    f = {"norm": lambda z: torch.linalg.vector_norm(z.reshape(1))}.get(name, AT_ZERO[name][0])
    f(z).backward()
    assert z.grad.item() == AT_ZERO[name][1]


def test_polar_at_zero() -> None:
    """The derivative by the modulus is the direction, also at 0; that by the angle is 0 there."""
    size, angle = [ut.tensor(v, dtype=ut.float64, requires_grad=True) for v in (0.0, 0.3)]
    ut.polar(size, angle).real.backward()
    np.testing.assert_allclose([size.grad.item(), angle.grad.item()], [np.cos(0.3), 0])


# ---- every sample that claims complex inputs

CASES = [c for c in cases() if c.complex and c.has_gradient() and not c.sample.kink]
#: their vectors are free up to a phase, so that differences of them mean nothing: test_eigen.py checks them
GAUGED = ("linalg_eig", "linalg_eigh", "linalg_svd", "svd", "_eig", "_eigh")


@every([c for c in CASES if c.sample.op not in GAUGED])
def test_gradcheck(case: Case) -> None:
    if not all_finite(case.result):
        return
    inputs = [ut.tensor(a, requires_grad=True) for a in case.chosen(case.arrays)]

    def function(*leaves: Any) -> Any:
        values: list[Any] = [ut.tensor(a) for a in case.arrays]
        for k, x in zip(case.differentiable, leaves, strict=True):
            values[k] = x * 1  # operations that write need a tensor that is no leaf
        results = case.call(values)
        return tuple([results[k] for k in case.differentiable_results])

    assert gradcheck(function, tuple(inputs), atol=1e-4, rtol=1e-3, fast_mode=True)
