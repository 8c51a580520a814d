"""Attention in float32 as single kernels, in full float32: scores stay in registers, weights in shared memory.

A block of 64 threads keeps 32 rows (of queries, or of keys and values) and goes through the other side 32 rows at a
time; a thread has four of its rows, and every eighth column. Sums have the same order every time. The emulated device
runs the plain form of the same kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.backend.cuda import device
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.flash import ROWS, empty_like, stacked, words
from undertow.backend.interface import Array

#: rows of a block, and how many of the other side come at a time; threads of a block
TILE, THREADS = 32, 64
#: scores of a head up to which these kernels are quicker than products
MOST = 256 * 256

# what all kernels are made of: D is how many numbers a row has, a multiple of TILE
TOOLS = r"""
#define TILE 32
#define THREADS 64
#define PAD (D + 4) // so that eight rows that are read together lie in different banks
#define WEIGHTS (TILE + 4)
#define WIDE (D / 32) // pieces of four columns that a thread has of a row of results
#define ROOM(rows, columns) ((rows) * (columns) / 4)
#if ALONE
FN float product(const float *a, const float *b)
{
    float sum = 0;
    for (int d = 0; d < D; d++) sum += a[d] * b[d];
    return sum;
}
#else
// rows of a matrix into a tile; zeros where there are none
FN void bring(float *tile, const float *from, i64 stride, i64 first, i64 count)
{
#pragma unroll
    for (int i = threadIdx.x; i < TILE * (D / 4); i += THREADS) {
        const int row = i / (D / 4), piece = i - row * (D / 4);
        float4 v = {0, 0, 0, 0};
        if (first + row < count) v = *(const float4 *)(from + (first + row) * stride + 4 * piece);
        *(float4 *)(tile + row * PAD + 4 * piece) = v;
    }
}
// products of four rows of a and four of b
FN void score(float (*s)[4], const float *a, const float *b)
{
    const int y = threadIdx.x >> 3, x = threadIdx.x & 7;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) s[i][j] = 0;
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
        float4 p[4], q[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            p[i] = *(const float4 *)(a + (y + 8 * i) * PAD + d);
            q[i] = *(const float4 *)(b + (x + 8 * i) * PAD + d);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = fmaf(p[i].x, q[j].x, s[i][j]); s[i][j] = fmaf(p[i].y, q[j].y, s[i][j]);
                s[i][j] = fmaf(p[i].z, q[j].z, s[i][j]); s[i][j] = fmaf(p[i].w, q[j].w, s[i][j]);
            }
    }
}
FN void lay(float *weights, const float (*s)[4])
{
    const int y = threadIdx.x >> 3, x = threadIdx.x & 7;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) weights[(y + 8 * i) * WEIGHTS + x + 8 * j] = s[i][j];
}
FN void add_row(float4 *to, float weight, const float *row)
{
#pragma unroll
    for (int k = 0; k < WIDE; k++) {
        const float4 v = *(const float4 *)(row + 32 * k);
        to[k].x = fmaf(weight, v.x, to[k].x); to[k].y = fmaf(weight, v.y, to[k].y);
        to[k].z = fmaf(weight, v.z, to[k].z); to[k].w = fmaf(weight, v.w, to[k].w);
    }
}
// to the results of four rows: the rows of a tile, by their weights
FN void add_up(float4 (*to)[WIDE], const float *weights, const float *tile)
{
    const int y = threadIdx.x >> 3, x = threadIdx.x & 7;
#pragma unroll 2
    for (int c = 0; c < TILE; c += 4) {
        float4 w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = *(const float4 *)(weights + (y + 8 * i) * WEIGHTS + c);
        const float *row = tile + c * PAD + 4 * x;
#pragma unroll
        for (int i = 0; i < 4; i++) add_row(to[i], w[i].x, row);
#pragma unroll
        for (int i = 0; i < 4; i++) add_row(to[i], w[i].y, row + PAD);
#pragma unroll
        for (int i = 0; i < 4; i++) add_row(to[i], w[i].z, row + 2 * PAD);
#pragma unroll
        for (int i = 0; i < 4; i++) add_row(to[i], w[i].w, row + 3 * PAD);
    }
}
FN void clear(float4 (*to)[WIDE])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int k = 0; k < WIDE; k++) { const float4 none = {0, 0, 0, 0}; to[i][k] = none; }
}
FN void write(float *out, i64 stride, i64 first, i64 count, const float4 (*from)[WIDE], const float *scales)
{
    const int y = threadIdx.x >> 3, x = threadIdx.x & 7;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const i64 row = first + y + 8 * i;
        if (row < count)
#pragma unroll
            for (int k = 0; k < WIDE; k++) {
                float4 v = from[i][k]; const float m = scales[i];
                v.x *= m; v.y *= m; v.z *= m; v.w *= m;
                *(float4 *)(out + row * stride + 32 * k + 4 * x) = v;
            }
    }
}
// what the eight threads that share a row have together
FN float most_of(float v)
{
    for (int o = 4; o; o >>= 1) { const float other = __shfl_xor_sync(~0u, v, o); v = other > v ? other : v; }
    return v;
}
FN float sum_of(float v)
{
    for (int o = 4; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
#endif
"""

FORWARD = r"""
struct P { Rows out, q, k, v; float *logs; i64 heads, rows, columns, causal; double scale; };
KERNEL(forward, P) { BEGIN
    const float *q = of_head(p.q, p.heads), *k = of_head(p.k, p.heads), *v = of_head(p.v, p.heads);
    float *out = of_head(p.out, p.heads), *logs = p.logs + blockIdx.y * p.rows;
    const float scale = (float)p.scale;
    const i64 block = p.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x, top = block * TILE;
    const i64 end = p.causal && top + TILE < p.columns ? top + TILE : p.columns;
#if ALONE
    for (i64 row = top; row < top + TILE && row < p.rows; row++) {
        const i64 seen = p.causal && row + 1 < end ? row + 1 : end;
        float most = float_of(0xff800000u), sum = 0, result[D] = {0};
        for (i64 j = 0; j < seen; j++) {
            const float s = product(q + row * p.q.row, k + j * p.k.row) * scale;
            most = s > most ? s : most;
        }
        for (i64 j = 0; j < seen; j++) {
            const float w = m_exp(product(q + row * p.q.row, k + j * p.k.row) * scale - most);
            sum += w;
            for (int d = 0; d < D; d++) result[d] += w * v[j * p.v.row + d];
        }
        for (int d = 0; d < D; d++) out[row * p.out.row + d] = result[d] / sum;
        logs[row] = most + m_log(sum);
    }
#else
    __shared__ float4 room_q[ROOM(TILE, PAD)], room_k[ROOM(TILE, PAD)], room_v[ROOM(TILE, PAD)];
    __shared__ float4 room_w[ROOM(TILE, WEIGHTS)];
    float *queries = (float *)room_q, *keys = (float *)room_k, *values = (float *)room_v, *weights = (float *)room_w;
    const int y = threadIdx.x >> 3, x = threadIdx.x & 7;
    float most[4], sum[4], s[4][4];
    float4 result[4][WIDE];
    clear(result);
    for (int i = 0; i < 4; i++) { most[i] = float_of(0xff800000u); sum[i] = 0; }
    bring(queries, q, p.q.row, top, p.rows);
    for (i64 left = 0; left < end; left += TILE) {
        __syncthreads();
        bring(keys, k, p.k.row, left, p.columns);
        bring(values, v, p.v.row, left, p.columns);
        __syncthreads();
        score(s, queries, keys);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const i64 row = top + y + 8 * i, seen = p.causal && row + 1 < p.columns ? row + 1 : p.columns;
            float highest = most[i], total = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = left + x + 8 * j < seen ? s[i][j] * scale : float_of(0xff800000u);
                highest = s[i][j] > highest ? s[i][j] : highest;
            }
            highest = most_of(highest);
            const float before = m_exp(most[i] - highest);
#pragma unroll
            for (int j = 0; j < 4; j++) { s[i][j] = m_exp(s[i][j] - highest); total += s[i][j]; }
            sum[i] = sum[i] * before + total;
            most[i] = highest;
#pragma unroll
            for (int n = 0; n < WIDE; n++) {
                result[i][n].x *= before; result[i][n].y *= before; result[i][n].z *= before; result[i][n].w *= before;
            }
        }
        lay(weights, s);
        __syncthreads();
        add_up(result, weights, values);
    }
    float shares[4];
    for (int i = 0; i < 4; i++) {
        const i64 row = top + y + 8 * i;
        sum[i] = sum_of(sum[i]);
        shares[i] = 1.0f / sum[i];
        if (x == 0 && row < p.rows) logs[row] = most[i] + m_log(sum[i]);
    }
    write(out, p.out.row, top, p.rows, result, shares);
#endif
}
"""

# it also writes the products of results and their gradients, which the next kernel reads
OF_QUERIES = r"""
struct P { Rows of_q, out, q, k, v, g; const float *logs; float *shares; i64 heads, rows, columns, causal;
           double scale; };
KERNEL(of_queries, P) { BEGIN
    const float *q = of_head(p.q, p.heads), *k = of_head(p.k, p.heads), *v = of_head(p.v, p.heads);
    const float *g = of_head(p.g, p.heads), *out = of_head(p.out, p.heads);
    float *of_q = of_head(p.of_q, p.heads), *shares = p.shares + blockIdx.y * p.rows;
    const float *logs = p.logs + blockIdx.y * p.rows, scale = (float)p.scale;
    const i64 block = p.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x, top = block * TILE;
    const i64 end = p.causal && top + TILE < p.columns ? top + TILE : p.columns;
#if ALONE
    for (i64 row = top; row < top + TILE && row < p.rows; row++) {
        const i64 seen = p.causal && row + 1 < end ? row + 1 : end;
        const float share = shares[row] = product(g + row * p.g.row, out + row * p.out.row);
        float to_q[D] = {0};
        for (i64 j = 0; j < seen; j++) {
            const float w = m_exp(product(q + row * p.q.row, k + j * p.k.row) * scale - logs[row]);
            const float slope = w * (product(g + row * p.g.row, v + j * p.v.row) - share);
            for (int d = 0; d < D; d++) to_q[d] += slope * k[j * p.k.row + d];
        }
        for (int d = 0; d < D; d++) of_q[row * p.of_q.row + d] = to_q[d] * scale;
    }
#else
    __shared__ float4 room_q[ROOM(TILE, PAD)], room_k[ROOM(TILE, PAD)], room_v[ROOM(TILE, PAD)];
    __shared__ float4 room_g[ROOM(TILE, PAD)], room_w[ROOM(TILE, WEIGHTS)];
    float *queries = (float *)room_q, *keys = (float *)room_k, *values = (float *)room_v, *slopes = (float *)room_g;
    float *weights = (float *)room_w;
    const int y = threadIdx.x >> 3, x = threadIdx.x & 7;
    float log[4], share[4], s[4][4], w[4][4];
    float4 to_q[4][WIDE];
    clear(to_q);
    bring(queries, q, p.q.row, top, p.rows);
    bring(slopes, g, p.g.row, top, p.rows);
    bring(keys, out, p.out.row, top, p.rows); // results, until keys come
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        const i64 row = top + y + 8 * i;
        float sum = 0;
        for (int d = x; d < D; d += 8) sum += slopes[(y + 8 * i) * PAD + d] * keys[(y + 8 * i) * PAD + d];
        share[i] = sum_of(sum);
        log[i] = row < p.rows ? logs[row] : 0;
        if (x == 0 && row < p.rows) shares[row] = share[i];
    }
    for (i64 left = 0; left < end; left += TILE) {
        __syncthreads();
        bring(keys, k, p.k.row, left, p.columns);
        bring(values, v, p.v.row, left, p.columns);
        __syncthreads();
        score(s, queries, keys);
        score(w, slopes, values);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const i64 row = top + y + 8 * i, seen = p.causal && row + 1 < p.columns ? row + 1 : p.columns;
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[i][j] = left + x + 8 * j < seen ? m_exp(s[i][j] * scale - log[i]) * (w[i][j] - share[i]) : 0.0f;
        }
        lay(weights, s);
        __syncthreads();
        add_up(to_q, weights, keys);
    }
    const float scales[4] = {scale, scale, scale, scale};
    write(of_q, p.of_q.row, top, p.rows, to_q, scales);
#endif
}
"""

OF_KEYS = r"""
struct P { Rows of_k, of_v, q, k, v, g; const float *logs, *shares; i64 heads, rows, columns, causal; double scale; };
KERNEL(of_keys, P) { BEGIN
    const float *q = of_head(p.q, p.heads), *k = of_head(p.k, p.heads), *v = of_head(p.v, p.heads);
    const float *g = of_head(p.g, p.heads);
    float *of_k = of_head(p.of_k, p.heads), *of_v = of_head(p.of_v, p.heads);
    const float *logs = p.logs + blockIdx.y * p.rows, *shares = p.shares + blockIdx.y * p.rows, scale = (float)p.scale;
    const i64 first = (i64)blockIdx.x * TILE;
#if ALONE
    for (i64 j = first; j < first + TILE && j < p.columns; j++) {
        float to_k[D] = {0}, to_v[D] = {0};
        for (i64 row = p.causal ? j : 0; row < p.rows; row++) {
            const float w = m_exp(product(q + row * p.q.row, k + j * p.k.row) * scale - logs[row]);
            const float slope = w * (product(g + row * p.g.row, v + j * p.v.row) - shares[row]);
            for (int d = 0; d < D; d++) {
                to_v[d] += w * g[row * p.g.row + d];
                to_k[d] += slope * q[row * p.q.row + d];
            }
        }
        for (int d = 0; d < D; d++) {
            of_k[j * p.of_k.row + d] = to_k[d] * scale;
            of_v[j * p.of_v.row + d] = to_v[d];
        }
    }
#else
    __shared__ float4 room_q[ROOM(TILE, PAD)], room_k[ROOM(TILE, PAD)], room_v[ROOM(TILE, PAD)];
    __shared__ float4 room_g[ROOM(TILE, PAD)], room_w[ROOM(TILE, WEIGHTS)], room_s[ROOM(TILE, WEIGHTS)];
    float *queries = (float *)room_q, *keys = (float *)room_k, *values = (float *)room_v, *slopes = (float *)room_g;
    float *weights = (float *)room_w, *of_scores = (float *)room_s;
    const int y = threadIdx.x >> 3, x = threadIdx.x & 7;
    float s[4][4], w[4][4];
    float4 to_k[4][WIDE], to_v[4][WIDE];
    clear(to_k); clear(to_v);
    bring(keys, k, p.k.row, first, p.columns);
    bring(values, v, p.v.row, first, p.columns);
    for (i64 top = p.causal ? first : 0; top < p.rows; top += TILE) {
        __syncthreads();
        bring(queries, q, p.q.row, top, p.rows);
        bring(slopes, g, p.g.row, top, p.rows);
        __syncthreads();
        score(s, keys, queries);
        score(w, values, slopes);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const i64 row = top + x + 8 * j;
            const float log = row < p.rows ? logs[row] : 0, share = row < p.rows ? shares[row] : 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool is_seen = row < p.rows && (!p.causal || first + y + 8 * i <= row);
                s[i][j] = is_seen ? m_exp(s[i][j] * scale - log) : 0.0f;
                w[i][j] = s[i][j] * (w[i][j] - share);
            }
        }
        lay(weights, s); lay(of_scores, w);
        __syncthreads();
        add_up(to_v, weights, slopes);
        add_up(to_k, of_scores, queries);
    }
    const float scales[4] = {scale, scale, scale, scale}, ones[4] = {1, 1, 1, 1};
    write(of_k, p.of_k.row, first, p.columns, to_k, scales);
    write(of_v, p.of_v.row, first, p.columns, to_v, ones);
#endif
}
"""


# ---- calling them


@functools.cache
def kernel(name: str, text: str, size: int) -> Any:
    """A kernel for rows of `size` numbers."""
    head = f"typedef float S;\n#define D {size}\n"
    return device.extension().Kernel(compile_kernels(head + ROWS + TOOLS + text, [Entry(name, "P", True)])[0])


def launch(name: str, text: str, like: Array, count: int, *arguments: Any) -> None:
    """Start a kernel for `count` rows of all heads."""
    batches, heads, _, size = like.shape
    kernel(name, text, size)((-(-count // TILE), batches * heads), THREADS, *arguments)


def serves(query: Array, key: Array, value: Array, scale: float, *others: Array) -> bool:
    """Whether these kernels do: float32, rows of 32 or 64 numbers, so that tiles have room in shared memory, and few
    of them: the products of many are quicker by cuBLAS."""
    size = query.shape[-1]
    return (
        size in (32, 64)
        and query.shape[-2] * key.shape[-2] <= MOST
        and all([x.dtype == dtypes.float32 and x.shape[-1] == size for x in (query, key, value, *others)])
        and query.size // (size * query.shape[-2]) < 65536
    )


def attention(query: Array, key: Array, value: Array, is_causal: bool, scale: float) -> tuple[Any, Any]:
    """The result, and log(sum(exp(scores))) for every query."""
    q, k, v = stacked(query), stacked(key), stacked(value)
    (batches, heads, rows, size), columns = q.shape, k.shape[2]
    out, logs = empty_like(q, size), device.extension().empty((batches, heads, rows), dtypes.float32)
    sizes = logs, heads, rows, columns, int(is_causal), float(scale)
    launch("forward", FORWARD, q, rows, *words(out), *words(q), *words(k), *words(v), *sizes)
    return out.reshape(query.shape), logs.reshape(query.shape[:-1])


def gradients(
    g: Array, query: Array, key: Array, value: Array, result: Array, logs: Array, is_causal: bool, scale: float
) -> Sequence[Any]:
    """The gradients of query, key and value."""
    g, q, k, v, out = [stacked(x) for x in (g, query, key, value, result)]
    (batches, heads, rows, _), columns = q.shape, k.shape[2]
    of_q, of_k, of_v = into = [empty_like(x, x.shape[-1]) for x in (q, k, v)]
    shares = device.extension().empty((batches, heads, rows), dtypes.float32)
    given = *words(q), *words(k), *words(v), *words(g)
    sizes = logs.reshape(q.shape[:3]), shares, heads, rows, columns, int(is_causal), float(scale)
    launch("of_queries", OF_QUERIES, q, rows, *words(of_q), *words(out), *given, *sizes)
    launch("of_keys", OF_KEYS, q, columns, *words(of_k), *words(of_v), *given, *sizes)
    return [x.reshape(like.shape) for x, like in zip(into, (query, key, value), strict=True)]
