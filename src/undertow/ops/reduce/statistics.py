"""Variance, medians and quantiles."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.dims import Dims, kept_shape, numpy_spelling, reduced_axes, restore, wrap_dim
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.operands import as_operand, require_kinds, type_name
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import LOOP, REDUCTION
from undertow.ops.reduce.cumulative import EXACT
from undertow.ops.reduce.extrema import SELECTING, of_all, require_elements, with_values
from undertow.ops.reduce.sorting import sort
from undertow.ops.reduce.stable_order import order, place_of_rank
from undertow.ops.reduce.sums_and_products import reduced_size
from undertow.tensor import Tensor

# ---- variance: the same rules for var, std, var_mean and std_mean


def moments(xp: Namespace, name: str, input: Array, dim: Dims, correction: float, keepdim: bool) -> tuple[Array, Array]:
    """(variance, mean) in the precision they are accumulated in."""
    axes = reduced_axes(dim, input.ndim)
    n = reduced_size(input.shape, dim)
    if n - correction <= 0:
        warnings.warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction "
            "factor (input numel divided by output numel).",
            UserWarning,
            stacklevel=6,
        )
    total, mean = _squared_distances(xp, input, axes, n, keepdim)
    if xp is cpu and input.dtype in EXACT and not xp.isfinite(total).all():
        total, mean = _squared_distances(xp, input.astype(EXACT[input.dtype]), axes, n, keepdim)
    return _over_freedom(xp, total, n, correction), mean.reshape(total.shape)


def _squared_distances(
    xp: Namespace, input: Array, axes: tuple[int, ...], n: int, keepdim: bool
) -> tuple[Array, Array]:
    """(the sum of squared distances from the mean, the mean)"""
    mean = xp.add.reduce(input, axes, keepdims=True) * (1 / n if n else xp.nan)
    distance = input - mean
    squares = distance.real**2 + distance.imag**2 if input.dtype.kind == "c" else distance * distance
    return xp.add.reduce(squares, axes, keepdims=keepdim), mean


def _over_freedom(xp: Namespace, total: Array, n: int, correction: float) -> Array:
    """total / max(n - correction, 0), without NumPy's remarks on division by zero."""
    if n == 0:
        return total * xp.nan
    if n - correction > 0:
        return total * (1 / (n - correction))
    return total * xp.where(total == 0, xp.nan, xp.inf)


@twin
def var_forward(
    xp: Namespace, input: Array, dim: Dims = None, correction: float = 1, keepdim: bool = False, name: str = "var"
) -> Any:
    if input.dtype.kind not in "fc":
        subject = f"{name} only" if name.endswith("_mean") else "std and var only"
        raise RuntimeError(f"{subject} support floating point and complex dtypes, got {type_name(input)}")
    var, mean = moments(xp, name, input, dim, correction, keepdim)
    if name.startswith("std"):
        var = xp.sqrt(var)
    var = var.astype(dtypes.real_of(input.dtype), copy=False)
    return (var, mean.astype(input.dtype, copy=False)) if name.endswith("_mean") else var


def slope(xp: Namespace, input: Array, dim: Dims, correction: float) -> Array:
    """The derivative of the variance with respect to each element."""
    axes = reduced_axes(dim, len(input.shape))
    n = reduced_size(tuple(input.shape), dim)
    distance = input - xp.mean(input, axes, keepdims=True)
    if n - correction > 0:
        return distance * (2 / (n - correction))
    return xp.where(xp.equal(distance, 0), math.nan, math.inf)


def _var_gradient(xp: Namespace, g: Array, input: Array, dim: Dims, correction: float, keepdim: bool) -> Array:
    return restore(xp, g, tuple(input.shape), dim, keepdim) * slope(xp, input, dim, correction)


def _var_tangent(xp: Namespace, t: Array, input: Array, dim: Dims, correction: float, keepdim: bool) -> Array:
    weighted = xp.real(t * xp.conj(slope(xp, input, dim, correction)))
    return xp.sum(weighted, reduced_axes(dim, len(input.shape)), keepdims=keepdim)


def _through_root(xp: Namespace, g: Array, std: Array) -> Array:
    """A gradient of the standard deviation as one of the variance; zero where all elements are equal."""
    return xp.where(xp.equal(std, 0), 0.0, g / (std * 2))


def _mean_gradient(xp: Namespace, g: Array, shape: tuple[int, ...], dim: Dims, keepdim: bool) -> Array:
    return xp.broadcast_to(restore(xp, g, shape, dim, keepdim) / reduced_size(shape, dim), shape)


def _mean_tangent(xp: Namespace, t: Array, dim: Dims, keepdim: bool) -> Array:
    return xp.mean(t, reduced_axes(dim, len(t.shape)), keepdims=keepdim)


def _moments_gradient(
    xp: Namespace, g: list[Any], input: Array, std: Array | None, dim: Dims, correction: float, keepdim: bool
) -> Array:
    """Of var_mean (std is None) and std_mean; either gradient may be missing."""
    of_spread, of_mean = g
    part = 0
    if of_spread is not None:
        of_spread = of_spread if std is None else _through_root(xp, of_spread, std)
        part = _var_gradient(xp, of_spread, input, dim, correction, keepdim)
    if of_mean is None:
        return part
    return part + _mean_gradient(xp, of_mean, tuple(input.shape), dim, keepdim)


var_dims = primitive(
    "_var_dims",
    forward=lambda xp, input, dim=None, correction=1, keepdim=False: var_forward(
        xp, input, dim, correction, keepdim, "var"
    ),
    vjp={"input": _var_gradient},
    jvp={"input": _var_tangent},
    batch=REDUCTION,
    node="VarBackward0",
)

std_dims = primitive(
    "_std_dims",
    forward=lambda xp, input, dim=None, correction=1, keepdim=False: var_forward(
        xp, input, dim, correction, keepdim, "std"
    ),
    vjp={
        "input": lambda xp, g, input, out, dim, correction, keepdim: _var_gradient(
            xp, _through_root(xp, g, out), input, dim, correction, keepdim
        )
    },
    jvp={
        "input": lambda xp, t, input, out, dim, correction, keepdim: _through_root(
            xp, _var_tangent(xp, t, input, dim, correction, keepdim), out
        )
    },
    batch=REDUCTION,
    node="StdBackward0",
)

var_mean_dims = primitive(
    "_var_mean_dims",
    forward=lambda xp, input, dim=None, correction=1, keepdim=False: var_forward(
        xp, input, dim, correction, keepdim, "var_mean"
    ),
    vjp={
        "input": lambda xp, g, input, dim, correction, keepdim: _moments_gradient(
            xp, g, input, None, dim, correction, keepdim
        )
    },
    jvp={
        "input": lambda xp, t, input, dim, correction, keepdim: (
            _var_tangent(xp, t, input, dim, correction, keepdim),
            _mean_tangent(xp, t, dim, keepdim),
        )
    },
    batch=REDUCTION,
    node="VarMeanBackward0",
    outputs=("result0", "result1"),
)

std_mean_dims = primitive(
    "_std_mean_dims",
    forward=lambda xp, input, dim=None, correction=1, keepdim=False: var_forward(
        xp, input, dim, correction, keepdim, "std_mean"
    ),
    vjp={
        "input": lambda xp, g, input, result0, dim, correction, keepdim: _moments_gradient(
            xp, g, input, result0, dim, correction, keepdim
        )
    },
    jvp={
        "input": lambda xp, t, input, result0, dim, correction, keepdim: (
            _through_root(xp, _var_tangent(xp, t, input, dim, correction, keepdim), result0),
            _mean_tangent(xp, t, dim, keepdim),
        )
    },
    batch=REDUCTION,
    node="StdMeanBackward0",
    outputs=("result0", "result1"),
)


def _spread_arguments(dim: Any, unbiased: bool | None, correction: float | None) -> tuple[Any, float]:
    """(dim, correction); var(x, False) means unbiased=False."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError("pass either unbiased or correction (unbiased=False means correction=0), not both")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return dim, correction


def _spread(primitive_function: Callable[..., Any], name: str, doc: str, **options: Any) -> Any:
    """The public function of var, std, var_mean or std_mean."""

    def function(
        input: Array,
        dim: Any = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Any:
        dim, correction = _spread_arguments(dim, unbiased, correction)
        return primitive_function(input, dim, correction, keepdim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}\n\nExample: `ut.{name}(ut.tensor([1.0, 2.0, 6.0]))`"
    return composite(numpy_spelling(function), **options)


CORRECTED = "divided by n - correction (1 unless given; unbiased=False means 0)."
VARIANCE = f"The variance over `dim`, or of all elements: squared distances, {CORRECTED}"
DEVIATION = f"The standard deviation over `dim`, or of all; squared distances are {CORRECTED}"
var = _spread(var_dims, "var", VARIANCE, variants="function method", out=True)
std = _spread(std_dims, "std", DEVIATION, variants="function method", out=True)
var_mean = _spread(var_mean_dims, "var_mean", f"(variance, mean) in one go; squared distances are {CORRECTED}")
std_mean = _spread(std_mean_dims, "std_mean", f"(standard deviation, mean) in one go; squares are {CORRECTED}")


# ---- medians and modes: the lower of two middle elements, as PyTorch takes it


def _median_index(xp: Namespace, input: Array, ignore_nan: bool) -> Array:
    """Along the last axis, kept: where the lower median is; the first NaN unless they are ignored."""
    missing = input != input
    n = input.shape[-1]
    if not missing.any():
        return place_of_rank(xp, input, (n - 1) // 2)
    count = xp.sum(missing, -1, keepdims=True)
    if not ignore_nan:
        index = place_of_rank(xp, input, (n - 1) // 2)
        return xp.where(count > 0, xp.argmax(missing, -1, keepdims=True), index)
    return xp.take_along_axis(order(xp, input, input.ndim - 1, False), xp.maximum(n - count - 1, 0) // 2, -1)


def _median_along(name: str, ignore_nan: bool) -> Any:
    def forward(xp: Namespace, input: Array, dim: int = -1, keepdim: bool = False) -> Any:
        axis = wrap_dim(dim, input.ndim)
        require_kinds(f"{'median'}_cpu", input, "iuf")
        if input.ndim == 0:
            return input.copy(), xp.zeros((), dtypes.int64)
        require_elements(name, input.shape, axis)
        indices = xp.moveaxis(_median_index(xp, xp.moveaxis(input, axis, -1), ignore_nan), -1, axis)
        return with_values(xp, input, indices, axis, keepdim)

    return forward


def _median_of_all(ignore_nan: bool) -> Any:
    def forward(xp: Namespace, input: Array) -> Any:
        require_kinds(f"{'median'}_cpu", input, "iuf")
        flat = xp.reshape(input, (-1,))
        if not flat.size:
            return xp.asarray(xp.nan).astype(input.dtype)
        missing = flat != flat
        if missing.any():
            flat = flat[missing if missing.all() or not ignore_nan else ~missing]
        middle = (flat.size - 1) // 2
        return xp.partition(flat, middle)[middle]

    return forward


median_dim = primitive("_median_dim", _median_along("median", False), node="MedianBackward1", **SELECTING)
nanmedian_dim = primitive("_nanmedian_dim", _median_along("nanmedian", True), node="NanmedianBackward1", **SELECTING)
median_all = of_all("_median_all", _median_of_all(False), LOOP, "MedianBackward0")
nanmedian_all = of_all("_nanmedian_all", _median_of_all(True), LOOP, "NanmedianBackward0")


@composite(variants="function method", out=True)
@numpy_spelling
def median(input: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median (the lower of two middle elements); along `dim`, (values, indices). NaN if there is one.

    >>> import undertow as ut
    >>> ut.median(ut.tensor([4.0, 1.0, 3.0, 2.0]))
    tensor(2.)
    """
    if dim is None and not keepdim:
        return median_all(input)
    return return_types.median(median_dim(input, dim, keepdim))


@composite(variants="function method", out=True)
@numpy_spelling
def nanmedian(input: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of the elements that are not NaN; along `dim`, (values, indices).

    >>> import undertow as ut
    >>> ut.nanmedian(ut.tensor([1.0, ut.nan, 3.0]))
    tensor(1.)
    """
    if dim is None and not keepdim:
        return nanmedian_all(input)
    return return_types.nanmedian(nanmedian_dim(input, dim, keepdim))


def _mode_forward(xp: Namespace, input: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, ...]:
    axis = wrap_dim(dim, input.ndim)
    if input.dtype.kind == "c":
        require_kinds(f"{'mode'}_cpu", input, "iuf")
    if input.ndim == 0:
        return input.copy(), xp.zeros((), dtypes.int64)
    require_elements("mode", input.shape, axis)
    return with_values(xp, input, _mode_index(xp, input, axis), axis, keepdim)


def _mode_index(xp: Namespace, input: Array, axis: int) -> Array:
    """The last place of the smallest of the most frequent values, with the dimension kept."""
    order = xp.moveaxis(xp.argsort(input, axis, kind="stable"), axis, -1)
    ranked = xp.take_along_axis(xp.moveaxis(input, axis, -1), order, -1)
    places = xp.broadcast_to(xp.arange(ranked.shape[-1]), ranked.shape)
    starts = xp.zeros(ranked.shape, dtypes.int64)
    starts[..., 1:] = xp.where(ranked[..., 1:] != ranked[..., :-1], places[..., 1:], 0)
    length = places - xp.maximum.accumulate(starts, -1)
    return xp.moveaxis(xp.take_along_axis(order, xp.argmax(length, -1, keepdims=True), -1), -1, axis)


mode_dim = primitive("_mode_dim", _mode_forward, node="ModeBackward0", **SELECTING)


@composite(variants="function method", out=True)
@numpy_spelling
def mode(input: Array, dim: int = -1, keepdim: bool = False) -> Any:
    """(values, indices) of the most frequent value along `dim`; the smallest of several.

    >>> import undertow as ut
    >>> ut.mode(ut.tensor([1, 2, 2]))
    undertow.return_types.mode(
    values=tensor(2),
    indices=tensor(2))
    """
    return return_types.mode(mode_dim(input, dim, keepdim))


# ---- quantiles: sort, then interpolate between the two elements around the rank

NEIGHBOUR = {"lower": "floor", "higher": "ceil", "nearest": "round"}
INTERPOLATIONS = ("linear", "midpoint", *NEIGHBOUR)


def _check_quantile(name: str, input: Array, q: Array, interpolation: str) -> None:
    if input.dtype not in (dtypes.float32, dtypes.float64):
        got = type_name(input)
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype, got {got}")
    if math.prod(input.shape) == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if interpolation not in INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        return
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype != input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if not ((q._array >= 0) & (q._array <= 1)).all():
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")


def _ranks(ordered: Array, q: Array, ignore_nan: bool) -> Array:
    """The (fractional) places of the quantiles in each row; a row with NaN has them at its end, on a NaN."""
    n = ordered.shape[-1]
    missing = recorded.isnan(ordered)
    if ignore_nan:
        present = recorded.sum(recorded.logical_not(missing), -1, keepdims=True)
        return q * recorded.where(recorded.greater(present, 1), present - 1, 0)
    spoiled = recorded.any(missing, -1, True)
    return recorded.where(spoiled, float(n - 1), q * (n - 1))


def interpolate(ordered: Array, rank: Array, interpolation: str) -> Array:
    """The elements of each row at fractional places."""
    if interpolation in NEIGHBOUR:
        return _at_ranks(ordered, getattr(recorded, NEIGHBOUR[interpolation])(rank))
    below, above = recorded.floor(rank), recorded.ceil(rank)
    weight = 0.5 if interpolation == "midpoint" else rank - below
    low = _at_ranks(ordered, below)
    return recorded.where(recorded.equal(below, above), low, low + (_at_ranks(ordered, above) - low) * weight)


def _at_ranks(ordered: Array, rank: Array) -> Array:
    return recorded.take_along_axis(ordered, recorded.astype(rank, dtypes.int64), ordered.ndim - 1)


def _rows_along(input: Array, dim: int | None) -> Array:
    """The elements along `dim` (all of them, if None) as the last dimension."""
    if dim is None or not input.ndim:
        return recorded.reshape(input, (-1,))
    return recorded.moveaxis(input, wrap_dim(dim, input.ndim), -1)


def quantiles(
    name: str, input: Array, q: Array, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool
) -> Array:
    input = as_operand(name, "input", input)
    q = as_operand(name, "q", q) if isinstance(q, cpu.ndarray) else q
    _check_quantile(name, input, q, interpolation)
    gone = reduced_axes(dim, input.ndim)
    ordered = sort(_rows_along(input, dim))[0]
    if not isinstance(q, Tensor):
        q = Tensor(input._xp.asarray(q, input.dtype), input._xp)
    found = interpolate(ordered, _ranks(ordered, recorded.reshape(q, (-1,)), ignore_nan), interpolation)
    found = recorded.moveaxis(found, -1, 0)
    shape = kept_shape(tuple(input.shape), dim)
    if not keepdim:
        shape = tuple([n for d, n in enumerate(shape) if d not in gone])
    return recorded.reshape(found, (found.shape[0], *shape) if q.ndim else shape)


@composite(variants="function method", out=True)
@example_by_example
@in_float32
@numpy_spelling
def quantile(
    input: Array, q: Array, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The q-th quantile(s) along `dim`, or of all elements; for several q, a new first dimension.

    interpolation  between two elements: "linear", "lower", "higher", "nearest" or "midpoint"

    >>> import undertow as ut
    >>> ut.quantile(ut.tensor([0.0, 1.0, 2.0, 3.0]), 0.5)
    tensor(1.5000)
    """
    return quantiles("quantile", input, q, dim, keepdim, interpolation, False)


@composite(variants="function method", out=True)
@example_by_example
@in_float32
@numpy_spelling
def nanquantile(
    input: Array, q: Array, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The quantile(s) of the elements that are not NaN.

    q              a number between 0 and 1, or a vector of them
    interpolation  between two elements: "linear", "lower", "higher", "nearest" or "midpoint"

    >>> import undertow as ut
    >>> ut.nanquantile(ut.tensor([1.0, ut.nan, 3.0]), 0.5)
    tensor(2.)
    """
    return quantiles("nanquantile", input, q, dim, keepdim, interpolation, True)


@composite
@numpy_spelling
def percentile(
    input: Array, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """`quantile` with q in percent.

    q              a number between 0 and 100, or a vector of them
    interpolation  between two elements: "linear", "lower", "higher", "nearest" or "midpoint"

    >>> import undertow as ut
    >>> ut.percentile(ut.tensor([1.0, 2.0, 3.0]), 50)
    tensor(2.)
    """
    return quantiles("percentile", input, q / 100, dim, keepdim, interpolation, False)
