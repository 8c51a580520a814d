"""Convolution and its two gradients: by cuDNN, or by kernels of ours, which are right and slower.

Each of the three is one factor's part of the same sum over x[n, c, stride * l + dilation * k - padding] * w[o, c, k] *
y[n, o, l]. In the kernels there are three dimensions of space; those that are missing have the size 1, and come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend.cuda import cudnn, device
from undertow.backend.cuda.blocks import MOST_DIMS, agree, kernel, three
from undertow.backend.interface import Array

SIZES = "i64 n, examples, in, out, groups, x_sizes[3], y_sizes[3], window[3], stride[3], padding[3], dilation[3]; "

HEAD = (
    "struct P { S *result; const S *a, *b, *bias; "
    + SIZES
    + r"""};
FN i64 volume(const i64 *sizes) { return sizes[0] * sizes[1] * sizes[2]; }
// the place of a window's element in the image; -1 if it is outside
FN i64 place(const P &p, const i64 *window, const i64 *within)
{
    i64 found = 0;
    for (int d = 0; d < 3; d++) {
        const i64 at = window[d] * p.stride[d] + within[d] * p.dilation[d] - p.padding[d];
        if (at < 0 || at >= p.x_sizes[d]) return -1;
        found = found * p.x_sizes[d] + at;
    }
    return found;
}
FN void unfold(i64 flat, const i64 *sizes, i64 *found)
{ for (int d = 2; d >= 0; d--) { found[d] = flat % sizes[d]; flat /= sizes[d]; } }
"""
)

FORWARD = (
    HEAD
    + r"""
KERNEL(forward, P) { BEGIN
    const i64 each = p.in / p.groups, outs = p.out / p.groups, x_volume = volume(p.x_sizes);
    const i64 y_volume = volume(p.y_sizes), places = volume(p.window);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        const i64 o = i / y_volume % p.out, example = i / y_volume / p.out, group = o / outs;
        const S *x = p.a + (example * p.in + group * each) * x_volume, *w = p.b + o * each * places;
        i64 window[3], within[3]; T sum = 0;
        unfold(i % y_volume, p.y_sizes, window);
        for (i64 k = 0; k < places; k++) {
            unfold(k, p.window, within);
            const i64 here = place(p, window, within);
            if (here >= 0) for (i64 c = 0; c < each; c++) sum += at(x, c * x_volume + here) * at(w, c * places + k);
        }
        put(p.result, i, p.bias ? sum + at(p.bias, o) : sum);
    } }
"""
)

# for every element of the image, the windows it is in
TRANSPOSED = (
    HEAD
    + r"""
KERNEL(transposed, P) { BEGIN
    const i64 each = p.in / p.groups, outs = p.out / p.groups, x_volume = volume(p.x_sizes);
    const i64 y_volume = volume(p.y_sizes), places = volume(p.window);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        const i64 c = i / x_volume % p.in, example = i / x_volume / p.in, group = c / each;
        const S *y = p.a + (example * p.out + group * outs) * y_volume;
        const S *w = p.b + (group * outs * each + (c - group * each)) * places;
        i64 where[3], within[3]; T sum = 0;
        unfold(i % x_volume, p.x_sizes, where);
        for (i64 k = 0; k < places; k++) {
            i64 here = 0;
            unfold(k, p.window, within);
            for (int d = 0; d < 3 && here >= 0; d++) {
                const i64 reach = where[d] + p.padding[d] - within[d] * p.dilation[d], l = reach / p.stride[d];
                here = reach < 0 || l * p.stride[d] != reach || l >= p.y_sizes[d] ? -1 : here * p.y_sizes[d] + l;
            }
            if (here >= 0)
                for (i64 o = 0; o < outs; o++) sum += at(y, o * y_volume + here) * at(w, o * each * places + k);
        }
        put(p.result, i, p.bias ? sum + at(p.bias, c) : sum);
    } }
"""
)

# a block for every weight
WEIGHT = (
    HEAD
    + r"""
KERNEL(weights, P) { BEGIN
    const i64 each = p.in / p.groups, outs = p.out / p.groups, x_volume = volume(p.x_sizes);
    const i64 y_volume = volume(p.y_sizes), places = volume(p.window);
    const i64 k = blockIdx.x % places, c = blockIdx.x / places % each, o = blockIdx.x / places / each;
    const i64 channel = o / outs * each + c;
    i64 window[3], within[3]; T sum = 0;
    unfold(k, p.window, within);
    for (i64 i = threadIdx.x; i < p.examples * y_volume; i += blockDim.x) {
        const i64 example = i / y_volume, l = i - example * y_volume;
        unfold(l, p.y_sizes, window);
        const i64 here = place(p, window, within);
        if (here >= 0)
            sum += at(p.a, (example * p.in + channel) * x_volume + here)
                * at(p.b, (example * p.out + o) * y_volume + l);
    }
    sum = sum_of(sum);
    if (threadIdx.x == 0) put(p.result, blockIdx.x, sum); }
"""
)


class Problem:
    """The shapes of x, weight and y, and how windows lie."""

    def __init__(self, x: Any, weight: Any, y: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
        self.x, self.weight, self.y, self.groups = tuple(x), tuple(weight), tuple(y), groups
        self.windows = stride, padding, dilation

    def by_cudnn(self, which: int, a: Array, b: Array, out: Callable[[], Array]) -> Any:
        return cudnn.run(which, self.x, self.weight, self.y, *self.windows, self.groups, a, b, out)

    def numbers(self, n: int) -> list[int]:
        """What kernels are told: SIZES."""
        lists = (self.x[2:], self.y[2:], self.weight[2:], *self.windows)
        spread = [k for sizes, none in zip(lists, (1, 1, 1, 1, 0, 1), strict=True) for k in three(sizes, none)]
        return [n, self.x[0], self.x[1], self.y[1], self.groups, *spread]

    def is_consistent(self) -> bool:
        """Whether y has all windows that there are in x."""
        sizes = zip(self.x[2:], self.weight[2:], self.y[2:], *self.windows, strict=True)
        return all([count == (n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, count, s, p, d in sizes])


def _serves(a: Array, b: Array, bias: Array | None) -> bool:
    return agree(a, b, bias) and 3 <= a.ndim <= 2 + MOST_DIMS and a.is_contiguous and b.is_contiguous


def _empty(shape: Sequence[int], like: Array) -> Callable[[], Array]:
    return lambda: device.extension().empty(tuple(shape), like.dtype)


def _blocks(n: int) -> int:
    return min(-(-n // 128), 1 << 20)


def _added(out: Array, bias: Any) -> Array:
    """The result of cuDNN, and a bias for each channel."""
    if bias is not None:
        out.namespace.add(out, bias.reshape(-1, *[1] * (out.ndim - 2)), out)
    return out


def convolve(
    x: Array, weight: Array, bias: Array | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    if not _serves(x, weight, bias):
        return None
    sizes = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
    shape = (x.shape[0], weight.shape[0], *counts)
    if min(counts) < 1:
        return None
    problem = Problem(x.shape, weight.shape, shape, stride, padding, dilation, groups)
    found = problem.by_cudnn(cudnn.FORWARD, x, weight, _empty(shape, x))
    if found is not None:
        return _added(found, bias)
    out = _empty(shape, x)()
    call = kernel("forward", FORWARD, x.dtype, cooperative=False)
    call(_blocks(out.size), 128, out, x, weight, bias, *problem.numbers(out.size))
    return out


def convolve_transposed(
    y: Array, weight: Array, bias: Array | None, sizes: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    if not _serves(y, weight, bias) or min(sizes) < 1:
        return None
    shape = (y.shape[0], weight.shape[1] * groups, *sizes)
    problem = Problem(shape, weight.shape, y.shape, stride, padding, dilation, groups)
    if problem.is_consistent():
        found = problem.by_cudnn(cudnn.DATA, weight, y, _empty(shape, y))
        if found is not None:
            return _added(found, bias)
    out = _empty(shape, y)()
    call = kernel("transposed", TRANSPOSED, y.dtype, cooperative=False)
    call(_blocks(out.size), 128, out, y, weight, bias, *problem.numbers(out.size))
    return out


def convolve_weight(x: Array, y: Array, window: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    if not _serves(x, y, None) or min(window) < 1:
        return None
    shape = (y.shape[1], x.shape[1] // groups, *window)
    problem = Problem(x.shape, shape, y.shape, stride, padding, dilation, groups)
    if problem.is_consistent():
        found = problem.by_cudnn(cudnn.FILTER, x, y, _empty(shape, x))
        if found is not None:
            return found
    out = _empty(shape, x)()
    threads = 256 if x.shape[0] * math.prod(y.shape[2:]) > 512 else 32
    kernel("weights", WEIGHT, x.dtype)(out.size, threads, out, x, y, None, *problem.numbers(out.size))
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "convolve": convolve, "convolve_transposed": convolve_transposed, "convolve_weight": convolve_weight,
}  # fmt: skip
