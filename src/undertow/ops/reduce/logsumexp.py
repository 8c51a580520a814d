"""The logarithm of a sum of exponentials."""

from __future__ import annotations

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import Dims, kept_shape, numpy_spelling, reduced_axes, restore
from undertow.ops.arguments.operands import float_array
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import REDUCTION
from undertow.tensor import Tensor


def _logsumexp_forward(xp: Namespace, input: Array, dim: Dims, keepdim: bool = False) -> Array:
    if dim is None:
        raise TypeError("logsumexp(): argument 'dim' must be tuple of ints, not NoneType")
    input = float_array(input)
    axes = reduced_axes(dim, input.ndim)
    kept = kept_shape(input.shape, dim)
    if axes == (input.ndim - 1,):
        found = kernels.logsumexp_rows(xp, input)
    else:
        found = kernels.softmax_columns(xp, input, axes[0], kernels.LOGSUMEXP, None) if len(axes) == 1 else None
    if found is not None:
        return xp.reshape(found, kept) if keepdim else found
    if input.size == 0:
        largest = xp.zeros(kept, dtypes.real_of(input.dtype))
    else:
        largest = xp.maximum.reduce(xp.real(input), axes, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, 0)
    total = xp.add.reduce(xp.exp(input - largest), axes, keepdims=True)
    out = xp.where(total == 0, -xp.inf, xp.log(xp.where(total == 0, 1, total))) + largest
    return xp.reshape(out.astype(input.dtype), kept if keepdim else _numpy_shape(input.shape, axes))


def _numpy_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` without the reduced axes."""
    return tuple([n for d, n in enumerate(shape) if d not in axes])


def _softmax_like(xp: Namespace, input: Array, out: Array, dim: Dims, keepdim: bool) -> Array:
    return xp.exp(input - restore(xp, out, tuple(input.shape), dim, keepdim))


def _logsumexp_gradient(xp: Namespace, g: Array, input: Array, out: Array, dim: Dims, keepdim: bool) -> Array:
    if xp is cpu and reduced_axes(dim, input.ndim) == (input.ndim - 1,):
        found = kernels.logsumexp_rows_gradient(xp, input, xp.stack([g.reshape(-1), out.reshape(-1)], 1))
        if found is not None:
            return found
    g = restore(xp, g, tuple(input.shape), dim, keepdim)
    return g * xp.conj(_softmax_like(xp, input, out, dim, keepdim))


logsumexp_dims = primitive(
    "_logsumexp_dims",
    forward=_logsumexp_forward,
    vjp={"input": _logsumexp_gradient},
    jvp={
        "input": lambda xp, t, input, out, dim, keepdim: xp.sum(
            t * _softmax_like(xp, input, out, dim, keepdim), reduced_axes(dim, input.ndim), keepdims=keepdim
        )
    },
    batch=REDUCTION,
    node="LogsumexpBackward0",
)


@composite(variants="function method", out=True)
@numpy_spelling
def logsumexp(input: Array, dim: Dims, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow.

    >>> import undertow as ut
    >>> ut.logsumexp(ut.tensor([1000.0, 1000.0]), dim=0)
    tensor(1000.6932)
    """
    return logsumexp_dims(input, dim, keepdim)
