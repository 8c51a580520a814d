"""Windows that slide over the last dimensions of an array: what convolution, pooling and unfold share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from undertow.backend.interface import Array, Namespace

Sizes = tuple[int, ...]


def per_dim(name: str, value: Any, dims: int, what: str = "convolution") -> Sizes:
    """One number for every dimension, given as that, as one for all, or as a sequence of one."""
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


def padded(xp: Namespace, x: Array, padding: Sizes, value: Any = 0) -> Any:
    """The array with so much around it on both sides of each of its last dimensions."""
    if not any(padding):
        return x
    lead = x.ndim - len(padding)
    sizes = [n + 2 * p for n, p in zip(x.shape[lead:], padding, strict=True)]
    out = xp.full((*x.shape[:lead], *sizes), value, x.dtype)
    out[(..., *[slice(p, p + n) for n, p in zip(x.shape[lead:], padding, strict=True)])] = x
    return out


def uncovered(x: Array, padding: Sizes) -> Any:
    """The array without its padding."""
    if not any(padding):
        return x
    return x[(..., *[slice(p, n - p) for n, p in zip(x.shape[x.ndim - len(padding) :], padding, strict=True)])]


def sliding(xp: Namespace, x: Array, kernel: Sizes, counts: Sizes, stride: Sizes, dilation: Sizes) -> Any:
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


def add_windows(xp: Namespace, columns: Array, sizes: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Any:
    """The reverse of `sliding`: every element of the windows added to where it came from."""
    dims = len(sizes)
    lead = columns.ndim - 2 * dims
    kernel, counts = columns.shape[lead : lead + dims], columns.shape[lead + dims :]
    out = xp.zeros((*columns.shape[:lead], *[n + 2 * p for n, p in zip(sizes, padding, strict=True)]), columns.dtype)
    for offset in offsets(kernel):
        place = columns[(slice(None),) * lead + offset]
        out[shifted_slices(offset, counts, stride, dilation)] += place
    return uncovered(out, padding)


def by_x(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
