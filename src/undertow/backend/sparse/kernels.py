"""What can be computed with sparse arrays. Every function takes and gives SparseArrays or NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.backend import kernels
from undertow.backend.cpu import cpu
from undertow.backend.interface import Array, DType
from undertow.backend.sparse.coo import AnySparse, SparseArray, SparseConversionError, unsupported
from undertow.backend.sparse.places import (
    add_at,
    coalesced,
    flat_places,
    matches,
    starts_of_runs,
    sum_runs,
    with_sparse_dim,
)
from undertow.backend.sparse.protocol import space_of
from undertow.backend.sparse.shapes import concatenate, expand_dims, stack, swapaxes

# ---- between sparse and dense


def to_dense(array: SparseArray) -> Array:
    return add_into(array.namespace.zeros(array.shape, array.dtype), array)


def add_into(out: Array, array: SparseArray) -> Array:
    """Add a sparse array to a dense one, in place."""
    space, count = array.namespace, array.sparse_dim
    if (count == 1 or (count and space is not cpu)) and out.flags.c_contiguous:
        flat = array.indices[0] if count == 1 else flat_places(array.indices, array.shape[:count])
        rows = out.reshape(math.prod(array.shape[:count]), *array.shape[count:])
        if kernels.add_rows(space, rows, flat, space.ascontiguousarray(array.values)):
            return out
    array = coalesced(array)
    places = tuple(array.indices) if array.sparse_dim else slice(0, array.nnz)
    (out if array.sparse_dim else out[None])[places] += array.values
    return out


def from_dense(array: Array, sparse_dim: int) -> SparseArray:
    """The elements (blocks, for sparse_dim < ndim) of a dense array that are not zero."""
    present = (array != 0).any(axis=tuple(range(sparse_dim, array.ndim)))
    none = space_of(array).zeros
    indices = np.stack(np.nonzero(present)) if sparse_dim else none((0, int(present)), np.int64)
    values = array[present] if sparse_dim else array[None][: int(present)].copy()
    return SparseArray(indices.astype(np.int64), values, array.shape, True)


def values_at(array: Array, indices: Array) -> Array:
    """What an array holds at the given places of its leading dimensions: a number, or block, for each."""
    count, nnz = indices.shape
    if type(array) is not SparseArray:
        return array[tuple(indices)] if count else np.repeat(array[None], nnz, axis=0)
    array = coalesced(with_sparse_dim(array, count))
    out = array.namespace.zeros((nnz, *array.shape[count:]), array.dtype)
    if array.nnz:
        sizes = array.shape[:count]
        found, hit = matches(flat_places(array.indices, sizes), flat_places(indices, sizes))
        out[hit] = array.values[found[hit]]
    return out


def masked(array: Array, mask: SparseArray) -> SparseArray:
    """The elements of an array, dense or sparse, at the places of a sparse one."""
    return SparseArray(mask.indices, values_at(array, mask.indices), mask.shape, mask.coalesced)


def zeros_like(array: SparseArray, dtype: DType | None = None, order: str = "K") -> SparseArray:
    zeros = array.namespace.zeros
    values = zeros((0, *array.shape[array.sparse_dim :]), dtype or array.dtype)
    return SparseArray(zeros((array.sparse_dim, 0), np.int64), values, array.shape, True)


# ---- sums


def is_number(value: Array) -> bool:
    return type(value) is not SparseArray and np.ndim(value) == 0


def add(a: Array, b: Array) -> Array:
    if is_number(a) or is_number(b):
        raise RuntimeError(
            "add(sparse, dense) is not supported. Use add(dense, sparse) instead: a number added to every element "
            "leaves no zeros, so call to_dense() first."
        )
    if a.shape != b.shape:
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, expected 'self' and 'other' to have same size, but "
            f"{list(a.shape)} != {list(b.shape)}: addition of sparse tensors does not broadcast"
        )
    if type(a) is not SparseArray:
        return add_into(a.astype(np.result_type(a, b.dtype), order="K"), b)
    if type(b) is not SparseArray:
        return add_into(b.astype(np.result_type(a.dtype, b), order="K"), a)
    return add_sparse(a, b)


def add_sparse(a: SparseArray, b: SparseArray) -> SparseArray:
    count = max(a.sparse_dim, b.sparse_dim)
    a, b = with_sparse_dim(a, count), with_sparse_dim(b, count)
    if a.coalesced and b.coalesced and np.array_equal(a.indices, b.indices):
        return SparseArray(a.indices, a.values + b.values, a.shape, True)
    indices, values = np.concatenate([a.indices, b.indices], axis=1), np.concatenate([a.values, b.values])
    joined = SparseArray(indices, values, a.shape)
    # sums of many would grow without end: not beyond one value for each place
    crowded = joined.nnz > math.prod(a.shape[:count])
    return coalesced(joined) if crowded or (a.coalesced and b.coalesced) else joined


def subtract(a: Array, b: Array) -> Array:
    return add(a, b if is_number(b) else np.negative(b))


def sum_over(
    array: SparseArray,
    axis: Any = 0,
    dtype: DType | None = None,
    out: None = None,
    keepdims: bool = False,
    **unknown: Any,
) -> Array:
    """np.add.reduce. Dense once no sparse dimension is left."""
    if unknown or out is not None:
        raise unsupported("sum")
    if axis is None:
        axis = tuple(range(array.ndim))
    axes = sorted({a % max(array.ndim, 1) for a in (axis if isinstance(axis, tuple) else (axis,))})
    gone = [a for a in axes if a < array.sparse_dim]
    left = [a for a in range(array.sparse_dim) if a not in gone]
    dense_axes = tuple([a - array.sparse_dim + 1 for a in axes if a >= array.sparse_dim])
    values = array.values.sum(axis=dense_axes, dtype=dtype, keepdims=keepdims)
    if not left:
        total = values.sum(axis=0, dtype=dtype)
        return total.reshape((1,) * len(gone) + total.shape) if keepdims else total
    shape = tuple([1 if a in axes else n for a, n in enumerate(array.shape) if keepdims or a not in axes])
    indices = array.indices[left]
    if keepdims:
        indices = array.indices.copy()
        indices[gone] = 0
    return coalesced(SparseArray(indices, values, shape, array.coalesced and not gone))


def sum_to(array: SparseArray, shape: tuple[int, ...]) -> Array:
    """Sum down to `shape`, which broadcasts to the array's: the transpose of broadcasting."""
    lead = array.ndim - len(shape)
    if lead:
        array = sum_over(array, tuple(range(lead)))
    axes = tuple([d for d, n in enumerate(shape) if n == 1 and array.shape[d] != 1])
    return np.add.reduce(array, axis=axes, keepdims=True) if axes else array


# ---- products


def multiply(a: Array, b: Array) -> SparseArray:
    if type(a) is not SparseArray:
        a, b = b, a
    if is_number(b):
        return SparseArray(a.indices, a.values * b, a.shape, a.coalesced)
    if type(b) is SparseArray:
        return multiply_sparse(a, b)
    try:
        b = np.broadcast_to(b, a.shape)
    except ValueError:
        raise RuntimeError(
            f"mul(sparse, dense): expected the dense tensor to broadcast to {list(a.shape)}, the size of the sparse "
            f"one, but got {list(b.shape)}"
        ) from None
    return SparseArray(a.indices, a.values * values_at(b, a.indices), a.shape, a.coalesced)


def multiply_sparse(a: SparseArray, b: SparseArray) -> SparseArray:
    if a.shape != b.shape:
        raise RuntimeError(
            f"mul operands have incompatible sizes: expected sizes of 'self' and 'other' to match, but "
            f"{list(a.shape)} != {list(b.shape)}"
        )
    count = max(a.sparse_dim, b.sparse_dim)
    a, b = (coalesced(with_sparse_dim(x, count)) for x in (a, b))
    sizes = a.shape[:count]
    if not a.nnz or not b.nnz:
        return zeros_like(a, np.result_type(a.dtype, b.dtype))
    at_a, hit = matches(flat_places(a.indices, sizes), flat_places(b.indices, sizes))
    return SparseArray(b.indices[:, hit], a.values[at_a[hit]] * b.values[hit], a.shape, True)


def divide(a: Array, b: Array) -> SparseArray:
    if type(a) is not SparseArray or not is_number(b):
        raise RuntimeError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{list(np.shape(b) if type(b) is not SparseArray else b.shape)} for divisor)"
        )
    return SparseArray(a.indices, a.values / b, a.shape, a.coalesced)


def product(a: Array, b: Array) -> Array:
    """The matrix product; dense unless both are sparse."""
    if any(isinstance(x, AnySparse) and type(x) is not SparseArray for x in (a, b)):
        return np.matmul(a, b)
    if a.ndim > 2 or b.ndim > 2 or 0 in (a.ndim, b.ndim):
        raise unsupported("matmul of more than two dimensions")
    if a.shape[-1] != b.shape[0]:
        raise RuntimeError(f"matmul: the inner sizes of {list(a.shape)} and {list(b.shape)} do not match")
    if type(a) is not SparseArray:
        return product(b.transpose(), a.transpose()).transpose()
    a = with_sparse_dim(a, a.ndim)
    if type(b) is SparseArray:
        return product_of_sparse(coalesced(a), coalesced(with_sparse_dim(b, b.ndim)))
    if a.ndim == 1:
        a = coalesced(a)
        return (a.values.reshape(-1, *(1,) * (b.ndim - 1)) * b[a.indices[0]]).sum(axis=0)
    return rows_times(a, b)


def product_of_values(a: Array, b: Array, indices: Array) -> Array:
    """The elements of a @ b.T, for dense a and b, at the given places."""
    rows, columns = a[indices[0]], b[indices[1]]
    return np.einsum("ij,ij->i", rows, columns) if space_of(a) is cpu else (rows * columns).sum(axis=1)


def rows_times(a: SparseArray, b: Array) -> Array:
    """a @ b for a matrix a and a dense b."""
    space = a.namespace
    out = space.zeros((a.shape[0], *b.shape[1:]), np.result_type(a.values, b))
    if kernels.add_weighted_rows(space, out, a.indices[0], a.values, a.indices[1], space.ascontiguousarray(b)):
        return out
    a = coalesced(a)
    rows, cols = a.indices
    values = a.values.reshape(-1, *(1,) * (b.ndim - 1))
    if space is not cpu:
        return add_at(out, rows, (values * b[cols]).astype(out.dtype, copy=False))
    starts = starts_of_runs(rows)
    lengths = np.diff(starts, append=a.nnz)
    if not a.nnz or 32 * int(lengths.max()) > len(starts):
        out[rows[starts]] = sum_runs(values * b[cols], starts)
    else:
        order = np.argsort(-lengths, kind="stable")
        out[rows[starts[order]]] = sum_by_turns(values, cols, starts[order], lengths, b, out.dtype)
    return out


def sum_by_turns(values: Array, cols: Array, starts: Any, lengths: Array, b: Array, dtype: DType) -> Array:
    """The rows of a product, longest first: the first terms of all rows, then the second ones, ...

    Where many rows are short, this takes half the time of writing all terms down and adding them up.
    """
    total = np.zeros((len(starts), *b.shape[1:]), dtype)
    for k, count in enumerate(np.bincount(lengths)[::-1].cumsum()[::-1][1:]):
        at = starts[:count] + k
        total[:count] += b.take(cols[at], axis=0) * values[at]
    return total


def product_of_sparse(a: SparseArray, b: SparseArray) -> SparseArray:
    """Every value of a, with all values of b in the row that its column names."""
    if a.ndim != 2 or b.ndim != 2:
        raise unsupported("matmul of sparse vectors")
    first = np.searchsorted(b.indices[0], a.indices[1])
    counts = np.searchsorted(b.indices[0], a.indices[1], side="right") - first
    arange = a.namespace.arange
    of_a = np.repeat(arange(a.nnz), counts)
    of_b = arange(len(of_a)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    indices = np.stack([a.indices[0][of_a], b.indices[1][of_b]])
    return coalesced(SparseArray(indices, a.values[of_a] * b.values[of_b], (a.shape[0], b.shape[1])))


# ---- through NumPy's names

BINARY: dict[str, Callable[..., Any]] = {
    "add": add, "subtract": subtract, "multiply": multiply, "divide": divide, "matmul": product,
}  # fmt: skip

#: ufuncs of one array that leave zeros zero and may be applied to every value that is added up
LINEAR = {"negative", "positive", "conjugate", "deg2rad", "rad2deg"}
#: those that leave zeros zero
ZERO_TO_ZERO = {
    "absolute", "sqrt", "square", "sin", "tan", "arcsin", "arctan", "sinh", "tanh", "arcsinh", "arctanh", "expm1",
    "log1p", "sign", "floor", "ceil", "trunc", "rint", "isnan", "isinf",
}  # fmt: skip

#: those of an array and a number, for the numbers with which they leave zeros zero
WITH_NUMBERS = {"maximum", "minimum", "fmax", "fmin", "power", "fmod", "remainder", "floor_divide"}


def apply(ufunc: Array, inputs: Sequence[Any], out: Array) -> Array:
    """A ufunc, of which one of the operands is sparse; `out` is one of them, or None."""
    name = ufunc.__name__
    into_dense = name in ("add", "subtract") and out is inputs[0] and type(out) is not SparseArray
    if into_dense and out.shape == inputs[1].shape:  # without a dense array in between
        return add_into(out, inputs[1] if name == "add" else np.negative(inputs[1]))
    if name in BINARY:
        result = BINARY[name](*inputs)
    elif name in LINEAR or name in ZERO_TO_ZERO:
        array = inputs[0] if name in LINEAR else coalesced(inputs[0])
        result = SparseArray(array.indices, ufunc(array.values), array.shape, array.coalesced)
    else:
        result = with_number(ufunc, inputs)
    return result if out is None else store(out, result)


def with_number(ufunc: Array, inputs: Sequence[Any]) -> Array:
    """A ufunc of a sparse array and a number, such as np.maximum(sparse, 0), if it leaves zeros zero."""
    array = next(x for x in inputs if type(x) is SparseArray)
    others = [x for x in inputs if x is not array]
    if ufunc.__name__ not in WITH_NUMBERS or len(others) != 1 or not is_number(others[0]):
        raise unsupported(ufunc.__name__)
    array = coalesced(array)
    zero, values = ([y if type(x) is SparseArray else x for x in inputs] for y in (array.dtype.type(0), array.values))
    with np.errstate(all="ignore"):
        if ufunc(*zero) != 0:
            raise unsupported(ufunc.__name__)
    return array.with_values(ufunc(*values))


def store(target: Array, result: Array) -> Array:
    """Put a result into an array that exists; a sparse one cannot hold what is dense."""
    if type(target) is SparseArray:
        if type(result) is not SparseArray:
            raise SparseConversionError(
                "add(sparse, dense) is not supported: the sum is dense, and has no place in a sparse tensor. Use "
                "add(dense, sparse) instead."
            )
        target.become(result if result.dtype == target.dtype else result.astype(target.dtype))
    elif type(result) is SparseArray:
        raise SparseConversionError("a sparse result does not fit into a dense tensor: call to_dense() first")
    else:
        target[...] = result
    return target


def copyto(target: Array, source: Array, casting: str = "same_kind", where: Any = True) -> None:
    if where is not True:
        raise RuntimeError("a sparse tensor cannot be written at some places only: call to_dense() first")
    if is_number(source) or type(target) is not type(source):
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Call to_dense() or to_sparse() on the source."
        )
    target.become(source.astype(target.dtype))


def broadcast_to(array: SparseArray, shape: Any) -> SparseArray:
    if tuple(shape) != array.shape:
        raise RuntimeError("expand is unsupported for Sparse tensors: call to_dense() first")
    return array


def real_part(array: SparseArray) -> SparseArray:
    return SparseArray(array.indices, array.values.real.copy(), array.shape, array.coalesced)


def shares_memory(a: Array, b: Array) -> bool:
    return a is b


#: functions that are not ufuncs, by NumPy's name
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "astype": lambda array, dtype, **ignored: array.astype(dtype),
    "concatenate": concatenate, "stack": stack, "expand_dims": expand_dims,
    "broadcast_to": broadcast_to, "copyto": copyto, "empty_like": zeros_like, "zeros_like": zeros_like,
    "may_share_memory": shares_memory, "shares_memory": shares_memory, "real": real_part,
    "sum": lambda array, axis=None, dtype=None, **options: sum_over(array, axis, dtype, **options),
    "swapaxes": swapaxes, "transpose": lambda array, axes=None: array.transpose(*(() if axes is None else (axes,))),
}  # fmt: skip
