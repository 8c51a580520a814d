"""The functions of NumPy's LAPACK against what they factorise, in all dtypes, and the paths that do without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cpu, lapack
from undertow.ops.linalg import ldl, lu

pytestmark = pytest.mark.skipif(lapack.library() is None, reason="NumPy's LAPACK has no names that are known")

DTYPES = ("f", "d", "F", "D")


def matrices(*shape: int, dtype: str) -> Any:
    rng = np.random.default_rng(0)
    real = rng.standard_normal(shape)
    return (real + 1j * rng.standard_normal(shape) if dtype in "FD" else real).astype(dtype)


def hermitian(count: int, n: int, dtype: str) -> Any:
    A = matrices(count, n, n, dtype=dtype)
    return A @ A.conj().swapaxes(-1, -2) / n + np.eye(n, dtype=dtype)


def close(found: Any, expected: Any) -> None:
    digits = 1e-3 if np.dtype(found.dtype).char in "fF" else 1e-10
    np.testing.assert_allclose(found, expected, rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 40, 40), (2, 50, 35), (3, 35, 50), (1, 1, 1)])
def test_lu(shape: tuple[int, ...], dtype: str) -> None:
    A = matrices(*shape, dtype=dtype)
    found = lapack.lu(A)
    assert found is not None
    expected = lu._eliminated(cpu, A)
    assert found[1].dtype == np.int32
    np.testing.assert_array_equal(found[1], expected[1])
    close(found[0], expected[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky(dtype: str) -> None:
    A = hermitian(3, 40, dtype)
    A[1] -= 5 * np.eye(40, dtype=dtype)
    found = lapack.cholesky(A)
    assert found is not None
    L, info = found
    close(L[[0, 2]] @ L[[0, 2]].conj().swapaxes(-1, -2), A[[0, 2]])
    assert info.tolist() == [0, 1, 0]


@pytest.mark.parametrize("is_hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ldl(dtype: str, is_hermitian: bool) -> None:
    A = matrices(2, 20, 20, dtype=dtype)
    A = A + (A.conj() if is_hermitian else A).swapaxes(-1, -2)
    found = lapack.ldl(A, is_hermitian)
    assert found is not None
    for k, matrix in enumerate(A):
        for mine, expected in zip(found, ldl._factor_matrix(cpu, matrix, is_hermitian), strict=True):
            close(mine[k], expected)


def test_matrices_of_other_dtypes_and_empty_ones_are_left() -> None:
    for A in (np.ones((1, 3, 3), int), np.ones((0, 3, 3)), np.ones((2, 0, 0)), np.ones((1, 2, 2), np.float16)):
        assert lapack.lu(A) is None and lapack.cholesky(A) is None and lapack.ldl(A, True) is None


def test_results_are_the_same_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    A = ut.tensor(hermitian(2, 40, "d"))

    def results() -> list[Any]:
        LU, pivots = ut.linalg.lu_factor(A)
        LD = ut.linalg.ldl_factor(A)
        return [LU, pivots, *LD, ut.linalg.cholesky(A), ut.linalg.lu_solve(LU, pivots, A)]

    by_lapack = results()
    monkeypatch.setattr(lapack, "library", lambda: None)
    for mine, expected in zip(by_lapack, results(), strict=True):
        close(mine, expected)


def test_a_function_that_the_library_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lapack.library()
    assert whole is not None

    class Part:
        def __init__(self) -> None:
            setattr(self, whole.names.format("dpotrf"), getattr(whole.handle, whole.names.format("dpotrf")))

    monkeypatch.setattr(lapack, "library", lambda: whole._replace(handle=Part()))
    A = hermitian(1, 40, "d")
    assert lapack.cholesky(A) is not None and lapack.lu(A) is None and lapack.ldl(A, True) is None
    assert lapack.cholesky(A.astype("f")) is None


@pytest.mark.parametrize("names", ["no_such_{}", "{}"])
def test_a_library_of_unknown_names_is_none(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "NAMES", (names,))
    lapack.library.cache_clear()
    try:
        assert lapack.library() is None
    finally:
        monkeypatch.undo()
        lapack.library.cache_clear()


def test_whole_numbers_of_another_size_are_noticed() -> None:
    right = lapack.library()
    assert right is not None
    other = np.dtype({8: np.int32, 4: np.int64}[right.integer.itemsize])
    assert not lapack.is_right(right._replace(integer=other))


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("n", [5, 40])
def test_systems_of_factorised_matrices(n: int, left: bool, adjoint: bool) -> None:
    A, B = ut.tensor(matrices(2, n, n, dtype="D")), ut.tensor(matrices(n, n, dtype="D"))
    X = ut.linalg.lu_solve(*ut.linalg.lu_factor(A), B, left=left, adjoint=adjoint)
    of = A.mH if adjoint else A
    close(of @ X if left else X @ of, np.broadcast_to(B.numpy(), (2, n, n)))
