"""Kernels that go along rows: softmax, and cross entropy with its gradient. A block of threads works on each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.backend.cuda import device, indexing
from undertow.backend.cuda.fused import are_simple, kernel
from undertow.backend.cuda.kernel_text import stored
from undertow.backend.cuda.reductions import reduce
from undertow.backend.interface import Array, DType

#: what a block finds together
TOGETHER = r"""
template <class F> FN T together(T v, T none, F join)
{
#if !ALONE
    __shared__ T part[32];
    for (int o = 16; o; o >>= 1) v = join(v, __shfl_xor_sync(~0u, v, o));
    if (blockDim.x > 32) {
        int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
        __syncthreads();
        if (lane == 0) part[threadIdx.x >> 5] = v;
        __syncthreads();
        v = lane < warps ? part[lane] : none;
        for (int o = 16; o; o >>= 1) v = join(v, __shfl_xor_sync(~0u, v, o));
    }
#endif
    return v;
}
struct Sum { FN_METHOD T operator()(T a, T b) const { return a + b; } };
struct Most { FN_METHOD T operator()(T a, T b) const { return a > b || a != a ? a : b; } };
// the largest number of a row, and the sum of exponentials of what the others are below it
FN void measure(const T *x, i64 columns, T &most, T &sum)
{
    const T lowest = (T)float_of(0xff800000u);
    most = lowest;
    sum = 0;
    for (i64 i = threadIdx.x; i < columns; i += blockDim.x) most = Most()(most, x[i]);
    most = together(most, lowest, Most());
    for (i64 i = threadIdx.x; i < columns; i += blockDim.x) sum += m_exp(x[i] - most);
    sum = together(sum, T(0), Sum());
}
FN bool is_class(i64 target, i64 columns, i64 *error)
{
    if (target >= 0 && target < columns) return true;
    error[1] = target; error[2] = columns; error[0] = 1;
    return false;
}
"""

SOFTMAX = r"""
struct P { T *out; const T *in; i64 columns, logs; };
KERNEL(softmax, P) { BEGIN const T *x = p.in + blockIdx.x * p.columns; T *out = p.out + blockIdx.x * p.columns;
    T most, sum;
    measure(x, p.columns, most, sum);
    const T log_of_sum = p.logs ? m_log(sum) : T(0);
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        out[i] = p.logs ? x[i] - most - log_of_sum : m_exp(x[i] - most) / sum; }
"""

LOSSES = r"""
struct P { T *out, *kept; const T *in; const i64 *target; i64 columns, ignored, *error; };
KERNEL(losses, P) { BEGIN const T *x = p.in + blockIdx.x * p.columns; i64 target = p.target[blockIdx.x]; T most, sum;
    measure(x, p.columns, most, sum);
    if (threadIdx.x == 0) {
        bool counts = target != p.ignored && is_class(target, p.columns, p.error);
        p.out[blockIdx.x] = counts ? m_log(sum) - (x[target] - most) : T(0);
        if (p.kept) p.kept[blockIdx.x] = counts ? T(1) : T(0);
    } }
"""

GRADIENT = r"""
struct P { T *out; const T *g, *in; const i64 *target; i64 columns, ignored, *error; };
KERNEL(gradient, P) { BEGIN const i64 at = blockIdx.x * p.columns, target = p.target[blockIdx.x]; T most, sum;
    measure(p.in + at, p.columns, most, sum);
    const bool counts = target != p.ignored && is_class(target, p.columns, p.error);
    const T g = counts ? p.g[blockIdx.x] : T(0), scale = g / sum;
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        p.out[at + i] = counts ? m_exp(p.in[at + i] - most) * scale - (i == target ? g : T(0)) : T(0); }
"""

COEFFICIENTS = r"""
struct P { T *out; const i64 *target; i64 n, ignored, is_mean; };
KERNEL(coefficients, P) { BEGIN T count = 0;
    for (i64 i = threadIdx.x; i < p.n; i += blockDim.x) count += p.target[i] != p.ignored ? T(1) : T(0);
    count = together(count, T(0), Sum());
    for (i64 i = threadIdx.x; i < p.n; i += blockDim.x)
        p.out[i] = p.target[i] == p.ignored ? (p.is_mean && count == 0 ? T(0) / count : T(0))
            : p.is_mean ? T(1) / count : T(1); }
"""

#: targets that one block counts
MOST_COUNTED = 1 << 16


def row_kernel(name: str, text: str, dtype: np.dtype[Any]) -> Any:
    method = "#if ALONE\n#define FN_METHOD inline\n#else\n#define FN_METHOD __device__ __forceinline__\n#endif\n"
    return kernel(name, method + TOGETHER + text, stored(dtype), cooperative=True)


def threads_for(columns: int) -> int:
    threads = 32
    while threads < 512 and threads * 4 < columns:
        threads *= 2
    return threads


def softmax_rows(input: Array, logs: bool) -> Any:
    """The softmax of the last dimension, or its logarithm."""
    if not are_simple(input) or not input.ndim:
        return None
    out = device.extension().empty(input.shape, input.dtype)
    columns = input.shape[-1]
    call = row_kernel("softmax", SOFTMAX, input.dtype)
    call(input.size // columns, threads_for(columns), out, input, columns, int(logs))
    return out


def serves(input: Array, target: Array, weight: Array | None) -> bool:
    return (
        weight is None and input.ndim == 2 and target.ndim == 1 and are_simple(input) and target.dtype == np.int64
        and target.is_contiguous and len(target) == len(input)
    )  # fmt: skip


def cross_entropy(input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str) -> Any:
    if not serves(input, target, weight):
        return None
    extension = device.extension()
    rows, columns = input.shape
    losses = extension.empty((rows,), input.dtype)
    kept = extension.empty((rows,), input.dtype) if reduction == "mean" else None
    call = row_kernel("losses", LOSSES, input.dtype)
    call(rows, threads_for(columns), losses, kept, input, target, columns, ignore_index, indexing.error_word())
    if reduction == "none":
        return losses
    total = reduce("add", losses, None, input.dtype, False)
    return total if kept is None else total / reduce("add", kept, None, input.dtype, False)


def softmax_minus_target(grad_output: Array, target: Array, input: Array, ignore_index: int) -> Any:
    if not serves(input, target, None) or not are_simple(input, grad_output) or grad_output.ndim != 1:
        return None
    out = device.extension().empty(input.shape, input.dtype)
    rows, columns = input.shape
    call = row_kernel("gradient", GRADIENT, input.dtype)
    call(rows, threads_for(columns), out, grad_output, input, target, columns, ignore_index, indexing.error_word())
    return out


def target_coefficients(
    target: Array, weight: Array | None, classes: int, ignore_index: int, reduction: str, dtype: DType
) -> Any:
    dtype = np.dtype(dtype)
    if weight is not None or target.ndim != 1 or target.dtype != np.int64 or not target.is_contiguous:
        return None
    if not 0 < target.size <= MOST_COUNTED or dtype not in (np.float32, np.float64) or reduction == "none":
        return None
    out = device.extension().empty(target.shape, dtype)
    call = row_kernel("coefficients", COEFFICIENTS, dtype)
    call(1, threads_for(target.size), out, target, target.size, ignore_index, int(reduction == "mean"))
    return out
