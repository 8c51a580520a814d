"""The direction numbers of Sobol sequences (Joe and Kuo, 2008), of which SciPy has the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from undertow.backend.interface import Array


def direction_numbers(dimension: int, bits: int) -> Array:
    """An integer for each dimension and bit, of shape (dimension, bits)."""
    try:
        from scipy.stats import qmc
    except ImportError:
        raise ImportError(
            "Sobol sequences need the table of their direction numbers, which SciPy has: install undertow[special]"
        ) from None
    return np.asarray(qmc.Sobol(dimension, scramble=False, bits=bits)._sv, np.int64)
