"""Kernels that look for places: of what is not zero, and of numbers among sorted ones."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend.cuda import device, scans
from undertow.backend.cuda.blocks import is_real
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import computed, stored
from undertow.backend.interface import Array

INT64, THREADS = np.dtype(np.int64), 128

# `sums` counts along: where it rises there is an element; its places in all dimensions are rows of `out`
PLACES = r"""
struct P { i64 *out; const i64 *sums; i64 n, found, nd, sizes[16]; };
KERNEL(places, P) { BEGIN
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        if (p.sums[i] == (i ? p.sums[i - 1] : 0)) continue;
        i64 rest = i;
        for (int d = (int)p.nd - 1; d >= 0; d--) {
            p.out[d * p.found + p.sums[i] - 1] = rest % p.sizes[d];
            rest /= p.sizes[d];
        }
    } }
"""

# nan is behind everything, as NumPy sorts it
SEARCH = r"""
struct P { i64 *out; const S *sorted, *wanted; i64 n, length, right; };
FN bool below(T a, T b) { return a < b || (b != b && a == a); }
KERNEL(search, P) { BEGIN
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        const T v = Cast<T, S>::of(p.wanted[i]);
        i64 low = 0, high = p.length;
        while (low < high) {
            const i64 middle = (low + high) / 2; const T here = Cast<T, S>::of(p.sorted[middle]);
            if (p.right ? !below(v, here) : below(here, v)) low = middle + 1; else high = middle;
        }
        p.out[i] = low;
    } }
"""


@functools.cache
def kernel(name: str, text: str, dtype: np.dtype[Any]) -> Any:
    head = f"typedef {stored(dtype)} S; typedef {computed(dtype)} T;\n"
    return device.extension().Kernel(compile_kernels(head + text, [Entry(name, "P")])[0])


def blocks(count: int) -> int:
    return min(max(1, -(-count // THREADS)), 1 << 20)


def places(a: Array) -> Array:
    """Where elements are not zero: an array of int64, a row for each dimension. The host waits to know how many."""
    truth = a if a.dtype.kind == "b" else a != 0
    extension = device.extension()
    if not a.size:
        return extension.empty((a.ndim, 0), INT64)
    sums = scans.accumulate(np.add, truth.reshape(-1).astype(INT64))
    found = int(sums[-1].item())
    out = extension.empty((a.ndim, found), INT64)
    if found and a.ndim:
        sizes = [*a.shape, *[1] * (16 - a.ndim)]
        kernel("places", PLACES, INT64)(blocks(a.size), THREADS, out, sums, a.size, found, a.ndim, *sizes)
    return out


def nonzero(a: Array) -> Any:
    if not a.ndim:
        return NotImplemented
    found = places(a)
    return tuple([found[d].copy() for d in range(a.ndim)])


def argwhere(a: Array) -> Any:
    return places(a).T.copy("C") if a.ndim else a.namespace.empty((int(a.item() != 0), 0), INT64)


def flatnonzero(a: Array) -> Any:
    return places(a.reshape(-1)).reshape(-1)


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """The places at which numbers would be put among sorted ones."""
    if not isinstance(a, device.array_type()):
        return NotImplemented
    if not isinstance(v, device.array_type()):
        number = np.asarray(v)
        to = np.result_type(a.dtype, number.dtype)
        a, v = a.astype(to, copy=False), a.namespace.asarray(number.astype(to))
    kinds = a.dtype.kind in "iu" or is_real(a.dtype)
    if a.ndim != 1 or not kinds or a.dtype != v.dtype or side not in ("left", "right"):
        return NotImplemented
    if sorter is not None:
        a = a[sorter]
    out = device.extension().empty(v.shape, INT64)
    if out.size:
        call = kernel("search", SEARCH, a.dtype)
        call(blocks(v.size), THREADS, out, a.copy("C"), v.copy("C"), math.prod(v.shape), len(a), int(side == "right"))
    return out


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "nonzero": nonzero, "argwhere": argwhere, "flatnonzero": flatnonzero, "searchsorted": searchsorted,
}  # fmt: skip
