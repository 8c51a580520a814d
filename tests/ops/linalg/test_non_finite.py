"""Matrices with an inf or a nan in them: LAPACK's iterations may never end on such, so they are looked at before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.errors import LinAlgError

L: Any = ut.linalg
BY_SINGULAR_VALUES: dict[str, Callable[[Any], Any]] = {
    "svd": L.svd, "svdvals": L.svdvals, "pinv": L.pinv, "cond": L.cond, "matrix_rank": L.matrix_rank,
    "nuclear norm": lambda x: L.matrix_norm(x, "nuc"), "spectral norm": lambda x: L.matrix_norm(x, 2),
    "lstsq": lambda x: L.lstsq(x, ut.ones(len(x), 1, dtype=x.dtype)),
    "torch.svd": ut.svd, "pinverse": ut.pinverse,
}  # fmt: skip


@pytest.fixture
def no_lapack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls LAPACK's would wait for ever."""

    def never_returns(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("LAPACK was called")

    monkeypatch.setattr(np.linalg, "svd", never_returns)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("function", BY_SINGULAR_VALUES.values(), ids=BY_SINGULAR_VALUES)
def test_lapack_is_not_asked(no_lapack: None, function: Callable[[Any], Any], value: float) -> None:
    matrix = ut.eye(4)
    matrix[1, 2] = value
    with pytest.raises(LinAlgError, match="contained non-finite values"):
        function(matrix)


def test_one_of_many_matrices(no_lapack: None) -> None:
    matrices = ut.zeros(3, 2, 2, dtype=ut.complex128)
    matrices[1, 0, 0] = complex(0, float("inf"))
    with pytest.raises(LinAlgError, match="contained non-finite values"):
        L.svd(matrices)


@pytest.mark.parametrize("n", [float("nan"), float("inf"), 1.5, 2.0, True, "2", None])
def test_powers_that_are_no_integers(n: Any) -> None:
    with pytest.raises(TypeError, match=r"matrix_power\(\): argument 'n' must be int, not "):
        ut.matrix_power(ut.eye(2), n)


def test_powers_that_are_integers_of_others() -> None:
    matrix = ut.tensor([[1.0, 1.0], [0.0, 1.0]])
    for n in (np.int64(3), ut.tensor(3)):
        assert ut.matrix_power(matrix, n).tolist() == [[1, 3], [0, 1]]
