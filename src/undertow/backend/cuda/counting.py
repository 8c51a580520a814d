"""Functions of NumPy that count elements: `unique`, `isin`, `bincount` and histograms, as a few kernels.

The size of a result depends on elements, so the host waits for it.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend.cuda import indexing, searching, sorting
from undertow.backend.cuda.compositions import diff, is_taken
from undertow.backend.interface import Array, DType


def bincount(x: Array, /, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number from 0 on is there; the host waits to know the largest."""
    if x.ndim != 1 or x.dtype.kind not in "iu" or not x.size:
        return NotImplemented
    space = x.namespace
    if x.dtype.kind == "i" and int(space.min(x).item()) < 0:
        return NotImplemented  # NumPy's error
    length = max(int(space.max(x).item()) + 1, minlength)
    out = space.zeros(length, np.dtype(np.int64 if weights is None else np.float64))
    value = space.ones(x.shape, out.dtype) if weights is None else weights.astype(out.dtype, copy=False)
    return out if indexing.at(np.add, out, x, value) else NotImplemented


#: the most columns that are sorted one after the other
MOST_COLUMNS = 64


def unique_rows(rows: Array, return_inverse: bool, return_counts: bool) -> Any:
    """The rows, sorted, each once: sorted by one column after the other, the last one first."""
    space, count, columns = rows.namespace, len(rows), rows[0].size
    flat = rows.reshape(count, columns)
    flat = flat.astype(np.uint8) if flat.dtype.kind == "b" else flat + flat.dtype.type(0)  # zeros without a sign
    order = space.arange(count)
    for k in range(columns)[::-1]:
        order = order[sorting.argsort(flat[order, k], 0, "stable")]
    ordered = flat[order]
    rises = space.ones(count, bool)
    rises[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return parts_of_unique(rows[order], order, rises, return_inverse, return_counts)


def parts_of_unique(ordered: Array, order: Array, rises: Array, return_inverse: bool, return_counts: bool) -> Any:
    """What `unique` returns, from elements in order and where another one begins."""
    space, count = ordered.namespace, len(ordered)
    (starts,) = searching.nonzero(rises)
    found = [ordered[starts]]
    if return_inverse:
        inverse = space.empty((count,), np.int64)
        inverse[order] = space.cumsum(rises.astype(np.int64)) - 1
        found.append(inverse)
    if return_counts:
        ends = space.full(starts.shape, count, np.int64)
        ends[:-1] = starts[1:]
        found.append(ends - starts)
    return tuple(found) if len(found) > 1 else found[0]


def unique(
    ar: Array, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None,
    *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """The elements, or rows, sorted, each once; the host waits to know how many. Of complex numbers: by NumPy."""
    if return_index or not ar.size or ar.dtype.kind not in "buif" or not is_taken(ar):
        return NotImplemented
    if axis is not None and ar.ndim > 1:
        can = axis == 0 and ar[0].size <= MOST_COLUMNS
        return unique_rows(ar, return_inverse, return_counts) if can else NotImplemented
    space, flat = ar.namespace, ar.reshape(-1)
    if ar.dtype.kind == "b":
        found = unique(flat.astype(np.uint8), False, return_inverse, return_counts)
        return (found[0] != 0, *found[1:]) if type(found) is tuple else found != 0
    order = sorting.argsort(flat, 0, "stable")
    if order is NotImplemented:
        return NotImplemented
    ordered = flat[order]
    rises = space.ones(flat.shape, bool)
    rises[1:] = ordered[1:] != ordered[:-1]
    if equal_nan and ar.dtype.kind == "f":
        rises[1:] &= ~(space.isnan(ordered[1:]) & space.isnan(ordered[:-1]))
    found = parts_of_unique(ordered, order, rises, return_inverse, return_counts)
    return (found[0], found[1].reshape(ar.shape), *found[2:]) if return_inverse else found


def edges_of(x: Array, bins: Any, limits: Any, dtype: DType) -> Array:
    """The edges of bins of one dimension; what is not given, the host waits for."""
    if is_taken(bins):
        return bins
    space = x.namespace
    if isinstance(bins, (int, np.integer)):
        low, high = (space.min(x).item(), space.max(x).item()) if limits is None else limits
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        return space.asarray(np.linspace(low, high, bins + 1, dtype=dtype))
    return space.asarray(np.asarray(bins))


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> Any:
    """How many rows of a matrix lie in each bin, and the edges along each dimension."""
    plain = is_taken(sample) and sample.ndim == 2 and len(sample) and sample.dtype.kind == "f"
    if not plain or not isinstance(bins, (tuple, list)) or len(bins) != sample.shape[1]:
        return NotImplemented
    space, limits = sample.namespace, [None] * len(bins) if range is None else range
    flat, inside, edges = space.zeros(len(sample), np.int64), space.ones(len(sample), bool), []
    for k, (given, limit) in enumerate(zip(bins, limits, strict=True)):
        x = sample[:, k].copy("C")
        edges.append(edges_of(x, given, limit, np.float64))
        count = len(edges[-1]) - 1
        place = place_among(edges[-1], x)
        inside = inside & (place >= 0) & (place < count)
        flat = flat * count + place
    shape = tuple([len(e) - 1 for e in edges])
    counted = inside if weights is None else inside * weights
    found = bincount(space.where(inside, flat, 0), counted.astype(np.float64), math.prod(shape))
    if found is NotImplemented:
        return found
    found = found.reshape(shape)
    if density:
        found = found / found.sum()
        for k, along in enumerate(edges):
            found = found / diff(along).reshape([-1 if d == k else 1 for d in builtins.range(len(edges))])
    return found, edges


def place_among(edges: Array, x: Array) -> Array:
    """The bin that each number lies in, of which the last one has both its edges."""
    edges, x = edges.astype(np.float64), x.astype(np.float64)
    return searching.searchsorted(edges, x, "right") - 1 - (x == edges[-1]).astype(np.int64)


def histogram(a: Array, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None) -> Any:
    if density or not is_taken(a) or a.dtype.kind != "f" or range is None or not isinstance(bins, (int, np.integer)):
        return NotImplemented
    edges = edges_of(a, bins, range, np.result_type(*range, a.dtype))
    found = histogramdd(a.reshape(-1, 1), [edges], None, None, None if weights is None else weights.reshape(-1))
    return found if found is NotImplemented else (found[0].astype(np.int64) if weights is None else found[0], edges)


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    given = element, test_elements
    if not all([is_taken(x) and x.size and x.dtype.kind in "uif" for x in given]) or element.dtype != given[1].dtype:
        return NotImplemented
    wanted = sorting.sort(test_elements.reshape(-1), 0)
    places = searching.searchsorted(wanted, element)
    if places is NotImplemented:
        return NotImplemented
    found = wanted[element.namespace.minimum(places, wanted.size - 1)] == element
    return ~found if invert else found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bincount": bincount, "unique": unique, "isin": isin, "histogram": histogram, "histogramdd": histogramdd,
}  # fmt: skip
