"""Kernels that go along rows: softmax, log(sum(exp)), cross entropy, and their gradients. A block works on each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend.cuda import device, indexing
from undertow.backend.cuda.blocks import agree, kernel, rows, threads_for, threads_that_keep
from undertow.backend.cuda.reductions import reduce
from undertow.backend.interface import Array, DType

#: what kernels of softmax begin with
MEASURE = r"""
// the largest number of a row, and the sum of exponentials of what the others are below it
FN void measure(const S *x, i64 columns, T &most, T &sum)
{
    const T lowest = (T)float_of(0xff800000u);
    most = lowest;
    sum = 0;
    for (i64 i = threadIdx.x; i < columns; i += blockDim.x) most = Most()(most, at(x, i));
    most = together(most, lowest, Most());
    for (i64 i = threadIdx.x; i < columns; i += blockDim.x) sum += m_exp(at(x, i) - most);
    sum = sum_of(sum);
}
FN bool is_class(i64 target, i64 columns, i64 *error)
{
    if (target >= 0 && target < columns) return true;
    error[1] = target; error[2] = columns; error[0] = 1;
    return false;
}
"""

SOFTMAX = r"""
struct P { S *out; const S *in; i64 columns, logs, safe, kept; };
KERNEL(softmax, P) { BEGIN const S *x = p.in + blockIdx.x * p.columns; S *out = p.out + blockIdx.x * p.columns;
    T most, sum;
#if !ALONE
    if (p.kept) {
        const T lowest = (T)float_of(0xff800000u);
        Kept row, power;
        fetch(row, x, p.columns, lowest);
        most = lowest; sum = 0;
        for (int j = 0; j < KEPT * WIDE; j++) most = Most()(most, row.v[j]);
        most = together(most, lowest, Most());
        EACH_PIECE(k, i, p.columns)
            for (int j = k * WIDE; j < k * WIDE + WIDE; j++) { power.v[j] = m_exp(row.v[j] - most); sum += power.v[j]; }
        sum = sum_of(sum);
        const bool hidden = p.safe && most == lowest;
        const T log_of_sum = p.logs ? m_log(sum) : T(0);
        for (int j = 0; j < KEPT * WIDE; j++)
            row.v[j] = hidden ? T(0) : p.logs ? row.v[j] - most - log_of_sum : power.v[j] / sum;
        store(out, row, p.columns);
        return;
    }
#endif
    measure(x, p.columns, most, sum);
    const bool hidden = p.safe && most == (T)float_of(0xff800000u);
    const T log_of_sum = p.logs ? m_log(sum) : T(0);
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        put(out, i, hidden ? T(0) : p.logs ? at(x, i) - most - log_of_sum : m_exp(at(x, i) - most) / sum); }
"""

SLOPE = r"""
struct P { S *out; const S *g, *y; i64 columns, logs, kept; };
KERNEL(slope, P) { BEGIN const i64 from = blockIdx.x * p.columns; const S *g = p.g + from, *y = p.y + from; T sum = 0;
#if !ALONE
    if (p.kept) {
        Kept slope, row;
        fetch(slope, g, p.columns, T(0));
        fetch(row, y, p.columns, T(0));
        for (int j = 0; j < KEPT * WIDE; j++) sum += p.logs ? slope.v[j] : slope.v[j] * row.v[j];
        sum = sum_of(sum);
        for (int j = 0; j < KEPT * WIDE; j++)
            row.v[j] = p.logs ? slope.v[j] - m_exp(row.v[j]) * sum : row.v[j] * (slope.v[j] - sum);
        store(p.out + from, row, p.columns);
        return;
    }
#endif
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x) sum += p.logs ? at(g, i) : at(g, i) * at(y, i);
    sum = sum_of(sum);
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        put(p.out + from, i, p.logs ? at(g, i) - m_exp(at(y, i)) * sum : at(y, i) * (at(g, i) - sum)); }
"""

# log(sum(exp)), and minus a number for each row if there are numbers
LOGSUMEXP = r"""
struct P { S *out; const S *in, *less; i64 columns; };
KERNEL(logsumexp, P) { BEGIN const S *x = p.in + blockIdx.x * p.columns; T most, sum;
    measure(x, p.columns, most, sum);
    if (threadIdx.x == 0) {
        const bool finite = most - most == 0;
        put(p.out, blockIdx.x, p.less ? m_log(sum) - (at(p.less, blockIdx.x) - most)
            : finite ? m_log(sum) + most : most);
    } }
"""

LOSSES = r"""
struct P { S *out, *kept; const S *in; const i64 *target; i64 columns, ignored, *error; };
KERNEL(losses, P) { BEGIN const S *x = p.in + blockIdx.x * p.columns; i64 target = p.target[blockIdx.x]; T most, sum;
    measure(x, p.columns, most, sum);
    if (threadIdx.x == 0) {
        bool counts = target != p.ignored && is_class(target, p.columns, p.error);
        put(p.out, blockIdx.x, counts ? m_log(sum) - (at(x, target) - most) : T(0));
        if (p.kept) put(p.kept, blockIdx.x, counts ? T(1) : T(0));
    } }
"""

GRADIENT = r"""
struct P { S *out; const S *g, *in; const i64 *target; i64 columns, ignored, *error; };
KERNEL(gradient, P) { BEGIN const i64 from = blockIdx.x * p.columns, target = p.target[blockIdx.x]; T most, sum;
    measure(p.in + from, p.columns, most, sum);
    const bool counts = target != p.ignored && is_class(target, p.columns, p.error);
    const T g = counts ? at(p.g, blockIdx.x) : T(0), scale = g / sum;
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        put(p.out + from, i, counts ? m_exp(at(p.in + from, i) - most) * scale - (i == target ? g : T(0)) : T(0)); }
"""

COEFFICIENTS = r"""
struct P { S *out; const i64 *target; i64 n, ignored, is_mean; };
KERNEL(coefficients, P) { BEGIN T count = 0;
    for (i64 i = threadIdx.x; i < p.n; i += blockDim.x) count += p.target[i] != p.ignored ? T(1) : T(0);
    count = sum_of(count);
    for (i64 i = threadIdx.x; i < p.n; i += blockDim.x)
        put(p.out, i, p.target[i] == p.ignored ? (p.is_mean && count == 0 ? T(0) / count : T(0))
            : p.is_mean ? T(1) / count : T(1)); }
"""

#: targets that one block counts
MOST_COUNTED = 1 << 16


def row_kernel(name: str, text: str, dtype: np.dtype[Any]) -> Any:
    return kernel(name, MEASURE + text, dtype)


def softmax_rows(input: Array, logs: bool, safe: bool = False) -> Any:
    """The softmax of the last dimension, or its logarithm; `safe`: zeros where a row is nothing but -inf."""
    if not agree(input) or not input.ndim:
        return None
    input, columns = rows(input), input.shape[-1]
    out = device.extension().empty(input.shape, input.dtype)
    call, keep = row_kernel("softmax", SOFTMAX, input.dtype), threads_that_keep(columns, input, out)
    threads = keep or threads_for(columns)
    call(input.size // columns, threads, out, input, columns, int(logs), int(safe), int(keep > 0))
    return out


def softmax_rows_slope(grad_output: Array, output: Array, logs: bool) -> Any:
    """The gradient of `softmax_rows` from its output."""
    if not agree(output, grad_output) or not output.ndim or grad_output.shape != output.shape:
        return None
    grad_output, output, columns = rows(grad_output), rows(output), output.shape[-1]
    out = device.extension().empty(output.shape, output.dtype)
    call, keep = row_kernel("slope", SLOPE, output.dtype), threads_that_keep(columns, output, grad_output, out)
    threads = keep or threads_for(columns)
    call(output.size // columns, threads, out, grad_output, output, columns, int(logs), int(keep > 0))
    return out


def logsumexp_rows(input: Array, less: Array | None = None) -> Any:
    """log(sum(exp)) of the last dimension, which is left out; minus a number for each row, if given."""
    if not agree(input, less) or not input.ndim or (less is not None and less.shape != input.shape[:-1]):
        return None
    input, columns = rows(input), input.shape[-1]
    out = device.extension().empty(input.shape[:-1], input.dtype)
    row_kernel("logsumexp", LOGSUMEXP, input.dtype)(
        input.size // columns, threads_for(columns), out, input, rows(less), columns
    )
    return out


def is_simple(x: Array, *others: Any) -> bool:
    return agree(x, *others) and all([a.is_contiguous for a in (x, *others)])


def serves(input: Array, target: Array, weight: Array | None) -> bool:
    return (
        weight is None and input.ndim == 2 and target.ndim == 1 and is_simple(input) and target.dtype == np.int64
        and target.is_contiguous and len(target) == len(input)
    )  # fmt: skip


def cross_entropy(input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str) -> Any:
    if not serves(input, target, weight):
        return None
    extension = device.extension()
    count, columns = input.shape
    losses = extension.empty((count,), input.dtype)
    kept = extension.empty((count,), input.dtype) if reduction == "mean" else None
    call = row_kernel("losses", LOSSES, input.dtype)
    call(count, threads_for(columns), losses, kept, input, target, columns, ignore_index, indexing.error_word())
    if reduction == "none":
        return losses
    total = reduce("add", losses, None, input.dtype, False)
    return total if kept is None else total / reduce("add", kept, None, input.dtype, False)


def softmax_minus_target(grad_output: Array, target: Array, input: Array, ignore_index: int) -> Any:
    if not serves(input, target, None) or not is_simple(input, grad_output) or grad_output.ndim != 1:
        return None
    out = device.extension().empty(input.shape, input.dtype)
    count, columns = input.shape
    call = row_kernel("gradient", GRADIENT, input.dtype)
    call(count, threads_for(columns), out, grad_output, input, target, columns, ignore_index, indexing.error_word())
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


KERNELS: dict[str, Callable[..., Any]] = {
    "cross_entropy": cross_entropy, "softmax_rows_of": softmax_rows, "softmax_rows_slope": softmax_rows_slope,
    "softmax_minus_target": softmax_minus_target, "target_coefficients": target_coefficients,
    "logsumexp_rows": logsumexp_rows,
}  # fmt: skip
