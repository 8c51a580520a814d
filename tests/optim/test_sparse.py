"""Sparse gradients: the rows that an embedding looked up are changed, as PyTorch changes them, and no others."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

RULES = [("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "maximize": True}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
         ("SparseAdam", {"lr": 0.1}), ("SparseAdam", {"lr": 0.1, "maximize": True})]  # fmt: skip


def train(L: Any, functions: Any, name: str, options: dict[str, Any]) -> Any:
    weight = L.tensor(np.random.default_rng(0).standard_normal((6, 2))).requires_grad_()
    optimizer = getattr(L.optim, name)([weight], **options)
    for rows in ([1, 1, 4], [4, 0], [1]):
        optimizer.zero_grad()
        (functions.embedding(L.tensor(rows), weight, sparse=True) ** 2).sum().backward()
        assert weight.grad.is_sparse
        optimizer.step()
    return weight.detach().numpy()


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), RULES, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_as_in_pytorch(torch: ModuleType, name: str, options: dict[str, Any]) -> None:
    found = train(ut, ut.nn.functional, name, options)
    np.testing.assert_allclose(found, train(torch, torch.nn.functional, name, options), rtol=1e-12)


@pytest.mark.parametrize(("name", "options"), RULES, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_rows_without_a_gradient_stay(name: str, options: dict[str, Any]) -> None:
    start = np.random.default_rng(0).standard_normal((6, 2))
    assert np.array_equal(train(ut, ut.nn.functional, name, options)[[2, 3, 5]], start[[2, 3, 5]])


@pytest.mark.parametrize(("name", "options"), [("Adam", {}), ("RMSprop", {}), ("SGD", {"momentum": 0.9, "lr": 0.1}),
                                               ("Adagrad", {"weight_decay": 0.1})])  # fmt: skip
def test_rules_that_change_every_element_refuse(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="sparse gradients"):
        train(ut, ut.nn.functional, name, options)


def test_sparse_adam_wants_sparse_gradients() -> None:
    p = ut.ones(2, requires_grad=True)
    p.sum().backward()
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        ut.optim.SparseAdam([p]).step()


def test_sparse_adam_wants_dense_real_parameters() -> None:
    for wrong in (ut.eye(2).to_sparse(), ut.ones(2, dtype=ut.complex64)):
        with pytest.raises(ValueError, match=r"params at indices \[\[0, 1\]\]: SparseAdam requires dense, real"):
            ut.optim.SparseAdam([ut.ones(2), wrong])


def one_sparse_step(L: Any) -> Any:
    p = L.nn.Parameter(L.tensor(2.0, dtype=L.float64))
    optimizer = L.optim.SparseAdam([p], lr=0.1)
    for _ in range(2):
        (p * p).backward()
        p.grad = p.grad.to_sparse()
        optimizer.step()
        optimizer.zero_grad()
    return p.item()


@pytest.mark.torch
def test_sparse_adam_of_a_tensor_without_dimensions(torch: ModuleType) -> None:
    assert one_sparse_step(ut) == pytest.approx(one_sparse_step(torch), rel=1e-12)
