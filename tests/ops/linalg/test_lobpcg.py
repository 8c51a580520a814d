"""Eigenpairs found by iteration."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(6, 6), (2, 6, 6)])
def test_lobpcg_finds_eigenpairs(largest: bool, shape: tuple[int, ...]) -> None:
    a, b = ut.randn(*shape, dtype=ut.float64), ut.randn(*shape, dtype=ut.float64)
    A, B = a @ a.mT, b @ b.mT + ut.eye(6, dtype=ut.float64)
    for other in (None, B):
        values, vectors = ut.lobpcg(A, 2, other, largest=largest)
        right = vectors if other is None else other @ vectors
        np.testing.assert_allclose((A @ vectors).numpy(), (right * values.unsqueeze(-2)).numpy(), atol=1e-8)
    order = np.sort(np.linalg.eigvalsh(A.numpy()))[..., ::-1] if largest else np.sort(np.linalg.eigvalsh(A.numpy()))
    np.testing.assert_allclose(ut.lobpcg(A, 2, largest=largest)[0].numpy(), order[..., :2], atol=1e-8)
    with pytest.raises(ValueError, match="smaller than 3 x the number of requested eigenpairs"):
        ut.lobpcg(A, 3)
