"""Sobol sequences, against PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

pytest.importorskip("scipy")


@pytest.mark.torch
@pytest.mark.parametrize("options", [{}, {"scramble": True, "seed": 7}, {"scramble": True, "seed": 123}])
def test_points_are_those_of_pytorch(torch: ModuleType, options: dict[str, Any]) -> None:
    ours, theirs = [library.quasirandom.SobolEngine(6, **options) for library in (ut, torch)]
    for n in (1, 3, 8):
        np.testing.assert_array_equal(ours.draw(n).numpy(), theirs.draw(n).numpy())
    ours.fast_forward(5), theirs.fast_forward(5)
    found, expected = ours.draw(4, dtype=ut.float64), theirs.draw(4, dtype=torch.float64)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    np.testing.assert_array_equal(ours.reset().draw_base2(3).numpy(), theirs.reset().draw_base2(3).numpy())
    assert repr(ours) == repr(theirs)
    out = ut.empty(0)
    assert ours.draw(2, out=out) is out and out.shape == (2, 6)


def test_the_default_generator_scrambles() -> None:
    drawn = []
    for _ in range(2):
        ut.manual_seed(3)
        drawn.append(ut.quasirandom.SobolEngine(2, scramble=True).draw(4))
    assert ut.equal(*drawn)
    assert ((drawn[0] >= 0) & (drawn[0] < 1)).all()


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="Supported range of dimensionality"):
        ut.quasirandom.SobolEngine(0)
    engine = ut.quasirandom.SobolEngine(1)
    engine.draw(3)
    with pytest.raises(ValueError, match="3 points have been previously generated"):
        engine.draw_base2(2)
