"""Indices that an operation returns and keeps: changing them in place is noticed, as for every saved tensor."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

CASES: dict[str, Any] = {
    "max": lambda L, x: L.max(x, 1),
    "min": lambda L, x: L.min(x, 1),
    "median": lambda L, x: L.median(x, 1),
    "kthvalue": lambda L, x: L.kthvalue(x, 2, 1),
    "mode": lambda L, x: L.mode(x, 1),
    "sort": lambda L, x: L.sort(x, 1),
    "topk": lambda L, x: L.topk(x, 2, 1),
    "cummax": lambda L, x: L.cummax(x, 1),
    "max_pool1d": lambda L, x: L.nn.functional.max_pool1d(x, 2, return_indices=True),
    "max_pool2d": lambda L, x: L.nn.functional.max_pool2d(x[None], 2, return_indices=True),
    "adaptive_max_pool1d": lambda L, x: L.nn.functional.adaptive_max_pool1d(x, 2, return_indices=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_changed_indices_are_no_gradient(L: ModuleType, case: Any) -> None:
    x = L.tensor([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]], requires_grad=True)
    values, indices = case(L, x)
    indices.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_copy_of_the_indices_may_be_changed(L: ModuleType, case: Any) -> None:
    x = L.tensor([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]], requires_grad=True)
    values, indices = case(L, x)
    indices.clone().zero_()
    values.sum().backward()
    assert x.grad.sum().item() == values.numel()
