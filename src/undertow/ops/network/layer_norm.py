"""Normalisation of activations: zero mean and unit variance over chosen dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import reduced_axes, wrap_dims
from undertow.ops.arguments.operands import as_operand, require_kinds
from undertow.ops.declare import Joint, composite, primitive
from undertow.ops.declare.composite_order import rearranged
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import REDUCTION
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded, padded
from undertow.ops.network import row_kernels
from undertow.ops.pointwise.powers import rsqrt
from undertow.ops.reduce.sums_and_products import mean

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

# ---- zero mean, unit variance


def _standardized(xp: Namespace, input: Array, dim: Sequence[int], eps: float) -> tuple[Array, Array]:
    require_kinds("standardize", input, "f")
    axes = reduced_axes(dim, input.ndim)
    centred = input - xp.mean(input, axis=axes, keepdims=True)
    rstd = 1 / xp.sqrt(xp.mean(centred * centred, axis=axes, keepdims=True) + eps)
    return centred * rstd, rstd


def tangential(xp: Namespace, x: Array, out: Array, dim: Sequence[int]) -> Array:
    """What is left of x without its mean and its part along `out`: such changes alone pass a standardisation."""
    axes = reduced_axes(dim, out.ndim)
    return x - xp.mean(x, axis=axes, keepdims=True) - out * xp.mean(x * out, axis=axes, keepdims=True)


def _standardize_gradient(xp: Namespace, g: Any, result: Array, rstd: Array, dim: Sequence[int]) -> Array:
    g_result, g_rstd = g
    total = None if g_result is None else rstd * tangential(xp, g_result, result, dim)
    if g_rstd is None:
        return total
    count = math.prod(result.shape[d] for d in wrap_dims(dim, result.ndim))
    of_rstd = -g_rstd * rstd * rstd * result / count
    return of_rstd if total is None else total + of_rstd


def _standardize_tangent(
    xp: Namespace, t: Array, result: Array, rstd: Array, dim: Sequence[int]
) -> tuple[Array, Array]:
    along = xp.mean(t * result, axis=reduced_axes(dim, result.ndim), keepdims=True)
    return rstd * tangential(xp, t, result, dim), -rstd * rstd * along


# (input - mean) / sqrt(var + eps), and 1 / sqrt(var + eps)
standardize = primitive(
    "_standardize",
    forward=_standardized,
    vjp={"input": _standardize_gradient},
    jvp={"input": _standardize_tangent},
    batch=REDUCTION,
    outputs=("result", "rstd"),
)


def scaled_and_shifted(x: Array, weight: Array, bias: Array) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def as_given(out: Array, input: Array) -> Array:
    """The result in the input's dtype: half precision may be scaled and shifted by float32."""
    dtype = input.dtype
    return out if out.dtype is dtype or not dtypes.is_floating(dtype) else recorded._to_copy(out, dtype)


# ---- over the last dimensions, in one step


def _last_dims(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))


def _layer_norm_forward(
    xp: Namespace, input: Array, normalized_shape: Sequence[int], weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    require_kinds("LayerNormKernelImpl", input, "f")
    found: Any = kernels.norm_rows(xp, input, len(normalized_shape), weight, bias, eps, True)
    if found is not None:
        return found
    if row_kernels.has_long_rows(xp, input) and all(x is None or x.dtype is input.dtype for x in (weight, bias)):
        out, mean, rstd = row_kernels.layer_norm(input, math.prod(normalized_shape), weight, bias, eps)
        shape = input.shape[: input.ndim - len(normalized_shape)] + (1,) * len(normalized_shape)
        return out, mean.reshape(shape), rstd.reshape(shape)
    axes = _last_dims(normalized_shape)
    mean = xp.mean(input, axis=axes, keepdims=True)
    centred = input - mean
    rstd = 1 / xp.sqrt(xp.mean(centred * centred, axis=axes, keepdims=True) + eps)
    return scaled_and_shifted(centred * rstd, weight, bias), mean, rstd


def _layer_norm_gradients(
    xp: Namespace,
    g: Array,
    needs: tuple[bool, bool, bool],
    input: Array,
    weight: Array | None,
    bias_shape: Any,
    mean: Array,
    rstd: Array,
    normalized_shape: Sequence[int],
    eps: float,
) -> Sequence[Any]:
    found: Any = kernels.norm_rows_gradient(xp, g, input, len(normalized_shape), mean, rstd, weight, needs)
    if found is not None:
        return found
    if xp is not recorded and row_kernels.has_long_rows(xp, input) and (weight is None or weight.dtype is input.dtype):
        width = math.prod(normalized_shape)
        found = row_kernels.layer_norm_gradient(g, input, mean.reshape(-1), rstd.reshape(-1), weight, width, needs)
        return [found[0], *[x if x is None else x.reshape(normalized_shape) for x in found[1:]]]
    axes = _last_dims(normalized_shape)
    if xp is recorded:  # mean and rstd were saved as plain numbers, but depend on the input
        result, rstd = xp._standardize(input, axes, eps)
    else:
        result = (input - mean) * rstd
    inner = rstd * tangential(xp, g if weight is None else g * weight, result, axes) if needs[0] else None
    return [inner, g * result if needs[1] else None, g if needs[2] else None]


def _layer_norm_tangent(
    xp: Namespace, tangents: Any, input: Array, weight: Array, normalized_shape: Sequence[int], eps: float
) -> Array:
    axes, total = _last_dims(normalized_shape), None
    result, rstd = xp._standardize(input, axes, eps)
    if "input" in tangents:
        total = rstd * tangential(xp, tangents["input"], result, axes)
        total = total if weight is None else total * weight
    if "weight" in tangents:
        total = result * tangents["weight"] + (0 if total is None else total)
    if "bias" in tangents:
        total = tangents["bias"] + (0 if total is None else total)
    return total


def _batch_layer_norm(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, Any]:
    """The last dimensions stay the last; weights that differ from example to example are applied afterwards."""
    input, normalized_shape, weight, bias, eps = args
    size = batch_size(args, in_dims)
    input = expanded(input, in_dims[0], size)
    if in_dims[2] is None and in_dims[3] is None:
        return op(input, normalized_shape, weight, bias, eps), 0
    out, mean, rstd = op(input, normalized_shape, None, None, eps)
    weight, bias = [
        None if x is None else padded(expanded(x, dim, size), input.ndim - 1)
        for x, dim in ((weight, in_dims[2]), (bias, in_dims[3]))
    ]
    return (scaled_and_shifted(out, weight, bias), mean, rstd), 0


native_layer_norm = primitive(
    "native_layer_norm",
    forward=_layer_norm_forward,
    vjp=Joint(("input", "weight", "bias"), _layer_norm_gradients),
    jvp=_layer_norm_tangent,
    batch=_batch_layer_norm,
    outputs=("result", "mean", "rstd"),
    nondifferentiable=("mean", "rstd"),
    exact=("mean", "rstd"),
    optional=("weight", "bias"),
    variants="",
)


@composite
def layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit variance over the last dimensions, which are `normalized_shape`; then weight and bias.

    eps  added to the variance before its root is taken

    >>> import undertow as ut
    >>> ut.layer_norm(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), (2,))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """
    input = as_operand("layer_norm", "input", input)
    dims = _normalized_dims(input, normalized_shape, weight, bias)
    return as_given(native_layer_norm(input, tuple(input.shape)[dims[0] :], weight, bias, eps)[0], input)


def _normalized_dims(
    input: Array, normalized_shape: Sequence[int], weight: Array | None, bias: Array | None
) -> tuple[int, ...]:
    size = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    if not size:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    if list(tuple(input.shape)[-len(size) :]) != size:  # a part of a tuple takes less time than one of a Size
        raise RuntimeError(
            f"Given normalized_shape={size}, expected input with shape [*, {', '.join(map(str, size))}], but got input "
            f"of size{list(input.shape)}"
        )
    for name, x in (("weight", weight), ("bias", bias)):
        if x is not None and list(x.shape) != size:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape {list(x.shape)} and "
                f"normalized_shape = {size}"
            )
    return tuple(range(input.ndim - len(size), input.ndim))


# ---- over the root mean square


def _over_root_mean_square(
    xp: Namespace, input: Array, normalized_shape: Sequence[int], weight: Array | None, eps: float
) -> tuple[Array, Array]:
    found: Any = kernels.norm_rows(xp, input, len(normalized_shape), weight, None, eps, False)
    if found is not None:
        return found[0], found[2]
    rstd = 1 / xp.sqrt(xp.mean(input * input, axis=_last_dims(normalized_shape), keepdims=True) + eps)
    return scaled_and_shifted(input * rstd, weight, None), rstd


def _rms_norm_gradients(
    xp: Namespace,
    g: Array,
    needs: tuple[bool, bool],
    input: Array,
    weight: Array | None,
    rstd: Array,
    normalized_shape: Sequence[int],
    eps: float,
) -> Sequence[Any]:
    found: Any = kernels.norm_rows_gradient(
        xp, g, input, len(normalized_shape), None, rstd, weight, (needs[0], needs[1], False)
    )
    if found is not None:
        return found[:2]
    axes = _last_dims(normalized_shape)
    if xp is recorded:  # rstd was saved as plain numbers, but depends on the input
        rstd = 1 / xp.sqrt(xp.mean(input * input, axis=axes, keepdims=True) + eps)
    result = input * rstd
    inner = rstd * _crosswise(xp, g if weight is None else g * weight, result, axes) if needs[0] else None
    return [inner, g * result if needs[1] else None]


def _crosswise(xp: Namespace, x: Array, out: Array, axes: tuple[int, ...]) -> Array:
    """What is left of x without its part along `out`, whose mean square is one."""
    return x - out * xp.mean(x * out, axis=axes, keepdims=True)


def _rms_norm_tangent(
    xp: Namespace, tangents: Any, input: Array, weight: Array, normalized_shape: Sequence[int], eps: float
) -> Array:
    axes, total = _last_dims(normalized_shape), None
    rstd = 1 / xp.sqrt(xp.mean(input * input, axis=axes, keepdims=True) + eps)
    result = input * rstd
    if "input" in tangents:
        total = rstd * _crosswise(xp, tangents["input"], result, axes)
        total = total if weight is None else total * weight
    if "weight" in tangents:
        total = result * tangents["weight"] + (0 if total is None else total)
    return total


def _batch_rms_norm(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, Any]:
    input, normalized_shape, weight, eps = args
    size = batch_size(args, in_dims)
    input = expanded(input, in_dims[0], size)
    if in_dims[2] is None:
        return op(input, normalized_shape, weight, eps), 0
    out, rstd = op(input, normalized_shape, None, eps)
    return (out * padded(expanded(weight, in_dims[2], size), input.ndim - 1), rstd), 0


fused_rms_norm = primitive(
    "_fused_rms_norm",
    forward=_over_root_mean_square,
    vjp=Joint(("input", "weight"), _rms_norm_gradients),
    jvp=_rms_norm_tangent,
    batch=_batch_rms_norm,
    outputs=("result", "rstd"),
    nondifferentiable=("rstd",),
    exact=("rstd",),
    optional=("weight",),
)


@composite
def rms_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None = None, eps: float | None = None
) -> Array:
    """The last dimensions over their root mean square, times weight.

    normalized_shape  the last sizes, over which the mean is taken
    eps               added to the mean square before its root is taken; None: the dtype's epsilon

    >>> import undertow as ut
    >>> ut.rms_norm(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), (2,))
    tensor([[0.6325, 1.2649],
            [0.8485, 1.1314]])
    """
    input = as_operand("rms_norm", "input", input)
    dims = _normalized_dims(input, normalized_shape, weight, None)
    require_kinds("rms_norm", input, "fc")
    eps = float(input._xp.finfo(dtypes.wide(input.dtype)).eps) if eps is None else eps
    if dtypes.is_floating(input.dtype):
        return as_given(fused_rms_norm(input, tuple(input.shape[dims[0] :]), weight, eps)[0], input)
    out = scaled_and_shifted(input * rsqrt(mean(input * input, dims, True) + eps), weight, None)
    return rearranged(as_given(out, input), "rows", ())
