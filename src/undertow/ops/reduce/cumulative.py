"""Running sums, products and extremes along a dimension."""

from __future__ import annotations

import math
from typing import Any

from undertow.backend import dtypes, kernels
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.dims import numpy_spelling, wrap_dim
from undertow.ops.arguments.operands import require_kinds, require_order
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import LINEAR, REDUCTION
from undertow.ops.reduce.sums_and_products import ACCUMULATOR
from undertow.ops.shape.flip_roll import flipped

#: what running sums and products are accumulated in: after n steps the last of them would be off by n roundings
EXACT = {dtypes.float32: dtypes.float64, dtypes.complex64: dtypes.complex128}


def _scan(ufunc: Any, input: Array, dim: int, dtype: DType = None) -> Array:
    """ufunc.accumulate, in the dtypes that PyTorch uses; a 0-d array is its own scan."""
    axis = wrap_dim(dim, input.ndim)
    dtype = dtype or ACCUMULATOR.get(input.dtype, input.dtype)
    input = input.astype(dtype)
    return input if input.ndim == 0 else ufunc.accumulate(input, axis, EXACT.get(dtype)).astype(dtype, copy=False)


def _running_sum(xp: Namespace, input: Array, dim: int, dtype: DType = None) -> Array:
    if dtype is None and input.ndim:
        found = kernels.running_sums(xp, xp.ascontiguousarray(input), wrap_dim(dim, input.ndim), False)
        if found is not None:
            return found
    return _scan(xp.add, input, dim, dtype and dtypes.dtype(dtype))


def _reversed_cumsum(xp: Namespace, g: Array, dim: int) -> Array:
    if not g.shape:
        return g
    axis = wrap_dim(dim, len(g.shape))
    found = None if xp is recorded else kernels.running_sums(xp, xp.ascontiguousarray(g), axis, True)
    if found is not None:
        return found
    backwards = xp.flip(g, axis)
    return flipped(xp, xp.cumsum(backwards, axis) if xp is recorded else _scan(xp.add, backwards, axis), axis)


cumsum = primitive(
    "cumsum",
    forward=_running_sum,
    vjp={"input": _reversed_cumsum},
    jvp=LINEAR,
    batch=REDUCTION,
    check_output=True,
    variants="function method in_place",
    overlap="part",
    same_in_numpy=True,
)


# ---- linear recurrences, out[k] = coefficients[k] * out[k - 1] + input[k]: the derivatives of product scans


FORWARDS = slice(None, -1), slice(1, None), slice(None, 1)
BACKWARDS = slice(1, None), slice(None, -1), slice(-1, None)


def shift(xp: Namespace, input: Array, dim: int, by: int, fill: float) -> Array:
    """The elements moved by one place along `dim` (1: forth, -1: back), `fill` in the place left free."""
    source, target, free = FORWARDS if by == 1 else BACKWARDS
    lead = (slice(None),) * wrap_dim(dim, input.ndim)
    out = xp.empty(input.shape, input.dtype)
    out[(*lead, target)] = input[(*lead, source)]
    out[(*lead, free)] = fill
    return out


shifted = primitive(
    "_shifted",
    forward=shift,
    vjp={"input": lambda xp, g, dim, by: xp._shifted(g, dim, -by, 0)},
    jvp={"input": lambda xp, t, dim, by: xp._shifted(t, dim, by, 0)},
    batch=REDUCTION,
)


def _recur(xp: Namespace, coefficients: Array, input: Array, dim: int) -> Array:
    """out[k] = coefficients[k] * out[k - 1] + input[k] along `dim`."""
    c, out = xp.moveaxis(coefficients, dim, 0), xp.moveaxis(input, dim, 0).copy()
    n = len(out)
    if n > 64 and out.size < 64 * n:
        doubled = _recur_by_doubling(c.copy(), out.copy())
        if xp.all(xp.isfinite(doubled)):
            return xp.moveaxis(doubled, 0, dim)
    for k in range(1, n):
        out[k] += c[k] * out[k - 1]
    return xp.moveaxis(out, 0, dim)


def _recur_by_doubling(c: Array, out: Array) -> Array:
    """The same in log2(n) steps on whole arrays; products of coefficients may overflow where out does not."""
    step = 1
    while step < len(out):
        out[step:] += c[step:] * out[:-step].copy()
        c[step:] *= c[:-step].copy()
        step *= 2
    return out


def _reversed_recurrence(xp: Namespace, g: Array, coefficients: Array, dim: int) -> Array:
    """The adjoint of `_recur`: a[k] = g[k] + conj(coefficients[k + 1]) * a[k + 1]."""
    c = xp.flip(xp._shifted(xp.conj(coefficients), dim, -1, 0), dim)
    return flipped(xp, xp._linear_recurrence(c, xp.flip(g, dim), dim), dim)


linear_recurrence = primitive(
    "_linear_recurrence",
    forward=_recur,
    vjp={
        "coefficients": lambda xp, g, coefficients, out, dim: (
            _reversed_recurrence(xp, g, coefficients, dim) * xp.conj(xp._shifted(out, dim, 1, 0))
        ),
        "input": _reversed_recurrence,
    },
    jvp={
        "coefficients": lambda xp, t, coefficients, out, dim: xp._linear_recurrence(
            coefficients, t * xp._shifted(out, dim, 1, 0), dim
        ),
        "input": lambda xp, t, coefficients, dim: xp._linear_recurrence(coefficients, t, dim),
    },
    batch=REDUCTION,
    promote="same",
)


# ---- cumprod, logcumsumexp


def _cumprod_gradient(xp: Namespace, g: Array, input: Array, out: Array, dim: int) -> Array:
    """The sum of g * out from here on, over the element; but zeros cannot be divided by, nor infinities.

    There, and in recorded passes, by the recurrence out[k] = input[k] * out[k - 1], whose derivative is one, too.
    """
    if not g.shape:
        return g
    dim = wrap_dim(dim, len(g.shape))
    if xp is not recorded and xp.all(out) and xp.all(xp.isfinite(out)):
        return _reversed_cumsum(xp, g * xp.conj(out), dim) / xp.conj(input)
    return _reversed_recurrence(xp, g, input, dim) * xp.conj(xp._shifted(out, dim, 1, 1))


def _cumprod_tangent(xp: Namespace, t: Array, input: Array, out: Array, dim: int) -> Array:
    if not t.shape:
        return t
    dim = wrap_dim(dim, len(t.shape))
    return xp._linear_recurrence(input, t * xp._shifted(out, dim, 1, 1), dim)


def _running_product(xp: Namespace, input: Array, dim: int, dtype: DType = None) -> Array:
    if dtype is None and input.ndim:
        found = kernels.running_products(xp, xp.ascontiguousarray(input), wrap_dim(dim, input.ndim))
        if found is not None:
            return found
    return _scan(xp.multiply, input, dim, dtype and dtypes.dtype(dtype))


cumprod = primitive(
    "cumprod",
    forward=_running_product,
    vjp={"input": _cumprod_gradient},
    jvp={"input": _cumprod_tangent},
    batch=REDUCTION,
    check_output=True,
    variants="function method in_place",
    overlap="part",
    same_in_numpy=True,
)


def _logcumsumexp_forward(xp: Namespace, input: Array, dim: int) -> Array:
    axis = wrap_dim(dim, input.ndim)
    require_kinds("logcumsumexp_out_cpu", input, "fc")
    if input.ndim == 0:
        return input.copy()
    if input.dtype.kind == "f":
        return xp.logaddexp.accumulate(input, axis, EXACT.get(input.dtype)).astype(input.dtype, copy=False)
    out = xp.moveaxis(input, axis, 0).copy()
    for k in range(1, len(out)):
        out[k] = _complex_logaddexp(xp, out[k - 1], out[k])
    return xp.moveaxis(out, 0, axis)


def _complex_logaddexp(xp: Namespace, a: Array, b: Array) -> Array:
    swap = a.real < b.real
    high, low = xp.where(swap, b, a), xp.where(swap, a, b)
    return high + xp.log1p(xp.exp(low - high))


def _logcumsumexp_weights(xp: Namespace, input: Array, out: Array, dim: int) -> tuple[Array, Array]:
    """How much each running value owes to the one before it, and to its own element.

    From +inf on, nothing is carried: the NaN of an infinite element is its own, and none of those around it.
    """
    steps = xp.where(xp.equal(out, math.inf), -math.inf, xp._shifted(out, dim, 1, -math.inf) - out)
    return xp.exp(steps), xp.exp(input - out)


def _logcumsumexp_gradient(xp: Namespace, g: Array, input: Array, out: Array, dim: int) -> Array:
    if not g.shape:
        return g
    dim = wrap_dim(dim, len(g.shape))
    carried, own = _logcumsumexp_weights(xp, input, out, dim)
    return _reversed_recurrence(xp, g, carried, dim) * xp.conj(own)


def _logcumsumexp_tangent(xp: Namespace, t: Array, input: Array, out: Array, dim: int) -> Array:
    if not t.shape:
        return t
    dim = wrap_dim(dim, len(t.shape))
    carried, own = _logcumsumexp_weights(xp, input, out, dim)
    return xp._linear_recurrence(carried, t * own, dim)


logcumsumexp = primitive(
    "logcumsumexp",
    forward=_logcumsumexp_forward,
    vjp={"input": _logcumsumexp_gradient},
    jvp={"input": _logcumsumexp_tangent},
    batch=REDUCTION,
    variants="function method",
)


# ---- cummax, cummin


def _running_extreme(xp: Namespace, name: str, ufunc: Array, input: Array, dim: int) -> tuple[Array, Array]:
    """Running extremes and the latest place of each; a NaN stays."""
    axis = wrap_dim(dim, input.ndim)
    require_order(name, input)
    if input.ndim == 0:
        return input.copy(), xp.zeros((), dtypes.int64)
    found = kernels.running_extremes(xp, xp.ascontiguousarray(input), axis, name == "cummin")
    if found is not None:
        return found[0], found[1]
    values = ufunc.accumulate(input, axis)
    places = xp.arange(input.shape[axis]).reshape([-1 if d == axis else 1 for d in range(input.ndim)])
    reached = (input == values) | (input != input)
    return values, xp.maximum.accumulate(xp.where(reached, places, 0), axis)


def _add_along(xp: Namespace, grad: Array, indices: Array, dim: int) -> Array:
    """grad[..., k, ...] added up at the places indices[..., k, ...] along `dim`."""
    if grad.ndim == 0:
        return xp.array(grad)
    axis = wrap_dim(dim, grad.ndim)
    out = xp.zeros(grad.shape, grad.dtype)
    if kernels.scatter_add(xp, out, axis, indices, xp.ascontiguousarray(grad)):
        return out
    places = list(xp.indices(grad.shape, sparse=True))
    places[axis] = indices
    xp.add.at(out, tuple(places), grad)
    return out


def take_along(xp: Namespace, input: Array, indices: Array, dim: int) -> Array:
    return xp.take_along_axis(input, indices, wrap_dim(dim, len(input.shape))) if input.shape else input


cummaxmin_backward = primitive(
    "cummaxmin_backward",
    forward=_add_along,
    vjp={"grad": take_along, "indices": None},
    jvp={"grad": lambda xp, t, indices, dim: xp.cummaxmin_backward(t, indices, dim)},
    batch=REDUCTION,
    variants="",
)


def running(name: str, ufunc: str) -> Any:
    """The primitive of cummax or cummin."""
    return primitive(
        f"_{name}_along",
        forward=lambda xp, input, dim: _running_extreme(xp, name, getattr(xp, ufunc), input, dim),
        vjp={"input": lambda xp, g, indices, dim: xp.cummaxmin_backward(g, indices, dim)},
        jvp={"input": take_along},
        batch=REDUCTION,
        node=f"{name.capitalize()}Backward0",
        outputs=("values", "indices"),
        nondifferentiable=("indices",),
    )


cummax_along = running("cummax", "maximum")
cummin_along = running("cummin", "minimum")


@composite(variants="function method", out=True)
@numpy_spelling
def cummax(input: Array, dim: int) -> Any:
    """(values, indices) of the largest element so far, along `dim`.

    >>> import undertow as ut
    >>> ut.cummax(ut.tensor([1.0, 3.0, 2.0]), dim=0).indices
    tensor([0, 1, 1])
    """
    return return_types.cummax(cummax_along(input, dim))


@composite(variants="function method", out=True)
@numpy_spelling
def cummin(input: Array, dim: int) -> Any:
    """(values, indices) of the smallest element so far, along `dim`.

    >>> import undertow as ut
    >>> ut.cummin(ut.tensor([1.0, 2.0, 3.0]), dim=0)[0]
    tensor([1., 1., 1.])
    """
    return return_types.cummin(cummin_along(input, dim))
