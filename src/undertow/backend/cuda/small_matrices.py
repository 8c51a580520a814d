"""Factorisations of stacks of small matrices: a warp for each, which keeps it in shared memory. Nobody waits for them.

Larger ones are cuSOLVER's (factorizations.py). A matrix that has no factor says so by a number, from 1, in `info`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import stored
from undertow.backend.interface import Array

#: rows and columns at most, and threads of a block
LARGEST = THREADS = 32

EACH = "#define EACH(i, from, to) for (i64 i = (from) + threadIdx.x; i < (to); i += blockDim.x)\n"

TEXT = r"""
struct Tile { S v[32][33]; };
FN void read_tile(Tile &to, const S *a, i64 m, i64 n)
{
    EACH(i, 0, m * n) to.v[i / n][i % n] = a[i];
    __syncthreads();
}
C_ T real_of(Complex<T> a) { return a.re; }
C_ T real_of(T a) { return a; }
C_ T imaginary_of(Complex<T> a) { return a.im; }
C_ T imaginary_of(T a) { return 0; }
C_ T size_of(Complex<T> a) { return m_fabs(a.re) + m_fabs(a.im); } // as LAPACK measures them
C_ T size_of(T a) { return m_fabs(a); }
FN S scalar(R re, R im) { return SCALAR; }

struct Cholesky { S *out; const S *a; i32 *info; i64 n; };
KERNEL(cholesky, Cholesky) { BEGIN
    __shared__ Tile tile;
    const i64 n = p.n, from = (i64)blockIdx.x * n * n;
    i32 bad = 0;
    read_tile(tile, p.a + from, n, n);
    for (i64 k = 0; k < n; k++) {
        const R square = real_of(tile.v[k][k]);
        if (!(square > 0)) { bad = (i32)k + 1; break; }
        const R root = m_sqrt(square);
        __syncthreads();
        EACH(i, k, n) tile.v[i][k] = i == k ? scalar(root, 0) : tile.v[i][k] / scalar(root, 0);
        __syncthreads();
        EACH(i, k + 1, n)
            for (i64 j = k + 1; j <= i; j++) tile.v[i][j] = tile.v[i][j] - tile.v[i][k] * conjugated(tile.v[j][k]);
        __syncthreads();
    }
    EACH(i, 0, n * n) p.out[from + i] = i % n <= i / n ? tile.v[i / n][i % n] : scalar(0, 0);
    if (threadIdx.x == 0) p.info[blockIdx.x] = bad;
}

struct Lu { S *out; const S *a; i32 *pivots, *info; i64 m, n; };
KERNEL(lu, Lu) { BEGIN
    __shared__ Tile tile;
    const i64 m = p.m, n = p.n, count = m < n ? m : n, from = (i64)blockIdx.x * m * n;
    i32 bad = 0;
    read_tile(tile, p.a + from, m, n);
    for (i64 k = 0; k < count; k++) {
        i64 best = k;
        for (i64 i = k + 1; i < m; i++) if (size_of(tile.v[i][k]) > size_of(tile.v[best][k])) best = i;
        const S pivot = tile.v[best][k];
        __syncthreads();
        if (best != k) EACH(j, 0, n) {
            const S other = tile.v[k][j];
            tile.v[k][j] = tile.v[best][j]; tile.v[best][j] = other;
        }
        __syncthreads();
        if (threadIdx.x == 0) p.pivots[blockIdx.x * count + k] = (i32)best + 1;
        if (pivot == scalar(0, 0)) { if (!bad) bad = (i32)k + 1; continue; }
        EACH(i, k + 1, m) {
            const S factor = tile.v[i][k] / pivot;
            tile.v[i][k] = factor;
            for (i64 j = k + 1; j < n; j++) tile.v[i][j] = tile.v[i][j] - factor * tile.v[k][j];
        }
        __syncthreads();
    }
    EACH(i, 0, m * n) p.out[from + i] = tile.v[i / n][i % n];
    if (threadIdx.x == 0) p.info[blockIdx.x] = bad;
}

// a thread for each right side
struct Solve { S *x; const S *lu; const i32 *pivots; i64 size, n, columns; };
KERNEL(solve, Solve) { BEGIN
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, n = p.n, step = p.columns;
    if (i >= p.size) return;
    const i64 matrix = i / step;
    const S *lu = p.lu + matrix * n * n;
    S *x = p.x + matrix * n * step + (i - matrix * step);
    for (i64 k = 0; k < n; k++) {
        const i64 other = p.pivots[matrix * n + k] - 1;
        const S up = x[other * step]; x[other * step] = x[k * step]; x[k * step] = up;
    }
    for (i64 k = 0; k < n; k++) {
        S left = x[k * step];
        for (i64 j = 0; j < k; j++) left = left - lu[k * n + j] * x[j * step];
        x[k * step] = left;
    }
    for (i64 k = n - 1; k >= 0; k--) {
        S left = x[k * step];
        for (i64 j = k + 1; j < n; j++) left = left - lu[k * n + j] * x[j * step];
        x[k * step] = left / lu[k * n + k];
    }
}

// LAPACK's reflections I - tau v v^H: v is 1 at its own row, and lies below the diagonal
struct Qr { S *q, *r; const S *a; i64 m, n, columns; }; // columns of Q, which are the rows of R
KERNEL(qr, Qr) { BEGIN
    __shared__ Tile tile, made;
    __shared__ S taus[32];
    const i64 m = p.m, n = p.n, count = m < n ? m : n;
    read_tile(tile, p.a + (i64)blockIdx.x * m * n, m, n);
    for (i64 k = 0; k < count; k++) {
        R most = 0, sum = 0;
        for (i64 i = k + 1; i < m; i++) {
            const R size = size_of(tile.v[i][k]);
            most = size > most || size != size ? size : most;
        }
        for (i64 i = k + 1; i < m && most > 0; i++) {
            const R re = real_of(tile.v[i][k]) / most, im = imaginary_of(tile.v[i][k]) / most;
            sum += re * re + im * im;
        }
        const R below = most * m_sqrt(sum), re = real_of(tile.v[k][k]), im = imaginary_of(tile.v[k][k]);
        const S head = tile.v[k][k];
        if (!(below != 0 || im != 0)) { taus[k] = scalar(0, 0); continue; }
        const R length = m_hypot(m_hypot(re, im), below), beta = re > 0 ? -length : length;
        const S tau = scalar((beta - re) / beta, -im / beta), scale = scalar(1, 0) / (head - scalar(beta, 0));
        __syncthreads();
        EACH(i, k, m) tile.v[i][k] = i == k ? scalar(beta, 0) : tile.v[i][k] * scale;
        __syncthreads();
        taus[k] = tau;
        EACH(j, k + 1, n) {
            S sum = tile.v[k][j];
            for (i64 i = k + 1; i < m; i++) sum = sum + conjugated(tile.v[i][k]) * tile.v[i][j];
            sum = sum * conjugated(tau);
            tile.v[k][j] = tile.v[k][j] - sum;
            for (i64 i = k + 1; i < m; i++) tile.v[i][j] = tile.v[i][j] - tile.v[i][k] * sum;
        }
        __syncthreads();
    }
    __syncthreads();
    S *r = p.r + (i64)blockIdx.x * p.columns * n;
    EACH(i, 0, p.columns * n) r[i] = i / n <= i % n ? tile.v[i / n][i % n] : scalar(0, 0);
    if (p.q == 0) return;
    EACH(j, 0, p.columns) {
        for (i64 i = 0; i < m; i++) made.v[i][j] = scalar(i == j, 0);
        for (i64 k = count - 1; k >= 0; k--) {
            S sum = made.v[k][j];
            for (i64 i = k + 1; i < m; i++) sum = sum + conjugated(tile.v[i][k]) * made.v[i][j];
            sum = sum * taus[k];
            made.v[k][j] = made.v[k][j] - sum;
            for (i64 i = k + 1; i < m; i++) made.v[i][j] = made.v[i][j] - tile.v[i][k] * sum;
        }
    }
    __syncthreads();
    S *q = p.q + (i64)blockIdx.x * m * p.columns;
    EACH(i, 0, m * p.columns) q[i] = made.v[i / p.columns][i % p.columns];
}
"""

# from exchanges of rows, in turn, to the places the rows had: a warp for each matrix, of which one thread exchanges
PLACES = r"""
#define NEAR 8192 // rows at most, whose places are exchanged in shared memory
template <class I> FN void exchange(I *place, const i32 *pivots, i64 count)
{
    for (i64 k = 0; k < count; k++) {
        const i64 other = pivots[k] - 1;
        const I up = place[other];
        place[other] = place[k]; place[k] = up;
    }
}
struct Places { i64 *order; const i32 *pivots; i64 count, rows; };
KERNEL(places, Places) { BEGIN
    __shared__ i32 near[NEAR];
    const bool is_near = p.rows <= NEAR;
    i64 *order = p.order + blockIdx.x * p.rows;
    const i32 *pivots = p.pivots + blockIdx.x * p.count;
    EACH(k, 0, p.rows) if (is_near) near[k] = (i32)k; else order[k] = k;
    __syncthreads();
    if (threadIdx.x == 0) { if (is_near) exchange(near, pivots, p.count); else exchange(order, pivots, p.count); }
    __syncthreads();
    EACH(k, 0, is_near ? p.rows : 0) order[k] = near[k];
}
"""


@functools.cache
def kernels(dtype: np.dtype[Any]) -> dict[str, Any]:
    real = np.zeros(0, dtype).real.dtype
    scalar = "made(re, im)" if dtype.kind == "c" else "re"
    head = f"typedef {stored(dtype)} S; typedef {stored(real)} R;\n#define SCALAR {scalar}\n"
    return loaded(head + EACH + TEXT, {"cholesky": "Cholesky", "lu": "Lu", "solve": "Solve", "qr": "Qr"}, {"solve"})


@functools.cache
def places_kernel() -> Any:
    return loaded(EACH + PLACES, {"places": "Places"}, set())["places"]


def loaded(text: str, names: dict[str, str], alone: set[str]) -> dict[str, Any]:
    """Kernels, and the structures of their arguments; in those of `alone` threads do not work together."""
    entries = [Entry(name, arguments, name not in alone) for name, arguments in names.items()]
    return {n: device.extension().Kernel(a) for n, a in zip(names, compile_kernels(text, entries), strict=True)}


def serves(*sizes: int) -> bool:
    return max(sizes) <= LARGEST


def empty(*shape: int, dtype: np.dtype[Any]) -> Array:
    return device.extension().empty(shape, dtype)


def cholesky(A: Array) -> tuple[Array, Array]:
    """The lower factors of a stack, and numbers of minors that are not positive-definite."""
    out, info = empty(*A.shape, dtype=A.dtype), empty(len(A), dtype=dtypes.int32)
    kernels(A.dtype)["cholesky"](len(A), THREADS, out, A, info, A.shape[-1])
    return out, info


def lu(A: Array) -> tuple[Array, Array, Array]:
    """L and U of a stack in one, the rows (from 1) that were exchanged, and the numbers of pivots that are zero."""
    m, n = A.shape[1:]
    out, info = empty(*A.shape, dtype=A.dtype), empty(len(A), dtype=dtypes.int32)
    pivots = empty(len(A), min(m, n), dtype=dtypes.int32)
    kernels(A.dtype)["lu"](len(A), THREADS, out, A, pivots, info, m, n)
    return out, pivots, info


def solve(LU: Array, pivots: Array, X: Array) -> None:
    """The solutions in the place of right sides."""
    size = X.size // X.shape[-2]
    kernels(LU.dtype)["solve"](-(-size // THREADS), THREADS, X, LU, pivots, size, X.shape[-2], X.shape[-1])


def qr(A: Array, columns: int, only_r: bool) -> tuple[Array | None, Array]:
    """Q, of so many columns, unless only R is wanted, and R."""
    m, n = A.shape[1:]
    q = None if only_r else empty(len(A), m, columns, dtype=A.dtype)
    r = empty(len(A), columns, n, dtype=A.dtype)
    kernels(A.dtype)["qr"](len(A), THREADS, q, r, A, m, n, columns)
    return q, r


def places(pivots: Array, rows: int) -> Array:
    """The places that rows had before they were exchanged in turn, for a stack."""
    order = empty(len(pivots), rows, dtype=dtypes.int64)
    if order.size:
        places_kernel()(len(pivots), THREADS, order, pivots, pivots.shape[-1], rows)
    return order
