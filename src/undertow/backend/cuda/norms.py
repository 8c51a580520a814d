"""Kernels of norms: over the last dimensions (layer norm, RMS norm), and over channels (batch norm, group norm)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend.cuda import device
from undertow.backend.cuda.blocks import (
    RowReader,
    agree,
    exact,
    kernel,
    reading_kernel,
    rows,
    threads_for,
    threads_that_keep,
)
from undertow.backend.cuda.reductions import reduce
from undertow.backend.interface import Array

# ---- over the last dimensions: a block for each row

FORWARD = RowReader(
    "forward",
    "struct P { S *out; T *mean, *rstd; const S *in, *weight, *bias; i64 columns; double eps; i64 centred, kept; };",
    r"""
KERNEL(forward, Arguments) { BEGIN
    const S *x = p.in + blockIdx.x * p.columns; S *out = p.out + blockIdx.x * p.columns;
    T mean = 0, square = 0;
    if (p.kept) {
        Kept row, other;
        take_row(row, p, blockIdx.x, T(0));
        if (p.centred) {
            for (int j = 0; j < KEPT * WIDE; j++) mean += row.v[j];
            mean = sum_of(mean) / (T)p.columns;
        }
        EACH_PIECE(k, i, p.columns)
            for (int j = k * WIDE; j < k * WIDE + WIDE; j++) { row.v[j] -= mean; square += row.v[j] * row.v[j]; }
        const T rstd = T(1) / m_sqrt(sum_of(square) / (T)p.columns + (T)p.eps);
        if (threadIdx.x == 0) { p.rstd[blockIdx.x] = rstd; if (p.mean) p.mean[blockIdx.x] = mean; }
        for (int j = 0; j < KEPT * WIDE; j++) row.v[j] *= rstd;
        if (p.weight) {
            fetch(other, p.weight, p.columns, T(0));
            for (int j = 0; j < KEPT * WIDE; j++) row.v[j] *= other.v[j];
        }
        if (p.bias) {
            fetch(other, p.bias, p.columns, T(0));
            for (int j = 0; j < KEPT * WIDE; j++) row.v[j] += other.v[j];
        }
        store(out, row, p.columns);
        return;
    }
    if (p.centred) {
        for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x) mean += at(x, i);
        mean = sum_of(mean) / (T)p.columns;
    }
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x) { T d = at(x, i) - mean; square += d * d; }
    const T rstd = T(1) / m_sqrt(sum_of(square) / (T)p.columns + (T)p.eps);
    if (threadIdx.x == 0) { p.rstd[blockIdx.x] = rstd; if (p.mean) p.mean[blockIdx.x] = mean; }
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x) {
        T v = (at(x, i) - mean) * rstd;
        if (p.weight) v = v * at(p.weight, i);
        if (p.bias) v = v + at(p.bias, i);
        put(out, i, v);
    } }
""",
    "in",
    3,
)

# A block that keeps its rows goes through several of them, and adds up what weight and bias get from all of these.
BACKWARD = RowReader(
    "backward",
    "struct P { S *out; T *of_weight, *of_bias; const S *g, *in, *weight; const T *mean, *rstd; "
    "i64 rows, columns, kept; };",
    r"""
KERNEL(backward, Arguments) { BEGIN
    if (p.kept) {
        Kept row, slope, weight, of_weight, of_bias;
        if (p.weight) fetch(weight, p.weight, p.columns, T(0));
        for (int j = 0; j < KEPT * WIDE; j++) of_weight.v[j] = of_bias.v[j] = T(0);
        for (i64 r = blockIdx.x; r < p.rows; r += gridDim.x) {
            const T mean = p.mean ? p.mean[r] : T(0), rstd = p.rstd[r];
            T along = 0, sum = 0;
            fetch(row, p.in + r * p.columns, p.columns, mean);
            take_row(slope, p, r, T(0));
            for (int j = 0; j < KEPT * WIDE; j++) {
                row.v[j] = (row.v[j] - mean) * rstd;
                of_weight.v[j] += slope.v[j] * row.v[j]; of_bias.v[j] += slope.v[j];
                if (p.weight) slope.v[j] *= weight.v[j];
                sum += slope.v[j]; along += slope.v[j] * row.v[j];
            }
            sums_of(along, sum);
            along /= (T)p.columns;
            sum = p.mean ? sum / (T)p.columns : T(0);
            for (int j = 0; j < KEPT * WIDE; j++) row.v[j] = rstd * (slope.v[j] - sum - row.v[j] * along);
            store(p.out + r * p.columns, row, p.columns);
        }
        if (p.of_weight) EACH_PIECE(k, i, p.columns)
            for (int j = 0; j < WIDE; j++) {
                p.of_weight[blockIdx.x * p.columns + i * WIDE + j] = of_weight.v[k * WIDE + j];
                p.of_bias[blockIdx.x * p.columns + i * WIDE + j] = of_bias.v[k * WIDE + j];
            }
        return;
    }
    const i64 from = blockIdx.x * p.columns; const S *x = p.in + from, *g = p.g + from;
    const T mean = p.mean ? p.mean[blockIdx.x] : T(0), rstd = p.rstd[blockIdx.x];
    T along = 0, sum = 0;
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x) {
        T v = at(g, i); if (p.weight) v *= at(p.weight, i);
        sum += v; along += v * ((at(x, i) - mean) * rstd);
    }
    sums_of(along, sum);
    along /= (T)p.columns;
    sum = p.mean ? sum / (T)p.columns : T(0);
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x) {
        T v = at(g, i); if (p.weight) v *= at(p.weight, i);
        put(p.out + from, i, rstd * (v - sum - (at(x, i) - mean) * rstd * along));
    } }
""",
    "g",
    3,
)

# 32 columns for each block, and 8 threads for each of them; blocks of one column share its rows in pieces
AFFINE = r"""
struct P { T *of_weight, *of_bias; const S *g, *in; const T *mean, *rstd; i64 rows, columns, piece; };
KERNEL(affine, P) { BEGIN
    __shared__ T parts[2][8][33];
    const int lanes = ALONE ? 32 : 1, step = ALONE ? 1 : 8;
    const i64 from = blockIdx.y * p.piece, to = from + p.piece < p.rows ? from + p.piece : p.rows;
    for (int lane = 0; lane < lanes; lane++) {
        const int x = ALONE ? lane : threadIdx.x & 31, y = ALONE ? 0 : threadIdx.x >> 5;
        const i64 column = (i64)blockIdx.x * 32 + x;
        T weight = 0, bias = 0;
        if (column < p.columns)
            for (i64 r = from + y; r < to; r += step) {
                T g = at(p.g, r * p.columns + column);
                bias += g;
                weight += g * ((at(p.in, r * p.columns + column) - (p.mean ? p.mean[r] : T(0))) * p.rstd[r]);
            }
        if (!ALONE) {
            parts[0][y][x] = weight; parts[1][y][x] = bias;
            __syncthreads();
            if (y == 0) for (int k = 1; k < 8; k++) { weight += parts[0][k][x]; bias += parts[1][k][x]; }
        }
        if (y == 0 && column < p.columns) {
            p.of_weight[blockIdx.y * p.columns + column] = weight;
            p.of_bias[blockIdx.y * p.columns + column] = bias;
        }
    } }
"""

# the sums of the parts of weight and bias: 32 columns for each block, and 32 threads for each of them
TOTALS = r"""
struct P { S *weight, *bias; const T *of_weight, *of_bias; i64 rows, columns; };
KERNEL(totals, P) { BEGIN
    __shared__ T parts[32][33];
    const int lanes = ALONE ? 32 : 1, step = ALONE ? 1 : 32;
    const T *from = blockIdx.y ? p.of_bias : p.of_weight;
    S *to = blockIdx.y ? p.bias : p.weight;
    if (!to) return;
    for (int lane = 0; lane < lanes; lane++) {
        const int x = ALONE ? lane : threadIdx.x & 31, y = ALONE ? 0 : threadIdx.x >> 5;
        const i64 column = (i64)blockIdx.x * 32 + x;
        T sum = 0;
        if (column < p.columns)
            for (i64 r = y; r < p.rows; r += step) sum += from[r * p.columns + column];
        if (!ALONE) {
            parts[y][x] = sum;
            __syncthreads();
            if (y == 0) for (int k = 1; k < 32; k++) sum += parts[k][x];
        }
        if (y == 0 && column < p.columns) put(to, column, sum);
    } }
"""


def _empty(shape: Sequence[int], like: Array) -> Any:
    return device.extension().empty(tuple(shape), exact(like.dtype))


def _same(x: Array) -> Array:
    return device.extension().empty(x.shape, x.dtype)


def norm_rows(x: Array, dims: int, weight: Array | None, bias: Array | None, eps: float, centred: bool) -> Any:
    """The norm over the last `dims` dimensions; its means (0 if not centred), and 1 / sqrt(variance + eps)."""
    if not agree(x, weight, bias) or not dims:
        return None
    x, weight, bias, empty = rows(x), rows(weight), rows(bias), device.extension().empty
    shape, dtype, sums = x.shape, x.dtype, exact(x.dtype)
    kept = shape[:-dims] + (1,) * dims
    columns = math.prod(shape[-dims:])
    count = x.size // columns
    out, mean, rstd = empty(shape, dtype), empty(kept, sums) if centred else None, empty(kept, sums)
    keep = threads_that_keep(columns, x, out, weight, bias)
    call = reading_kernel(FORWARD, x.dtype)
    threads = keep or threads_for(columns)
    call(count, threads, out, mean, rstd, x, weight, bias, columns, float(eps), int(centred), int(keep > 0))
    return out, mean, rstd


def norm_rows_gradient(
    g: Array, x: Array, dims: int, mean: Array | None, rstd: Array, weight: Array | None, needs: Any
) -> Any:
    """The gradients of x, weight and bias, or None for those that are not needed."""
    if not agree(x, g, weight) or rstd.dtype != exact(x.dtype) or g.shape != x.shape:
        return None
    g, x, weight = rows(g), rows(x), rows(weight)
    shape = x.shape[x.ndim - dims :]
    columns = math.prod(shape)
    count = x.size // columns
    of_x, parts, affine = None, None, needs[1] or needs[2]
    if needs[0]:
        of_x = _same(x)
        keep = threads_that_keep(columns, x, g, of_x, weight)
        blocks = min(count, BLOCKS) if keep and affine else count
        parts = (_empty((blocks, columns), x), _empty((blocks, columns), x)) if blocks < count else None
        call, threads = reading_kernel(BACKWARD, x.dtype), keep or threads_for(columns)
        kept = (None, None) if parts is None else parts
        call(blocks, threads, of_x, *kept, g, x, weight, mean, rstd, count, columns, int(keep > 0))
    if not affine:
        return [of_x, None, None]
    if parts is None:
        parts = _affine_parts(g, x, mean, rstd, count, columns)
    totals = [device.extension().empty(shape, x.dtype) if needed else None for needed in needs[1:]]
    kernel("totals", TOTALS, x.dtype)((-(-columns // 32), 2), 1024, *totals, *parts, len(parts[0]), columns)
    return [of_x, *totals]


#: blocks that go through all rows of a gradient: eight for each processor of a large GPU
BLOCKS = 1056


def _affine_parts(g: Array, x: Array, mean: Array | None, rstd: Array, count: int, columns: int) -> tuple[Any, Any]:
    """Sums for the gradients of weight and bias, each in pieces."""
    across = -(-columns // 32)
    pieces = min(max(1, min(-(-count // 64), 512 // across)), 65535)
    piece = -(-count // pieces)
    pieces = -(-count // piece)
    parts = _empty((pieces, columns), x), _empty((pieces, columns), x)
    kernel("affine", AFFINE, x.dtype)((across, pieces), 256, *parts, g, x, mean, rstd, count, columns, piece)
    return parts


# ---- over channels. A slot is a channel of one example; a unit is what has a mean: a channel of all examples, or a
# group of channels of one. All slots have the same length, so moments of units follow from those of slots.

SLOTS = r"""
struct P { T *first, *second; const S *in, *g; const T *mean, *rstd; i64 slots, length, channels, groups; };
// forward (no g): mean and sum of squared deviations of a slot; backward: sums of g, and of g times the normed x
KERNEL(slots, P) { BEGIN const i64 slot = blockIdx.x; const S *x = p.in + slot * p.length; T a = 0, b = 0;
    if (p.g) {
        const S *g = p.g + slot * p.length;
        const i64 channel = slot % p.channels, example = slot / p.channels;
        const i64 unit = p.groups ? example * p.groups + channel / (p.channels / p.groups) : channel;
        const T mean = p.mean[unit], rstd = p.rstd[unit];
        for (i64 i = threadIdx.x; i < p.length; i += blockDim.x) {
            T v = at(g, i); a += v; b += v * ((at(x, i) - mean) * rstd); }
        a = sum_of(a);
    } else {
        for (i64 i = threadIdx.x; i < p.length; i += blockDim.x) a += at(x, i);
        a = sum_of(a) / (T)p.length;
        for (i64 i = threadIdx.x; i < p.length; i += blockDim.x) { T d = at(x, i) - a; b += d * d; }
    }
    b = sum_of(b);
    if (threadIdx.x == 0) { p.first[slot] = a; p.second[slot] = b; } }
"""

UNITS = r"""
struct P { T *first, *second, *third; const T *a, *b; const S *weight; i64 examples, length, channels, groups, backward;
           double eps; };
// the k-th slot of a unit
FN i64 slot_of(const P &p, i64 k)
{
    if (!p.groups) return k * p.channels + blockIdx.x;
    const i64 each = p.channels / p.groups, example = blockIdx.x / p.groups;
    return example * p.channels + (blockIdx.x - example * p.groups) * each + k;
}
KERNEL(units, P) { BEGIN const i64 count = p.groups ? p.channels / p.groups : p.examples; T a = 0, b = 0;
    if (p.backward) {
        for (i64 k = threadIdx.x; k < count; k += blockDim.x) {
            const i64 slot = slot_of(p, k);
            const T w = p.weight ? at(p.weight, slot % p.channels) : T(1);
            a += w * p.a[slot]; b += w * p.b[slot];
        }
        a = sum_of(a); b = sum_of(b);
        if (threadIdx.x == 0) { p.first[blockIdx.x] = a; p.second[blockIdx.x] = b; }
        return;
    }
    for (i64 k = threadIdx.x; k < count; k += blockDim.x) a += p.a[slot_of(p, k)];
    a = sum_of(a) / (T)count;
    for (i64 k = threadIdx.x; k < count; k += blockDim.x) {
        const i64 slot = slot_of(p, k); const T d = p.a[slot] - a; b += p.b[slot] + (T)p.length * d * d; }
    b = sum_of(b) / ((T)count * (T)p.length);
    if (threadIdx.x == 0) {
        p.first[blockIdx.x] = a; p.second[blockIdx.x] = T(1) / m_sqrt(b + (T)p.eps); p.third[blockIdx.x] = b; } }
"""

WRITE = r"""
struct P { S *out; const S *in, *g, *weight, *bias; const T *mean, *rstd, *sum, *along;
           i64 n, length, channels, groups, count; };
KERNEL(write, P) { BEGIN
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        const i64 slot = i / p.length, example = slot / p.channels, channel = slot - example * p.channels;
        const i64 unit = p.groups ? example * p.groups + channel / (p.channels / p.groups) : channel;
        T v = (at(p.in, i) - p.mean[unit]) * p.rstd[unit];
        const T w = p.weight ? at(p.weight, channel) : T(1);
        if (p.g) v = p.rstd[unit] * (w * at(p.g, i) - (p.sum[unit] + v * p.along[unit]) / (T)p.count);
        else { v = v * w; if (p.bias) v += at(p.bias, channel); }
        put(p.out, i, v);
    } }
"""


class Channels:
    """The sizes of an array (examples, channels, ...), whose channels are in groups (0: taken over the examples)."""

    def __init__(self, x: Array, groups: int) -> None:
        self.x, self.groups = x, groups
        self.examples, self.channels = x.shape[:2]
        self.length = math.prod(x.shape[2:])
        self.slots = self.examples * self.channels
        self.units = self.examples * groups if groups else self.channels
        self.shape = (self.examples, groups) if groups else (self.channels,)
        self.in_unit = self.channels // groups if groups else self.examples

    def over_slots(self, g: Array | None, mean: Array | None, rstd: Array | None) -> tuple[Any, Any]:
        found = _empty((self.examples, self.channels), self.x), _empty((self.examples, self.channels), self.x)
        kernel("slots", SLOTS, self.x.dtype)(
            self.slots, threads_for(self.length), *found, self.x, g, mean, rstd, self.slots, self.length, self.channels,
            self.groups,
        )  # fmt: skip
        return found

    def over_units(self, a: Array, b: Array, weight: Array | None, eps: float | None) -> list[Any]:
        """Of slots' sums their units'; with eps, of their moments."""
        found = [_empty(self.shape, self.x) for _ in range(2 if eps is None else 3)]
        kernel("units", UNITS, self.x.dtype)(
            self.units, threads_for(self.in_unit), *found, *[None] * (3 - len(found)), a, b, weight, self.examples,
            self.length, self.channels, self.groups, int(eps is None), float(eps or 0),
        )  # fmt: skip
        return found

    def written(
        self,
        g: Array | None,
        weight: Array | None,
        bias: Array | None,
        mean: Array,
        rstd: Array,
        sums: Sequence[Any] = (None, None),
    ) -> Array:
        out = _same(self.x)
        blocks = min(-(-out.size // 256), 1 << 16)
        kernel("write", WRITE, self.x.dtype, cooperative=False)(
            blocks, 256, out, self.x, g, weight, bias, mean, rstd, *sums, out.size, self.length, self.channels,
            self.groups, self.in_unit * self.length,
        )  # fmt: skip
        return out


def norm_channels(x: Array, groups: int, weight: Array | None, bias: Array | None, eps: float) -> Any:
    """The norm; mean, 1 / sqrt(variance + eps) and variance of every channel or group."""
    if not agree(x, weight, bias) or x.ndim < 2:
        return None
    sizes = Channels(rows(x), groups)
    weight, bias = rows(weight), rows(bias)
    mean, rstd, variance = sizes.over_units(*sizes.over_slots(None, None, None), None, eps)
    return sizes.written(None, weight, bias, mean, rstd), mean, rstd, variance


def norm_channels_gradient(
    g: Array, x: Array, groups: int, mean: Array, rstd: Array, weight: Array | None, needs: Any
) -> Any:
    """The gradients of x, weight and bias, or None for those that are not needed."""
    if not agree(x, g, weight) or rstd.dtype != exact(x.dtype) or g.shape != x.shape:
        return None
    g, weight = rows(g), rows(weight)
    sizes = Channels(rows(x), groups)
    a, b = sizes.over_slots(g, mean, rstd)
    of_x = sizes.written(g, weight, None, mean, rstd, sizes.over_units(a, b, weight, None)) if needs[0] else None
    dtype = exact(x.dtype)
    of_weight = reduce("add", b, 0, dtype, False).astype(x.dtype, copy=False) if needs[1] else None
    of_bias = reduce("add", a, 0, dtype, False).astype(x.dtype, copy=False) if needs[2] else None
    return [of_x, of_weight, of_bias]


KERNELS: dict[str, Callable[..., Any]] = {
    "norm_rows": norm_rows, "norm_rows_gradient": norm_rows_gradient, "norm_channels": norm_channels,
    "norm_channels_gradient": norm_channels_gradient,
}  # fmt: skip
