"""Norms of vectors, and slices of bounded norm."""

from __future__ import annotations

import math
from numbers import Real

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.dims import Dims, numpy_spelling, reduced_axes, restore, wrap_dim
from undertow.ops.arguments.operands import as_operand, type_name
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import REDUCTION
from undertow.ops.pointwise.where_clamp import clamp_min, where
from undertow.ops.reduce.extrema import share
from undertow.ops.reduce.folds import fold
from undertow.ops.reduce.sums_and_products import cast
from undertow.tensor import Tensor


def norm_forward(xp: Namespace, input: Array, ord: float = 2, dim: Dims = None, keepdim: bool = False) -> Array:
    if input.dtype.kind not in "fc":
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. "
            f"Got {type_name(input)}. Convert it first, or pass dtype."
        )
    axes = reduced_axes(dim, input.ndim)
    if ord in (1, 2) and input.dtype.kind == "f":
        total = fold(xp, input, "sizes" if ord == 1 else "squares", axes, keepdim)
        return xp.asarray(total if ord == 1 else xp.sqrt(total))
    magnitude = xp.abs(input)
    if math.isinf(ord):
        _require_largest(ord, input.shape, axes)
        out = fold(xp, magnitude, "maximum" if ord > 0 else "minimum", axes, keepdim)
    else:
        out = _power_norm(xp, magnitude, ord, axes, keepdim)
    return xp.asarray(out).astype(dtypes.real_of(input.dtype))


def _power_norm(xp: Namespace, magnitude: Array, ord: float, axes: tuple[int, ...], keepdim: bool) -> Array:
    if ord == 0:
        return xp.add.reduce(magnitude != 0, axes, keepdims=keepdim)
    if ord == 1:
        return xp.add.reduce(magnitude, axes, keepdims=keepdim)
    if ord == 2:
        return xp.sqrt(xp.add.reduce(magnitude * magnitude, axes, keepdims=keepdim))
    return xp.add.reduce(magnitude**ord, axes, keepdims=keepdim) ** (1 / ord)


def _require_largest(ord: float, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """An extreme of no elements does not exist."""
    empty = [d for d in axes if shape[d] == 0]
    if empty:
        where = "an empty tensor" if len(axes) == len(shape) else f"the dimension {empty[0]}"
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {ord} norm on {where} because "
            "this dimension is empty and the operation does not have an identity"
        )


def _norm_slope(xp: Namespace, input: Array, norm: Array, ord: float, dim: Dims) -> Array:
    """The derivative of the norm (given with its dimensions kept) with respect to each element.

    Zero at zero, as PyTorch has it. There second derivatives are NaN for ord up to 2, and zero for larger ones.
    """
    if ord == 0:
        return xp.zeros_like(input)
    if ord == 1:
        return xp.sgn(input)
    if ord == 2:
        return xp.where(xp.equal(norm, 0), 0.0, input / norm)
    magnitude = xp.abs(input)
    if math.isinf(ord):
        mask = xp.logical_or(xp.equal(magnitude, norm), xp.isnan(magnitude))
        return share(xp, xp.sgn(input), mask, dim)
    powers = magnitude ** (ord - 1)
    if ord < 1:
        return xp.sgn(input) * xp.where(xp.equal(input, 0), 0.0, powers) * norm ** (1 - ord)
    return xp.sgn(input) * powers * xp.where(xp.equal(norm, 0), 1.0, norm) ** (1 - ord)


def norm_gradient(xp: Namespace, g: Array, input: Array, out: Array, ord: float, dim: Dims, keepdim: bool) -> Array:
    if ord == 0:
        return xp.zeros_like(input)  # whatever the gradient is: nan, too
    shape = tuple(input.shape)
    norm = restore(xp, out, shape, dim, keepdim)
    return restore(xp, g, shape, dim, keepdim) * _norm_slope(xp, input, norm, ord, dim)


def norm_tangent(xp: Namespace, t: Array, input: Array, out: Array, ord: float, dim: Dims, keepdim: bool) -> Array:
    norm = restore(xp, out, tuple(input.shape), dim, keepdim)
    weighted = xp.real(t * xp.conj(_norm_slope(xp, input, norm, ord, dim)))
    return xp.sum(weighted, reduced_axes(dim, len(input.shape)), keepdims=keepdim)


vector_norm = primitive(
    "_vector_norm",
    forward=norm_forward,
    vjp={"input": norm_gradient},
    jvp={"input": norm_tangent},
    batch=REDUCTION,
    node="LinalgVectorNormBackward0",
)


@composite
@numpy_spelling
def linalg_vector_norm(
    x: Array, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The vector norm of order `ord` over `dim`, or of all elements; reached as `linalg.vector_norm`.

    x  a tensor of any shape

    >>> import undertow as ut
    >>> ut.linalg.vector_norm(ut.tensor([3.0, 4.0]), 1)
    tensor(7.)
    """
    if not isinstance(ord, Real):
        raise TypeError(f"linalg_vector_norm(): argument 'ord' must be Number, not {type(ord).__name__}")
    return vector_norm(cast(x, dtype), ord, dim, keepdim)


# ---- slices of bounded norm


@composite(variants="function method in_place", out=True, overlap="part", order="rows")
def renorm(input: Array, p: float, dim: int, maxnorm: float) -> Array:
    """The tensor with every slice along `dim` scaled down to have a p-norm of at most `maxnorm`.

    >>> import undertow as ut
    >>> ut.renorm(ut.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    input = as_operand("renorm", "input", input)
    if p <= 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported, got p={p}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    others = tuple(d for d in range(input.ndim) if d != wrap_dim(dim, input.ndim))
    norm = vector_norm(input, p, others, True)
    return input * where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


@composite(out=True)
def normalize(input: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Array:
    """Vectors along `dim` over their p-norm, or over eps if that is larger.

    >>> import undertow as ut
    >>> ut.normalize(ut.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    input = as_operand("normalize", "input", input)
    return input / clamp_min(vector_norm(input, p, dim, True), eps)
