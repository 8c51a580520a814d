"""Windows that slide over the last dimensions of an array: what convolution, pooling and unfold share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace

Sizes = tuple[int, ...]

#: places of a window beyond which they are not added up one by one
MANY_PLACES = 16


def per_dim(name: str, value: Any, dims: int, what: str = "convolution") -> Sizes:
    """One number for every dimension, given as that, as one for all, or as a sequence of one."""
    if type(value) is tuple and len(value) == dims and set(map(type, value)) == {int}:  # what layers keep
        return value
    if type(value) is int:
        return (value,) * dims
    sizes = tuple(value) if isinstance(value, Iterable) else (value,)
    sizes = sizes * dims if len(sizes) == 1 else sizes
    if len(sizes) != dims:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {dims} values to match the {what} "
            f"dimensions, but got {name}={list(sizes)}"
        )
    return tuple([int(n) for n in sizes])


def window_counts(sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Sizes:
    """How many windows fit along each dimension."""
    return tuple(
        [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
        ]
    )


def padded(xp: Namespace, x: Array, padding: Sizes, value: Any = 0) -> Array:
    """The array with so much around it on both sides of each of its last dimensions."""
    if not any(padding):
        return x
    lead = x.ndim - len(padding)
    sizes = [n + 2 * p for n, p in zip(x.shape[lead:], padding, strict=True)]
    out = xp.full((*x.shape[:lead], *sizes), value, x.dtype)
    out[(..., *[slice(p, p + n) for n, p in zip(x.shape[lead:], padding, strict=True)])] = x
    return out


def uncovered(x: Array, padding: Sizes) -> Array:
    """The array without its padding."""
    if not any(padding):
        return x
    return x[(..., *[slice(p, n - p) for n, p in zip(x.shape[x.ndim - len(padding) :], padding, strict=True)])]


def sliding(xp: Namespace, x: Array, kernel: Sizes, counts: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    """A view of the padded array: leading dimensions, places in a window, windows."""
    lead = x.ndim - len(kernel)
    steps = x.strides[lead:]
    inside = [n * d for n, d in zip(steps, dilation, strict=True)]
    across = [n * s for n, s in zip(steps, stride, strict=True)]
    return xp.lib.stride_tricks.as_strided(
        x, (*x.shape[:lead], *kernel, *counts), (*x.strides[:lead], *inside, *across)
    )


def offsets(kernel: Sizes) -> list[Sizes]:
    return list(product(*[range(k) for k in kernel]))


def shifted_slices(offset: Sizes, counts: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Any, ...]:
    """Where the element at `offset` of every window lies in the padded array."""
    return (
        ...,
        *[
            slice(o * d, o * d + (n - 1) * s + 1, s) if n else slice(0, 0)
            for o, n, s, d in zip(offset, counts, stride, dilation, strict=True)
        ],
    )


def add_windows(xp: Namespace, columns: Array, sizes: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Array:
    """The reverse of `sliding`: every element of the windows added to where it came from."""
    dims = len(sizes)
    lead = columns.ndim - 2 * dims
    kernel, counts = columns.shape[lead : lead + dims], columns.shape[lead + dims :]
    if xp is cpu and set(dilation) == {1} and math.prod(kernel) > MANY_PLACES and math.prod(counts) > 0:
        return _add_wide_windows(columns, sizes, stride, padding)
    out = xp.zeros((*columns.shape[:lead], *[n + 2 * p for n, p in zip(sizes, padding, strict=True)]), columns.dtype)
    for offset in offsets(kernel):
        place = columns[(slice(None),) * lead + offset]
        out[shifted_slices(offset, counts, stride, dilation)] += place
    return uncovered(out, padding)


def _add_wide_windows(columns: Array, sizes: Sizes, stride: Sizes, padding: Sizes) -> Any:
    """The same for windows of many places: of each, as many at once as do not overlap those of the next window."""
    dims = len(sizes)
    lead = columns.ndim - 2 * dims
    kernel, counts = columns.shape[lead : lead + dims], columns.shape[lead + dims :]
    parts = tuple([-(-k // s) for k, s in zip(kernel, stride, strict=True)])
    padded_sizes = [n + 2 * p for n, p in zip(sizes, padding, strict=True)]
    room = [max(n, (c - 1 + q) * s) for n, c, q, s in zip(padded_sizes, counts, parts, stride, strict=True)]
    out = cpu.zeros((*columns.shape[:lead], *room), columns.dtype)
    # windows first, then places: (window, place, window, place, ...), as they follow each other in the image
    order = [*range(lead), *[k for d in range(dims) for k in (lead + dims + d, lead + d)]]
    turned = columns.transpose(order)
    steps = out.strides
    for part in offsets(tuple(parts)):
        begin = [q * s for q, s in zip(part, stride, strict=True)]
        taken = [min(s, k - b) for s, k, b in zip(stride, kernel, begin, strict=True)]
        shape = [n for pair in zip(counts, taken, strict=True) for n in pair]
        strides = [n for d in range(dims) for n in (stride[d] * steps[lead + d], steps[lead + d])]
        corner = out[(..., *[slice(b, None) for b in begin])]
        places = cpu.lib.stride_tricks.as_strided(corner, (*columns.shape[:lead], *shape), (*steps[:lead], *strides))
        places += turned[(..., *[k for b, n in zip(begin, taken, strict=True) for k in (slice(None), slice(b, b + n))])]
    return uncovered(out[(..., *[slice(n) for n in padded_sizes])], padding)


def by_x(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
