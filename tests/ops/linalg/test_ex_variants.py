"""Factorisations that report what failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut

SINGULAR = np.array([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 1.0]]])


@pytest.mark.torch
@pytest.mark.parametrize("name", ["inv_ex", "cholesky_ex", "lu_factor_ex", "solve_ex"])
def test_reports_are_those_of_pytorch(name: str, torch: Any) -> None:
    found = []
    for L in (ut, torch):
        A = L.tensor(SINGULAR)
        more = (L.ones(3, 2, 1, dtype=L.float64),) if name == "solve_ex" else ()
        result = getattr(L.linalg, name)(A, *more)
        found.append((result[0][0].numpy(), result.info.tolist()))
    np.testing.assert_allclose(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_matrices_that_failed_are_nan_and_the_others_have_gradients() -> None:
    A = ut.tensor(SINGULAR, requires_grad=True)
    out = ut.linalg.inv_ex(A).inverse
    assert np.isnan(out.detach().numpy()[1:]).all()
    out[0].sum().backward()
    inverse = np.linalg.inv(SINGULAR[0])
    np.testing.assert_allclose(A.grad.numpy()[0], -inverse.T @ np.ones((2, 2)) @ inverse.T)
    with pytest.raises(RuntimeError, match="singular"):
        ut.linalg.inv_ex(ut.tensor(SINGULAR), check_errors=True)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_solving_for_vectors_with_a_singular_matrix_among_them(lead: tuple[int, ...]) -> None:
    A = ut.stack([ut.eye(3) * 2, ut.ones(3, 3)])[: lead[0]] if lead else ut.ones(3, 3)
    found, info = ut.linalg.solve_ex(A, ut.ones(*lead, 3))
    assert found.shape == (*lead, 3) and info.shape == lead
    assert found[-1].isnan().all()
    if lead:
        assert found[0].tolist() == [0.5] * 3 and info.tolist() == [0, 2]
