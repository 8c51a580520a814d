"""Attention in half precision as single kernels on tensor cores: scores stay in registers, and are never written.

A block of threads keeps some rows (of queries, or of keys and values), a warp 16 of them or 32, and goes through the
other side tile by tile; the next tile is on its way while one is multiplied. The backward pass computes the weights
anew, for the gradients of keys and values, and again for those of queries: sums have the same order every time.
The emulated device runs the plain form of the same kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import cudnn_attention, device
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import stored
from undertow.backend.interface import Array


class Shape(NamedTuple):
    """How the work is cut: how many rows come at a time, 16 rows how often a warp keeps, warps, blocks at a time."""

    tile: int
    each: int
    warps: int
    blocks: int

    @property
    def rows(self) -> int:
        """The rows that a block keeps."""
        return 16 * self.each * self.warps


#: name of a kernel -> its shape for rows of up to 64 numbers, and of up to 128
SHAPES = {
    "forward": (Shape(64, 2, 4, 2), Shape(32, 1, 4, 3)),
    "shares": (Shape(64, 1, 8, 2), Shape(32, 1, 8, 2)),
    "of_keys": (Shape(64, 1, 4, 2), Shape(32, 1, 4, 2)),
    "of_queries": (Shape(64, 1, 4, 3), Shape(32, 1, 4, 2)),
}

# what all kernels are made of. S is the dtype, D how many numbers a row has, TILE how many rows come at a time
TOOLS = r"""
#define MOST (16 * EACH * WARPS) // rows of a block
#ifdef __CUDACC__
#undef KERNEL // with as many registers as so many blocks leave each other
#define KERNEL(name, P) \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) name(const __grid_constant__ P p)
#endif
#define PAD (D + 8) // rows of a tile are apart so that the eight that are read together lie in different banks
#define LOG2E 1.4426950408889634f
struct Rows { S *at; i64 batch, head, row; };
FN S *of_head(const Rows &x, i64 heads)
{
    const i64 batch = blockIdx.y / heads;
    return x.at + batch * x.batch + (blockIdx.y - batch * heads) * x.head;
}
FN float wide(S v) { return Cast<float, S>::of(v); }
FN S narrow(float v) { return Cast<S, float>::of(v); }
#if !ALONE
FN u32 place(const S *at) { return (u32)__cvta_generic_to_shared(at); }
// rows of a matrix into a tile, in pieces of 16 bytes; zeros where there are none
FN void bring(S *tile, const S *from, i64 stride, i64 first, i64 count)
{
    const int left = (int)(count - first < TILE ? count - first : TILE), step = (int)stride;
    from += first * stride;
#pragma unroll
    for (int i = threadIdx.x; i < TILE * (D / 8); i += 32 * WARPS) {
        const int row = i / (D / 8), piece = i - row * (D / 8);
        const bool there = row < left;
        const S *source = from + (there ? row * step : 0) + 8 * piece;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(place(tile + row * PAD + 8 * piece)), "l"(source), "r"(there ? 16 : 0) : "memory");
    }
}
FN void sent() { asm volatile("cp.async.commit_group;" ::: "memory"); }
FN void wait_for(bool all)
{
    if (all) asm volatile("cp.async.wait_group 0;" ::: "memory");
    else asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
}
// 16 x 16 numbers of a tile, as the second factor of a product: [0], [1] are its first eight columns, [2], [3] the
// rest; the columns of the factor are rows of the tile
FN void take(u32 *r, const S *tile, int row, int column)
{
    const int lane = threadIdx.x & 31;
    const S *at = tile + (row + (lane >> 4) * 8 + (lane & 7)) * PAD + column + (lane >> 3 & 1) * 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place(at)));
}
// the same; the rows of the factor are rows of the tile
FN void take_turned(u32 *r, const S *tile, int row, int column)
{
    const int lane = threadIdx.x & 31;
    const S *at = tile + (row + (lane >> 3 & 1) * 8 + (lane & 7)) * PAD + column + (lane >> 4) * 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place(at)));
}
FN void multiply(float *c, const u32 *a, const u32 *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
FN u32 pair(float low, float high)
{
    u32 both;
    asm("cvt.rn." KIND "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
FN float power_of_2(float v) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
// 16 rows of a matrix, all D columns, as the first factor of products
FN void keep(u32 (*a)[4], const S *from, i64 stride, i64 first, i64 count)
{
    const int lane = threadIdx.x & 31, t = lane & 3;
    const i64 upper = first + (lane >> 2), lower = upper + 8;
    for (int k = 0; k < D / 16; k++) {
        const u32 *high = (const u32 *)(from + upper * stride + 16 * k + 2 * t);
        const u32 *low = (const u32 *)(from + lower * stride + 16 * k + 2 * t);
        a[k][0] = upper < count ? high[0] : 0; a[k][1] = lower < count ? low[0] : 0;
        a[k][2] = upper < count ? high[4] : 0; a[k][3] = lower < count ? low[4] : 0;
    }
}
// products of kept rows with the rows of a tile
FN void score(float (*s)[4], const u32 (*a)[4], const S *tile)
{
    for (int n = 0; n < TILE / 8; n++) for (int k = 0; k < 4; k++) s[n][k] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < TILE / 16; n++) {
            u32 b[4];
            take(b, tile, 16 * n, 16 * k);
            multiply(s[2 * n], a[k], b);
            multiply(s[2 * n + 1], a[k], b + 2);
        }
}
// what was computed of a tile, rounded, as the first factor of the next product
FN void rounded(u32 (*a)[4], const float (*s)[4])
{
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
        a[k][0] = pair(s[2 * k][0], s[2 * k][1]); a[k][1] = pair(s[2 * k][2], s[2 * k][3]);
        a[k][2] = pair(s[2 * k + 1][0], s[2 * k + 1][1]); a[k][3] = pair(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
}
// sums of the rows of a tile, each times a weight
FN void add_up(float (*o)[4], const u32 (*a)[4], const S *tile)
{
#pragma unroll
    for (int k = 0; k < TILE / 16; k++)
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            u32 b[4];
            take_turned(b, tile, 16 * k, 16 * n);
            multiply(o[2 * n], a[k], b);
            multiply(o[2 * n + 1], a[k], b + 2);
        }
}
// 16 rows of results, times a factor for the upper and one for the lower ones
FN void write(S *to, i64 stride, i64 first, i64 count, const float (*o)[4], float high, float low)
{
    const int lane = threadIdx.x & 31, t = lane & 3;
    const i64 upper = first + (lane >> 2), lower = upper + 8;
    for (int n = 0; n < D / 8; n++) {
        if (upper < count) *(u32 *)(to + upper * stride + 8 * n + 2 * t) = pair(o[n][0] * high, o[n][1] * high);
        if (lower < count) *(u32 *)(to + lower * stride + 8 * n + 2 * t) = pair(o[n][2] * low, o[n][3] * low);
    }
}
#else
FN float product(const S *a, const S *b)
{
    float sum = 0;
    for (int d = 0; d < D; d++) sum += wide(a[d]) * wide(b[d]);
    return sum;
}
#endif
"""

FORWARD = r"""
struct P { Rows out, q, k, v; float *logs; i64 heads, rows, columns, causal; double scale; };
KERNEL(forward, P) { BEGIN
    const S *q = of_head(p.q, p.heads), *k = of_head(p.k, p.heads), *v = of_head(p.v, p.heads);
    S *out = of_head(p.out, p.heads);
    const i64 block = p.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x, top = block * MOST; // long ones first
    const float scale = (float)p.scale;
#if ALONE
    for (i64 row = top; row < top + MOST && row < p.rows; row++) {
        const i64 seen = p.causal && row + 1 < p.columns ? row + 1 : p.columns;
        float most = float_of(0xff800000u), sum = 0, o[D] = {0};
        for (i64 j = 0; j < seen; j++) {
            const float s = product(q + row * p.q.row, k + j * p.k.row) * scale;
            if (s > most) most = s;
        }
        for (i64 j = 0; j < seen; j++) {
            const float w = m_exp(product(q + row * p.q.row, k + j * p.k.row) * scale - most);
            sum += w;
            for (int d = 0; d < D; d++) o[d] += wide(narrow(w)) * wide(v[j * p.v.row + d]);
        }
        for (int d = 0; d < D; d++) out[row * p.out.row + d] = narrow(o[d] / sum);
        p.logs[blockIdx.y * p.rows + row] = most + m_log(sum);
    }
#else
    __shared__ S tiles[2][2][TILE * PAD];
    const int lane = threadIdx.x & 31, t = lane & 3;
    const i64 first = top + (threadIdx.x >> 5) * 16 * EACH;
    const i64 end = p.causal && top + MOST < p.columns ? top + MOST : p.columns;
    const int count = (int)((end + TILE - 1) / TILE);
    const float factor = scale * LOG2E, lowest = float_of(0xff800000u);
    u32 kept[EACH][D / 16][4];
    float o[EACH][D / 8][4], most[EACH][2], sum[EACH][2];
#pragma unroll
    for (int m = 0; m < EACH; m++) {
        keep(kept[m], q, p.q.row, first + 16 * m, p.rows);
        for (int n = 0; n < D / 8; n++) for (int i = 0; i < 4; i++) o[m][n][i] = 0;
        most[m][0] = most[m][1] = lowest; sum[m][0] = sum[m][1] = 0;
    }
    bring(tiles[0][0], k, p.k.row, 0, p.columns); bring(tiles[0][1], v, p.v.row, 0, p.columns); sent();
    for (int j = 0; j < count; j++) {
        if (j + 1 < count) {
            bring(tiles[j + 1 & 1][0], k, p.k.row, (i64)(j + 1) * TILE, p.columns);
            bring(tiles[j + 1 & 1][1], v, p.v.row, (i64)(j + 1) * TILE, p.columns);
            sent();
        }
        wait_for(j + 1 == count);
        const S *keys = tiles[j & 1][0], *values = tiles[j & 1][1];
        float s[EACH][TILE / 8][4];
        u32 weights[EACH][TILE / 16][4];
#pragma unroll
        for (int m = 0; m < EACH; m++) for (int n = 0; n < TILE / 8; n++) for (int i = 0; i < 4; i++) s[m][n][i] = 0;
#pragma unroll
        for (int d = 0; d < D / 16; d++)
#pragma unroll
            for (int n = 0; n < TILE / 16; n++) {
                u32 b[4];
                take(b, keys, 16 * n, 16 * d);
#pragma unroll
                for (int m = 0; m < EACH; m++) {
                    multiply(s[m][2 * n], kept[m][d], b);
                    multiply(s[m][2 * n + 1], kept[m][d], b + 2);
                }
            }
        const i64 left = (i64)j * TILE;
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            const i64 row = first + 16 * m + (lane >> 2);
            if (left + TILE > p.columns || (p.causal && left + TILE > first + 16 * m + 1))
#pragma unroll
                for (int n = 0; n < TILE / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const i64 column = left + 8 * n + 2 * t + (i & 1);
                        if (column >= p.columns || (p.causal && column > row + (i >> 1) * 8)) s[m][n][i] = lowest;
                    }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float now = most[m][h];
#pragma unroll
                for (int n = 0; n < TILE / 8; n++) now = fmaxf(now, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
                now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
                now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
                const float base = now == lowest ? 0.0f : now * factor;
                const float less = power_of_2(fmaf(most[m][h], factor, -base));
                float total = 0;
#pragma unroll
                for (int n = 0; n < TILE / 8; n++)
#pragma unroll
                    for (int i = 2 * h; i < 2 * h + 2; i++) {
                        s[m][n][i] = power_of_2(fmaf(s[m][n][i], factor, -base));
                        total += s[m][n][i];
                    }
                most[m][h] = now;
                sum[m][h] = sum[m][h] * less + total;
#pragma unroll
                for (int n = 0; n < D / 8; n++) { o[m][n][2 * h] *= less; o[m][n][2 * h + 1] *= less; }
            }
            rounded(weights[m], s[m]);
        }
#pragma unroll
        for (int n = 0; n < TILE / 16; n++)
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                u32 b[4];
                take_turned(b, values, 16 * n, 16 * d);
#pragma unroll
                for (int m = 0; m < EACH; m++) {
                    multiply(o[m][2 * d], weights[m][n], b);
                    multiply(o[m][2 * d + 1], weights[m][n], b + 2);
                }
            }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < EACH; m++) {
        for (int h = 0; h < 2; h++) {
            sum[m][h] += __shfl_xor_sync(~0u, sum[m][h], 1);
            sum[m][h] += __shfl_xor_sync(~0u, sum[m][h], 2);
            const i64 row = first + 16 * m + 8 * h + (lane >> 2);
            if (t == 0 && row < p.rows) p.logs[blockIdx.y * p.rows + row] = most[m][h] * scale + logf(sum[m][h]);
        }
        write(out, p.out.row, first + 16 * m, p.rows, o[m], 1.0f / sum[m][0], 1.0f / sum[m][1]);
    }
#endif
}
"""

# what every gradient of scores lacks: the sum of a row's weights times their gradients; a warp takes 16 rows
SHARES = r"""
struct P { Rows out, g; float *shares; i64 heads, rows; };
KERNEL(shares, P) { BEGIN
    const S *out = of_head(p.out, p.heads), *g = of_head(p.g, p.heads);
#if ALONE
    for (int k = 0; k < MOST; k++) {
        const i64 row = (i64)blockIdx.x * MOST + k;
        if (row < p.rows) p.shares[blockIdx.y * p.rows + row] = product(out + row * p.out.row, g + row * p.g.row);
    }
#else
    const i64 first = (i64)blockIdx.x * MOST + (threadIdx.x >> 5) * 16;
    for (i64 row = first; row < first + 16 && row < p.rows; row++) {
        float sum = 0;
        for (int d = threadIdx.x & 31; d < D; d += 32)
            sum += wide(out[row * p.out.row + d]) * wide(g[row * p.g.row + d]);
        for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
        if ((threadIdx.x & 31) == 0) p.shares[blockIdx.y * p.rows + row] = sum;
    }
#endif
}
"""

OF_KEYS = r"""
struct P { Rows of_k, of_v, q, k, v, g; const float *logs, *shares; i64 heads, rows, columns, causal; double scale; };
KERNEL(of_keys, P) { BEGIN
    const S *q = of_head(p.q, p.heads), *k = of_head(p.k, p.heads), *v = of_head(p.v, p.heads);
    const S *g = of_head(p.g, p.heads);
    S *of_k = of_head(p.of_k, p.heads), *of_v = of_head(p.of_v, p.heads);
    const float *logs = p.logs + blockIdx.y * p.rows, *shares = p.shares + blockIdx.y * p.rows, scale = (float)p.scale;
    const i64 top = (i64)blockIdx.x * MOST; // of the keys
#if ALONE
    for (i64 j = top; j < top + MOST && j < p.columns; j++) {
        float to_k[D] = {0}, to_v[D] = {0};
        for (i64 row = p.causal ? j : 0; row < p.rows; row++) {
            const float w = m_exp(product(q + row * p.q.row, k + j * p.k.row) * scale - logs[row]);
            const float slope = w * (product(g + row * p.g.row, v + j * p.v.row) - shares[row]);
            for (int d = 0; d < D; d++) {
                to_v[d] += wide(narrow(w)) * wide(g[row * p.g.row + d]);
                to_k[d] += wide(narrow(slope)) * wide(q[row * p.q.row + d]);
            }
        }
        for (int d = 0; d < D; d++) {
            of_k[j * p.of_k.row + d] = narrow(to_k[d] * scale); of_v[j * p.of_v.row + d] = narrow(to_v[d]);
        }
    }
#else
    __shared__ S tiles[2][2][TILE * PAD];
    __shared__ alignas(8) float numbers[2][2][TILE];
    const int lane = threadIdx.x & 31, t = lane & 3;
    const i64 first = top + (threadIdx.x >> 5) * 16;
    const int begin = p.causal ? (int)(top / TILE) : 0, end = (int)((p.rows + TILE - 1) / TILE);
    const float factor = scale * LOG2E;
    u32 keys[D / 16][4], values[D / 16][4];
    float to_k[D / 8][4], to_v[D / 8][4];
    keep(keys, k, p.k.row, first, p.columns);
    keep(values, v, p.v.row, first, p.columns);
    for (int n = 0; n < D / 8; n++) for (int i = 0; i < 4; i++) to_k[n][i] = to_v[n][i] = 0;
    for (int j = begin - 1; j < end; j++) {
        if (j + 1 < end) {
            const i64 row = (i64)(j + 1) * TILE + threadIdx.x;
            bring(tiles[j + 1 & 1][0], q, p.q.row, (i64)(j + 1) * TILE, p.rows);
            bring(tiles[j + 1 & 1][1], g, p.g.row, (i64)(j + 1) * TILE, p.rows);
            sent();
            if (threadIdx.x < TILE) { // rows that are not there weigh nothing
                numbers[j + 1 & 1][0][threadIdx.x] = row < p.rows ? logs[row] * LOG2E : float_of(0x7f800000u);
                numbers[j + 1 & 1][1][threadIdx.x] = row < p.rows ? shares[row] : 0.0f;
            }
        }
        if (j < begin) continue;
        wait_for(j + 1 == end);
        const S *queries = tiles[j & 1][0], *slopes = tiles[j & 1][1];
        float s[TILE / 8][4], w[TILE / 8][4];
        u32 a[TILE / 16][4];
        score(w, keys, queries);
        const i64 left = (i64)j * TILE;
        const bool is_cut = p.causal && left < first + 15;
        const float2 *lower = (const float2 *)numbers[j & 1][0], *less = (const float2 *)numbers[j & 1][1];
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
            const float2 two = lower[4 * n + t];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = 8 * n + 2 * t + (i & 1);
                w[n][i] = power_of_2(fmaf(w[n][i], factor, -(i & 1 ? two.y : two.x)));
                if (is_cut && left + column < first + (lane >> 2) + (i >> 1) * 8) w[n][i] = 0;
            }
        }
        rounded(a, w);
        add_up(to_v, a, slopes);
        score(s, values, slopes);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
            const float2 two = less[4 * n + t];
#pragma unroll
            for (int i = 0; i < 4; i++) s[n][i] = w[n][i] * (s[n][i] - (i & 1 ? two.y : two.x));
        }
        rounded(a, s);
        add_up(to_k, a, queries);
        __syncthreads();
    }
    write(of_k, p.of_k.row, first, p.columns, to_k, scale, scale);
    write(of_v, p.of_v.row, first, p.columns, to_v, 1.0f, 1.0f);
#endif
}
"""

OF_QUERIES = r"""
struct P { Rows of_q, q, k, v, g; const float *logs, *shares; i64 heads, rows, columns, causal; double scale; };
KERNEL(of_queries, P) { BEGIN
    const S *q = of_head(p.q, p.heads), *k = of_head(p.k, p.heads), *v = of_head(p.v, p.heads);
    const S *g = of_head(p.g, p.heads);
    S *of_q = of_head(p.of_q, p.heads);
    const float *logs = p.logs + blockIdx.y * p.rows, *shares = p.shares + blockIdx.y * p.rows, scale = (float)p.scale;
    const i64 block = p.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x, top = block * MOST;
#if ALONE
    for (i64 row = top; row < top + MOST && row < p.rows; row++) {
        const i64 seen = p.causal && row + 1 < p.columns ? row + 1 : p.columns;
        float to_q[D] = {0};
        for (i64 j = 0; j < seen; j++) {
            const float w = m_exp(product(q + row * p.q.row, k + j * p.k.row) * scale - logs[row]);
            const float slope = w * (product(g + row * p.g.row, v + j * p.v.row) - shares[row]);
            for (int d = 0; d < D; d++) to_q[d] += wide(narrow(slope)) * wide(k[j * p.k.row + d]);
        }
        for (int d = 0; d < D; d++) of_q[row * p.of_q.row + d] = narrow(to_q[d] * scale);
    }
#else
    __shared__ S tiles[2][2][TILE * PAD];
    const int lane = threadIdx.x & 31, t = lane & 3;
    const i64 first = top + (threadIdx.x >> 5) * 16, upper = first + (lane >> 2), lower = upper + 8;
    const i64 end = p.causal && top + MOST < p.columns ? top + MOST : p.columns;
    const int count = (int)((end + TILE - 1) / TILE);
    const float factor = scale * LOG2E;
    const float log[2] = {upper < p.rows ? logs[upper] * LOG2E : float_of(0x7f800000u),
                          lower < p.rows ? logs[lower] * LOG2E : float_of(0x7f800000u)};
    const float share[2] = {upper < p.rows ? shares[upper] : 0.0f, lower < p.rows ? shares[lower] : 0.0f};
    u32 queries[D / 16][4], slopes[D / 16][4];
    float to_q[D / 8][4];
    keep(queries, q, p.q.row, first, p.rows);
    keep(slopes, g, p.g.row, first, p.rows);
    for (int n = 0; n < D / 8; n++) for (int i = 0; i < 4; i++) to_q[n][i] = 0;
    bring(tiles[0][0], k, p.k.row, 0, p.columns); bring(tiles[0][1], v, p.v.row, 0, p.columns); sent();
    for (int j = 0; j < count; j++) {
        if (j + 1 < count) {
            bring(tiles[j + 1 & 1][0], k, p.k.row, (i64)(j + 1) * TILE, p.columns);
            bring(tiles[j + 1 & 1][1], v, p.v.row, (i64)(j + 1) * TILE, p.columns);
            sent();
        }
        wait_for(j + 1 == count);
        const S *keys = tiles[j & 1][0], *values = tiles[j & 1][1];
        float s[TILE / 8][4], w[TILE / 8][4];
        u32 a[TILE / 16][4];
        score(w, queries, keys);
        score(s, slopes, values);
        const i64 left = (i64)j * TILE;
        const bool is_cut = left + TILE > p.columns || (p.causal && left + TILE > first + 1);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const i64 column = left + 8 * n + 2 * t + (i & 1);
                const float weight = power_of_2(fmaf(w[n][i], factor, -log[i >> 1]));
                s[n][i] = weight * (s[n][i] - share[i >> 1]);
                if (is_cut && (column >= p.columns || (p.causal && column > upper + (i >> 1) * 8))) s[n][i] = 0;
            }
        rounded(a, s);
        add_up(to_q, a, keys);
        __syncthreads();
    }
    write(of_q, p.of_q.row, first, p.rows, to_q, scale, scale);
#endif
}
"""


# ---- calling them


@functools.cache
def kernel(name: str, text: str, dtype: np.dtype[Any], size: int) -> Any:
    """A kernel for rows of `size` numbers of a dtype."""
    kind, shape = "f16" if dtype == dtypes.float16 else "bf16", shape_of(name, size)
    sizes = "".join([f"#define {n} {v}\n" for n, v in zip(("TILE", "EACH", "WARPS", "BLOCKS"), shape, strict=True)])
    head = f'typedef {stored(dtype)} S;\n#define KIND "{kind}"\n#define D {size}\n{sizes}'
    return device.extension().Kernel(compile_kernels(head + TOOLS + text, [Entry(name, "P", True)])[0])


def shape_of(name: str, size: int) -> Shape:
    return SHAPES[name][size > 64]


def launch(name: str, text: str, like: Array, count: int, *arguments: Any) -> None:
    """Start a kernel for `count` rows of all heads."""
    (batches, heads, _, size), shape = like.shape, shape_of(name, like.shape[-1])
    grid = -(-count // shape.rows), batches * heads
    kernel(name, text, like.dtype, size)(grid, 32 * shape.warps, *arguments)


def serves(query: Array, key: Array, value: Array, scale: float, *others: Array) -> bool:
    """Whether these kernels do: half precision, rows that tensor cores can take, and a GPU that has them."""
    size, known = query.shape[-1], device.properties()
    return (
        dtypes.is_narrow(query.dtype)
        and all([x.dtype == query.dtype and x.shape[-1] == size for x in (key, value, *others)])
        and size % 16 == 0
        and 16 <= size <= 128
        and scale > 0
        and query.size // (size * query.shape[-2]) < 65536
        and all([abs(x.strides[-2]) < 1 << 24 for x in (query, key, value, *others)])
        and (known["major"] >= 8 or known["major"] == 0)  # the emulated one has no generation
    )


def stacked(x: Array) -> Array:
    """An array as (batches, heads, rows, columns), in memory from which 16 bytes can be read at a time."""
    x = x.reshape(-1, *x.shape[-3:]) if x.ndim > 4 else x[(None,) * (4 - x.ndim)]
    steps = [stride for stride, size in zip(x.strides[:3], x.shape, strict=False) if size > 1]
    fits = x.strides[-1] == x.dtype.itemsize and x.address % 16 == 0 and all([s % 16 == 0 and s > 0 for s in steps])
    return x if fits else x.copy("C")


def empty_like(x: Array, columns: int) -> Array:
    """A new (batches, heads, rows, columns) in the order in which another one lies: heads may be inside of rows."""
    batches, heads, rows = x.shape[:3]
    if x.strides[1] < x.strides[2]:
        return device.extension().empty((batches, rows, heads, columns), x.dtype).swapaxes(1, 2)
    return device.extension().empty((batches, heads, rows, columns), x.dtype)


def words(x: Array) -> tuple[Any, int, int, int]:
    """What kernels are told of an array: its memory, and how far apart batches, heads and rows are."""
    size = x.dtype.itemsize
    return x, x.strides[0] // size, x.strides[1] // size, x.strides[2] // size


def attention(query: Array, key: Array, value: Array, is_causal: bool, scale: float) -> tuple[Any, Any]:
    """The result, and log(sum(exp(scores))) for every query."""
    q, k, v = stacked(query), stacked(key), stacked(value)
    (batches, heads, rows, size), columns = q.shape, k.shape[2]
    out, logs = empty_like(q, size), device.extension().empty((batches, heads, rows), dtypes.float32)
    if not cudnn_attention.attention(q, k, v, out, logs, is_causal, scale):
        sizes = logs, heads, rows, columns, int(is_causal), float(scale)
        launch("forward", FORWARD, q, rows, *words(out), *words(q), *words(k), *words(v), *sizes)
    return out.reshape(query.shape), logs.reshape(query.shape[:-1])


def gradients(
    g: Array, query: Array, key: Array, value: Array, result: Array, logs: Array, is_causal: bool, scale: float
) -> Sequence[Any]:
    """The gradients of query, key and value."""
    g, q, k, v, out = [stacked(x) for x in (g, query, key, value, result)]
    (batches, heads, rows, size), columns = q.shape, k.shape[2]
    logs = logs.reshape(q.shape[:3])
    of_q, of_k, of_v = into = [empty_like(x, size) for x in (q, k, v)]
    if not cudnn_attention.gradients(g, q, k, v, out, logs, into, is_causal, scale):
        shares = device.extension().empty((batches, heads, rows), dtypes.float32)
        sizes = logs, shares, heads, rows, columns, int(is_causal), float(scale)
        given = *words(q), *words(k), *words(v), *words(g)
        launch("shares", SHARES, q, rows, *words(out), *words(g), shares, heads, rows)
        launch("of_keys", OF_KEYS, q, columns, *words(of_k), *words(of_v), *given, *sizes)
        launch("of_queries", OF_QUERIES, q, rows, *words(of_q), *given, *sizes)
    return [x.reshape(like.shape) for x, like in zip(into, (query, key, value), strict=True)]
