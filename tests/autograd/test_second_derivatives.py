"""Second derivatives at places where the first has a kink or the norm is zero: PyTorch's choices."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

LOSSES: dict[str, Any] = {
    "huber_loss": lambda f, x: f.huber_loss(x, x.detach() * 0),
    "smooth_l1_loss": lambda f, x: f.smooth_l1_loss(x, x.detach() * 0),
}
POINTS = [[0.0, 1.0, -1.0], [0.5, 2.0, -0.25]]


def twice(lib: Any, function: Any, point: list[float]) -> Any:
    """The product of the Hessian with a vector."""
    x = lib.tensor(point, dtype=lib.float64, requires_grad=True)
    (first,) = lib.autograd.grad(function(x).sum(), x, create_graph=True)
    weights = lib.arange(1, len(point) + 1, dtype=lib.float64)
    (second,) = lib.autograd.grad((first * weights).sum(), x)
    return (second + 0).numpy()


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_on_their_borders(torch: ModuleType, name: str, point: list[float]) -> None:
    found = twice(ut, lambda x: LOSSES[name](ut, x), point)
    wanted = twice(torch, lambda x: LOSSES[name](torch.nn.functional, x), point)
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("point", [[0.0, 0.0], [0.0, 1.0], [1.0, -2.0]], ids=str)
@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2, 3, 4, float("inf")])
def test_norms_of_zeros(torch: ModuleType, order: float, point: list[float]) -> None:
    found, wanted = (twice(lib, lambda x, lib=lib: lib.linalg.vector_norm(x, order), point) for lib in (ut, torch))
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("point", [[0.0, 0.0], [0.0, 1.0]], ids=str)
def test_between_the_second_and_the_third_power_there_is_a_second_derivative(point: list[float]) -> None:
    assert twice(ut, lambda x: ut.linalg.vector_norm(x, 2.5), point).tolist() == [0, 0]  # PyTorch: nan
