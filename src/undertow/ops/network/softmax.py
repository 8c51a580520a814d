"""Softmax and its kin: exponentials that share a sum along one dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow.backend import kernels
from undertow.backend.interface import Array, DType, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.dims import reduced_axes, wrap_dim
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import REDUCTION
from undertow.ops.network import row_kernels
from undertow.ops.pointwise.arithmetic import neg

if TYPE_CHECKING:
    from undertow.ops.arguments.dims import Dims


def total(xp: Namespace, x: Array, dim: int) -> Array:
    """The sum along `dim`, which stays as a dimension of size one; in a recorded pass, too."""
    return xp.sum(x, axis=reduced_axes(dim, x.ndim), keepdims=True)


def _axis_of(dim: int, ndim: int) -> Any:
    """`dim` as NumPy's reductions take it, quickly; a 0-d array has no axis."""
    return wrap_dim(dim, ndim) if ndim else reduced_axes(dim, 0)


def _below_largest(xp: Namespace, input: Array, axis: Dims) -> Array:
    """input - max(input), so that exp cannot overflow."""
    return input - xp.maximum.reduce(input, axis, None, None, True)


def _in_rows(xp: Namespace, x: Array, dim: int) -> bool:
    return row_kernels.is_last(dim, x.ndim) and row_kernels.has_long_rows(xp, x)


def _by_kernels(xp: Namespace, input: Array, dim: int, logs: bool) -> Array | None:
    """The softmax, or its logarithm, where there is a kernel for it, or no element; None where there is not."""
    if _in_rows(xp, input, dim):
        return row_kernels.log_softmax(input) if logs else row_kernels.softmax(input)
    found = kernels.softmax_rows_of(xp, input, logs) if row_kernels.is_last(dim, input.ndim) else None
    if found is not None:
        return found
    if input.size == 0:
        return input.copy()
    return kernels.softmax_columns(xp, input, dim, kernels.LOG_SOFTMAX if logs else kernels.SOFTMAX, None)


# ---- softmax


@twin
def normalized_exponentials(xp: Namespace, input: Array, dim: int, dtype: DType | None = None) -> Array:
    if dtype is not None:
        return normalized_exponentials(xp, input.astype(dtype), dim, None)
    require_kinds("softmax", input, "f")
    axis = _axis_of(dim, input.ndim)
    found = _by_kernels(xp, input, dim, False)
    if found is not None:
        return found
    out = _below_largest(xp, input, axis)
    out = xp.exp(out, out=out) if type(out) is xp.ndarray else xp.exp(out)
    out /= xp.add.reduce(out, axis, None, None, True)
    return out


softmax = primitive(
    "softmax",
    forward=normalized_exponentials,
    vjp={"input": lambda xp, g, out, dim: xp.softmax_backward_data(g, out, dim)},
    jvp={"input": lambda xp, t, out, dim: xp.softmax_backward_data(t, out, dim)},
    batch=REDUCTION,
    variants="function method",
)


def _softmax_or_zeros(xp: Namespace, input: Array, dim: int, dtype: DType | None = None) -> Array:
    input = input if dtype is None else input.astype(dtype)
    if input.size == 0:
        return input.copy()
    found = kernels.softmax_rows_of(xp, input, False, True) if row_kernels.is_last(dim, input.ndim) else None
    if found is not None:
        return found
    with xp.errstate(invalid="ignore"):
        out = normalized_exponentials(xp, input, dim, None)
    if not xp.isnan(xp.moveaxis(out, dim, 0)[0] if input.ndim else out).any():
        return out  # of a row that is -inf throughout, all would be NaN
    hidden = xp.maximum.reduce(input, _axis_of(dim, input.ndim), None, None, True) == -math.inf
    zero = input.dtype.type(0)
    return xp.where(hidden, zero, normalized_exponentials(xp, xp.where(hidden, zero, input), dim, None))


# softmax, but zeros in place of NaN where all along `dim` is -inf: a query of attention that sees no key
_safe_softmax = primitive(
    "_safe_softmax",
    forward=_softmax_or_zeros,
    vjp={"input": lambda xp, g, out, dim: xp.softmax_backward_data(g, out, dim)},
    jvp={"input": lambda xp, t, out, dim: xp.softmax_backward_data(t, out, dim)},
    batch=REDUCTION,
    node="SafeSoftmaxBackward0",
)


@twin
def softmax_gradient(xp: Namespace, grad_output: Array, output: Array, dim: int) -> Array:
    if _in_rows(xp, output, dim):
        return row_kernels.softmax_gradient(grad_output, output)
    found = (
        kernels.softmax_rows_slope(xp, grad_output, output, False) if row_kernels.is_last(dim, output.ndim) else None
    )
    if found is not None:
        return found
    product = grad_output * output
    return product - output * xp.add.reduce(product, _axis_of(dim, output.ndim), None, None, True)


# y * (g - <g, y>): linear and symmetric in g, quadratic in y
softmax_backward_data = primitive(
    "softmax_backward_data",
    forward=softmax_gradient,
    vjp={
        "grad_output": lambda xp, g, output, dim: xp.softmax_backward_data(g, output, dim),
        "output": lambda xp, g, grad_output, output, dim: (
            g * (grad_output - total(xp, grad_output * output, dim)) - grad_output * total(xp, g * output, dim)
        ),
    },
    jvp={
        "grad_output": lambda xp, t, output, dim: xp.softmax_backward_data(t, output, dim),
        "output": lambda xp, t, grad_output, output, dim: (
            t * (grad_output - total(xp, grad_output * output, dim)) - output * total(xp, grad_output * t, dim)
        ),
    },
    batch=REDUCTION,
    variants="",
)


@composite
def softmin(input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """softmax(-input).

    >>> import undertow as ut
    >>> ut.softmin(ut.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([0.6652, 0.2447, 0.0900])
    """
    return softmax(neg(input), dim, dtype)


# ---- log_softmax


@twin
def logs_of_softmax(xp: Namespace, input: Array, dim: int, dtype: DType | None = None) -> Array:
    if dtype is not None:
        return logs_of_softmax(xp, input.astype(dtype), dim, None)
    require_kinds("log_softmax", input, "f")
    axis = _axis_of(dim, input.ndim)
    found = _by_kernels(xp, input, dim, True)
    if found is not None:
        return found
    out = _below_largest(xp, input, axis)
    out -= xp.log(xp.add.reduce(xp.exp(out), axis, None, None, True))
    return out


log_softmax = primitive(
    "log_softmax",
    forward=logs_of_softmax,
    vjp={"input": lambda xp, g, out, dim: xp.log_softmax_backward_data(g, out, dim)},
    jvp={"input": lambda xp, t, out, dim: t - total(xp, xp.exp(out) * t, dim)},
    batch=REDUCTION,
    variants="function method",
)


@twin
def log_softmax_gradient(xp: Namespace, grad_output: Array, output: Array, dim: int) -> Array:
    if _in_rows(xp, output, dim):
        return row_kernels.log_softmax_gradient(grad_output, output)
    found = kernels.softmax_rows_slope(xp, grad_output, output, True) if row_kernels.is_last(dim, output.ndim) else None
    if found is not None:
        return found
    return grad_output - xp.exp(output) * xp.add.reduce(grad_output, _axis_of(dim, output.ndim), None, None, True)


log_softmax_backward_data = primitive(
    "log_softmax_backward_data",
    forward=log_softmax_gradient,
    vjp={
        "grad_output": lambda xp, g, output, dim: g - total(xp, g * xp.exp(output), dim),
        "output": lambda xp, g, grad_output, output, dim: -g * xp.exp(output) * total(xp, grad_output, dim),
    },
    jvp={
        "grad_output": lambda xp, t, output, dim: xp.log_softmax_backward_data(t, output, dim),
        "output": lambda xp, t, grad_output, output, dim: -t * xp.exp(output) * total(xp, grad_output, dim),
    },
    batch=REDUCTION,
    variants="",
)
