"""Sums by index, in the order of the elements, and what has an index for every element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, fused, indexing, sorting
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

#: elements in their order that a thread adds up
CHUNK = 128

# A thread for each column of a chunk. A run of elements with one place that lies within a chunk is added there; of one
# that goes on behind it the part in the chunk is kept: in `heads` if it began before, in `tails` if it begins there.
# `place`: of each element or, if `is_ordered`, of each in their order.
SEGMENTS = r"""
struct P { S *out; const S *in; H *heads, *tails; const i64 *order, *place;
           i64 is_ordered, count, columns, length, chunk, chunks; };
FN i64 place_at(const P &p, i64 i) { return i < 0 || i >= p.count ? -1 : p.place[p.is_ordered ? i : p.order[i]]; }
FN void add(const P &p, i64 row, i64 c, T sum)
{
    S *to = p.out + row * p.columns + c;
    if (row < p.length) *to = Cast<S, T>::of(Cast<T, S>::of(*to) + sum);
}
#define OF_CHUNK \
    const i64 t = (i64)blockIdx.x * blockDim.x + threadIdx.x, mine = t / p.columns, c = t - mine * p.columns; \
    if (mine >= p.chunks) return; \
    const i64 begin = mine * p.chunk, end = begin + p.chunk < p.count ? begin + p.chunk : p.count;
KERNEL(segments, P) { BEGIN OF_CHUNK
    i64 row = place_at(p, begin);
    bool began_before = place_at(p, begin - 1) == row;
    T sum = T();
    for (i64 i = begin; i < end; i++) {
        const i64 element = p.order[i], here = p.place[p.is_ordered ? i : element];
        if (here != row) {
            if (began_before) p.heads[t] = Cast<H, T>::of(sum); else add(p, row, c, sum);
            row = here; sum = T(); began_before = false;
        }
        sum = sum + Cast<T, S>::of(p.in[element * p.columns + c]);
    }
    if (began_before) p.heads[t] = Cast<H, T>::of(sum);
    else if (place_at(p, end) == row) p.tails[t] = Cast<H, T>::of(sum);
    else add(p, row, c, sum); }
KERNEL(join_segments, P) { BEGIN OF_CHUNK // those that begin in this chunk and go on behind it
    const i64 row = place_at(p, end - 1);
    if (place_at(p, end) != row || (place_at(p, begin - 1) == row && place_at(p, begin) == row)) return;
    T sum = Cast<T, H>::of(p.tails[t]);
    for (i64 next = mine + 1; next < p.chunks; next++) {
        sum = sum + Cast<T, H>::of(p.heads[next * p.columns + c]);
        if (place_at(p, (next + 1) * p.chunk) != row) break;
    }
    add(p, row, c, sum); }
"""


@functools.cache
def kernels_of_segments(dtype: np.dtype[Any]) -> tuple[Any, ...]:
    entries = [Entry(name, "P", False) for name in ("segments", "join_segments")]
    parts = stored(dtype_of_parts(dtype))
    head = f"typedef {stored(dtype)} S; typedef {computed(dtype)} T; typedef {parts} H;\n"
    made = compile_kernels(head + SEGMENTS, entries)
    return tuple([device.extension().Kernel(address) for address in made])


def dtype_of_parts(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtypes.float32 if dtypes.is_narrow(dtype) else dtype


def add_segments(out: Array, values: Array, order: Array, place: Array, is_ordered: bool) -> None:
    """out[place] += value for values in an order that brings equal places together; sums are added up in that order."""
    count, columns = order.size, math.prod(out.shape[1:])
    chunks = -(-count // CHUNK)
    heads, tails = (device.extension().empty((chunks, columns), dtype_of_parts(out.dtype)) for _ in range(2))
    arrays = out, rows(values), heads, tails, order, place
    for call in kernels_of_segments(out.dtype):
        call(-(-chunks * columns // 128), 128, *arrays, int(is_ordered), count, columns, len(out), CHUNK, chunks)


def add_rows(out: Array, index: Array, given: Array) -> Any:
    """out[index[k]] += given[k], in place: for every row of `out` in the order of the elements."""
    if out.dtype != given.dtype or not out.is_contiguous or not out.is_writeable or not dtypes.is_floating(out.dtype):
        return None
    index = indexing.as_index(index)
    if index is None or not out.size:
        return None
    if not given.size:
        return True
    index, count = index.reshape(-1), index.size
    wrapped = device.extension().empty((count,), np.dtype(np.int64))
    fused.kernel("wrap", WRAP, "i64")(-(-count // 128), 128, wrapped, index, count, len(out), indexing.error_word())
    add_segments(out, given, sorting.order_of_rows(wrapped, False, len(out).bit_length()), wrapped, False)
    return True


def sum_ordered_runs(values: Array, order: Array, starts: Array) -> Any:
    """values[order] added up from each start to the next; nothing is brought into that order."""
    if not values.size or values.dtype.kind == "b":
        return None
    space, count = values.namespace, len(order)
    begins = space.zeros(count, np.int64)
    begins[starts] = 1
    out = space.zeros((len(starts), *values.shape[1:]), values.dtype)
    add_segments(out, values, rows(order), space.cumsum(begins) - 1, True)
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
