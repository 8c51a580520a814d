"""NumPy's products and linear algebra in terms of undertow's operations: more entries for numpy/functions.py."""

from __future__ import annotations

import functools
import string
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType
from undertow.interop.numpy.functions import counterpart, flat, ops, same, tensors, unwrapped
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.arguments.dims import Dims

# ---- products: here NumPy promotes dtypes, where the operations want them to agree


def promoted(*values: Any) -> list[Tensor]:
    """All as tensors of their common dtype."""
    found = tensors(values)
    dtype = functools.reduce(dtypes.promote_types, [t._array.dtype for t in found])
    return [t if t._array.dtype is dtype else ops.to_dtype(t, dtype) for t in found]


def newer(name: str) -> list[Any]:
    """NumPy's function of that name, where this NumPy has it: 2.1 is the oldest that undertow works with."""
    return [getattr(np, name)] if hasattr(np, name) else []


@counterpart(np.matmul, np.linalg.matmul)
def matmul(a: Array, b: Array) -> Array:
    return ops.matmul(*promoted(a, b))


@counterpart(np.dot)
def dot(a: Array, b: Array) -> Array:
    a, b = promoted(a, b)
    if not (a.ndim and b.ndim):
        return ops.mul(a, b)
    if a.ndim <= 2 and b.ndim <= 2:
        return ops.matmul(a, b)
    return ops.tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


@counterpart(np.vdot)
def vdot(a: Array, b: Array) -> Array:
    return ops.vdot(*[flat(x, 0)[0] for x in promoted(a, b)])


@counterpart(np.inner)
def inner(a: Array, b: Array) -> Array:
    return ops.inner(*promoted(a, b))


@counterpart(np.outer, np.linalg.outer)
def outer(a: Array, b: Array) -> Array:
    return ops.outer(*[flat(x, 0)[0] for x in promoted(a, b)])


@counterpart(np.einsum)
def einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Array:
    if not isinstance(subscripts, str):
        subscripts, operands = _as_letters((subscripts, *operands))
    return ops.einsum(subscripts, *promoted(*operands))


def _as_letters(parts: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """`operand, indices, operand, indices, ..., indices of the output` with a string for all indices."""
    *lists, rest = [parts[k] for k in range(1, len(parts), 2)] + [parts[-1] if len(parts) % 2 else None]
    terms = [_letters(indices) for indices in lists]
    return ",".join(terms) + ("" if rest is None else f"->{_letters(rest)}"), parts[0 : 2 * len(lists) : 2]


def _letters(indices: Any) -> str:
    return "".join(["..." if k is Ellipsis else string.ascii_letters[k] for k in indices])


@counterpart(np.tensordot, np.linalg.tensordot)
def tensordot(a: Array, b: Array, axes: Any = 2) -> Array:
    if not isinstance(axes, int):
        axes = [[int(k) for k in np.atleast_1d(side)] for side in axes]
    return ops.tensordot(*promoted(a, b), axes)


@counterpart(np.vecdot, np.linalg.vecdot)
def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    x1, x2 = promoted(x1, x2)
    if x1._array.shape[axis] != x2._array.shape[axis]:
        raise ValueError(f"vecdot: axis {axis} has size {x1._array.shape[axis]} and {x2._array.shape[axis]}")
    product = ops.mul(ops.conj(x1), x2)
    return ops.sum(product, axis, dtype=product.dtype)


@counterpart(*newer("matvec"))
def matvec(x1: Array, x2: Array, /) -> Array:
    x1, x2 = promoted(x1, x2)
    return ops.squeeze(ops.matmul(x1, ops.unsqueeze(x2, -1)), -1)


@counterpart(*newer("vecmat"))
def vecmat(x1: Array, x2: Array, /) -> Array:
    x1, x2 = promoted(x1, x2)
    return ops.squeeze(ops.matmul(ops.unsqueeze(ops.conj(x1), -2), x2), -2)


# ---- linear algebra

for _name in ("cholesky", "cond", "det", "inv", "svdvals"):
    same(getattr(np.linalg, _name), f"linalg_{_name}")

same(np.linalg.matrix_power, "matrix_power")


@counterpart(np.cross)
def cross(a: Array, b: Array, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = promoted(a, b)
    a, b = ops.movedim(a, axisa, -1), ops.movedim(b, axisb, -1)
    if a._array.shape[-1] != 3 or b._array.shape[-1] != 3:
        raise ops.Missing("cross products of vectors with two elements")
    shape = np.broadcast_shapes(a._array.shape, b._array.shape)
    return ops.movedim(ops.linalg_cross(ops.broadcast_to(a, shape), ops.broadcast_to(b, shape)), -1, axisc)


@counterpart(np.linalg.eigh)
def eigh(a: Array, UPLO: str = "L") -> Any:
    return ops.linalg_eigh(_mirrored(a, UPLO), UPLO)


@counterpart(np.linalg.eigvalsh)
def eigvalsh(a: Array, UPLO: str = "L") -> Array:
    return ops.linalg_eigvalsh(_mirrored(a, UPLO), UPLO)


def _mirrored(a: Array, UPLO: str) -> Array:
    """The Hermitian matrix of which one triangle is read: NumPy's functions do not depend on the other."""
    triangle = ops.tril(a, -1) if UPLO.upper() == "L" else ops.triu(a, 1)
    diagonal = ops.mul(ops.real(a), np.eye(a._array.shape[-1], dtype=bool))
    return ops.add(ops.add(triangle, ops.conj(ops.swapaxes(triangle, -1, -2))), diagonal)


@counterpart(np.linalg.norm)
def norm(x: Array, ord: Any = None, axis: Dims = None, keepdims: bool = False) -> Array:
    if ord is None:
        return ops.linalg_vector_norm(x, 2, axis, keepdim=keepdims)
    if axis is None and x._array.ndim > 2:
        raise ValueError("Improper number of dimensions to norm.")
    if x._array.ndim == 1 or isinstance(axis, int):
        return ops.linalg_vector_norm(x, ord, axis, keepdim=keepdims)
    return ops.linalg_matrix_norm(x, ord, (-2, -1) if axis is None else axis, keepdim=keepdims)


@counterpart(np.linalg.solve)
def solve(a: Array, b: Array) -> Array:
    a, b = promoted(a, b)
    if b._array.ndim >= 2:  # NumPy takes this for matrices, where the operation may see a batch of vectors
        b = ops.broadcast_to(b, (*a._array.shape[: max(0, a._array.ndim - b._array.ndim)], *b._array.shape))
    return ops.linalg_solve(a, b)


@counterpart(np.linalg.pinv)
def pinv(a: Array, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    return ops.linalg_pinv(a, rtol=rcond if rtol is None else rtol, hermitian=hermitian)


@counterpart(np.linalg.svd)
def svd(a: Array, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return ops.linalg_svd(a, full_matrices=full_matrices) if compute_uv else ops.linalg_svdvals(a)


@counterpart(np.linalg.qr)
def qr(a: Array, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise ops.Missing(f"qr with mode={mode!r}")
    return ops.linalg_qr(a)[1] if mode == "r" else ops.linalg_qr(a, mode)


@counterpart(np.linalg.multi_dot)
def multi_dot(arrays: Any) -> Array:
    return ops.linalg_multi_dot(promoted(*arrays))


def real_where_real(values: Array, like: Array) -> Array:
    """NumPy's eigenvalues of a real matrix are real arrays if all of them are real; from NumPy 2.5 they never are."""
    if like._array.dtype.kind == "c" or np.any(unwrapped(values).imag):
        return values
    return ops.real(values) if np.linalg.eigvals(np.ones((1, 1))).dtype.kind == "f" else values


@counterpart(np.linalg.eigvals)
def eigvals(a: Array) -> Array:
    return real_where_real(ops.linalg_eigvals(a), a)


@counterpart(np.linalg.eig)
def eig(a: Array) -> Any:
    found = ops.linalg_eig(a)
    if np.any(unwrapped(found[0]).imag):
        return found
    return type(found)([real_where_real(part, a) for part in found])


@counterpart(np.diagonal)
def diagonal_of_axes(a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    return ops.diagonal(a, offset, axis1, axis2)


@counterpart(np.trace)
def trace_of_axes(a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DType | None = None) -> Array:
    return ops.sum(ops.diagonal(a, offset, axis1, axis2), -1, dtype=dtype)


@counterpart(np.linalg.diagonal)
def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    return ops.diagonal(x, offset, -2, -1)


@counterpart(np.linalg.trace)
def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    return ops.sum(ops.diagonal(x, offset, -2, -1), -1, dtype=dtype)


@counterpart(np.linalg.matrix_norm)
def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    return ops.linalg_matrix_norm(x, ord, keepdim=keepdims)


@counterpart(np.linalg.vector_norm)
def vector_norm(x: Array, /, *, axis: Dims = None, keepdims: bool = False, ord: Any = 2) -> Array:
    return ops.linalg_vector_norm(x, ord, axis, keepdim=keepdims)


@counterpart(np.linalg.tensorinv)
def tensorinv(a: Array, ind: int = 2) -> Array:
    return ops.linalg_tensorinv(a, ind)


@counterpart(np.linalg.tensorsolve)
def tensorsolve(a: Array, b: Array, axes: Any = None) -> Array:
    return ops.linalg_tensorsolve(*promoted(a, b), axes)


@counterpart(np.linalg.lstsq)
def lstsq(a: Array, b: Array, rcond: Any = None) -> tuple[Any, ...]:
    """The solution, the squared residuals, the rank and the singular values."""
    a, b = promoted(a, b)
    right = ops.unsqueeze(b, 1) if b._array.ndim == 1 else b
    singular = ops.linalg_svdvals(a)
    rank = np.linalg.lstsq(unwrapped(a), unwrapped(b), rcond)[2]
    rows, columns = a._array.shape
    if rank < min(rows, columns):
        raise ops.Missing("lstsq of a matrix without full rank")
    solution = ops.linalg_lstsq(a, right)[0]
    rest = ops.sum(ops.square(ops.abs(ops.sub(right, ops.matmul(a, solution)))), 0)
    residuals = rest if rows > columns else rest[:0]
    return (ops.squeeze(solution, 1) if b._array.ndim == 1 else solution), residuals, int(rank), singular


@counterpart(np.linalg.cross)
def linalg_cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    return ops.linalg_cross(*ops.broadcast_tensors(*promoted(x1, x2)), dim=axis)


@counterpart(np.linalg.slogdet)
def slogdet(a: Array) -> Array:
    return SlogdetResult(*ops.linalg_slogdet(a))


#: NumPy's named tuple, which has no public name
SlogdetResult = type(np.linalg.slogdet(np.eye(1)))
