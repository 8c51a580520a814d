"""Linear and bilinear layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules.batch_in_front import in_front, padded
from undertow.ops.linalg.checks import check_inner
from undertow.ops.linalg.einsum_and_tensordot import einsum, einsum_batched
from undertow.ops.linalg.matmul import rows, times_transposed
from undertow.ops.pointwise.arithmetic import add

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


@twin
def apply_linear(xp: Namespace, input: Array, weight: Array, bias: Array | None = None) -> Array:
    if input.dtype is not weight.dtype or weight.ndim != 2 or input.ndim == 0 or input.shape[-1] != weight.shape[1]:
        _check_linear(input, weight, bias)
    found = None if bias is None or xp is cpu else kernels.linear(xp, input, weight, bias)
    if found is not None:
        return found
    if input.ndim <= 2 or weight.ndim == 1:
        out = times_transposed(xp, input, weight)
    else:
        out = times_transposed(xp, rows(xp, input), weight).reshape(*input.shape[:-1], weight.shape[0])
    if bias is not None:
        if bias.dtype is not weight.dtype or bias.shape != weight.shape[:1]:
            _check_bias(bias, weight)
        if not kernels.add_bias(xp, out, bias):
            out += bias
    return out


def _linear_input_gradient(xp: Namespace, g: Array, weight: Array, input_shape: tuple[int, ...]) -> Array:
    if weight.ndim == 1:
        return xp.expand_dims(g, -1) * xp.conj(weight)
    return xp.mm(g, xp.conj(weight)) if len(input_shape) == 2 else xp.matmul(g, xp.conj(weight))


def _linear_weight_gradient(xp: Namespace, g: Array, input: Array, weight_shape: tuple[int, ...]) -> Array:
    if len(weight_shape) == 1:
        return xp.mv(xp.t(rows(xp, xp.conj(input))), xp.reshape(g, (-1,)))
    if input.ndim == 2:
        return xp.mm(xp.t(g), xp.conj(input))
    return xp.mm(xp.t(rows(xp, g)), rows(xp, xp.conj(input)))


def _batch_linear(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input, weight, bias = args
    if in_dims[1] is None and in_dims[2] is None:
        return op(in_front(input, in_dims[0]), weight, bias), 0
    lead = "".join(chr(ord("A") + k) for k in range(input.ndim - 1 - (in_dims[0] is not None)))
    out_label = "o" if weight.ndim - (in_dims[1] is not None) == 2 else ""
    if in_dims[0] is None and in_dims[1] is None:
        out = op(input, weight, None)
    else:
        out = einsum_batched(f"{lead}i,{out_label}i->{lead}{out_label}", (input, weight), in_dims)
    if bias is None:
        return out, 0
    return add(out, bias if in_dims[2] is None else padded(in_front(bias, in_dims[2]), len(lead) + 1)), 0


# one node for what is a transposition and an addmm in PyTorch: the weight's gradient comes out in its own layout
linear = primitive(
    "linear",
    forward=apply_linear,
    vjp={
        "input": _linear_input_gradient,
        "weight": _linear_weight_gradient,
        "bias": lambda xp, g: g,
    },
    jvp={
        "input": lambda xp, t, weight: xp.linear(t, weight),
        "weight": lambda xp, t, input: xp.linear(input, t),
        "bias": lambda xp, t: t,
    },
    batch=_batch_linear,
    optional=("bias",),
    autocast="lower",
)


@composite
def bilinear(input1: Array, input2: Array, weight: Array, bias: Array | None = None) -> Array:
    """The layer y_k = x1 W_k x2 + b_k, for weight (out, in1, in2).

    input1, input2  (..., n) and (..., m)
    bias            (k), or None

    >>> import undertow as ut
    >>> ut.bilinear(ut.ones(5, 2), ut.ones(5, 3), ut.ones(4, 2, 3)).shape
    undertow.Size([5, 4])
    """
    input1, input2, weight = (
        as_operand("bilinear", n, x)
        for n, x in zip(("input1", "input2", "weight"), (input1, input2, weight), strict=True)
    )
    _check_bilinear(input1, input2, weight)
    out = einsum("...i,oij,...j->...o", input1, weight, input2)
    return out if bias is None else add(out, bias)


def _check_bilinear(input1: Array, input2: Array, weight: Array) -> None:
    if list(input1.shape[:-1]) != list(input2.shape[:-1]):
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and {list(input2.shape)}"
        )
    for k, x in ((1, input1), (2, input2)):
        if x.shape[-1] != weight.shape[k]:
            raise RuntimeError(
                f"bilinear(): input{k} size does not match weight size: got {x.shape[-1]} but expected "
                f"{weight.shape[k]}"
            )


def _check_linear(input: Array, weight: Array, bias: Array | None) -> None:
    if not 1 <= weight.ndim <= 2 or input.ndim == 0 or (weight.ndim == 1 and bias is not None):
        raise RuntimeError(f"mat2 must be a matrix, got {weight.ndim}-D tensor (input is {input.ndim}-D)")
    if input.dtype != weight.dtype:
        names = dtypes.SCALAR_NAMES[input.dtype], dtypes.SCALAR_NAMES[weight.dtype]
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {names[0]} and {names[1]}")
    if input.shape[-1] != weight.shape[-1]:
        check_inner((math.prod(input.shape[:-1]), input.shape[-1]), (weight.shape[-1], math.prod(weight.shape[:-1])))


def _check_bias(bias: Array, weight: Array) -> None:
    if bias.dtype != weight.dtype:
        names = dtypes.SCALAR_NAMES[bias.dtype], dtypes.SCALAR_NAMES[weight.dtype]
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {names[0]} and {names[1]}")
    n = weight.shape[0]
    if bias.shape != (n,) and bias.shape not in ((), (1,)):
        raise RuntimeError(
            f"The expanded size of the tensor ({n}) must match the existing size ({list(bias.shape)[-1]}) at "
            f"non-singleton dimension 1. linear() takes a bias of {n} elements for a weight of shape "
            f"{list(weight.shape)}."
        )
