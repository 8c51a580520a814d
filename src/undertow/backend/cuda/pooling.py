"""Kernels of pooling: the largest elements of windows and where they are, means of windows, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.backend.cuda import device
from undertow.backend.cuda.blocks import MOST_DIMS, agree, kernel, three
from undertow.backend.interface import Array

# Up to three dimensions: those that are missing have the size 1, a window of 1, and come first.
SIZES = "i64 n, sizes[3], counts[3], window[3], stride[3], padding[3], dilation[3]; "

PLACES = r"""
struct Window { i64 row; i32 from[3], to[3]; };
// the row of images (leading dimensions) and the window that an output belongs to; what lies outside is left out
template <class P> FN Window window_of(const P &p, i64 i)
{
    Window w;
    u32 rest = (u32)i;
    for (int d = 2; d >= 0; d--) {
        const u32 count = (u32)p.counts[d], next = rest / count;
        const i32 at = (i32)(rest - next * count), size = (i32)p.sizes[d];
        rest = next;
        if (p.adaptive) {
            w.from[d] = (i32)((i64)at * size / count);
            w.to[d] = (i32)(((i64)(at + 1) * size + count - 1) / count);
            continue;
        }
        const i32 dilation = (i32)p.dilation[d];
        i32 from = at * (i32)p.stride[d] - (i32)p.padding[d], to = from + ((i32)p.window[d] - 1) * dilation + 1;
        if (from < 0) from += (-from + dilation - 1) / dilation * dilation;
        w.from[d] = from;
        w.to[d] = to < size ? to : size;
    }
    w.row = rest;
    return w;
}
"""

LARGEST = (
    PLACES
    + r"""
struct P { S *values; i64 *places; const S *x; """
    + SIZES
    + r"""i64 adaptive; };
KERNEL(largest, P) { BEGIN
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        const Window w = window_of(p, i);
        const S *x = p.x + w.row * p.sizes[0] * p.sizes[1] * p.sizes[2];
        const i32 across = (i32)p.sizes[2], down = (i32)p.sizes[1];
        i32 place = (w.from[0] * down + w.from[1]) * across + w.from[2];
        T most = (T)float_of(0xff800000u);
        for (i32 a = w.from[0]; a < w.to[0]; a += (i32)p.dilation[0])
            for (i32 b = w.from[1]; b < w.to[1]; b += (i32)p.dilation[1])
                for (i32 c = w.from[2]; c < w.to[2]; c += (i32)p.dilation[2]) {
                    const i32 here = (a * down + b) * across + c;
                    const T v = at(x, here);
                    if (v > most || v != v) { most = v; place = here; }
                }
        put(p.values, i, most); p.places[i] = place;
    } }
"""
)

# A warp goes through the windows of an image in their order. Where several of its threads name one place, the first of
# them adds up for all: sums have the same order every time.
PUT_BACK = r"""
struct P { S *out; const S *g; const i64 *places; i64 images, windows, length; };
KERNEL(put_back, P) { BEGIN
#if ALONE
    for (i64 i = 4 * blockIdx.x * p.windows; i < 4 * (blockIdx.x + 1) * p.windows && i < p.images * p.windows; i++) {
        const i64 place = i / p.windows * p.length + p.places[i];
        put(p.out, place, at(p.out, place) + at(p.g, i));
    }
#else
    const i64 image = (i64)blockIdx.x * 4 + (threadIdx.x >> 5);
    if (image >= p.images) return;
    const S *g = p.g + image * p.windows; const i64 *places = p.places + image * p.windows;
    S *out = p.out + image * p.length;
    const int lane = threadIdx.x & 31;
    i64 next = lane < p.windows ? places[lane] : -1; T theirs = lane < p.windows ? at(g, lane) : T(0);
    for (i64 base = 0; base < p.windows; base += 32) {
        const i32 place = (i32)next; const T v = theirs;
        const i64 later = base + 32 + lane;
        if (later < p.windows) { next = places[later]; theirs = at(g, later); } else next = -1;
        const unsigned same = __match_any_sync(~0u, place);
        const bool leads = place >= 0 && (same & ((1u << lane) - 1)) == 0;
        T sum = leads ? at(out, place) + v : T(0);
        if (__any_sync(~0u, place >= 0 && same != 1u << lane))
            for (int k = 0; k < 32; k++) {
                const T other = __shfl_sync(~0u, v, k);
                if (k > lane && same >> k & 1) sum += other;
            }
        if (leads) put(out, place, sum);
        __syncwarp();
    }
#endif
}
"""

DIVISOR = r"""
// what the sum of the window at `at` is divided by
template <class P> FN T divisor(const P &p, const i64 *at)
{
    if (p.divisor) return (T)p.divisor;
    i64 total = 1;
    for (int d = 0; d < 3; d++) {
        const i64 from = at[d] * p.stride[d] - p.padding[d], end = from + p.window[d];
        const i64 to = end < p.sizes[d] + p.padding[d] ? end : p.sizes[d] + p.padding[d];
        total *= p.counts_padding ? to - from : (to < p.sizes[d] ? to : p.sizes[d]) - (from > 0 ? from : 0);
    }
    return (T)total;
}
"""

MEANS = (
    DIVISOR
    + r"""
struct P { S *out; const S *x; """
    + SIZES
    + r"""i64 counts_padding, divisor; };
KERNEL(means, P) { BEGIN
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        i64 rest = i, where[3], from[3], to[3]; T sum = 0;
        for (int d = 2; d >= 0; d--) {
            where[d] = rest % p.counts[d]; rest /= p.counts[d];
            from[d] = where[d] * p.stride[d] - p.padding[d]; to[d] = from[d] + p.window[d];
            if (from[d] < 0) from[d] = 0;
            if (to[d] > p.sizes[d]) to[d] = p.sizes[d];
        }
        const S *x = p.x + rest * p.sizes[0] * p.sizes[1] * p.sizes[2];
        for (i64 a = from[0]; a < to[0]; a++)
          for (i64 b = from[1]; b < to[1]; b++)
            for (i64 c = from[2]; c < to[2]; c++)
            sum += at(x, (a * p.sizes[1] + b) * p.sizes[2] + c);
        put(p.out, i, sum / divisor(p, where));
    } }
"""
)

# for every element of the image, the windows it is in
SPREAD = (
    DIVISOR
    + r"""
struct P { S *out; const S *g; """
    + SIZES
    + r"""i64 counts_padding, divisor; };
KERNEL(spread, P) { BEGIN
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        i64 rest = i, from[3], to[3], where[3]; T sum = 0;
        for (int d = 2; d >= 0; d--) {
            const i64 place = rest % p.sizes[d] + p.padding[d]; rest /= p.sizes[d];
            from[d] = place < p.window[d] ? 0 : (place - p.window[d]) / p.stride[d] + 1;
            to[d] = place / p.stride[d] + 1 < p.counts[d] ? place / p.stride[d] + 1 : p.counts[d];
        }
        const S *g = p.g + rest * p.counts[0] * p.counts[1] * p.counts[2];
        for (where[0] = from[0]; where[0] < to[0]; where[0]++)
            for (where[1] = from[1]; where[1] < to[1]; where[1]++)
                for (where[2] = from[2]; where[2] < to[2]; where[2]++)
                    sum += at(g, (where[0] * p.counts[1] + where[1]) * p.counts[2] + where[2]) / divisor(p, where);
        put(p.out, i, sum);
    } }
"""
)

#: places are computed in 32 bits
MOST_ELEMENTS = 2**31 - 1


def _sizes(
    n: int, given: Sequence[int], counts: Sequence[int], window: Any, stride: Any, padding: Any, dilation: Any
) -> list[int]:
    """What kernels are told of the sizes: SIZES."""
    missing = (1, 1, 1, 1, 0, 1)
    lists = (given, counts, window, stride, padding, dilation)
    return [n, *[k for sizes, none in zip(lists, missing, strict=True) for k in three(sizes, none)]]


def _blocks(n: int) -> int:
    return min(-(-n // 128), 1 << 20)


def max_pool(x: Array, window: Any, stride: Any, padding: Any, dilation: Any, counts: Any) -> Any:
    """The first largest element of every window (a nan is larger), and its place in the image."""
    return _largest(x, counts, (window, stride, padding, dilation), adaptive=False)


def adaptive_max_pool(x: Array, counts: Any) -> Any:
    ones = (1,) * len(counts)
    return _largest(x, counts, (ones, ones, (0,) * len(counts), ones), adaptive=True)


def _largest(x: Array, counts: Any, windows: Sequence[Any], adaptive: bool) -> Any:
    dims = len(counts)
    if not agree(x) or not x.is_contiguous or dims > MOST_DIMS or not math.prod(counts) or x.size > MOST_ELEMENTS:
        return None
    lead, extension = x.shape[: x.ndim - dims], device.extension()
    values = extension.empty((*lead, *counts), x.dtype)
    places = extension.empty((*lead, *counts), np.dtype(np.int64))
    kernel("largest", LARGEST, x.dtype, cooperative=False)(
        _blocks(values.size), 128, values, places, x, *_sizes(values.size, x.shape[len(lead) :], counts, *windows),
        int(adaptive),
    )  # fmt: skip
    return values, places


def max_pool_gradient(g: Array, places: Array, sizes: Any) -> Array:
    """Zeros of these sizes to which g was added at its places."""
    dims = len(sizes)
    if not agree(g) or not g.is_contiguous or places.shape != g.shape or not 0 < math.prod(sizes) <= MOST_ELEMENTS:
        return None
    lead = g.shape[: g.ndim - dims]
    extension, count = device.extension(), math.prod(lead)
    out = extension.zero(extension.empty((*lead, *sizes), g.dtype))
    numbers = count, g.size // count, math.prod(sizes)
    kernel("put_back", PUT_BACK, g.dtype)(-(-count // 4), 128, out, g, places, *numbers)
    return out


def avg_pool(
    x: Array, counts: Any, window: Any, stride: Any, padding: Any, counts_padding: bool, divisor: int
) -> Array:
    """The means of windows."""
    dims = len(counts)
    if not agree(x) or not x.is_contiguous or dims > MOST_DIMS or not math.prod(counts):
        return None
    lead = x.shape[: x.ndim - dims]
    out = device.extension().empty((*lead, *counts), x.dtype)
    kernel("means", MEANS, x.dtype, cooperative=False)(
        _blocks(out.size), 128, out, x,
        *_sizes(out.size, x.shape[len(lead) :], counts, window, stride, padding, (1,) * dims), int(counts_padding),
        int(divisor),
    )  # fmt: skip
    return out


def avg_pool_gradient(
    g: Array, sizes: Any, window: Any, stride: Any, padding: Any, counts_padding: bool, divisor: int
) -> Array:
    dims = len(sizes)
    if not agree(g) or not g.is_contiguous or dims > MOST_DIMS or not math.prod(sizes):
        return None
    lead = g.shape[: g.ndim - dims]
    out = device.extension().empty((*lead, *sizes), g.dtype)
    kernel("spread", SPREAD, g.dtype, cooperative=False)(
        _blocks(out.size), 128, out, g,
        *_sizes(out.size, sizes, g.shape[len(lead) :], window, stride, padding, (1,) * dims), int(counts_padding),
        int(divisor),
    )  # fmt: skip
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "max_pool": max_pool, "adaptive_max_pool": adaptive_max_pool, "max_pool_gradient": max_pool_gradient,
    "avg_pool": avg_pool, "avg_pool_gradient": avg_pool_gradient,
}  # fmt: skip
