"""SciPy's sparse arrays, which the extra `special` installs: told from other values, taken apart and made."""

from __future__ import annotations

import sys
from typing import Any

from undertow.backend.interface import Array


def is_sparse(value: Array) -> bool:
    """Whether a value is a sparse array or matrix of SciPy."""
    scipy_sparse = sys.modules.get("scipy.sparse")  # what was never imported has made no arrays
    return scipy_sparse is not None and bool(scipy_sparse.issparse(value))


def coordinates(matrix: Any) -> tuple[Any, Any, tuple[int, ...]]:
    """The rows and columns of all stored entries, zeros among them included, and the shape."""
    found = matrix.tocoo()
    return found.row, found.col, found.shape


def sparse_array(rows: Array, cols: Array, values: Array, shape: tuple[int, int]) -> Any:
    """A `scipy.sparse.csr_array` with these entries."""
    return _scipy_sparse().csr_array((values, (rows, cols)), shape=shape)


def _scipy_sparse() -> Any:
    try:
        import scipy.sparse
    except ImportError as error:
        raise ImportError(
            "a sparse array was asked for, and SciPy, which has them, is not installed. Install it "
            "(pip install 'undertow[special]'), or ask for rows, columns and values as tensors with triplets=True."
        ) from error
    return scipy.sparse
