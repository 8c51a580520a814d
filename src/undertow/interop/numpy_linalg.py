"""NumPy's products and linear algebra in terms of undertow's operations: more entries for numpy_functions.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.interop.numpy_functions import counterpart, flat, ops, same, tensors
from undertow.tensor import Tensor

# ---- products: here NumPy promotes dtypes, where the operations want them to agree


def promoted(a: Any, b: Any) -> list[Tensor]:
    """Both as tensors of their common dtype."""
    pair = tensors((a, b))
    dtype = dtypes.promote_types(*[t._array.dtype for t in pair])
    return [t if t._array.dtype is dtype else ops.to_dtype(t, dtype) for t in pair]


@counterpart(np.matmul)
def matmul(a: Any, b: Any) -> Any:
    return ops.matmul(*promoted(a, b))


@counterpart(np.dot)
def dot(a: Any, b: Any) -> Any:
    a, b = promoted(a, b)
    if not (a.ndim and b.ndim):
        return ops.mul(a, b)
    if a.ndim <= 2 and b.ndim <= 2:
        return ops.matmul(a, b)
    return ops.tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


@counterpart(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    return ops.vdot(*[flat(x, 0)[0] for x in promoted(a, b)])


@counterpart(np.inner)
def inner(a: Any, b: Any) -> Any:
    return ops.inner(*promoted(a, b))


@counterpart(np.outer)
def outer(a: Any, b: Any) -> Any:
    return ops.outer(*[flat(x, 0)[0] for x in promoted(a, b)])


@counterpart(np.einsum)
def einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Any:
    if not isinstance(subscripts, str):
        raise ops.Missing("einsum with lists of indices")
    return ops.einsum(subscripts, *operands)


@counterpart(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if not isinstance(axes, int):
        axes = [[int(k) for k in np.atleast_1d(side)] for side in axes]
    return ops.tensordot(*promoted(a, b), axes)


# ---- linear algebra

for _name in ("cholesky", "cross", "det", "eigh", "eigvalsh", "inv", "matrix_power", "multi_dot", "qr", "slogdet"):
    same(getattr(np.linalg, _name), f"linalg_{_name}")

same(np.cross, "linalg_cross")


@counterpart(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord is None:
        return ops.linalg_vector_norm(x, 2, axis, keepdim=keepdims)
    if x._array.ndim == 1 or isinstance(axis, int):
        return ops.linalg_vector_norm(x, ord, axis, keepdim=keepdims)
    return ops.linalg_matrix_norm(x, ord, (-2, -1) if axis is None else axis, keepdim=keepdims)


@counterpart(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    a, b = promoted(a, b)
    if b._array.ndim >= 2:  # NumPy takes this for matrices, where the operation may see a batch of vectors
        b = ops.broadcast_to(b, (*a._array.shape[: max(0, a._array.ndim - b._array.ndim)], *b._array.shape))
    return ops.linalg_solve(a, b)


@counterpart(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    return ops.linalg_pinv(a, rtol=rcond if rtol is None else rtol, hermitian=hermitian)


@counterpart(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return ops.linalg_svd(a, full_matrices=full_matrices) if compute_uv else ops.linalg_svdvals(a)
