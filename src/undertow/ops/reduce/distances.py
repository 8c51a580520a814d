"""Distances between points: of two (dist), of all pairs (pdist), of two sets (cdist)."""

from __future__ import annotations

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.autocast_float32 import in_float32
from undertow.ops.arguments.operands import as_operand, as_tensors, type_name
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import LINEAR, LOOP
from undertow.ops.pointwise.where_clamp import clamp_min
from undertow.ops.reduce.sums_and_products import sum
from undertow.ops.reduce.vector_norms import norm_forward, norm_gradient, norm_tangent, vector_norm
from undertow.ops.views.dimensions import broadcast_tensors
from undertow.tensor import Tensor


def _differences(xp: Namespace, input: Array) -> Array:
    """Every row minus every later one."""
    first, second = xp.triu_indices(input.shape[0], 1)
    return input[first] - input[second]


def _spread_differences(xp: Namespace, grad: Array, rows: int) -> Array:
    first, second = xp.triu_indices(rows, 1)
    out = xp.zeros((rows, grad.shape[1]), grad.dtype)
    xp.add.at(out, first, grad)
    xp.subtract.at(out, second, grad)
    return out


pair_differences = primitive(
    "_pair_differences",
    forward=_differences,
    vjp={"input": lambda xp, g, input_shape: xp._pair_differences_backward(g, input_shape[0])},
    jvp=LINEAR,
    batch=LOOP,
)


pair_differences_backward = primitive(
    "_pair_differences_backward",
    forward=_spread_differences,
    vjp={"grad": lambda xp, g: xp._pair_differences(g)},
    jvp=LINEAR,
    batch=LOOP,
)


def _distances_gradient(xp: Namespace, g: Array, input: Array, out: Array, p: float) -> Array:
    slopes = norm_gradient(xp, g, xp._pair_differences(input), out, p, -1, False)
    return xp._pair_differences_backward(slopes, input.shape[0])


pair_distances = primitive(
    "_pdist",
    forward=lambda xp, input, p: norm_forward(xp, _differences(xp, input), p, -1),
    vjp={"input": _distances_gradient},
    jvp={
        "input": lambda xp, t, input, out, p: norm_tangent(
            xp, xp._pair_differences(t), xp._pair_differences(input), out, p, -1, False
        )
    },
    batch=LOOP,
    node="PdistBackward0",
)


@composite
def pdist(input: Array, p: float = 2.0) -> Tensor:
    """The distance of every row to every later one.

    >>> import undertow as ut
    >>> ut.pdist(ut.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).tolist()[:2]
    [5.0, 1.0]
    """
    input = as_operand("pdist", "input", input)
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not dtypes.is_floating(input.dtype):
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    return pair_distances(input, float(p))


def _dist_gradient(xp: Namespace, g: Array, input: Array, other: Array, out: Array, p: float) -> Array:
    return norm_gradient(xp, g, input - other, out, p, None, False)


def _dist_tangent(xp: Namespace, t: Array, input: Array, other: Array, out: Array, p: float) -> Array:
    difference = input - other
    return norm_tangent(xp, xp.broadcast_to(t, tuple(difference.shape)), difference, out, p, None, False)


dist = primitive(
    "dist",
    forward=lambda xp, input, other, p=2: norm_forward(xp, input - other, p),
    vjp={
        "input": _dist_gradient,
        "other": lambda xp, g, input, other, out, p: -_dist_gradient(xp, g, input, other, out, p),
    },
    jvp={
        "input": _dist_tangent,
        "other": lambda xp, t, input, other, out, p: -_dist_tangent(xp, t, input, other, out, p),
    },
    batch=LOOP,
    promote="same",
    variants="function method",
)


def _check_points(x1: Array, x2: Array, p: float) -> None:
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
def cdist(x1: Array, x2: Array, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The distance of every row of x1 to every row of x2, batch by batch.

    >>> import undertow as ut
    >>> ut.cdist(ut.zeros(1, 2), ut.ones(3, 2))
    tensor([[1.4142, 1.4142, 1.4142]])
    """
    x1, x2 = as_operand("cdist", "x1", x1), as_operand("cdist", "x2", x2)
    _check_points(x1, x2, p)
    rows = recorded.reshape(x1, (*x1.shape[:-1], 1, x1.shape[-1]))
    columns = recorded.reshape(x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))
    return vector_norm(rows - columns, p, -1)


@composite
def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    """The cosine of the angle between vectors along `dim`; a vector shorter than eps counts as that long.

    >>> import undertow as ut
    >>> ut.cosine_similarity(ut.ones(2, 3), ut.ones(2, 3))
    tensor([1.0000, 1.0000])
    """
    x1, x2 = broadcast_tensors(*as_tensors("cosine_similarity", x1=x1, x2=x2))
    lengths = [clamp_min(vector_norm(x, 2, dim, True), eps) for x in (x1, x2)]
    return sum((x1 / lengths[0]) * (x2 / lengths[1]), dim)


@composite
def pairwise_distance(x1: Array, x2: Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Array:
    """The p-norm of x1 - x2 + eps along the last dimension.

    >>> import undertow as ut
    >>> ut.pairwise_distance(ut.ones(2, 4), ut.zeros(2, 4))
    tensor([2.0000, 2.0000])
    """
    x1, x2 = as_tensors("pairwise_distance", x1=x1, x2=x2)
    return vector_norm(x1 - x2 + eps, p, max(x1.ndim, x2.ndim) - 1, keepdim)
