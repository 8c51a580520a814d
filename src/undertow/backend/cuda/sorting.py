"""Sorting: the indices that bring rows into their order, equal elements as they came, nan as the largest.

An element becomes an unsigned integer of the same order, its key. Short rows are sorted in one block (a bitonic sort of
keys and places); long ones by eight bits of the key at a time, from the lowest: what has the same bits keeps its order.
Each such pass counts the digits of every tile, adds up where those of a tile begin, and moves tiles: each is first
brought into its order in shared memory, so that neighbours are written to neighbouring places. The last one writes the
elements, too, which keys tell. Between passes keys and places lie in turn in memory of their own and in the results'.

A few of the first of long rows are found from the highest bits of keys on, by one block for each row, and then sorted.
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
#: long rows for each of which a block may look for its first
ROWS_AT_ONCE = 32

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

# the element of a key; false: the key does not tell (signs of zeros, kinds of nan, and dtypes of one or two bytes)
ELEMENTS = r"""
C_ bool element_of(K, T &) { return false; }
FN bool element_of(K key, float &v)
{
    const u32 k = (u32)(UNFLIP key);
    if (k == ~0u || k == 0x80000000u) return false;
    v = float_of(k >> 31 ? k & 0x7fffffffu : ~k);
    return true;
}
FN bool element_of(K key, double &v)
{
    const u64 k = (u64)(UNFLIP key);
    if (k == ~0ull || k == 0x8000000000000000ull) return false;
    v = double_of(k >> 63 ? k & 0x7fffffffffffffffull : ~k);
    return true;
}
FN bool element_of(K key, i32 &v) { v = (i32)((u32)(UNFLIP key) ^ 0x80000000u); return true; }
FN bool element_of(K key, i64 &v) { v = (i64)((u64)(UNFLIP key) ^ 0x8000000000000000ull); return true; }
"""

# keys and places of a block, up to the next power of two, into their order
IN_A_BLOCK = r"""
FN void sort_block(K *keys, u32 *places, u32 size)
{
    for (u32 width = 2; width <= size; width <<= 1)
        for (u32 step = width >> 1; step; step >>= 1) {
            __syncthreads();
            for (u32 t = threadIdx.x; t < size / 2; t += blockDim.x) {
                const u32 i = 2 * t - (t & (step - 1)), j = i + step;
                const bool later = keys[i] > keys[j] || (keys[i] == keys[j] && places[i] > places[j]);
                if (later == ((i & width) == 0)) {
                    const K k = keys[i]; keys[i] = keys[j]; keys[j] = k;
                    const u32 s = places[i]; places[i] = places[j]; places[j] = s;
                }
            }
        }
    __syncthreads();
}
struct P { i64 *out; S *values; const S *in; i64 length, wanted, size; };
FN void write_first(const P &p, const u32 *places)
{
    const S *x = p.in + blockIdx.x * p.length;
    for (u32 i = threadIdx.x; i < p.wanted; i += blockDim.x) {
        p.out[blockIdx.x * p.wanted + i] = places[i];
        if (p.values) p.values[blockIdx.x * p.wanted + i] = x[places[i]];
    }
}
"""

BITONIC = r"""
KERNEL(bitonic, P) { BEGIN
    __shared__ K keys[1024]; __shared__ u32 places[1024];
    const S *x = p.in + blockIdx.x * p.length;
    for (u32 i = threadIdx.x; i < p.size; i += blockDim.x) {
        keys[i] = i < p.length ? FLIP key_of(x[i]) : (K)~(K)0;
        places[i] = i;
    }
    sort_block(keys, places, (u32)p.size);
    write_first(p, places); }
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

# The first of a row: digit by digit, what the last of them begins with; then those before it, and as many like it as
# are wanted, the first ones.
FIRST_ONES = r"""
#define IN_KEY ((K)(~(K)0 >> (8 * sizeof(K) - BITS)))
#define KEY_AT(i) ((K)((FLIP key_of(x[i])) & IN_KEY))
#if ALONE
FN u32 one_more(u32 &count) { return count++; }
#else
FN u32 one_more(u32 &count) { return atomicAdd(&count, 1u); }
#endif
KERNEL(first_ones, P) { BEGIN
    __shared__ K keys[1024]; __shared__ u32 places[1024], found[256], ends[33], taken;
    (void)ends;
    const S *x = p.in + blockIdx.x * p.length;
    K known = 0, mask = 0;
    u32 left = (u32)p.wanted, like = 0; // of those like the last; how many there are
    for (int shift = BITS - 8; shift >= 0; shift -= 8) {
        for (u32 d = threadIdx.x; d < 256; d += blockDim.x) found[d] = 0;
        __syncthreads();
        for (i64 i = threadIdx.x; i < p.length; i += blockDim.x) {
            const K key = KEY_AT(i);
            if ((key & mask) == known) one_more(found[key >> shift & 255]);
        }
        __syncthreads();
        u32 digit = 0;
        while (left > found[digit]) left -= found[digit++];
        like = found[digit];
        known |= (K)digit << shift; mask |= (K)255 << shift;
        __syncthreads();
    }
    const u32 before = (u32)p.wanted - left;
    for (u32 i = threadIdx.x; i < p.size; i += blockDim.x) { keys[i] = (K)~(K)0; places[i] = ~0u; }
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();
    for (i64 i = threadIdx.x; i < p.length; i += blockDim.x) {
        const K key = KEY_AT(i);
        if (key < known || (key == known && like == left)) {
            const u32 at = one_more(taken); keys[at] = key; places[at] = (u32)i; }
    }
    if (like != left) { // which of those like the last come first
        u32 seen = 0;
        for (i64 base = 0; base < p.length && seen < left; base += blockDim.x) {
            const i64 i = base + threadIdx.x;
            const u32 is_like = i < p.length && KEY_AT(i) == known;
#if ALONE
            const u32 at = seen;
            seen += is_like;
#else
            const u32 at = seen + before_mine(is_like, ends);
            seen += ends[(blockDim.x >> 5) - 1];
            __syncthreads();
#endif
            if (is_like && at < left) { keys[before + at] = known; places[before + at] = (u32)i; }
        }
    }
    sort_block(keys, places, (u32)p.size);
    write_first(p, places); }
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

# a block for each digit of a row: where those of a tile begin among all of that digit, and how many there are
BEGIN_AT = r"""
struct Begins { u32 *counts, *totals; i64 tiles; };
KERNEL(begin_at, Begins) { BEGIN const i64 which = blockIdx.y * 256 + blockIdx.x; u32 sum = 0;
    u32 *counts = p.counts + which * p.tiles;
#if ALONE
    for (i64 i = 0; i < p.tiles; i++) { const u32 own = counts[i]; counts[i] = sum; sum += own; }
#else
    __shared__ u32 ends[33];
    for (i64 base = 0; base < p.tiles; base += 4 * blockDim.x) {
        const i64 first = base + 4 * threadIdx.x; u32 own[4], total = 0;
        _Pragma("unroll") for (int k = 0; k < 4; k++) {
            own[k] = first + k < p.tiles ? counts[first + k] : 0; total += own[k]; }
        u32 at = sum + before_mine(total, ends);
        _Pragma("unroll") for (int k = 0; k < 4; k++) {
            if (first + k < p.tiles) counts[first + k] = at;
            at += own[k]; }
        sum += ends[(blockDim.x >> 5) - 1];
        __syncthreads();
    }
#endif
    if (threadIdx.x == 0) p.totals[which] = sum;
}
"""

MOVE = r"""
struct Moved { K *keys; OUT *places; E *values; const E *elements; const S *from;
               const u32 *from_places, *begins, *totals; i64 length, tiles, shift; };
FN void write_moved(const Moved &p, i64 row, i64 at, K key, u32 place)
{
    if (!LAST) p.keys[at] = key;
    p.places[at] = place;
    if (LAST && p.values) {
        E element;
        p.values[at] = element_of(key, element) ? element : p.elements[row + place];
    }
}
KERNEL(move, Moved) { BEGIN
    const i64 row = blockIdx.y * p.length, begin = (i64)blockIdx.x * TILE;
    const i64 end = begin + TILE < p.length ? begin + TILE : p.length;
    const S *from = p.from + row; const u32 *from_places = p.from_places + row; (void)from_places;
    const u32 *begins = p.begins + blockIdx.y * 256 * p.tiles + blockIdx.x, *totals = p.totals + blockIdx.y * 256;
#if ALONE
    u32 next[256], smaller = 0;
    for (int d = 0; d < 256; d++) { next[d] = smaller + begins[d * p.tiles]; smaller += totals[d]; }
    for (i64 i = begin; i < end; i++) {
        const K key = KEY(i);
        write_moved(p, row, row + next[digit_of(key, p.shift)]++, key, PLACE(i));
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
    const u32 smaller = before_mine(totals[t], ends);
    __syncthreads();
    const u32 start = before_mine(sum, ends);
    starts[t] = start; there[t] = smaller + begins[t * p.tiles] - start;
    __syncthreads();
    _Pragma("unroll") for (int k = 0; k < EACH; k++) if (first + 32 * k < end) {
        const u32 digit = digit_of(own[k], p.shift), at = starts[digit] + found[warp][digit] + rank[k];
        keys[at] = own[k]; places[at] = place[k];
    }
    __syncthreads();
    for (int i = t; i < (int)(end - begin); i += 256) {
        const K key = keys[i];
        write_moved(p, row, row + (u32)(there[digit_of(key, p.shift)] + i), key, places[i]);
    }
#endif
}
"""


def key_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)


def keys_of_a_thread(dtype: np.dtype[Any]) -> int:
    return 8 if dtype.itemsize == 8 else 16  # shared memory holds a tile


@functools.cache
def kernel_of_first(dtype: np.dtype[Any], descending: bool, is_short: bool) -> Any:
    """What sorts the first of short rows, or of long ones."""
    text, name = (BITONIC, "bitonic") if is_short else (SUMS + FIRST_ONES, "first_ones")
    return made(IN_A_BLOCK + text, dtype, dtype, descending, False, False, False, Entry(name, "P", True))[0]


@functools.cache
def kernels_of_a_pass(element: np.dtype[Any], descending: bool, first: bool, last: bool) -> Any:
    """What counts, adds up and moves, elements of a dtype in the first pass and keys in the others."""
    entries = Entry("count", "Counted", True), Entry("begin_at", "Begins", True), Entry("move", "Moved", True)
    text, source = DIGITS + SUMS + COUNT + BEGIN_AT + ELEMENTS + MOVE, element if first else key_dtype(element)
    return made(text, element, source, descending and first, descending, first, last, *entries)


def made(
    text: str, element: np.dtype[Any], source: np.dtype[Any], flips: bool, flipped: bool, first: bool, last: bool,
    *entries: Entry,
) -> list[Any]:  # fmt: skip
    key = key_dtype(element)
    words = {"E": stored(element), "S": stored(source), "K": stored(key), "OUT": "i64" if last else "u32"}
    head = "".join([f"typedef {word} {new};\n" for new, word in words.items()])
    macros = {"FLIP": "~" if flips else "", "UNFLIP": "~" if flipped else "", "FIRST": int(first), "LAST": int(last),
              "EACH": keys_of_a_thread(key), "BITS": 8 * element.itemsize}  # fmt: skip
    head += "".join([f"#define {macro} {value}\n" for macro, value in macros.items()])
    return [device.extension().Kernel(address) for address in compile_kernels(head + KEYS + text, entries)]


def is_sortable(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "buif" or dtypes.is_narrow(dtype)


def order_of_rows(x: Array, descending: bool = False, bits: int | None = None) -> Array:
    """Indices that sort the last dimension; `bits`: how many of its lowest bits tell elements (of uint) apart."""
    x = rows(x)
    if x.shape[-1] <= SHORT:
        return first_of_rows(x, x.shape[-1], descending, False)[1]
    return _by_digits(x, descending, 8 * x.dtype.itemsize if bits is None else bits, False)[1]


def sorted_rows(x: Array, descending: bool, wanted: int) -> tuple[Any, Any]:
    """The first `wanted` elements along the last dimension, in their order, and their indices."""
    x, length = rows(x), x.shape[-1]
    if length <= SHORT or (wanted <= SHORT and is_worth_a_block(x.size // length, length)):
        return first_of_rows(x, wanted, descending, True)
    found = _by_digits(x, descending, 8 * x.dtype.itemsize, True)
    return found if wanted == length else (found[0][..., :wanted].copy("C"), found[1][..., :wanted].copy("C"))


def is_worth_a_block(count: int, length: int) -> bool:
    """Whether one block for each of `count` rows finds a few of them before all blocks have sorted everything."""
    return count >= ROWS_AT_ONCE or length <= 1 << 16


def first_of_rows(x: Array, wanted: int, descending: bool, with_values: bool) -> tuple[Any, Any]:
    shape, length, extension = (*x.shape[:-1], wanted), x.shape[-1], device.extension()
    out = extension.empty(shape, np.dtype(np.int64))
    values = extension.empty(shape, x.dtype) if with_values else None
    is_short = length <= SHORT
    size = max(2, 1 << ((length if is_short else wanted) - 1).bit_length())
    threads = max(32, min(512, size // 2)) if is_short else 1024
    kernel_of_first(x.dtype, descending, is_short)(x.size // length, threads, out, values, x, length, wanted, size)
    return values, out


def _by_digits(x: Array, descending: bool, bits: int, with_values: bool) -> tuple[Any, Any]:
    """Results of a pass before the last one lie, in turn, in `between` and where the final results will."""
    word, length, empty, passes = key_dtype(x.dtype), x.shape[-1], device.extension().empty, -(-bits // 8)
    count, tiles = x.size // length, -(-length // (THREADS * keys_of_a_thread(word)))
    u32 = np.dtype(np.uint32)
    out, values = empty(x.shape, np.dtype(np.int64)), empty(x.shape, x.dtype) if with_values else None
    counts, totals = empty((count, 256, tiles), u32), empty((count, 256), u32)
    between = (empty(x.shape, word), empty(x.shape, u32)) if passes > 1 else (None, None)
    has_room = values is not None and word.itemsize == x.dtype.itemsize
    finals = (values if has_room else empty(x.shape, word) if passes > 2 else None), out
    keys, places = x, None
    for number in range(passes):
        last = number == passes - 1
        to = (None, out) if last else between if (passes - number) % 2 == 0 else finals
        sees_elements = number == 0 or last
        element, turned = (x.dtype, descending) if sees_elements else (word, False)
        count_digits, begin_at, move = kernels_of_a_pass(element, turned, number == 0, last)
        count_digits((tiles, count), THREADS, counts, keys, length, tiles, 8 * number)
        begin_at((256, count), 32 if tiles <= 128 else THREADS, counts, totals, tiles)
        move((tiles, count), THREADS, *to, values if last else None, x, keys, places, counts, totals, length, tiles,
             8 * number)  # fmt: skip
        keys, places = to
    return values, out


#: rows of a grid's second dimension, and elements of one row
MOST_ROWS, LONGEST = 65535, 2**31


def is_taken(x: Array, axis: int) -> bool:
    """Whether there is a kernel for sorting along a dimension; it has elements."""
    if not is_sortable(x.dtype) or not x.ndim or not x.size:
        return False
    length: int = x.shape[axis]
    return length <= LONGEST and (length <= SHORT or x.size // length <= MOST_ROWS)


def order(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort along a dimension; None where there is no kernel."""
    if not x.size and x.ndim:
        return device.extension().empty(x.shape, np.dtype(np.int64))
    if not is_taken(x, axis):
        return None
    return rows(moved(order_of_rows(moved(x, axis, -1), descending), -1, axis))


def moved(x: Array, axis: int, to: int) -> Array:
    return x if axis % x.ndim == to % x.ndim else x.namespace.moveaxis(x, axis, to)


def first_in_order(x: Array, axis: int, descending: bool, wanted: int) -> Any:
    """The first `wanted` elements along a dimension, in their order, and their indices."""
    if not is_taken(x, axis) or not wanted:
        return None
    return tuple([rows(moved(part, -1, axis)) for part in sorted_rows(moved(x, axis, -1), descending, wanted)])


def argsort(a: Array, axis: int | None = -1, kind: Any = None, **options: Any) -> Array:
    found = order(a.reshape(-1), -1, False) if axis is None else order(a, axis, False)
    return NotImplemented if found is None else found


def sort(a: Array, axis: int | None = -1, kind: Any = None, **options: Any) -> Array:
    a, axis = (a.reshape(-1), -1) if axis is None else (a, axis)
    found = first_in_order(a, axis, False, a.shape[axis]) if a.ndim else None
    return NotImplemented if found is None else found[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {"argsort": argsort, "sort": sort}
