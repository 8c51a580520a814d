"""Sparse arrays: coordinates and compressed rows or columns.

coo.py says what a SparseArray is, kernels.py and shapes.py what can be done with it. Here they are joined: SparseArray
is given the methods that need those functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend.interface import Array
from undertow.backend.sparse import kernels, shapes
from undertow.backend.sparse.coo import SparseArray
from undertow.backend.sparse.protocol import AnySparse, unsupported

# ---- NumPy's protocols


def array_ufunc(self: SparseArray, ufunc: Array, method: str, *inputs: Any, out: Array = (), **kwargs: Any) -> Any:
    if any(isinstance(x, AnySparse) and type(x) is not SparseArray for x in (*inputs, *out)):
        return NotImplemented  # the other layout knows what to do
    if method == "reduce" and ufunc is np.add:
        return kernels.sum_over(*inputs, **kwargs)
    if method != "__call__" or kwargs:
        raise unsupported(f"{ufunc.__name__}.{method}" if method != "__call__" else ufunc.__name__)
    return kernels.apply(ufunc, inputs, out[0] if out else None)


def array_function(self: SparseArray, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
    kernel = kernels.FUNCTIONS.get(function.__name__)
    if kernel is None:
        raise unsupported(function.__name__)
    return kernel(*args, **kwargs)


def getitem(self: SparseArray, index: Array) -> SparseArray:
    return self if index is Ellipsis else shapes.sliced(self, index)


# ---- the methods of arrays that depend on how places are kept


def transpose(self: SparseArray, *axes: Any) -> SparseArray:
    if len(axes) == 1 and not isinstance(axes[0], int):
        axes = tuple(axes[0] or ())
    return shapes.permuted(self, axes or tuple(range(self.ndim))[::-1])


def are_all(self: SparseArray) -> bool:
    return bool(kernels.to_dense(self).all())


def item(self: SparseArray) -> Any:
    return kernels.to_dense(self).item()


METHODS = {
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "__getitem__": getitem,
    "transpose": transpose,
    "swapaxes": shapes.swapaxes,
    "ravel": shapes.flattened,
    "all": are_all,
    "item": item,
}

for name, method in METHODS.items():
    setattr(SparseArray, name, method)
