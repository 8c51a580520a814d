"""Distances between points: of two (dist), of all pairs (pdist), of two sets (cdist)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.operands import as_operand, as_tensors, explain, result_type_of, type_name
from undertow.ops.arguments.sizes import common_shape
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import LINEAR, LOOP
from undertow.ops.declare.rules.batch_in_front import batch_stacks
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


def _counted(xp: Namespace, count: Array, differences: Array) -> Array:
    """How many differences are not zero, which nobody knows if one is NaN."""
    return xp.where(xp.any(xp.isnan(differences), -1), math.nan, count)


def _pair_distances(xp: Namespace, input: Array, p: float) -> Array:
    differences = _differences(xp, input)
    found = norm_forward(xp, differences, p, -1)
    return found if p else _counted(xp, found, differences).astype(found.dtype, copy=False)


def _distances_gradient(xp: Namespace, g: Array, input: Array, out: Array, p: float) -> Array:
    slopes = norm_gradient(xp, g, xp._pair_differences(input), out, p, -1, False)
    return xp._pair_differences_backward(slopes, input.shape[0])


pair_distances = primitive(
    "_pdist",
    forward=_pair_distances,
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

    p  of which norm the distances are

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


def _dist_forward(xp: Namespace, input: Array, other: Array, p: float = 2) -> Array:
    try:
        difference = input - other
    except ValueError as error:
        explain(error, "dist", (input, other))
        raise
    return norm_forward(xp, difference, p)


dist = primitive(
    "dist",
    forward=_dist_forward,
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


# ---- of two sets


def _turned(xp: Namespace, x: Array) -> Array:
    return xp.swapaxes(x, -1, -2)


def _euclidean(xp: Namespace, x1: Array, x2: Array) -> Array:
    """|a - b| for all pairs by |a|^2 - 2ab + |b|^2: one matrix product, and no array of all differences."""
    out = xp.matmul(-2 * x1, _turned(xp, x2))
    out += xp.sum(x1 * x1, axis=-1, keepdims=True)
    out += _turned(xp, xp.sum(x2 * x2, axis=-1, keepdims=True))
    return xp.sqrt(xp.maximum(out, 0, out=out), out=out)


def _euclidean_gradient(xp: Namespace, g: Array, x1: Array, x2: Array, out: Array) -> Array:
    """The sum over b of g (a - b) / |a - b|; a point on top of another gets nothing from it."""
    ratio = xp.where(out == 0, 0, g / xp.where(out == 0, 1, out))
    return x1 * xp.sum(ratio, axis=-1, keepdims=True) - xp.matmul(ratio, x2)


def _euclidean_tangent(xp: Namespace, t: Array, x1: Array, x2: Array, out: Array) -> Array:
    along = xp.sum(t * x1, axis=-1, keepdims=True) - xp.matmul(t, _turned(xp, x2))
    return xp.where(out == 0, 0, along / xp.where(out == 0, 1, out))


euclidean_distances = primitive(
    "_euclidean_dist",
    forward=_euclidean,
    vjp={
        "x1": _euclidean_gradient,
        "x2": lambda xp, g, x1, x2, out: _euclidean_gradient(xp, _turned(xp, g), x2, x1, _turned(xp, out)),
    },
    jvp={
        "x1": _euclidean_tangent,
        "x2": lambda xp, t, x1, x2, out: _turned(xp, _euclidean_tangent(xp, t, x2, x1, _turned(xp, out))),
    },
    batch=batch_stacks,
    node="EuclideanDistBackward0",
)


def _apart(xp: Namespace, x1: Array, x2: Array) -> Array:
    """The differences of all pairs."""
    return _as_rows(xp, x1) - _as_columns(xp, x2)


def _as_rows(xp: Namespace, x: Array) -> Array:
    return xp.reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def _as_columns(xp: Namespace, x: Array) -> Array:
    return xp.reshape(x, (*x.shape[:-2], 1, *x.shape[-2:]))


def _packed(xp: Namespace, lead: tuple[int, ...], *operands: Array) -> list[Array]:
    """As the kernels take them: stacks of one shape, contiguous."""
    if xp is not cpu:
        return list(operands)
    stacks = [x if x.shape[:-2] == lead else xp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in operands]
    return [xp.ascontiguousarray(stack) for stack in stacks]


def _direct(xp: Namespace, x1: Array, x2: Array, p: float) -> Array:
    found = kernels.distances(xp, *_packed(xp, common_shape(x1.shape[:-2], x2.shape[:-2]), x1, x2), p)
    return norm_forward(xp, _apart(xp, x1, x2), p, -1) if found is None else found


def _direct_gradient(xp: Namespace, g: Array, x1: Array, x2: Array, out: Array, p: float) -> Array:
    found = kernels.distances_gradient(xp, *_packed(xp, tuple(g.shape[:-2]), g, x1, x2, out), p)
    if found is None:
        return xp.sum(norm_gradient(xp, g, _apart(xp, x1, x2), out, p, -1, False), -2)
    return found


def _direct_tangent(xp: Namespace, moved: Array, x1: Array, x2: Array, out: Array, p: float) -> Array:
    differences = _apart(xp, x1, x2)
    return norm_tangent(xp, xp.broadcast_to(moved, tuple(differences.shape)), differences, out, p, -1, False)


def _batch_direct(call: Any, args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, Any]:
    *points, p = args
    return batch_stacks(lambda *stacks: call(*stacks, p), points, in_dims[:-1])


direct_distances = primitive(
    "_cdist_forward",
    forward=_direct,
    vjp={
        "x1": _direct_gradient,
        "x2": lambda xp, g, x1, x2, out, p: _direct_gradient(xp, _turned(xp, g), x2, x1, _turned(xp, out), p),
    },
    jvp={
        "x1": lambda xp, t, x1, x2, out, p: _direct_tangent(xp, _as_rows(xp, t), x1, x2, out, p),
        "x2": lambda xp, t, x1, x2, out, p: -_direct_tangent(xp, _as_columns(xp, t), x1, x2, out, p),
    },
    batch=_batch_direct,
    node="CdistBackward0",
)

#: compute_mode -> from how many points on Euclidean distances come from a matrix product
FEWEST_BY_PRODUCT = {
    "use_mm_for_euclid_dist_if_necessary": 26,
    "use_mm_for_euclid_dist": 0,
    "donot_use_mm_for_euclid_dist": math.inf,
}


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

    compute_mode  from how many rows on Euclidean distances come from a matrix product, which is faster and takes less
                  memory, but loses digits of distances that are small beside the points themselves: by default 26;
                  "use_mm_for_euclid_dist": always; "donot_use_mm_for_euclid_dist": never
    p             of which norm the distances are; 0 counts differing elements, inf takes the largest difference

    >>> import undertow as ut
    >>> ut.cdist(ut.tensor([[0.0, 0.0]]), ut.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    x1, x2 = as_operand("cdist", "x1", x1), as_operand("cdist", "x2", x2)
    _check_points(x1, x2, p)
    fewest = FEWEST_BY_PRODUCT.get(compute_mode or "use_mm_for_euclid_dist_if_necessary")
    if fewest is None:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode: one of {', '.join(FEWEST_BY_PRODUCT)}")
    if p and x1.dtype == x2.dtype:
        batch = common_shape(x1.shape[:-2], x2.shape[:-2])
        if p != 2 or max(x1.shape[-2], x2.shape[-2]) < fewest:
            return direct_distances(x1, x2, float(p))
        points = [x if x.shape[:-2] == batch else x.broadcast_to((*batch, *x.shape[-2:])) for x in (x1, x2)]
        return euclidean_distances(*points)
    differences = _apart(recorded, x1, x2)
    found = vector_norm(differences, p, -1)
    return found if p else _counted(recorded, found, differences)


@composite
def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    """The cosine of the angle between vectors along `dim`; a vector shorter than eps counts as that long.

    x1, x2  tensors that are broadcast to one shape; the result has it without `dim`

    >>> import undertow as ut
    >>> ut.cosine_similarity(ut.ones(2, 3), ut.ones(2, 3))
    tensor([1.0000, 1.0000])
    """
    x1, x2 = broadcast_tensors(*as_tensors("cosine_similarity", x1=x1, x2=x2))
    dtype = result_type_of((x1, x2))
    if dtypes.is_differentiable(dtype):  # one of the two may be of integers
        x1, x2 = x1.to(dtype), x2.to(dtype)
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
