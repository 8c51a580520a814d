"""Norms of vectors, and distances."""

from __future__ import annotations

import math
from typing import Any

from undertow.backend import dtypes
from undertow.ops.arguments.autocast_float32 import in_float32
from undertow.ops.arguments.dims import Dims, numpy_spelling, reduced_axes, restore
from undertow.ops.arguments.operands import as_operand, type_name
from undertow.ops.declare import REGISTRY, composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import LOOP, REDUCTION
from undertow.ops.reduce.extrema import share
from undertow.ops.reduce.sums_and_products import cast
from undertow.tensor import Tensor


def norm_forward(xp: Any, input: Any, ord: float = 2, dim: Dims = None, keepdim: bool = False) -> Any:
    if input.dtype.kind not in "fc":
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. "
            f"Got {type_name(input)}. Convert it first, or pass dtype."
        )
    axes = reduced_axes(dim, input.ndim)
    exact = input.astype(dtypes.float32) if input.dtype == dtypes.float16 else input
    magnitude = xp.abs(exact)
    if math.isinf(ord):
        require_largest(ord, input.shape, axes)
        out = (xp.maximum if ord > 0 else xp.minimum).reduce(magnitude, axes, keepdims=keepdim)
    else:
        out = power_norm(xp, magnitude, ord, axes, keepdim)
    return xp.asarray(out).astype(dtypes.real_of(input.dtype))


def power_norm(xp: Any, magnitude: Any, ord: float, axes: tuple[int, ...], keepdim: bool) -> Any:
    if ord == 0:
        return xp.add.reduce(magnitude != 0, axes, keepdims=keepdim)
    if ord == 1:
        return xp.add.reduce(magnitude, axes, keepdims=keepdim)
    if ord == 2:
        return xp.sqrt(xp.add.reduce(magnitude * magnitude, axes, keepdims=keepdim))
    return xp.add.reduce(magnitude**ord, axes, keepdims=keepdim) ** (1 / ord)


def require_largest(ord: float, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """An extreme of no elements does not exist."""
    empty = [d for d in axes if shape[d] == 0]
    if empty:
        where = "an empty tensor" if len(axes) == len(shape) else f"the dimension {empty[0]}"
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {ord} norm on {where} because "
            "this dimension is empty and the operation does not have an identity"
        )


def norm_slope(xp: Any, input: Any, norm: Any, ord: float, dim: Dims) -> Any:
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


def norm_gradient(xp: Any, g: Any, input: Any, out: Any, ord: float, dim: Dims, keepdim: bool) -> Any:
    shape = tuple(input.shape)
    norm = restore(xp, out, shape, dim, keepdim)
    return restore(xp, g, shape, dim, keepdim) * norm_slope(xp, input, norm, ord, dim)


def norm_tangent(xp: Any, t: Any, input: Any, out: Any, ord: float, dim: Dims, keepdim: bool) -> Any:
    norm = restore(xp, out, tuple(input.shape), dim, keepdim)
    weighted = xp.real(t * xp.conj(norm_slope(xp, input, norm, ord, dim)))
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
def linalg_vector_norm(x: Any, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The vector norm of order `ord` over `dim`, or of all elements; reached as `linalg.vector_norm`."""
    if isinstance(ord, str) or not isinstance(ord, int | float):
        raise TypeError(f"linalg_vector_norm(): argument 'ord' must be Number, not {type(ord).__name__}")
    return vector_norm(cast(x, dtype), ord, dim, keepdim)


def nuclear_norm(input: Any, p: str, dim: Any, keepdim: bool) -> Tensor:
    if p != "nuc":
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported. Use a number, 'fro' or 'nuc'.")
    if "linalg_matrix_norm" not in REGISTRY:
        raise NotImplementedError("norm(): p='nuc' needs linalg.matrix_norm, which is not there yet")
    matrix_norm: Any = REGISTRY["linalg_matrix_norm"].function
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)


@composite(variants="function method", out=True)
@numpy_spelling
def norm(
    input: Any, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The vector norm of order `p` over `dim`, or of all elements; p="nuc": the nuclear norm of matrices.

    >>> import undertow as ut
    >>> ut.norm(ut.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if p is None or p == "fro":
        p = 2
    if isinstance(p, str):
        return nuclear_norm(cast(input, dtype), p, dim, keepdim)
    return vector_norm(cast(input, dtype), p, dim, keepdim)


# ---- distances


def dist_gradient(xp: Any, g: Any, input: Any, other: Any, out: Any, p: float) -> Any:
    return norm_gradient(xp, g, input - other, out, p, None, False)


def dist_tangent(xp: Any, t: Any, input: Any, other: Any, out: Any, p: float) -> Any:
    difference = input - other
    return norm_tangent(xp, xp.broadcast_to(t, tuple(difference.shape)), difference, out, p, None, False)


dist = primitive(
    "dist",
    forward=lambda xp, input, other, p=2: norm_forward(xp, input - other, p),
    vjp={
        "input": dist_gradient,
        "other": lambda xp, g, input, other, out, p: -dist_gradient(xp, g, input, other, out, p),
    },
    jvp={
        "input": dist_tangent,
        "other": lambda xp, t, input, other, out, p: -dist_tangent(xp, t, input, other, out, p),
    },
    batch=LOOP,
    promote="same",
    variants="function method",
)


def check_points(x1: Any, x2: Any, p: float) -> None:
    for name, x in (("X1", x1), ("X2", x2)):
        if not dtypes.is_floating(x.dtype):
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {type_name(x)}")
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")


@composite
@in_float32
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The distance of every row of x1 to every row of x2, batch by batch."""
    x1, x2 = as_operand("cdist", "x1", x1), as_operand("cdist", "x2", x2)
    check_points(x1, x2, p)
    rows = recorded.reshape(x1, (*x1.shape[:-1], 1, x1.shape[-1]))
    columns = recorded.reshape(x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))
    return vector_norm(rows - columns, p, -1)
