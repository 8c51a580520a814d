"""What renorm refuses."""

from __future__ import annotations

import pytest

import undertow as ut


def test_renorm_refuses() -> None:
    with pytest.raises(RuntimeError, match="non-positive-norm not supported"):
        ut.renorm(ut.ones(2, 2), 0, 0, 1.0)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        ut.renorm(ut.ones(2), 2, 0, 1.0)
    with pytest.raises(RuntimeError, match="maxnorm to be >= 0"):
        ut.renorm(ut.ones(2, 2), 2, 0, -1.0)
