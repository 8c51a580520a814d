"""Triangular systems and factorisations of matrices larger than the kernels of small ones take."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut

SIZES = [32, 33, 64, 65, 97, 200]
TOLERANCE = {"float32": 2e-5, "float64": 1e-13}


def positive(n: int, dtype: str, *batch: int) -> np.ndarray:
    root = np.random.default_rng(n).standard_normal((*batch, n, n)).astype(dtype)
    return root @ root.swapaxes(-1, -2) + n * np.eye(n, dtype=dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
def test_factors(dtype: str, batch: tuple[int, ...]) -> None:
    for n in SIZES:
        A = positive(n, dtype, *batch)
        unread = np.triu(np.full_like(A, np.nan), 1)
        found = ut.linalg.cholesky(ut.tensor(np.tril(A) + unread)).numpy()
        np.testing.assert_allclose(found, np.linalg.cholesky(A.astype("float64")), rtol=0, atol=n * TOLERANCE[dtype])
        assert found.dtype == dtype and not np.triu(found, 1).any()


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_triangular_systems(upper: bool, unitriangular: bool, dtype: str) -> None:
    for n in SIZES:
        A = np.random.default_rng(n).uniform(-1, 1, (2, n, n)).astype(dtype) / n + 2 * np.eye(n, dtype=dtype)
        B = np.random.default_rng(0).standard_normal((2, n, 3)).astype(dtype)
        triangle = np.triu(A) if upper else np.tril(A)
        if unitriangular:
            triangle[..., range(n), range(n)] = 1
        turned = ut.tensor(np.ascontiguousarray(A.swapaxes(-1, -2))).mT  # the same matrices, column by column
        for given in (ut.tensor(A), turned):
            found = ut.linalg.solve_triangular(given, ut.tensor(B), upper=upper, unitriangular=unitriangular)
            np.testing.assert_allclose(triangle @ found.numpy(), B, rtol=0, atol=n * TOLERANCE[dtype])
            assert found.numpy().dtype == dtype


@pytest.mark.parametrize("place", [0, 31, 32, 50, 69])
def test_a_matrix_that_is_not_positive_is_refused(place: int) -> None:
    A = positive(70, "float64")
    A[place, place] = -1
    with pytest.raises(ut.linalg.LinAlgError, match="not positive-definite"):
        ut.linalg.cholesky(ut.tensor(A))


@pytest.mark.parametrize("place", [0, 32, 69])
def test_zeros_on_the_diagonal_give_infinities(place: int) -> None:
    A = np.tril(positive(70, "float64"))
    A[place, place] = 0
    found = ut.linalg.solve_triangular(ut.tensor(A), ut.ones(70, 1, dtype=ut.float64), upper=False)
    assert not np.isfinite(found.numpy()[place]).any() and np.isfinite(found.numpy()[:place]).all()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives(dtype: str) -> None:
    A = ut.tensor(positive(40, "float64")).to(getattr(ut, dtype)).requires_grad_()
    B = ut.randn(40, 2, dtype=getattr(ut, dtype), requires_grad=True)

    def solved(A: ut.Tensor, B: ut.Tensor) -> ut.Tensor:
        L = ut.linalg.cholesky((A + A.mH) / 2)
        return ut.cholesky_solve(B, L) + ut.linalg.solve_triangular(L.mH, B, upper=True)

    assert ut.autograd.gradcheck(solved, (A, B), fast_mode=True, check_forward_ad=True)
    assert ut.autograd.gradgradcheck(solved, (A, B), fast_mode=True)


@pytest.mark.parametrize("n", [5, 60])
def test_one_triangle_for_a_stack_of_right_sides(n: int) -> None:
    A = np.tril(positive(n, "float64"))
    B = np.random.default_rng(0).standard_normal((4, 2, n, 3))
    left, right = ut.tensor(A).requires_grad_(), ut.tensor(B).requires_grad_()
    found = ut.linalg.solve_triangular(left, right, upper=False)
    np.testing.assert_allclose(A @ found.detach().numpy(), B, atol=1e-12)
    one_by_one = ut.stack([ut.linalg.solve_triangular(left, b, upper=False) for b in right.flatten(0, 1)])
    expected = ut.autograd.grad(one_by_one.square().sum(), (left, right))
    for one, other in zip(ut.autograd.grad(found.square().sum(), (left, right)), expected, strict=True):
        ut.testing.assert_close(one, other)
