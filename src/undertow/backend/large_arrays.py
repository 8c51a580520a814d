"""What NumPy does with arrays that the core does sooner if they are large: products, fills, copies, casts.

Products of stacks and transforms of rows are NumPy's own, by several threads (csrc/kernels/stacks.c); where several
threads may work, large products are the core's (csrc/kernels/products.c). Copies are divided among threads
(csrc/kernels/copies.c), as are casts; those of half precision are the core's at any size (csrc/kernels/casts.c). Large
results lie in memory that the core keeps (csrc/loops/memory.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from undertow.backend.interface import Array, DType
from undertow.backend.silence import quietly
from undertow.compiled import core, twin

#: elements of a result from which on it is worth looking further
MANY = 1 << 12

#: elements of an array from which on a copy of it is divided
LARGE = 1 << 15

#: single and double precision, real and complex
FLOATING = frozenset("fdFD")

#: multiplications of a product of matrices up to which NumPy's BLAS itself takes one thread for it
SMALL = 1 << 18


@cache
def loop_of(ufunc: Array, types: str) -> int:
    """The number of a loop of a ufunc; -1 if there is none for these types."""
    return list(ufunc.types).index(types) if types in ufunc.types else -1


def empty(shape: Any, dtype: DType = float, *args: Any, **kwargs: Any) -> Any:
    """np.empty"""
    if core is not None and not args and not kwargs:
        return core.empty(shape, dtype)
    return np.empty(shape, dtype, *args, **kwargs)


def full(shape: Any, value: Array, dtype: DType = None, *args: Any, **kwargs: Any) -> Array:
    """np.full"""
    if core is None or dtype is None or args or kwargs:
        return np.full(shape, value, dtype, *args, **kwargs)
    if type(value) in (int, float, bool):
        return core.filled(shape, dtype, value)
    out = core.empty(shape, dtype)
    np.copyto(out, value, casting="unsafe")
    return out


def ones(shape: Any, dtype: DType = float, *args: Any, **kwargs: Any) -> Any:
    """np.ones"""
    if core is not None and not args and not kwargs:
        return core.filled(shape, dtype, 1)
    return np.ones(shape, dtype, *args, **kwargs)


def fill(array: Array, number: Any) -> None:
    """array.fill(number)"""
    if core is not None and type(array) is np.ndarray:
        core.fill(array, number)
    else:
        quietly(array.fill, number)


def dot(a: Array, b: Array) -> Array:
    """a.dot(b), of two matrices"""
    if core is None or type(a) is not np.ndarray:
        return a.dot(b)
    plain = type(b) is np.ndarray and a.ndim == b.ndim == 2
    if plain and is_outer(a, b):
        return np.multiply(a, b)
    if plain and a.shape[0] * b.shape[1] >= MANY and a.dtype is b.dtype and a.dtype.char in FLOATING:
        out = core.empty((a.shape[0], b.shape[1]), a.dtype)
        return out if core.matrix_product(a, b, out) else a.dot(b, out)
    return a.dot(b)


def own_product(a: Array, b: Array) -> Array | None:
    """The product of two matrices by the core, if it is sooner done than a BLAS, whose threads would be in its way."""
    if core is None or type(a) is not np.ndarray or type(b) is not np.ndarray or a.dtype is not b.dtype:
        return None
    out = core.empty((a.shape[0], b.shape[1]), a.dtype)
    return out if core.matrix_product(a, b, out) else None


def matmul(a: Array, b: Array, /, *args: Any, **kwargs: Any) -> Array:
    """np.matmul"""
    if core is None or args or kwargs or type(a) is not np.ndarray or type(b) is not np.ndarray:
        return np.matmul(a, b, *args, **kwargs)
    if a.ndim < 2 or b.ndim < 2 or a.dtype is not b.dtype or a.dtype.char not in FLOATING:
        return np.matmul(a, b)
    (*lead, m, n), p = a.shape, b.shape[-1]
    if b.shape[-2] != n or a.size * p < MANY:
        return np.matmul(a, b)
    stack = tuple(lead) if a.shape[:-2] == b.shape[:-2] else np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = core.empty((*stack, m, p), a.dtype)
    if is_outer(a, b):
        return np.multiply(a, b, out)
    if core.matrix_product(*_items(a, b, out)):
        return out
    if m * n * p <= SMALL and out.size and n:
        nanoseconds = 300 + 0.06 * m * n * p * (a.dtype.itemsize // 4)
        if core.over_stacks(
            np.matmul, loop_of(np.matmul, f"{a.dtype.char * 2}->{a.dtype.char}"), (a, b, out), nanoseconds
        ):
            return out
    return np.matmul(a, b, out)


def is_outer(a: Array, b: Array) -> bool:
    """Whether the product of these is that of columns and rows: a BLAS takes ten times as long for it as NumPy."""
    return a.shape[-1] == b.shape[-2] == 1 and a.dtype is b.dtype and a.dtype.char in FLOATING


def _items(a: Array, b: Array, out: Array) -> tuple[Array, Array, Array]:
    """Stacks of the same shape as stacks of one dimension; others as they are."""
    if out.ndim <= 3 or a.shape[:-2] != b.shape[:-2] or not out.size:
        return a, b, out
    return a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), out.reshape(-1, *out.shape[-2:])


def over_rows(ufunc: Any, types: str, operands: Sequence[Any], nanoseconds: float) -> bool:
    """Whether a generalised ufunc was computed, into the last of these operands: its items are their last dimensions.

    nanoseconds  that one item may take
    """
    number = loop_of(ufunc, types) if core is not None else -1
    return number >= 0 and bool(
        core.over_stacks(ufunc, number, tuple([np.asanyarray(x) for x in operands]), nanoseconds)
    )


@twin
def copied(array: Array, order: str = "K") -> Array:
    """array.copy(order)"""
    if core is not None and type(array) is np.ndarray and array.size >= LARGE:
        made = core.copied(array, order)
        if made is not None:
            return made
    return array.copy(order=order)


def is_viewable(shape: tuple[int, ...], strides: tuple[int, ...], size: tuple[int, ...]) -> bool:
    """Whether every place where the memory jumps falls between two dimensions of the new sizes."""
    dims = [(n, stride) for n, stride in zip(shape, strides, strict=True) if n != 1]
    if 0 in shape or not dims:
        return True
    counts = accumulate([n for n, _ in dims], mul)
    jumps = {c for c, (_, s), (n, t) in zip(counts, dims, dims[1:], strict=False) if s != n * t}
    return jumps <= set(accumulate(size, mul))


def reshape(array: Array, shape: Any, /, *args: Any, **kwargs: Any) -> Array:
    """np.reshape"""
    if type(array) is not np.ndarray or args or kwargs:
        return np.reshape(array, shape, *args, **kwargs)
    if array.size >= LARGE and not array.flags.c_contiguous and type(shape) is tuple and -1 not in shape:
        array = array if is_viewable(array.shape, array.strides, shape) else copied(array, "C")
    return array.reshape(shape)


@twin
def concatenate(arrays: Sequence[Array], axis: Any = 0) -> Array:
    """np.concatenate"""
    return np.concatenate(arrays, axis)


def cast(array: Array, dtype: DType) -> Array:
    """array.astype(dtype)"""
    if core is not None and type(array) is np.ndarray:
        made = core.converted(array, dtype)
        if made is not None:
            return made
    return array.astype(dtype)
