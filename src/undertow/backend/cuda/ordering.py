"""Sorting: the indices that bring rows into their order, equal elements as they came, nan as the largest.

An element becomes an unsigned integer of the same order, its key. Short rows are sorted in one block (a bitonic sort of
keys and places); long ones by four bits of the key at a time, from the lowest: what has the same bits keeps its order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import blocks, device, indexing
from undertow.backend.cuda.blocks import rows
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import stored
from undertow.backend.interface import Array

#: rows that one block sorts; what of a long row one block moves, and how much each of its threads
SHORT, TILE, EACH = 1024, 4096, 16

KEYS = r"""
FN K key_of(u8 v) { return v; } FN K key_of(u16 v) { return v; } FN K key_of(u32 v) { return v; }
FN K key_of(bool v) { return v; }
FN K key_of(i8 v) { return (u8)(v ^ 0x80); } FN K key_of(i16 v) { return (u16)(v ^ 0x8000); }
FN K key_of(i32 v) { return (u32)v ^ 0x80000000u; }
FN K key_of(u64 v) { return (K)v; } FN K key_of(i64 v) { return (K)((u64)v ^ 0x8000000000000000ull); }
FN K key_of(float v)
{
    if (v != v) return (K)~(K)0;
    const u32 bits = bits_of(v == 0 ? 0.0f : v);
    return bits >> 31 ? (u32)~bits : bits | 0x80000000u;
}
FN K key_of(Half v) { return key_of(widened(v)); } FN K key_of(BFloat v) { return key_of(widened(v)); }
FN K key_of(double v)
{
    if (v != v) return (K)~(K)0;
    union { double d; u64 u; } x; x.d = v == 0 ? 0.0 : v;
    return (K)(x.u >> 63 ? ~x.u : x.u | 0x8000000000000000ull);
}
"""

BITONIC = r"""
struct P { i64 *out; const S *in; i64 length, size; };
KERNEL(bitonic, P) { BEGIN
    __shared__ K keys[1024]; __shared__ u32 places[1024];
    const S *x = p.in + blockIdx.x * p.length;
    for (u32 i = threadIdx.x; i < p.size; i += blockDim.x) {
        keys[i] = i < p.length ? FLIP key_of(x[i]) : (K)~(K)0;
        places[i] = i;
    }
    for (u32 width = 2; width <= p.size; width <<= 1)
        for (u32 step = width >> 1; step; step >>= 1) {
            __syncthreads();
            for (u32 t = threadIdx.x; t < p.size / 2; t += blockDim.x) {
                const u32 i = 2 * t - (t & (step - 1)), j = i + step;
                const bool later = keys[i] > keys[j] || (keys[i] == keys[j] && places[i] > places[j]);
                if (later == ((i & width) == 0)) {
                    const K k = keys[i]; keys[i] = keys[j]; keys[j] = k;
                    const u32 s = places[i]; places[i] = places[j]; places[j] = s;
                }
            }
        }
    __syncthreads();
    for (u32 i = threadIdx.x; i < p.length; i += blockDim.x) p.out[blockIdx.x * p.length + i] = places[i]; }
"""

PREPARE = r"""
struct P { K *keys; u32 *places; const S *in; i64 n, length; };
KERNEL(prepare, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        p.keys[i] = FLIP key_of(p.in[i]); p.places[i] = (u32)(i % p.length); } }
"""

# counts[row][digit][tile]: first how many keys of a tile have a digit, then where they begin
COUNT = r"""
struct P { u32 *counts; const K *keys; i64 length, tiles, shift; };
KERNEL(count, P) { BEGIN
    __shared__ u32 found[16];
    const i64 from = (i64)blockIdx.x * 4096, to = from + 4096 < p.length ? from + 4096 : p.length;
    const K *keys = p.keys + blockIdx.y * p.length;
    for (u32 d = threadIdx.x; d < 16; d += blockDim.x) found[d] = 0;
    __syncthreads();
    for (i64 i = from + threadIdx.x; i < to; i += blockDim.x) {
        const u32 digit = (u32)(keys[i] >> p.shift) & 15;
#if ALONE
        found[digit]++;
#else
        atomicAdd(&found[digit], 1u);
#endif
    }
    __syncthreads();
    for (u32 d = threadIdx.x; d < 16; d += blockDim.x)
        p.counts[(blockIdx.y * 16 + d) * p.tiles + blockIdx.x] = found[d]; }
"""

BEGIN_AT = r"""
struct P { u32 *counts; i64 entries; };
KERNEL(begin_at, P) { BEGIN u32 *counts = p.counts + blockIdx.x * p.entries; u32 sum = 0;
#if ALONE
    for (i64 i = 0; i < p.entries; i++) { const u32 own = counts[i]; counts[i] = sum; sum += own; }
#else
    __shared__ u32 ends[33];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (i64 base = 0; base < p.entries; base += blockDim.x) {
        const i64 i = base + threadIdx.x; const u32 own = i < p.entries ? counts[i] : 0; u32 v = own;
        for (int o = 1; o < 32; o <<= 1) { const u32 before = __shfl_up_sync(~0u, v, o); if (lane >= o) v += before; }
        if (lane == 31) ends[warp] = v;
        __syncthreads();
        if (warp == 0) {
            u32 e = lane < warps ? ends[lane] : 0;
            for (int o = 1; o < 32; o <<= 1) { const u32 b = __shfl_up_sync(~0u, e, o); if (lane >= o) e += b; }
            ends[lane] = e;
        }
        __syncthreads();
        if (i < p.entries) counts[i] = sum + v - own + (warp ? ends[warp - 1] : 0);
        sum += ends[warps - 1];
        __syncthreads();
    }
#endif
}
"""

MOVE = r"""
struct P { K *keys; u32 *places; const K *from_keys; const u32 *from_places, *begins; i64 length, tiles, shift; };
KERNEL(move, P) { BEGIN
    const i64 row = blockIdx.y * p.length, from = (i64)blockIdx.x * 4096;
    const i64 to = from + 4096 < p.length ? from + 4096 : p.length;
#if ALONE
    u32 next[16];
    for (int d = 0; d < 16; d++) next[d] = p.begins[(blockIdx.y * 16 + d) * p.tiles + blockIdx.x];
    for (i64 i = from; i < to; i++) {
        const K key = p.from_keys[row + i]; const u32 at = next[(u32)(key >> p.shift) & 15]++;
        p.keys[row + at] = key; p.places[row + at] = p.from_places[row + i];
    }
#else
    __shared__ u16 before[16][256];
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    const i64 first = from + t * 16;
    u16 own[16];
    for (int d = 0; d < 16; d++) before[d][t] = 0;
    for (int k = 0; k < 16; k++) if (first + k < to) before[(u32)(p.from_keys[row + first + k] >> p.shift) & 15][t]++;
    __syncthreads();
    for (int d = warp; d < 16; d += 8) {
        u32 sum = 0;
        for (int chunk = 0; chunk < 256; chunk += 32) {
            const u32 mine = before[d][chunk + lane]; u32 v = mine;
            for (int o = 1; o < 32; o <<= 1) { const u32 b = __shfl_up_sync(~0u, v, o); if (lane >= o) v += b; }
            before[d][chunk + lane] = (u16)(sum + v - mine);
            sum += __shfl_sync(~0u, v, 31);
        }
    }
    __syncthreads();
    for (int k = 0; k < 16; k++) if (first + k < to) {
        const K key = p.from_keys[row + first + k]; const u32 digit = (u32)(key >> p.shift) & 15;
        const u32 at = p.begins[(blockIdx.y * 16 + digit) * p.tiles + blockIdx.x] + before[digit][t]++;
        p.keys[row + at] = key; p.places[row + at] = p.from_places[row + first + k];
    }
#endif
}
"""


def key_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)


@functools.cache
def kernel(name: str, text: str, dtype: np.dtype[Any], descending: bool, cooperative: bool = True) -> Any:
    head = (
        f"typedef {stored(dtype)} S; typedef {stored(key_dtype(dtype))} K;\n#define FLIP {'~' if descending else ''}\n"
    )
    return device.extension().Kernel(compile_kernels(head + KEYS + text, [Entry(name, "P", cooperative)])[0])


def is_sortable(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "buif" or dtypes.is_narrow(dtype)


def order_of_rows(x: Array, descending: bool = False, bits: int | None = None) -> Array:
    """Indices that sort the last dimension; `bits`: how many of its lowest bits tell elements (of uint) apart."""
    x, length = rows(x), x.shape[-1]
    out = device.extension().empty(x.shape, np.dtype(np.int64))
    if length <= SHORT:
        size = max(2, 1 << (length - 1).bit_length())
        call = kernel("bitonic", BITONIC, x.dtype, descending)
        call(x.size // length, max(32, min(512, size // 2)), out, x, length, size)
        return out
    places = _by_digits(x, length, descending, bits)
    out.namespace.copyto(out, places, casting="unsafe")
    return out


def _by_digits(x: Array, length: int, descending: bool, bits: int | None) -> Any:
    count, tiles, extension = x.size // length, -(-length // TILE), device.extension()
    word = key_dtype(x.dtype)
    old, new = ([extension.empty(x.shape, word), extension.empty(x.shape, np.dtype(np.uint32))] for _ in range(2))
    counts = extension.empty((count, 16, tiles), np.dtype(np.uint32))
    kernel("prepare", PREPARE, x.dtype, descending, False)(
        min(-(-x.size // 256), 1 << 20), 256, *old, x, x.size, length
    )
    for shift in range(0, 8 * word.itemsize if bits is None else bits, 4):
        kernel("count", COUNT, word, False)((tiles, count), 256, counts, old[0], length, tiles, shift)
        kernel("begin_at", BEGIN_AT, word, False)(count, 512, counts, 16 * tiles)
        kernel("move", MOVE, word, False)((tiles, count), 256, *new, *old, counts, length, tiles, shift)
        old, new = new, old
    return old[1]


#: rows of a grid's second dimension, and elements of one row
MOST_ROWS, LONGEST = 65535, 2**31


def order(x: Array, axis: int, descending: bool) -> Any:
    """Indices that sort along a dimension; None where there is no kernel."""
    if not is_sortable(x.dtype) or not x.size or not x.ndim:
        return None
    axis = axis % x.ndim
    length = x.shape[axis]
    if length > LONGEST or (length > SHORT and x.size // length > MOST_ROWS):
        return None
    if axis == x.ndim - 1:
        return order_of_rows(x, descending)
    space = x.namespace
    return rows(space.moveaxis(order_of_rows(space.moveaxis(x, axis, -1), descending), -1, axis))


def argsort(a: Array, axis: int | None = -1, kind: Any = None, **options: Any) -> Any:
    found = order(a.reshape(-1), -1, False) if axis is None else order(a, axis, False)
    return NotImplemented if found is None else found


def sort(a: Array, axis: int | None = -1, kind: Any = None, **options: Any) -> Any:
    a, axis = (a.reshape(-1), -1) if axis is None else (a, axis)
    found = order(a, axis, False)
    return NotImplemented if found is None else a.namespace.take_along_axis(a, found, axis)


FUNCTIONS: dict[str, Callable[..., Any]] = {"argsort": argsort, "sort": sort}


# ---- sums by index, in the order of the elements

# negative places count from the end; those out of range come behind all others, and are noted
WRAP = r"""
struct P { i64 *out; const i64 *index; i64 n, length, *error; };
KERNEL(wrap, P) { BEGIN const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= p.n) return;
    const i64 at = p.index[i] < 0 ? p.index[i] + p.length : p.index[i];
    const bool inside = at >= 0 && at < p.length;
    if (!inside) { p.error[1] = p.index[i]; p.error[2] = p.length; p.error[0] = 1; }
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
    kernel("wrap", WRAP, index.dtype, False, False)(
        -(-count // 128), 128, wrapped, index, count, len(out), indexing.error_word()
    )
    found = order_of_rows(wrapped, False, len(out).bit_length())
    width = max(32, min(256, 1 << (columns - 1).bit_length()))
    call = blocks.kernel("segments", SEGMENTS, out.dtype)
    across = min(-(-columns // width), 64)
    call((count, across), width, out, rows(given), found, wrapped, count, columns, len(out))
    return True


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


def gather(x: Array, dim: int, index: Array) -> Any:
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
    "scatter_add": functools.partial(scatter, "add"), "sorted_order": order,
}  # fmt: skip
