"""Tolerances of pinv and matrix_rank that are tensors: one for each matrix, or more of them than there are matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut

MATRICES = np.random.default_rng(5).normal(size=(2, 3, 4, 3))


@pytest.mark.parametrize("name", ["pinv", "matrix_rank"])
@pytest.mark.parametrize("shape", [(), (3,), (5, 1), (5, 3), (4, 1, 1)])
def test_vmap_gives_what_a_loop_gives(name: str, shape: tuple[int, ...]) -> None:
    matrices, tolerances = ut.tensor(MATRICES), ut.tensor(np.random.default_rng(6).uniform(0.2, 0.9, shape))

    def of(A: Any) -> Any:
        return getattr(ut.linalg, name)(A, rtol=tolerances)

    expected = np.stack([of(A).numpy() for A in matrices])
    np.testing.assert_allclose(ut.vmap(of)(matrices).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(ut.vmap(of, 1)(matrices.movedim(0, 1)).numpy(), expected, rtol=1e-12)


def test_the_gradient_through_more_tolerances_than_matrices() -> None:
    tolerances = ut.tensor([[1e-3], [1e-4]])
    A = ut.tensor(MATRICES[0], requires_grad=True)
    ut.linalg.pinv(A, rtol=tolerances).sin().sum().backward()
    one = ut.tensor(MATRICES[0], requires_grad=True)
    (2 * ut.linalg.pinv(one).sin().sum()).backward()
    np.testing.assert_allclose(A.grad.numpy(), one.grad.numpy(), rtol=1e-9)


@pytest.mark.parametrize("option", ["rtol", "atol"])
@pytest.mark.parametrize("name", ["pinv", "matrix_rank"])
def test_tolerances_that_do_not_fit_the_matrices(name: str, option: str) -> None:
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        getattr(ut.linalg, name)(ut.tensor(MATRICES), **{option: ut.ones(4)})
