"""NumPy's reductions, statistics and sorting in terms of undertow's operations: more entries for numpy/functions.py."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType
from undertow.interop.numpy.functions import FUNCTIONS, counterpart, flat, ops, tensors, unwrapped
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.ops.arguments.dims import Dims

#: "not given", for arguments of which None means something
NOTHING: Any = object()


# ---- which elements take part


def chosen(a: Array, where: Array, fill: Any) -> Array:
    """The elements for which `where` holds, and `fill` for the others."""
    if where is True:
        return a
    return ops.where(as_mask(where, a), a, fill)


def as_mask(where: Array, a: Tensor) -> Tensor:
    mask = where if isinstance(where, Tensor) else Tensor(np.asarray(where, bool), a._xp)
    return ops.broadcast_to(mask, np.broadcast_shapes(mask._array.shape, a._array.shape))


def count(a: Array, axis: Dims, where: Array, keepdims: bool) -> Array:
    """How many elements take part in each result."""
    mask = Tensor(np.ones(a._array.shape, bool), a._xp) if where is True else as_mask(where, a)
    return ops.sum(mask, axis, keepdim=keepdims)


def cast(a: Array, dtype: DType) -> Array:
    return a if dtype is None else ops.to_dtype(a, np.dtype(dtype))


def after(result: Array, initial: Any, operation: str) -> Array:
    return result if initial is NOTHING or initial is None else getattr(ops, operation)(result, initial)


# ---- sums, products, extremes


@counterpart(np.sum)
def sum_(
    a: Array,
    axis: Dims = None,
    dtype: DType | None = None,
    *,
    keepdims: bool = False,
    initial: Any = NOTHING,
    where: Array = True,
) -> Array:
    return after(ops.sum(chosen(cast(a, dtype), where, 0), axis, keepdim=keepdims, dtype=dtype), initial, "add")


@counterpart(np.prod)
def prod(
    a: Array,
    axis: Any = None,
    dtype: DType | None = None,
    *,
    keepdims: bool = False,
    initial: Any = NOTHING,
    where: Any = True,
) -> Array:
    a = chosen(cast(a, dtype), where, 1)
    if axis is None and not keepdims:
        return after(ops.prod(a, dtype=dtype), initial, "mul")
    axes = range(a._array.ndim) if axis is None else np.atleast_1d(axis).tolist()
    for k in sorted([k % a._array.ndim for k in axes], reverse=True):
        a = ops.prod(a, k, keepdim=keepdims, dtype=dtype)
    return after(a, initial, "mul")


def extreme(operation: str, pair: str, empty: float) -> Callable[..., Any]:
    def reduce(
        a: Array, axis: Dims = None, *, keepdims: bool = False, initial: Any = NOTHING, where: Array = True
    ) -> Any:
        if where is not True and initial is NOTHING:
            raise ValueError(f"reduction operation {pair!r} does not have an identity, so `where` needs `initial`")
        a = chosen(a, where, empty if dtypes.is_floating(a._array.dtype) else unwrapped(initial))
        found = getattr(ops, operation)(a, () if axis is None else axis, keepdim=keepdims)
        if initial is NOTHING:
            return found
        return getattr(ops, pair)(found, ops.full((), unwrapped(initial), dtype=a._array.dtype))

    return reduce


amax = counterpart(np.max, np.amax)(extreme("amax", "maximum", -np.inf))
amin = counterpart(np.min, np.amin)(extreme("amin", "minimum", np.inf))


def truth(function: Callable[..., Any], name: str, fill: bool) -> None:
    def reduce(a: Array, axis: Dims = None, *, keepdims: bool = False, where: Array = True) -> Any:
        return getattr(ops, name)(chosen(ops.ne(a, 0), where, fill), axis, keepdim=keepdims)

    FUNCTIONS[function] = reduce


truth(np.all, "all", True)
truth(np.any, "any", False)


def position(function: Callable[..., Any], name: str) -> None:
    def reduce(a: Array, axis: Dims = None, *, keepdims: bool = False) -> Any:
        return getattr(ops, name)(a, axis, keepdim=keepdims)

    FUNCTIONS[function] = reduce


position(np.argmax, "argmax")
position(np.argmin, "argmin")


@counterpart(np.ptp)
def ptp(a: Array, axis: Dims = None, *, keepdims: bool = False) -> Array:
    return ops.sub(amax(a, axis, keepdims=keepdims), amin(a, axis, keepdims=keepdims))


@counterpart(np.count_nonzero)
def count_nonzero(a: Array, axis: Dims = None, *, keepdims: bool = False) -> Array:
    return ops.sum(ops.ne(a, 0), axis, keepdim=keepdims)


# ---- means


@counterpart(np.mean)
def mean(
    a: Array, axis: Dims = None, dtype: DType | None = None, *, keepdims: bool = False, where: Array = True
) -> Array:
    a = cast(a, dtype)
    if not dtypes.is_differentiable(a._array.dtype):
        a = ops.to_dtype(a, np.dtype(float))
    if where is True:
        return ops.mean(a, axis, keepdim=keepdims)
    return ops.true_divide(sum_(a, axis, keepdims=keepdims, where=where), count(a, axis, where, keepdims))


@counterpart(np.var)
def var(
    a: Array, axis: Dims = None, dtype: DType = None, *, ddof: float = 0, keepdims: bool = False, where: Array = True,
    mean: Array | None = None, correction: Any = NOTHING,
) -> Tensor:  # fmt: skip
    ddof = ddof if correction is NOTHING else correction
    a = cast(a, dtype)
    if where is True and mean is None:
        return ops.var(a, axis, correction=ddof, keepdim=keepdims)
    centre = FUNCTIONS[np.mean](a, axis, keepdims=True, where=where) if mean is None else mean
    distance = ops.square(ops.abs(chosen(ops.sub(a, centre), where, 0)))
    freedom = ops.clamp(ops.sub(count(a, axis, where, keepdims), ddof), 0)
    return ops.true_divide(ops.sum(distance, axis, keepdim=keepdims), freedom)


@counterpart(np.std)
def std(a: Array, axis: Dims = None, dtype: DType | None = None, **options: Any) -> Array:
    if options.get("where", True) is True and options.get("mean") is None:
        ddof = options.get("correction", options.get("ddof", 0))
        return ops.std(cast(a, dtype), axis, correction=ddof, keepdim=options.get("keepdims", False))
    return ops.sqrt(var(a, axis, dtype, **options))


@counterpart(np.average)
def average(
    a: Array, axis: Dims = None, weights: Array | None = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    if weights is None:
        weights = ops.ones_like(a)
    a, weights = tensors((a, weights))
    if weights._array.shape != a._array.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        weights = ops.reshape(weights, [-1 if k == axis % a._array.ndim else 1 for k in range(a._array.ndim)])
    weights = ops.broadcast_to(weights, a._array.shape)
    total = ops.sum(weights, axis, keepdim=keepdims)
    found = ops.true_divide(ops.sum(ops.mul(a, weights), axis, keepdim=keepdims), total)
    return (found, total) if returned else found


# ---- without NaN


def filled(a: Array, value: Any) -> Array:
    return ops.where(ops.isnan(a), value, a) if dtypes.is_differentiable(a._array.dtype) else a


@counterpart(np.nansum)
def nansum(
    a: Array,
    axis: Dims = None,
    dtype: DType | None = None,
    *,
    keepdims: bool = False,
    initial: Any = NOTHING,
    where: Any = True,
) -> Array:
    return sum_(filled(a, 0.0), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@counterpart(np.nanprod)
def nanprod(
    a: Array,
    axis: Dims = None,
    dtype: DType | None = None,
    *,
    keepdims: bool = False,
    initial: Any = NOTHING,
    where: Any = True,
) -> Array:
    return prod(filled(a, 1.0), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@counterpart(np.nancumsum)
def nancumsum(a: Array, axis: Dims = None, dtype: DType | None = None) -> Array:
    return cumsum(filled(a, 0.0), axis, dtype)


@counterpart(np.nancumprod)
def nancumprod(a: Array, axis: Dims = None, dtype: DType | None = None) -> Array:
    return cumprod(filled(a, 1.0), axis, dtype)


def nan_extreme(function: Callable[..., Any], reduce: Callable[..., Any], empty: float) -> None:
    def call(a: Array, axis: Any = None, *, keepdims: bool = False) -> Any:
        found = reduce(filled(a, empty), axis, keepdims=keepdims)
        nothing = ops.all(ops.isnan(a), axis, keepdim=keepdims)
        return ops.where(nothing, np.nan, found)

    FUNCTIONS[function] = call


nan_extreme(np.nanmax, amax, -np.inf)
nan_extreme(np.nanmin, amin, np.inf)


def known(a: Array, where: Any) -> Array:
    mask = ops.logical_not(ops.isnan(a))
    return mask if where is True else ops.logical_and(mask, as_mask(where, a))


@counterpart(np.nanmean)
def nanmean(
    a: Array, axis: Dims = None, dtype: DType | None = None, *, keepdims: bool = False, where: Any = True
) -> Array:
    return mean(a, axis, dtype, keepdims=keepdims, where=known(a, where))


@counterpart(np.nanvar)
def nanvar(a: Array, axis: Dims = None, dtype: DType | None = None, *, where: Any = True, **options: Any) -> Array:
    return var(a, axis, dtype, where=known(a, where), **options)


@counterpart(np.nanstd)
def nanstd(a: Array, axis: Dims = None, dtype: DType | None = None, *, where: Any = True, **options: Any) -> Array:
    return std(a, axis, dtype, where=known(a, where), **options)


# ---- over no axes at all


def also_over_none(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """With axis=(), where an operation would take all dimensions, NumPy reduces nothing: here, a new axis of size 1."""

    @functools.wraps(reduce)
    def call(a: Array, axis: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(axis, tuple) and not axis:
            return reduce(ops.unsqueeze(a, 0), 0, *args, **{**options, "keepdims": False})
        return reduce(a, axis, *args, **options)

    return call


REDUCTIONS = """
all amax amin any count_nonzero max mean min nanmax nanmean nanmin nanprod nanstd nansum nanvar prod ptp std sum var
""".split()

for _function in [getattr(np, name) for name in REDUCTIONS]:
    FUNCTIONS[_function] = also_over_none(FUNCTIONS[_function])


# ---- quantiles


def quantile_of(name: str) -> Callable[..., Any]:
    def call(a: Array, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
        if isinstance(axis, tuple):
            return over_several(call, a, q, axis, method, keepdims)
        return getattr(ops, name)(a, like_input(q, a), axis, keepdim=keepdims, interpolation=method)

    return call


quantile = counterpart(np.quantile)(quantile_of("quantile"))
nanquantile = counterpart(np.nanquantile)(quantile_of("nanquantile"))


def over_several(
    quantiles: Callable[..., Any], a: Tensor, q: Any, axis: tuple[int, ...], method: str, keepdims: bool
) -> Array:
    """Quantiles over several dimensions: they are made one, the last."""
    axes = {d % a.ndim for d in axis}
    gone, rest = [a.shape[d] for d in axes], [n for d, n in enumerate(a.shape) if d not in axes]
    behind = ops.movedim(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    found = quantiles(ops.reshape(behind, (*rest, math.prod(gone))), q, -1, method=method)
    kept = [1 if d in axes else n for d, n in enumerate(a.shape)]
    return ops.reshape(found, (*found.shape[: found.ndim - len(rest)], *kept)) if keepdims else found


def like_input(q: Any, a: Tensor) -> Any:
    """Quantiles as a number or as a tensor of the input's dtype."""
    if isinstance(q, Tensor) and requires_grad(q):
        raise ops.Missing("quantile at places that require grad")
    array = np.asarray(unwrapped(q), dtype=a._array.dtype)
    return float(array) if array.ndim == 0 else Tensor(array, a._xp)


@counterpart(np.percentile)
def percentile(a: Array, q: Any, axis: Dims = None, **options: Any) -> Array:
    return quantile(a, hundredths(q), axis, **options)


@counterpart(np.nanpercentile)
def nanpercentile(a: Array, q: Any, axis: Dims = None, **options: Any) -> Array:
    return nanquantile(a, hundredths(q), axis, **options)


def hundredths(q: Any) -> Array:
    return ops.true_divide(q, 100) if isinstance(q, Tensor) else np.asarray(q) / 100


@counterpart(np.median)
def median(a: Array, axis: Dims = None, *, keepdims: bool = False) -> Array:
    # the mean of both middle values, where the operation `median` takes the lower one
    return quantile(a, 0.5, axis, keepdims=keepdims)


@counterpart(np.nanmedian)
def nanmedian(a: Array, axis: Dims = None, *, keepdims: bool = False) -> Array:
    return nanquantile(a, 0.5, axis, keepdims=keepdims)


# ---- scans and sorting


@counterpart(np.cumsum)
def cumsum(a: Array, axis: Dims = None, dtype: DType | None = None) -> Array:
    return ops.cumsum(*(flat(a, 0) if axis is None else (a, axis)), dtype=dtype)


@counterpart(np.cumprod)
def cumprod(a: Array, axis: Dims = None, dtype: DType | None = None) -> Array:
    return ops.cumprod(*(flat(a, 0) if axis is None else (a, axis)), dtype=dtype)


def scan(function: Callable[..., Any], operation: str, start: int) -> None:
    def call(x: Array, /, *, axis: Any = None, dtype: DType | None = None, include_initial: bool = False) -> Any:
        if axis is None and x._array.ndim > 1:
            raise ValueError("for arrays which have more than one dimension `axis` is required")
        axis = 0 if axis is None else axis
        found = getattr(ops, operation)(x, axis, dtype=dtype)
        if not include_initial:
            return found
        sizes = list(found.shape)
        sizes[axis] = 1
        first = ops.full(sizes, start, dtype=found.dtype, device=found._xp.device)
        return ops.cat([first, found], axis)

    FUNCTIONS[function] = call


scan(np.cumulative_sum, "cumsum", 0)
scan(np.cumulative_prod, "cumprod", 1)


@counterpart(np.sort)
def sort(a: Array, axis: Dims = -1, *, kind: Any = None, stable: Any = None) -> Array:
    return ops.sort(*(flat(a, 0) if axis is None else (a, axis)))[0]


@counterpart(np.argsort)
def argsort(a: Array, axis: Dims = -1, *, kind: Any = None, stable: Any = None) -> Array:
    return ops.argsort(*(flat(a, 0) if axis is None else (a, axis)), stable=True)


# ---- statistics


@counterpart(np.cov)
def cov(
    m: Array, y: Array | None = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
    aweights: Array | None = None, *, dtype: DType = None,
) -> Tensor:  # fmt: skip
    x = cast(variables(m, y, rowvar), dtype)
    weights = [None if w is None else tensors((w, x))[0] for w in (fweights, aweights)]
    ddof = (0 if bias else 1) if ddof is None else ddof
    return ops.cov(x, correction=ddof, fweights=weights[0], aweights=weights[1])


@counterpart(np.corrcoef)
def corrcoef(x: Array, y: Array | None = None, rowvar: bool = True, *, dtype: DType | None = None) -> Array:
    return ops.corrcoef(cast(variables(x, y, rowvar), dtype))


def variables(m: Array, y: Array | None, rowvar: bool) -> Array:
    """The observations, one row for each variable."""
    parts = tensors([m] if y is None else [m, y])
    turned = [p if rowvar or p._array.ndim < 2 or p._array.shape[0] == 1 else ops.swapaxes(p, 0, 1) for p in parts]
    return turned[0] if y is None else ops.cat([ops.atleast_2d(p) for p in turned])


@counterpart(np.bincount)
def bincount(x: Any, /, weights: Array | None = None, minlength: int = 0) -> Array:
    counts = np.bincount(unwrapped(x), minlength=minlength)
    if weights is None:
        return Tensor(counts, x._xp)
    x, weights = tensors((x, weights))
    places = ops.to_dtype(x, np.dtype(np.int64))
    return ops.index_add(Tensor(np.zeros(counts.size), x._xp), 0, places, ops.to_dtype(weights, np.dtype(float)))


@counterpart(np.histogram)
def histogram(
    a: Array, bins: Array = 10, range: Any = None, density: Any = None, weights: Array | None = None
) -> tuple[Array, Array]:
    """Counts have no derivative; edges that are made from the data have the derivatives of its extremes."""
    if density or weights is not None or isinstance(bins, str):
        raise ops.Missing("histogram with densities, weights or automatic bins")
    counts, edges = np.histogram(unwrapped(a), unwrapped(bins), range)
    (a,) = tensors((a,))
    if isinstance(bins, int) and range is None and a._array.size and dtypes.is_floating(a._array.dtype):
        return Tensor(counts, a._xp), edges_of(a, bins)
    return Tensor(counts, a._xp), bins if isinstance(bins, Tensor) else Tensor(edges, a._xp)


def edges_of(a: Tensor, bins: int) -> Array:
    """From the least to the greatest value; NumPy takes a half on either side where they are the same."""
    low, high = ops.amin(a, ()), ops.amax(a, ())
    if low._array == high._array:
        low, high = ops.sub(low, 0.5), ops.add(high, 0.5)
    return ops.lerp(low, high, Tensor(np.linspace(0, 1, bins + 1, dtype=a._array.dtype), a._xp))
