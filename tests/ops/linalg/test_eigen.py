"""Eigen- and singular vectors: tangents of what does not depend on their choice, and errors for what does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.samples.eigen import complements, eigen_invariants, hermitian, invariants
from undertow.func import jvp, vjp


def matrix(*shape: int, complex: bool) -> ut.Tensor:
    rng = np.random.default_rng(3)
    values = rng.standard_normal(shape)
    if complex:
        values = values + 1j * rng.standard_normal(shape)
    return ut.tensor(values)


FUNCTIONS: list[tuple[str, tuple[int, int], Callable[[Any], Any]]] = [
    ("svd, tall", (4, 3), lambda A: invariants(*ut.linalg.svd(A))),
    ("svd, thin", (3, 4), lambda A: invariants(*ut.linalg.svd(A, full_matrices=False))),
    ("svd, complement of U", (5, 3), lambda A: complements(ut, A)),
    ("svd, complement of V", (2, 4), lambda A: complements(ut, A)),
    ("eigh", (3, 3), lambda A: eigen_invariants(*ut.linalg.eigh(hermitian(A)))),
    ("eig", (3, 3), lambda A: (lambda L, V: (L * L, V * V.conj(), V @ V.mH))(*ut.linalg.eig(A))),
]


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize(("name", "shape", "function"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_tangents(name: str, shape: tuple[int, int], function: Callable[[Any], Any], complex: bool) -> None:
    point = matrix(*shape, complex=complex)
    direction = ut.tensor(np.roll(point.numpy(), 1, axis=0) * 0.7 - 0.2)
    out, tangents = jvp(function, (point,), (direction,))
    step = 1e-6
    down, up = function(point - step * direction), function(point + step * direction)
    _, pull = vjp(function, point)
    for k, (value, tangent) in enumerate(zip(out, tangents, strict=True)):
        slope = (up[k].numpy() - down[k].numpy()) / (2 * step)
        np.testing.assert_allclose(tangent.numpy(), slope, rtol=1e-6, atol=1e-7)
        cotangents = tuple(ut.ones_like(value) if j == k else ut.zeros_like(o) for j, o in enumerate(out))
        (gradient,) = pull(cotangents)
        backward = (gradient.conj() * direction).sum().real
        np.testing.assert_allclose(backward.item(), tangent.real.sum().item(), rtol=1e-9, atol=1e-10)


PHASES = [
    ("svd_backward: The singular vectors in the complex case", lambda A: ut.linalg.svd(A).U.real),
    ("svd_backward: with full_matrices=True", lambda A: ut.linalg.svd(A[:, :2].real).U[:, 2:]),
    ("linalg_eigh_backward: The eigenvectors", lambda A: ut.linalg.eigh(hermitian(A)).eigenvectors.real),
    ("linalg_eig_backward: The eigenvectors", lambda A: ut.linalg.eig(A).eigenvectors.imag),
]


@pytest.mark.parametrize(("message", "function"), PHASES, ids=[p[0] for p in PHASES])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_loss_that_depends_on_the_choice_of_vectors(
    message: str, function: Callable[[Any], Any], create_graph: bool
) -> None:
    A = matrix(4, 4, complex=True).requires_grad_()
    out = function(A)
    weights = ut.tensor(np.random.default_rng(0).standard_normal(tuple(out.shape)))
    with pytest.raises(RuntimeError, match=message):
        ut.autograd.grad((out * weights).sum(), A, create_graph=create_graph)


def test_vectors_of_equal_values_have_no_derivative() -> None:
    A = ut.eye(3, dtype=ut.float64).requires_grad_()
    with np.errstate(all="ignore"):
        (gradient,) = ut.autograd.grad(ut.linalg.eigh(A).eigenvectors.sum(), A)
    assert ut.isnan(gradient).any()
