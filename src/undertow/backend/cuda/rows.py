"""Kernels that go along rows: softmax, log(sum(exp)), cross entropy, and their gradients. A block works on each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend.cuda import device, indexing
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
    if (error && !error[0]) { error[1] = target; error[2] = columns; error[0] = 1; }
    return false;
}
"""

SOFTMAX = RowReader(
    "softmax",
    "struct P { S *out; const S *in; i64 columns, logs, safe, kept; };",
    MEASURE
    + r"""
KERNEL(softmax, Arguments) { BEGIN
    const S *x = p.in + blockIdx.x * p.columns; S *out = p.out + blockIdx.x * p.columns;
    T most, sum;
    if (p.kept) {
        const T lowest = (T)float_of(0xff800000u);
        Kept row, power;
        take_row(row, p, blockIdx.x, lowest);
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
    measure(x, p.columns, most, sum);
    const bool hidden = p.safe && most == (T)float_of(0xff800000u);
    const T log_of_sum = p.logs ? m_log(sum) : T(0);
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        put(out, i, hidden ? T(0) : p.logs ? at(x, i) - most - log_of_sum : m_exp(at(x, i) - most) / sum); }
""",
    "in",
    1,
)

SLOPE = RowReader(
    "slope",
    "struct P { S *out; const S *g, *y; i64 columns, logs, kept; };",
    r"""
KERNEL(slope, Arguments) { BEGIN
    const i64 from = blockIdx.x * p.columns; const S *g = p.g + from, *y = p.y + from; T sum = 0;
    if (p.kept) {
        Kept slope, row;
        take_row(slope, p, blockIdx.x, T(0));
        fetch(row, y, p.columns, T(0));
        for (int j = 0; j < KEPT * WIDE; j++) sum += p.logs ? slope.v[j] : slope.v[j] * row.v[j];
        sum = sum_of(sum);
        for (int j = 0; j < KEPT * WIDE; j++)
            row.v[j] = p.logs ? slope.v[j] - m_exp(row.v[j]) * sum : row.v[j] * (slope.v[j] - sum);
        store(p.out + from, row, p.columns);
        return;
    }
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x) sum += p.logs ? at(g, i) : at(g, i) * at(y, i);
    sum = sum_of(sum);
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        put(p.out + from, i, p.logs ? at(g, i) - m_exp(at(y, i)) * sum : at(y, i) * (at(g, i) - sum)); }
""",
    "g",
    1,
)

# log(sum(exp)), and minus a number for each row if there are numbers
LOGSUMEXP = (
    MEASURE
    + r"""
struct P { S *out; const S *in, *less; i64 columns; };
KERNEL(logsumexp, P) { BEGIN const S *x = p.in + blockIdx.x * p.columns; T most, sum;
    measure(x, p.columns, most, sum);
    if (threadIdx.x == 0) {
        const bool finite = most - most == 0;
        put(p.out, blockIdx.x, p.less ? m_log(sum) - (at(p.less, blockIdx.x) - most)
            : finite ? m_log(sum) + most : most);
    } }
"""
)

# what a block has of a row: the largest number, and the sum of exponentials of what the others are below it
MEASURED = r"""
template <class Row> FN void measured(const S *x, i64 columns, i64 kept, Row &row, T &most, T &sum)
{
#if !ALONE
    if (kept) {
        const T lowest = (T)float_of(0xff800000u);
        fetch(row, x, columns, lowest);
        most = lowest; sum = 0;
        for (int j = 0; j < KEPT * WIDE; j++) most = Most()(most, row.v[j]);
        most = together(most, lowest, Most());
        EACH_PIECE(k, i, columns)
            for (int j = k * WIDE; j < k * WIDE + WIDE; j++) { row.v[j] = m_exp(row.v[j] - most); sum += row.v[j]; }
        sum = sum_of(sum);
        return;
    }
#endif
    measure(x, columns, most, sum);
}
"""

LOSSES = (
    MEASURE
    + MEASURED
    + r"""
struct P { S *out; const S *in; const i64 *target; i64 columns, ignored, *error, kept; };
KERNEL(losses, P) { BEGIN const S *x = p.in + blockIdx.x * p.columns; i64 target = p.target[blockIdx.x]; T most, sum;
    Kept row;
    measured(x, p.columns, p.kept, row, most, sum);
    if (threadIdx.x == 0) {
        bool counts = target != p.ignored && is_class(target, p.columns, p.error);
        put(p.out, blockIdx.x, counts ? m_log(sum) - (at(x, target) - most) : T(0));
    } }
"""
)

# how many targets count, by all threads of a block
COUNTED = r"""
FN T counted(const i64 *target, i64 n, i64 ignored, i64 columns)
{
    T count = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x)
        count += target[i] != ignored && target[i] >= 0 && target[i] < columns ? T(1) : T(0);
    return sum_of(count);
}
"""

TOTAL = (
    COUNTED
    + r"""
struct P { S *out; const S *losses; const i64 *target; i64 n, columns, ignored, is_mean; };
KERNEL(total, P) { BEGIN T sum = 0;
    for (i64 i = threadIdx.x; i < p.n; i += blockDim.x) sum += at(p.losses, i);
    sum = sum_of(sum);
    const T count = p.is_mean ? counted(p.target, p.n, p.ignored, p.columns) : T(1);
    if (threadIdx.x == 0) put(p.out, 0, sum / count); }
"""
)

# the gradient of a mean, for each target that counts
SHARE = (
    COUNTED
    + r"""
struct P { T *out; const S *g; const i64 *target; i64 n, columns, ignored; };
KERNEL(share, P) { BEGIN const T count = counted(p.target, p.n, p.ignored, p.columns);
    if (threadIdx.x == 0) p.out[0] = at(p.g, 0) * (T(1) / count); }
"""
)

# `share` is what every row gets of the gradient; without it, g is a number for each row, or (counts) one for their mean
GRADIENT = (
    MEASURE
    + MEASURED
    + COUNTED
    + r"""
struct P { S *out; const S *g; const T *share; const S *in; const i64 *target; i64 n, columns, ignored, each, is_mean,
           *error, kept; };
KERNEL(gradient, P) { BEGIN const i64 from = blockIdx.x * p.columns, target = p.target[blockIdx.x]; T most, sum;
    Kept row;
    measured(p.in + from, p.columns, p.kept, row, most, sum);
    const bool counts = target != p.ignored && is_class(target, p.columns, p.error);
    const T given = p.share ? p.share[0] : at(p.g, p.each ? blockIdx.x : 0);
    const T share = p.is_mean && !p.share ? given * (T(1) / counted(p.target, p.n, p.ignored, p.columns)) : given;
    const T g = counts ? share : T(0), scale = g / sum;
#if !ALONE
    if (p.kept) {
        EACH_PIECE(k, i, p.columns)
            for (int j = 0; j < WIDE; j++)
                row.v[k * WIDE + j] = counts ? row.v[k * WIDE + j] * scale - (i * WIDE + j == target ? g : T(0)) : T(0);
        store(p.out + from, row, p.columns);
        return;
    }
#endif
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        put(p.out + from, i, counts ? m_exp(at(p.in + from, i) - most) * scale - (i == target ? g : T(0)) : T(0)); }
"""
)

COEFFICIENTS = (
    MEASURE
    + r"""
struct P { S *out; const i64 *target; i64 n, ignored, is_mean; };
KERNEL(coefficients, P) { BEGIN T count = 0;
    for (i64 i = threadIdx.x; i < p.n; i += blockDim.x) count += p.target[i] != p.ignored ? T(1) : T(0);
    count = sum_of(count);
    for (i64 i = threadIdx.x; i < p.n; i += blockDim.x)
        put(p.out, i, p.target[i] == p.ignored ? (p.is_mean && count == 0 ? T(0) / count : T(0))
            : p.is_mean ? T(1) / count : T(1)); }
"""
)

#: targets that one block counts; and those that every block counts for itself
MOST_COUNTED, FEW_COUNTED = 1 << 16, 1 << 10


def softmax_rows(input: Array, logs: bool, safe: bool = False) -> Array:
    """The softmax of the last dimension, or its logarithm; `safe`: zeros where a row is nothing but -inf."""
    if not agree(input) or not input.ndim:
        return None
    input, columns = rows(input), input.shape[-1]
    out = device.extension().empty(input.shape, input.dtype)
    call, keep = reading_kernel(SOFTMAX, input.dtype), threads_that_keep(columns, input, out)
    threads = keep or threads_for(columns)
    call(input.size // columns, threads, out, input, columns, int(logs), int(safe), int(keep > 0))
    return out


def softmax_rows_slope(grad_output: Array, output: Array, logs: bool) -> Array:
    """The gradient of `softmax_rows` from its output."""
    if not agree(output, grad_output) or not output.ndim or grad_output.shape != output.shape:
        return None
    grad_output, output, columns = rows(grad_output), rows(output), output.shape[-1]
    out = device.extension().empty(output.shape, output.dtype)
    call, keep = reading_kernel(SLOPE, output.dtype), threads_that_keep(columns, output, grad_output, out)
    threads = keep or threads_for(columns)
    call(output.size // columns, threads, out, grad_output, output, columns, int(logs), int(keep > 0))
    return out


def logsumexp_rows(input: Array, less: Array | None = None) -> Array:
    """log(sum(exp)) of the last dimension, which is left out; minus a number for each row, if given."""
    if not agree(input, less) or not input.ndim or (less is not None and less.shape != input.shape[:-1]):
        return None
    input, columns = rows(input), input.shape[-1]
    out = device.extension().empty(input.shape[:-1], input.dtype)
    kernel("logsumexp", LOGSUMEXP, input.dtype)(
        input.size // columns, threads_for(columns), out, input, rows(less), columns
    )
    return out


def serves(input: Array, target: Array, weight: Array | None) -> bool:
    return (
        weight is None and input.ndim == 2 and input.is_contiguous and target.is_contiguous and agree(input)
        and target.shape == input.shape[:1] and target.dtype == INT64
    )  # fmt: skip


INT64 = np.dtype(np.int64)


def cross_entropy(input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str) -> Array:
    if not serves(input, target, weight):
        return None
    extension = device.extension()
    count, columns = input.shape
    if reduction != "none" and count > MOST_COUNTED:
        return None
    losses = extension.empty((count,), input.dtype)
    keep, word = threads_that_keep(columns, input), indexing.error_word()
    call = kernel("losses", LOSSES, input.dtype)
    call(count, keep or threads_for(columns), losses, input, target, columns, ignore_index, word, int(keep > 0))
    if reduction == "none":
        return losses
    total = extension.empty((), input.dtype)
    call = kernel("total", TOTAL, input.dtype)
    call(1, threads_for(count), total, losses, target, count, columns, ignore_index, int(reduction == "mean"))
    return total


def softmax_minus_target(grad_output: Array, target: Array, input: Array, ignore_index: int) -> Array:
    """grad_output * (softmax(input) - 1 at the target): cross entropy's gradient, for one of each row."""
    return cross_entropy_gradient(grad_output, input, target, None, ignore_index, "none")


def cross_entropy_gradient(
    g: Array, input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str
) -> Array | None:
    """The gradient of the input. A target that is no class has been noted by the forward, and counts for nothing."""
    if not serves(input, target, weight) or not g.is_contiguous or g.dtype != input.dtype:
        return None
    if g.shape != (target.shape if reduction == "none" else ()):
        return None
    count, columns = input.shape
    is_mean, extension = reduction == "mean", device.extension()
    if is_mean and count > MOST_COUNTED:
        return None
    out, share = extension.empty(input.shape, input.dtype), None
    if is_mean and count > FEW_COUNTED:
        share = extension.empty((), exact(input.dtype))
        kernel("share", SHARE, input.dtype)(1, 512, share, g, target, count, columns, ignore_index)
    keep, call = threads_that_keep(columns, input, out), kernel("gradient", GRADIENT, input.dtype)
    call(
        count, keep or threads_for(columns), out, g, share, input, target, count, columns, ignore_index, g.ndim,
        int(is_mean), None, int(keep > 0),
    )  # fmt: skip
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
    call = kernel("coefficients", COEFFICIENTS, dtype)
    call(1, threads_for(target.size), out, target, target.size, ignore_index, int(reduction == "mean"))
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "cross_entropy": cross_entropy, "cross_entropy_gradient": cross_entropy_gradient,
    "softmax_rows_of": softmax_rows, "softmax_rows_slope": softmax_rows_slope,
    "softmax_minus_target": softmax_minus_target, "target_coefficients": target_coefficients,
    "logsumexp_rows": logsumexp_rows,
}  # fmt: skip
