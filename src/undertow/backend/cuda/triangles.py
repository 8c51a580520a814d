"""Linear systems with triangular matrices: a thread for each right side, which nobody has to wait for."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from undertow.backend.cuda import device
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import stored
from undertow.backend.interface import Array

THREADS = 64

TEXT = r"""
struct P { S *x; const S *a; i64 size, n, columns, upper, unit; };
KERNEL(solve, P) { BEGIN
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.size) return;
    const i64 matrix = i / p.columns;
    const S *a = p.a + matrix * p.n * p.n;
    S *x = p.x + matrix * p.n * p.columns + (i - matrix * p.columns);
    for (i64 k = 0; k < p.n; k++) {
        const i64 row = p.upper ? p.n - 1 - k : k, from = p.upper ? row + 1 : 0, to = p.upper ? p.n : row;
        S left = x[row * p.columns];
        for (i64 j = from; j < to; j++) left = left - a[row * p.n + j] * x[j * p.columns];
        x[row * p.columns] = p.unit ? left : left / a[row * p.n + row];
    }
}
"""


@functools.cache
def kernel(dtype: np.dtype[Any]) -> Any:
    text = f"typedef {stored(dtype)} S;\n{TEXT}"
    return device.extension().Kernel(compile_kernels(text, [Entry("solve", "P", False)])[0])


def solve_triangles(A: Array, B: Array, upper: bool, unitriangular: bool) -> Array:
    """X of A X = B, for stacks of small triangular matrices; the arrays are contiguous."""
    X, columns = B.copy("C"), B.shape[-1]
    size = X.size // B.shape[-2]
    kernel(A.dtype)(-(-size // THREADS), THREADS, X, A, size, A.shape[-1], columns, int(upper), int(unitriangular))
    return X
