"""Sorting: the indices that bring rows into their order, equal elements as they came, nan as the largest.

An element becomes an unsigned integer of the same order, its key. Short rows are sorted in one block (a bitonic sort of
keys and places); long ones by eight bits of the key at a time, from the lowest: what has the same bits keeps its order.
Each such pass counts the digits of every tile, adds up where those of a tile begin, and moves tiles: each is first
brought into its order in shared memory, so that neighbours are written to neighbouring places.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device
from undertow.backend.cuda.blocks import rows
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import stored
from undertow.backend.interface import Array

#: rows that one block sorts; threads of a block that moves a tile of a long row
SHORT, THREADS = 1024, 256

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
FN K key_of_two_bytes(float v, u32 bits)
{
    if (v != v) return 0xffff;
    return v == 0 ? 0x8000 : bits >> 15 ? ~bits & 0xffff : bits | 0x8000;
}
FN K key_of(Half v) { return key_of_two_bytes(widened(v), v.bits); }
FN K key_of(BFloat v) { return key_of_two_bytes(widened(v), v.bits); }
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

# In the first pass keys are made of elements, and in the last one only places are written. EACH keys of a thread lie 32
# apart, those of a warp behind those of the one before it.
DIGITS = r"""
#define TILE (256 * EACH)
#if FIRST
#define KEY(i) ((K)(FLIP key_of(from[i])))
#define PLACE(i) ((u32)(i))
#else
#define KEY(i) (from[i])
#define PLACE(i) (from_places[i])
#endif
FN u32 digit_of(K key, i64 shift) { return (u32)(key >> shift) & 255; }
#if !ALONE
// the lanes of a warp that have this digit (of nine bits); nine votes are quicker than __match_any_sync
FN u32 lanes_with(u32 digit)
{
    u32 same = ~0u;
    _Pragma("unroll") for (int bit = 0; bit < 9; bit++) {
        const u32 has = __ballot_sync(~0u, digit >> bit & 1);
        same &= digit >> bit & 1 ? has : ~has;
    }
    return same;
}
#endif
"""

# counts[row][digit][tile]: first how many keys of a tile have a digit, then where they begin
COUNT = r"""
struct Counted { u32 *counts; const S *from; i64 length, tiles, shift; };
KERNEL(count, Counted) { BEGIN
    __shared__ u32 found[256];
    const i64 begin = (i64)blockIdx.x * TILE, end = begin + TILE < p.length ? begin + TILE : p.length;
    const S *from = p.from + blockIdx.y * p.length;
    for (u32 d = threadIdx.x; d < 256; d += blockDim.x) found[d] = 0;
    __syncthreads();
#if ALONE
    for (i64 i = begin; i < end; i++) found[digit_of(KEY(i), p.shift)]++;
#else
    _Pragma("unroll") for (int k = 0; k < EACH; k++) {
        const i64 i = begin + k * 256 + threadIdx.x;
        if (i < end) atomicAdd(&found[digit_of(KEY(i), p.shift)], 1u);
    }
#endif
    __syncthreads();
    for (u32 d = threadIdx.x; d < 256; d += blockDim.x)
        p.counts[(blockIdx.y * 256 + d) * p.tiles + blockIdx.x] = found[d]; }
"""

# what all threads of a block have before each of them; `ends` has room for 33
SUMS = r"""
#if !ALONE
FN u32 before_mine(u32 own, u32 *ends)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u32 v = own;
    for (int o = 1; o < 32; o <<= 1) { const u32 before = __shfl_up_sync(~0u, v, o); if (lane >= o) v += before; }
    if (lane == 31) ends[warp] = v;
    __syncthreads();
    if (warp == 0) {
        u32 e = lane < warps ? ends[lane] : 0;
        for (int o = 1; o < 32; o <<= 1) { const u32 before = __shfl_up_sync(~0u, e, o); if (lane >= o) e += before; }
        ends[lane] = e;
    }
    __syncthreads();
    return v - own + (warp ? ends[warp - 1] : 0);
}
#endif
"""

BEGIN_AT = r"""
struct Begins { u32 *counts; i64 entries; };
KERNEL(begin_at, Begins) { BEGIN u32 *counts = p.counts + blockIdx.x * p.entries; u32 sum = 0;
#if ALONE
    for (i64 i = 0; i < p.entries; i++) { const u32 own = counts[i]; counts[i] = sum; sum += own; }
#else
    __shared__ u32 ends[33];
    for (i64 base = 0; base < p.entries; base += 8 * blockDim.x) {
        const i64 first = base + 8 * threadIdx.x; u32 own[8], total = 0;
        _Pragma("unroll") for (int k = 0; k < 8; k++) {
            own[k] = first + k < p.entries ? counts[first + k] : 0; total += own[k]; }
        u32 at = sum + before_mine(total, ends);
        _Pragma("unroll") for (int k = 0; k < 8; k++) {
            if (first + k < p.entries) counts[first + k] = at;
            at += own[k]; }
        sum += ends[(blockDim.x >> 5) - 1];
        __syncthreads();
    }
#endif
}
"""

MOVE = r"""
struct Moved { K *keys; OUT *places; const S *from; const u32 *from_places, *begins; i64 length, tiles, shift; };
KERNEL(move, Moved) { BEGIN
    const i64 row = blockIdx.y * p.length, begin = (i64)blockIdx.x * TILE;
    const i64 end = begin + TILE < p.length ? begin + TILE : p.length;
    const S *from = p.from + row; const u32 *from_places = p.from_places + row; (void)from_places;
    const u32 *begins = p.begins + blockIdx.y * 256 * p.tiles + blockIdx.x;
#if ALONE
    u32 next[256];
    for (int d = 0; d < 256; d++) next[d] = begins[d * p.tiles];
    for (i64 i = begin; i < end; i++) {
        const K key = KEY(i); const u32 at = next[digit_of(key, p.shift)]++;
        if (!LAST) p.keys[row + at] = key;
        p.places[row + at] = PLACE(i);
    }
#else
    __shared__ u32 found[8][256], starts[256], there[256], ends[33];
    __shared__ K keys[TILE]; __shared__ u32 places[TILE];
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    const u32 lower = (1u << lane) - 1;
    const i64 first = begin + warp * (32 * EACH) + lane;
    K own[EACH]; u32 place[EACH], rank[EACH];
    for (int k = 0; k < 8; k++) found[k][t] = 0;
    _Pragma("unroll") for (int k = 0; k < EACH; k++) {
        const i64 i = first + 32 * k;
        own[k] = i < end ? KEY(i) : K(0); place[k] = i < end ? PLACE(i) : 0;
    }
    __syncthreads();
    _Pragma("unroll") for (int k = 0; k < EACH; k++) { // how many keys of the warp with this digit come before
        const u32 digit = first + 32 * k < end ? digit_of(own[k], p.shift) : 256;
        const u32 same = lanes_with(digit), before = digit < 256 ? found[warp][digit] : 0;
        __syncwarp();
        if (digit < 256 && (same & lower) == 0) found[warp][digit] = before + __popc(same);
        __syncwarp();
        rank[k] = before + __popc(same & lower);
    }
    __syncthreads();
    u32 sum = 0; // of the digit t, in the warps before
    for (int k = 0; k < 8; k++) { const u32 theirs = found[k][t]; found[k][t] = sum; sum += theirs; }
    const u32 start = before_mine(sum, ends);
    starts[t] = start; there[t] = begins[t * p.tiles] - start;
    __syncthreads();
    _Pragma("unroll") for (int k = 0; k < EACH; k++) if (first + 32 * k < end) {
        const u32 digit = digit_of(own[k], p.shift), at = starts[digit] + found[warp][digit] + rank[k];
        keys[at] = own[k]; places[at] = place[k];
    }
    __syncthreads();
    for (int i = t; i < (int)(end - begin); i += 256) {
        const K key = keys[i]; const i64 at = row + (u32)(there[digit_of(key, p.shift)] + i);
        if (!LAST) p.keys[at] = key;
        p.places[at] = places[i];
    }
#endif
}
"""


def key_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)


def keys_of_a_thread(dtype: np.dtype[Any]) -> int:
    return 8 if dtype.itemsize == 8 else 16  # shared memory holds a tile


@functools.cache
def short_kernel(dtype: np.dtype[Any], descending: bool) -> Any:
    return made(BITONIC, dtype, descending, False, False, Entry("bitonic", "P", True))[0]


@functools.cache
def kernels_of_a_pass(dtype: np.dtype[Any], descending: bool, first: bool, last: bool) -> Any:
    """What counts, adds up and moves, elements of a dtype in the first pass and keys in the others."""
    entries = Entry("count", "Counted", True), Entry("begin_at", "Begins", True), Entry("move", "Moved", True)
    return made(DIGITS + SUMS + COUNT + BEGIN_AT + MOVE, dtype, descending, first, last, *entries)


def made(text: str, dtype: np.dtype[Any], descending: bool, first: bool, last: bool, *entries: Entry) -> list[Any]:
    key = key_dtype(dtype)
    words = {"S": stored(dtype), "K": stored(key), "OUT": "i64" if last else "u32"}
    head = "".join([f"typedef {word} {new};\n" for new, word in words.items()])
    macros = {"FLIP": "~" if descending else "", "FIRST": int(first), "LAST": int(last), "EACH": keys_of_a_thread(key)}
    head += "".join([f"#define {macro} {value}\n" for macro, value in macros.items()])
    return [device.extension().Kernel(address) for address in compile_kernels(head + KEYS + text, entries)]


def is_sortable(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "buif" or dtypes.is_narrow(dtype)


def order_of_rows(x: Array, descending: bool = False, bits: int | None = None) -> Array:
    """Indices that sort the last dimension; `bits`: how many of its lowest bits tell elements (of uint) apart."""
    x, length = rows(x), x.shape[-1]
    out = device.extension().empty(x.shape, np.dtype(np.int64))
    if length <= SHORT:
        size = max(2, 1 << (length - 1).bit_length())
        threads = max(32, min(512, size // 2))
        short_kernel(x.dtype, descending)(x.size // length, threads, out, x, length, size)
    else:
        _by_digits(x, out, descending, 8 * x.dtype.itemsize if bits is None else bits)
    return out


def _by_digits(x: Array, out: Array, descending: bool, bits: int) -> None:
    word, length, extension = key_dtype(x.dtype), x.shape[-1], device.extension()
    count, tiles = x.size // length, -(-length // (THREADS * keys_of_a_thread(word)))
    counts = extension.empty((count, 256, tiles), np.dtype(np.uint32))
    keys: Any = x
    places: Any = None
    for shift in range(0, bits, 8):
        first, last = shift == 0, shift + 8 >= bits
        dtype, turned = (x.dtype, descending) if first else (word, False)
        new_keys = None if last else extension.empty(x.shape, word)
        new_places = out if last else extension.empty(x.shape, np.dtype(np.uint32))
        grid = (tiles, count)
        count_digits, begin_at, move = kernels_of_a_pass(dtype, turned, first, last)
        count_digits(grid, THREADS, counts, keys, length, tiles, shift)
        begin_at(count, 1024, counts, 256 * tiles)
        move(grid, THREADS, new_keys, new_places, keys, places, counts, length, tiles, shift)
        keys, places = new_keys, new_places


#: rows of a grid's second dimension, and elements of one row
MOST_ROWS, LONGEST = 65535, 2**31


def order(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort along a dimension; None where there is no kernel."""
    if not x.size and x.ndim:
        return device.extension().empty(x.shape, np.dtype(np.int64))
    if not is_sortable(x.dtype) or not x.ndim:
        return None
    axis = axis % x.ndim
    length = x.shape[axis]
    if length > LONGEST or (length > SHORT and x.size // length > MOST_ROWS):
        return None
    if axis == x.ndim - 1:
        return order_of_rows(x, descending)
    space = x.namespace
    return rows(space.moveaxis(order_of_rows(space.moveaxis(x, axis, -1), descending), -1, axis))


def argsort(a: Array, axis: int | None = -1, kind: Any = None, **options: Any) -> Array:
    found = order(a.reshape(-1), -1, False) if axis is None else order(a, axis, False)
    return NotImplemented if found is None else found


def sort(a: Array, axis: int | None = -1, kind: Any = None, **options: Any) -> Array:
    a, axis = (a.reshape(-1), -1) if axis is None else (a, axis)
    found = order(a, axis, False)
    return NotImplemented if found is None else a.namespace.take_along_axis(a, found, axis)


FUNCTIONS: dict[str, Callable[..., Any]] = {"argsort": argsort, "sort": sort}
