"""Namespaces and methods have the names of PyTorch, and give what they give there."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import undertow as ut


def test_the_functional_namespace_has_the_names_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    assert set(torch.functional.__all__) == set(ut.functional.__all__)
    assert ut.functional.einsum("i,i->", ut.ones(2), ut.ones(2)).item() == 2.0
    assert tuple(ut.functional.broadcast_shapes((2, 1), (3,))) == (2, 3)


METHODS = {
    "digamma": lambda x: x.digamma(),
    "polygamma": lambda x: x.polygamma(1),
    "negative": lambda x: x.negative(),
    "histogram": lambda x: x.histogram(3).hist,
    "cholesky": lambda x: (x @ x.T + x.T @ x).cholesky(),
    "lu": lambda x: x.lu()[0],
    "geqrf": lambda x: x.geqrf().tau,
    "narrow_copy": lambda x: x.narrow_copy(0, 0, 1),
    "sum_to_size": lambda x: x.sum_to_size(1, 2),
    "nonzero_static": lambda x: x.nonzero_static(size=2),
    "stft": lambda x: x.flatten().stft(2, 1, return_complex=True),
    "as_strided_scatter": lambda x: x.as_strided_scatter(x[0], (2,), (2,)),
    "to_sparse_coo": lambda x: x.to_sparse_coo().to_dense(),
}


@pytest.mark.parametrize("call", METHODS.values(), ids=METHODS)
def test_methods_are_those_of_pytorch(call: Any) -> None:
    torch = pytest.importorskip("torch")
    data = [[1.5, 0.25], [0.5, 3.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are deprecated
        expected = call(torch.tensor(data, dtype=torch.float64))
        got = call(ut.tensor(data, dtype=ut.float64))
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-8)
