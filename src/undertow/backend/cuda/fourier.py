"""Fourier transforms of up to 1024 numbers along a dimension: sums as they are written down, in double precision.

A block computes the roots of unity first. That is more work than a fast transform, and less than waiting for the
device, or than asking a library for a plan, as long as there are not many rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import by_cupy, device
from undertow.backend.cuda.blocks import rows
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import stored

MOST = 1024
#: products of two numbers that are worth it, beside a library, and beside the host
WORTH, WORTH_WITHOUT = 1 << 26, 1 << 32
#: outputs of a block
EACH = 1024

TEXT = r"""
#define MOST 1024
struct P { O *out; const I *in; double scale; i64 n, given, count, inner, size, inverse; };
FN double re(float v) { return v; }
FN double re(double v) { return v; }
FN double im(float v) { return 0; }
FN double im(double v) { return 0; }
template <class T> FN double re(Complex<T> v) { return v.re; }
template <class T> FN double im(Complex<T> v) { return v.im; }
FN void write(float *to, double a, double b) { *to = (float)a; }
FN void write(double *to, double a, double b) { *to = a; }
template <class T> FN void write(Complex<T> *to, double a, double b) { to->re = (T)a; to->im = (T)b; }
KERNEL(transform, P) { BEGIN
#if ALONE
    double cosines[MOST], sines[MOST];
#else
    __shared__ double cosines[MOST], sines[MOST];
#endif
    const i32 n = (i32)p.n;
    for (i32 k = threadIdx.x; k < n; k += blockDim.x) {
        const double angle = 6.283185307179586 * (2 * k > n ? k - n : k) / n;
        cosines[k] = m_cos(angle); sines[k] = p.inverse ? m_sin(angle) : -m_sin(angle);
    }
#if !ALONE
    __syncthreads();
#endif
    const i64 end = (i64)(blockIdx.x + 1) * EACH;
    for (i64 i = (i64)blockIdx.x * EACH + threadIdx.x; i < end && i < p.size; i += blockDim.x) {
        const i64 row = i / p.inner, column = i - row * p.inner, outer = row / p.count;
        const i32 k = (i32)(row - outer * p.count);
        const I *in = p.in + outer * p.given * p.inner + column;
        double a = 0, b = 0;
        i32 at = 0;
        for (i32 j = 0; j < (HALF ? n / 2 + 1 : n); j++) {
            const I v = in[j * p.inner];
            const bool is_twice = HALF && j && 2 * j != n;
            const double times = is_twice ? 2 : 1, x = re(v), y = HALF && !is_twice ? 0 : im(v);
            a += times * (x * cosines[at] - y * sines[at]);
            if (!HALF) b += x * sines[at] + y * cosines[at];
            at += k;
            if (at >= n) at -= n;
        }
        write(p.out + i, a * p.scale, b * p.scale);
    }
}
"""


@functools.cache
def kernel(given: np.dtype[Any], result: np.dtype[Any]) -> Any:
    """From halves of spectra, if the result is real: their other half is that of real numbers."""
    is_half = int(result.kind == "f")
    head = f"typedef {stored(given)} I; typedef {stored(result)} O;\n#define HALF {is_half}\n#define EACH {EACH}\n"
    return device.extension().Kernel(compile_kernels(head + TEXT, [Entry("transform", "P", True)])[0])


def scale_of(norm: str | None, n: int, inverse: bool) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm in (None, "backward")) else 1.0


def transform(name: str, a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """fft, ifft, rfft or irfft as NumPy's; NotImplemented: something else serves better."""
    if out is not None or not isinstance(a, device.extension().Array) or not a.size or a.dtype not in DTYPES:
        return NotImplemented
    axis %= a.ndim
    given = a.shape[axis]
    n = int(n or (2 * (given - 1) if name == "irfft" else given))
    count = n // 2 + 1 if name == "rfft" else n
    work = a.size // given * count * n
    most = WORTH_WITHOUT if by_cupy.library() is None else WORTH
    if not 1 <= n <= MOST or work > most or given < (n // 2 + 1 if name == "irfft" else n):
        return NotImplemented
    if a.dtype.kind == "c" and name == "rfft":
        return NotImplemented
    whole = dtypes.complex_of(a.dtype) if a.dtype.kind == "f" else a.dtype
    result = device.extension().empty(
        (*a.shape[:axis], count, *a.shape[axis + 1 :]), whole if name != "irfft" else REAL[whole]
    )
    inverse, inner = name.startswith("i"), math.prod(a.shape[axis + 1 :])
    kernel(a.dtype, result.dtype)(
        -(-result.size // EACH), 128, result, rows(a), scale_of(norm, n, inverse), n, given, count, inner, result.size,
        int(inverse),
    )  # fmt: skip
    return result


REAL = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
DTYPES = (*REAL, *REAL.values())
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: functools.partial(transform, name) for name in ("fft", "ifft", "rfft", "irfft")
}
