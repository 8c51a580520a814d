"""Functions of layers at the top of the package, whose arguments differ from those in nn.functional: as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import undertow as ut


def numbers(L: Any, *shape: int) -> Any:
    count = L.arange(float(ut.zeros(*shape).numel()), dtype=L.float64)
    return (L.sin(3 * count) * 0.9).reshape(shape)


CALLS: dict[str, Callable[[Any], Any]] = {
    "alpha_dropout": lambda L: L.alpha_dropout(numbers(L, 4), 0.5, False),
    "alpha_dropout_": lambda L: L.alpha_dropout_(numbers(L, 4), 0.5, False),
    "feature_alpha_dropout": lambda L: L.feature_alpha_dropout(numbers(L, 2, 2), 0.5, False),
    "rrelu": lambda L: L.rrelu(numbers(L, 4), 0.1, 0.3, False),
    "ctc_loss": lambda L: L.ctc_loss(
        numbers(L, 5, 2, 4).log_softmax(-1), L.tensor([[1, 2], [3, 1]]), L.tensor([5, 4]), L.tensor([2, 1]), 0, 2
    ),
    "grid_sampler": lambda L: L.grid_sampler(numbers(L, 1, 2, 4, 4), numbers(L, 1, 3, 3, 2), 1, 2, True),
    "grid_sampler_2d": lambda L: L.grid_sampler_2d(numbers(L, 1, 2, 4, 4), numbers(L, 1, 3, 3, 2), 2, 0, False),
    "grid_sampler_3d": lambda L: L.grid_sampler_3d(numbers(L, 1, 1, 3, 3, 3), numbers(L, 1, 2, 2, 2, 3), 0, 1, True),
    "norm_except_dim": lambda L: L.norm_except_dim(numbers(L, 2, 3, 4), 2, 1),
    "norm_except_dim of all": lambda L: L.norm_except_dim(numbers(L, 2, 3), 2, -1),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CALLS)
def test_values_are_pytorchs(torch: Any, name: str) -> None:
    found, expected = CALLS[name](ut), CALLS[name](torch)
    assert found.shape == tuple(expected.shape)
    assert found.flatten().tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-9, abs=1e-12)


@pytest.mark.torch
def test_the_order_of_dimensions_in_memory(torch: Any) -> None:
    for size, layout in (((2, 3, 5), (2, 0, 1)), ((2, 3), (1, 0)), ((4,), (0,))):
        found, expected = ut.empty_permuted(size, layout), torch.empty_permuted(size, layout)
        assert found.shape == tuple(expected.shape) and found.stride() == expected.stride()
    with pytest.raises(RuntimeError, match="Number of dimensions in size does not match"):
        ut.empty_permuted((2, 3), (0,))


def test_anomaly_mode_by_its_other_name() -> None:
    ut.set_anomaly_enabled(True)
    try:
        assert ut.is_anomaly_enabled()
    finally:
        ut.set_anomaly_enabled(False)
    assert not ut.is_anomaly_enabled()
