"""Stacks of small matrices: systems, triangular ones and Cholesky's factors, as NumPy computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

TOLERANCE = {"f": 1e-4, "d": 1e-11}
STACKS = [(1, 1), (2, 2), (5, 3, 3), (2, 3, 10, 10), (3, 31, 31), (32, 32)]


def matrices(dtype: str, *shape: int, seed: int = 0) -> Any:
    """Well-conditioned, but not such that no pivot is needed."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 4 * rng.permutation(np.eye(shape[-1]))).astype(dtype)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("shape", STACKS)
@pytest.mark.parametrize("columns", [1, 7])
def test_systems(dtype: str, shape: tuple[int, ...], columns: int) -> None:
    a, b = matrices(dtype, *shape), np.random.default_rng(1).standard_normal((*shape[:-1], columns)).astype(dtype)
    found = core.solve_small(a, b)
    assert found.dtype == a.dtype
    np.testing.assert_allclose(a.astype(float) @ found, b, atol=TOLERANCE[dtype] * np.abs(found).max() * 30)
    for upper in (False, True):
        for unit in (False, True):
            part = np.triu(a, int(unit)) if upper else np.tril(a, -int(unit))
            part = part / 8 + np.eye(shape[-1]) if unit else part + 4 * np.eye(shape[-1])
            found = core.solve_triangles(part.astype(dtype), b, upper, unit)
            np.testing.assert_allclose(part @ found, b, atol=TOLERANCE[dtype] * max(1, np.abs(found).max()))


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("shape", STACKS)
def test_cholesky(dtype: str, shape: tuple[int, ...]) -> None:
    a = matrices("d", *shape)
    a = (a @ a.swapaxes(-1, -2) + np.eye(shape[-1])).astype(dtype)
    found = core.cholesky_small(a)
    np.testing.assert_allclose(found, np.linalg.cholesky(a.astype(float)), atol=TOLERANCE[dtype] * np.abs(a).max())
    np.testing.assert_array_equal(found, np.tril(found))


def test_what_is_left_to_numpy() -> None:
    a, b = matrices("d", 2, 3, 3), matrices("d", 2, 3, 3, seed=1)
    for wrong in ((a[0], b), (a, b[:1]), (a, b.astype("f")), (a[:, :2], b[:, :2]), (matrices("d", 33, 33),) * 2):
        assert core.solve_small(*map(np.ascontiguousarray, wrong)) is None
        assert core.solve_triangles(*map(np.ascontiguousarray, wrong), True, False) is None
    assert core.solve_small(np.zeros((2, 3, 3)), b) is None
    assert core.cholesky_small(-np.eye(3)) is None
    assert core.cholesky_small(np.full((3, 3), np.nan)) is None
    with pytest.raises(ut.linalg.LinAlgError, match="singular"):
        ut.linalg.solve(ut.zeros(3, 3), ut.ones(3, 1))
    with pytest.raises(ut.linalg.LinAlgError, match="singular"):
        ut.linalg.inv(ut.zeros(3, 3))
    with pytest.raises(ut.linalg.LinAlgError, match="positive-definite"):
        ut.linalg.cholesky(-ut.eye(3))


def test_a_zero_on_the_diagonal_of_a_triangle_gives_infinities() -> None:
    a = ut.tensor([[1.0, 2.0], [0.0, 0.0]])
    assert ut.linalg.solve_triangular(a, ut.ones(2, 1), upper=True).tolist() == [[-np.inf], [np.inf]]


@pytest.mark.parametrize("dtype", ["f", "d", "?", "l", "D", "e", "b"])
def test_triangles(dtype: str) -> None:
    for shape in [(4, 4), (2, 3, 5), (6, 2), (1, 1)]:
        x = np.random.default_rng(0).integers(1, 90, shape).astype(dtype)
        for diagonal in (-9, -1, 0, 2, 9, 2**62, -(2**62)):
            for name in ("tril", "triu"):
                found = core.triangle(x, diagonal, name == "triu")
                assert found.dtype == x.dtype
                np.testing.assert_array_equal(found, getattr(np, name)(x, max(-100, min(100, diagonal))))
    assert core.triangle(np.zeros((3, 4)).T, 0, True) is None
    assert core.triangle(np.zeros(3), 0, True) is None
    assert core.triangle(np.zeros((0, 3)), 0, True) is None
    assert core.triangle(np.zeros((3, 3)), 2**70, True) is None
