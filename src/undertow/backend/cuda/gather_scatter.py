"""Sums by index, in the order of the elements, and what has an index for every element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import blocks, device, fused, indexing, sorting
from undertow.backend.cuda.blocks import rows
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import computed, stored
from undertow.backend.interface import Array

# ---- sums by index, in the order of the elements

# negative places count from the end; those out of range come behind all others, and are noted
WRAP = r"""
struct P { i64 *out; const i64 *index; i64 n, length, *error; };
KERNEL(wrap, P) { BEGIN const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= p.n) return;
    const i64 at = p.index[i] < 0 ? p.index[i] + p.length : p.index[i];
    const bool inside = at >= 0 && at < p.length;
    if (!inside && !p.error[0]) { p.error[1] = p.index[i]; p.error[2] = p.length; p.error[0] = 1; }
    p.out[i] = inside ? at : p.length; }
"""

# a block for the first of equal places adds up for all of them
SEGMENTS = r"""
struct P { S *out; const S *in; const i64 *order, *index; i64 count, columns, length; };
KERNEL(segments, P) { BEGIN
    const i64 row = p.index[p.order[blockIdx.x]];
    if (row == p.length || (blockIdx.x && p.index[p.order[blockIdx.x - 1]] == row)) return;
    i64 end = blockIdx.x + 1;
    while (end < p.count && p.index[p.order[end]] == row) end++;
    for (i64 c = (i64)blockIdx.y * blockDim.x + threadIdx.x; c < p.columns; c += (i64)gridDim.y * blockDim.x) {
        T sum = at(p.out, row * p.columns + c);
        for (i64 i = blockIdx.x; i < end; i++) sum += at(p.in, p.order[i] * p.columns + c);
        put(p.out, row * p.columns + c, sum);
    } }
"""


def add_rows(out: Array, index: Array, given: Array) -> Any:
    """out[index[k]] += given[k], in place: for every row of `out` in the order of the elements."""
    if out.dtype != given.dtype or not out.is_contiguous or not out.is_writeable or not dtypes.is_floating(out.dtype):
        return None
    index = indexing.as_index(index)
    if index is None or not out.size:
        return None
    if not given.size:
        return True
    index, count, columns = index.reshape(-1), index.size, math.prod(out.shape[1:])
    wrapped = device.extension().empty((count,), np.dtype(np.int64))
    fused.kernel("wrap", WRAP, "i64")(-(-count // 128), 128, wrapped, index, count, len(out), indexing.error_word())
    found = sorting.order_of_rows(wrapped, False, len(out).bit_length())
    width = max(32, min(256, 1 << (columns - 1).bit_length()))
    call = blocks.kernel("segments", SEGMENTS, out.dtype)
    across = min(-(-columns // width), 64)
    call((count, across), width, out, rows(given), found, wrapped, count, columns, len(out))
    return True


# the elements of runs, added up where they lie
RUNS = r"""
struct P { S *out; const S *in; const i64 *order, *starts; i64 count, runs, columns; };
KERNEL(runs, P) { BEGIN
    const i64 begin = p.starts[blockIdx.x], end = blockIdx.x + 1 < p.runs ? p.starts[blockIdx.x + 1] : p.count;
    for (i64 c = (i64)blockIdx.y * blockDim.x + threadIdx.x; c < p.columns; c += (i64)gridDim.y * blockDim.x) {
        T sum = Cast<T, S>::of(p.in[p.order[begin] * p.columns + c]);
        for (i64 i = begin + 1; i < end; i++) sum = sum + Cast<T, S>::of(p.in[p.order[i] * p.columns + c]);
        p.out[blockIdx.x * p.columns + c] = Cast<S, T>::of(sum);
    } }
"""


@functools.cache
def kernel_of_runs(dtype: np.dtype[Any]) -> Any:
    text = f"typedef {stored(dtype)} S; typedef {computed(dtype)} T;\n{RUNS}"
    return device.extension().Kernel(compile_kernels(text, [Entry("runs", "P", True)])[0])


def sum_ordered_runs(values: Array, order: Array, starts: Array) -> Any:
    """values[order] added up from each start to the next; nothing is brought into that order."""
    if not values.size or values.dtype.kind == "b":
        return None
    values, runs, columns = rows(values), len(starts), values.size // len(values)
    out = device.extension().empty((runs, *values.shape[1:]), values.dtype)
    width = max(32, min(256, 1 << (columns - 1).bit_length()))
    grid = runs, min(-(-columns // width), 64)
    kernel_of_runs(values.dtype)(grid, width, out, values, rows(order), rows(starts), len(values), runs, columns)
    return out


# ---- an index for every element

#: places for each thread of the plain kernel, from which sorting them is faster
MANY = 256


def _sizes(out: Array, dim: int, index: Array) -> tuple[int, int, int] | None:
    """The outer, middle and inner sizes of an index that has the sizes of an array in all other dimensions."""
    if not out.ndim or index.ndim != out.ndim or index.dtype != np.int64 or not index.size:
        return None
    if index.shape[:dim] != out.shape[:dim] or index.shape[dim + 1 :] != out.shape[dim + 1 :]:
        return None
    return math.prod(index.shape[:dim]), index.shape[dim], math.prod(index.shape[dim + 1 :])


def gather(x: Array, dim: int, index: Array) -> Array:
    """The elements that an index names along a dimension."""
    sizes = _sizes(x, dim, index)
    if sizes is None or x.itemsize not in indexing.WORDS:
        return None
    out = device.extension().empty(index.shape, x.dtype)
    indexing.run_gather(out, rows(x), rows(index), *sizes, x.shape[dim], along=True)
    return out


def scatter(name: str, out: Array, dim: int, index: Array, x: Array) -> Any:
    """Put elements where such an index says ("put"), or add them ("add"), in place; whether that was done."""
    sizes = _sizes(out, dim, index)
    if sizes is None or x.shape != index.shape or x.dtype != out.dtype or x.itemsize not in indexing.WORDS:
        return None
    if not out.is_contiguous or not out.is_writeable or (name == "add" and out.dtype.kind not in "uifc"):
        return None
    if name == "add" and sizes[0] == sizes[2] == 1 and sizes[1] > MANY and add_rows(out.reshape(-1), index, x):
        return True
    indexing.run_scatter(name, out, rows(x), rows(index), sizes, out.shape[dim], along=True)
    return True


KERNELS: dict[str, Callable[..., Any]] = {
    "add_rows": add_rows, "gather": gather, "scatter": functools.partial(scatter, "put"),
    "scatter_add": functools.partial(scatter, "add"), "sorted_order": sorting.order,
    "first_in_order": sorting.first_in_order, "sum_ordered_runs": sum_ordered_runs,
}  # fmt: skip
