"""Activation functions, applied to every element. Softmax and its kin are in softmax.py, gelu in pointwise/gelu.py.

At a kink the derivative is the one PyTorch takes: that of the flat (or left) side, unless noted.
"""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import as_operand, require_kinds, type_name
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.abs_sign import abs
from undertow.ops.pointwise.arithmetic import sub
from undertow.ops.pointwise.division import true_divide
from undertow.ops.pointwise.trigonometric import tanh
from undertow.ops.pointwise.unary import unary
from undertow.tensor import Tensor

#: the constants that keep mean 0 and variance 1 (Klambauer et al., 2017)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


# ---- straight lines

INTEGER_OF_SIZE = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}


def keep(xp: Namespace, x: Array, mask: Array) -> Array:
    """x where mask, zero elsewhere; a product of bits takes a tenth of the time of `where`, and inf * 0 is 0."""
    if not hasattr(x, "view"):
        return xp.where(mask, x, 0)
    return (x.view(INTEGER_OF_SIZE[x.dtype.itemsize]) * mask).view(x.dtype)


@twin
def threshold_gradient(xp: Namespace, grad_output: Array, input: Array, threshold: Any) -> Array:
    return keep(xp, grad_output, ~(input <= _real_number(threshold)))


# the gradient of relu and threshold, one kernel so that it is fast
threshold_backward = primitive(
    "threshold_backward",
    forward=threshold_gradient,
    vjp={
        "grad_output": lambda xp, g, input, threshold: xp.threshold_backward(g, input, threshold),
        "input": None,
    },
    jvp={"grad_output": lambda xp, t, input, threshold: xp.threshold_backward(t, input, threshold)},
    batch=ELEMENTWISE,
    node="ThresholdBackwardBackward0",
    variants="",
    order="second",
)


@twin
def positive_part(xp: Namespace, input: Array) -> Array:
    if input.dtype.kind in "cb":
        require_kinds("relu", input, "fiu")
    return xp.maximum(input, 0)


def above(xp: Namespace, input: Array, threshold: Any, value: Any) -> Array:
    require_kinds("threshold", input, "fiu")
    return xp.where(input <= _real_number(threshold), input.dtype.type(_real_number(value)), input)


relu = unary(
    "relu",
    forward=positive_part,
    vjp=lambda xp, g, out: xp.threshold_backward(g, out, 0),
    promote=None,
    variants="function method in_place in_place_function",
)

# its parameter has the name of the function, so the primitive needs another
_threshold = unary(
    "_threshold",
    forward=above,
    vjp=lambda xp, g, input, threshold: xp.threshold_backward(g, input, threshold),
    promote=None,
)


@composite(variants="function in_place_function", out=True)
def threshold(input: Array, threshold: float, value: float) -> Array:
    """input where it is above the threshold, else `value`.

    >>> import undertow as ut
    >>> ut.threshold(ut.tensor([-1.0, 2.0]), 0.0, 9.0)
    tensor([9., 2.])
    """
    return _threshold(input, as_number(threshold), as_number(value))


def as_number(value: Any) -> float:
    return value._array.item() if isinstance(value, Tensor) else value


def _real_number(value: Any) -> float:
    """Complex numbers are accepted where only their real part means anything."""
    return value.real if isinstance(value, complex) else value


def leaky(xp: Namespace, input: Array, negative_slope: float = 0.01) -> Array:
    require_kinds("leaky_relu_cpu", input, "f")
    found = kernels.leaky(xp, input, input, negative_slope)
    if found is not None:
        return found
    if 0 < negative_slope <= 1:
        return xp.maximum(input, input * negative_slope)
    return xp.where(input > 0, input, input * negative_slope)


def leaky_gradient(xp: Namespace, g: Array, input: Array, negative_slope: float) -> Array:
    found = kernels.leaky(xp, g, input, negative_slope)
    return xp.where(xp.greater(input, 0), g, g * negative_slope) if found is None else found


leaky_relu = unary(
    "leaky_relu",
    forward=leaky,
    vjp=leaky_gradient,
    promote=None,
)

# the weight is broadcast against the input already
prelu_kernel = primitive(
    "_prelu_kernel",
    forward=lambda xp, input, weight: xp.where(input > 0, input, weight * input),
    vjp={
        "input": lambda xp, g, input, weight: xp.where(xp.greater(input, 0), g, g * weight),
        "weight": lambda xp, g, input: xp.where(xp.greater(input, 0), 0, g * input),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    autocast="lower",
)


@composite(variants="function method")
def prelu(input: Array, weight: Array) -> Array:
    """max(x, 0) + weight * min(x, 0), with one weight, or one for each channel (dimension 1).

    >>> import undertow as ut
    >>> ut.prelu(ut.tensor([-1.0, 2.0]), ut.tensor([0.25]))
    tensor([-0.2500,  2.0000])
    """
    input, weight = as_operand("prelu", "input", input), as_operand("prelu", "weight", weight)
    require_kinds("prelu_cpu", input, "f")
    if weight.dtype != input.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}")
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    size = weight.shape[0] if weight.ndim else 1
    channels = input.shape[1] if input.ndim > 1 else 1
    if size not in (1, channels):
        raise RuntimeError(
            "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
            f"{size} and channel size = {channels}."
        )
    if input.ndim > 2 and size > 1:
        weight = recorded.reshape(weight, (size, *[1] * (input.ndim - 2)))
    elif input.ndim == 0:
        weight = recorded.reshape(weight, ())
    return prelu_kernel(input, weight)


def _clip_to(xp: Namespace, input: Array, min_val: Any = -1.0, max_val: Any = 1.0) -> Array:
    require_kinds("hardtanh", input, "fiu")
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype.kind != "f":
        min_val, max_val = int(min_val), int(max_val)
    return xp.minimum(xp.maximum(input, min_val), max_val)


def _strictly_between(xp: Namespace, x: Array, low: Any, high: Any) -> Array:
    return xp.logical_and(xp.greater(x, low), xp.less(x, high))


def _is_clipped(xp: Namespace, x: Array, low: Any, high: Any) -> Array:
    return xp.logical_or(xp.less_equal(x, low), xp.greater_equal(x, high))  # nan is not


hardtanh = unary(
    "hardtanh",
    forward=_clip_to,
    vjp=lambda xp, g, input, min_val, max_val: xp.where(_is_clipped(xp, input, min_val, max_val), 0, g),
    promote=None,
)


@composite
def relu6(input: Array) -> Array:
    """min(max(x, 0), 6).

    >>> import undertow as ut
    >>> ut.relu6(ut.tensor([-1.0, 8.0]))
    tensor([0., 6.])
    """
    return hardtanh(input, 0.0, 6.0)


def _hard_sigmoid(xp: Namespace, input: Array) -> Array:
    require_kinds("hardsigmoid_cpu", input, "f")
    return xp.minimum(xp.maximum(input + 3, 0), 6) / 6


hardsigmoid = unary(
    "hardsigmoid",
    forward=_hard_sigmoid,
    vjp=lambda xp, g, input: xp.where(_strictly_between(xp, input, -3, 3), g / 6, 0),
    promote=None,
)


def _hard_swish(xp: Namespace, input: Array) -> Array:
    require_kinds("hardswish_cpu", input, "f")
    return input * xp.minimum(xp.maximum(input + 3, 0), 6) / 6


def _hardswish_gradient(xp: Namespace, g: Array, input: Array) -> Array:
    inner = xp.where(xp.less(input, 3), g * (input / 3 + 0.5), g)
    return xp.where(xp.less_equal(input, -3), 0, inner)


hardswish = unary("hardswish", forward=_hard_swish, vjp=_hardswish_gradient, promote=None)


def _is_shrunk(xp: Namespace, x: Array, lambd: float) -> Array:
    return xp.logical_and(xp.greater_equal(x, -lambd), xp.less_equal(x, lambd))


def _hard_shrink(xp: Namespace, input: Array, lambd: float = 0.5) -> Array:
    require_kinds("hardshrink_cpu", input, "f")
    return xp.where(_is_shrunk(xp, input, lambd), input.dtype.type(0), input)


hardshrink = unary(
    "hardshrink",
    forward=_hard_shrink,
    vjp=lambda xp, g, input, lambd: xp.where(_is_shrunk(xp, input, lambd), 0, g),
    promote=None,
    variants="function method",
)


def _soft_shrink(xp: Namespace, input: Array, lambd: float = 0.5) -> Array:
    require_kinds("softshrink_cpu", input, "f")
    if lambd < 0:
        largest = xp.finfo(input.dtype).max
        name = type_name(input)
        raise RuntimeError(f"lambda must be in range [0, {largest:g}] for input dtype {name}, but found {lambd:g}")
    return input - xp.minimum(xp.maximum(input, -lambd), lambd)


softshrink = unary(
    "softshrink",
    forward=_soft_shrink,
    vjp=lambda xp, g, input, lambd: xp.where(_is_shrunk(xp, input, lambd), 0, g),
    promote=None,
)

# ---- exponentials


def _negative_part(xp: Namespace, x: Array) -> Array:
    """x where it is negative, else 0: what exp can take without overflow, here and in the derivatives."""
    return xp.where(xp.less(x, 0), x, 0)


@twin
def exponential_linear(
    xp: Namespace, input: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Array:
    require_kinds("elu_cpu", input, "f")
    below = xp.expm1(_negative_part(xp, input) * input_scale) * (alpha * scale)
    return xp.where(input < 0, below, input * scale)  # nan stays nan


@twin
def elu_gradient(xp: Namespace, g: Array, input: Array, alpha: float, scale: float, input_scale: float) -> Array:
    below = xp.exp(_negative_part(xp, input) * input_scale) * (alpha * scale * input_scale)
    return g * xp.where(xp.less_equal(input, 0), below, scale)


elu = unary("elu", forward=exponential_linear, vjp=elu_gradient, promote=None)


@composite(variants="function in_place_function")
def selu(input: Array) -> Array:
    """A scaled elu that keeps mean 0 and variance 1 from layer to layer.

    >>> import undertow as ut
    >>> ut.selu(ut.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """
    return elu(input, SELU_ALPHA, SELU_SCALE)


def _continuous_elu(xp: Namespace, input: Array, alpha: float = 1.0) -> Array:
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return exponential_linear(xp, input, alpha, 1.0, 1.0 / alpha)


celu = unary(
    "celu",
    forward=_continuous_elu,
    vjp=lambda xp, g, input, alpha: elu_gradient(xp, g, input, alpha, 1.0, 1.0 / alpha),
    promote=None,
    variants="function in_place_function",
)


@twin
def sigmoid_linear(xp: Namespace, input: Array) -> Array:
    require_kinds("silu_cpu", input, "fc")
    found = kernels.silu(xp, input)
    return input * xp.sigmoid(input) if found is None else found


@twin
def silu_gradient(xp: Namespace, g: Array, input: Array) -> Array:
    found = kernels.silu_gradient(xp, g, input)
    if found is not None:
        return found
    s = xp.sigmoid(input)
    return g * xp.conj(s * (1 + input * (1 - s)))


silu = unary("silu", forward=sigmoid_linear, vjp=silu_gradient, promote=None)


def log1p_of_exp(xp: Namespace, x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    if hasattr(xp, "log1p_of_exp") and x.dtype in (dtypes.float32, dtypes.float64):
        out: Array = xp.log1p_of_exp(x)  # the compiled core's
        return out
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@twin
def log_one_plus_exp(xp: Namespace, input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    require_kinds("softplus_cpu", input, "f")
    x = input * beta
    return xp.where(x > threshold, input, log1p_of_exp(xp, x) / beta)


softplus = unary(
    "softplus",
    forward=log_one_plus_exp,
    vjp=lambda xp, g, input, beta, threshold: xp.where(
        xp.greater(input * beta, threshold), g, g * xp.sigmoid(input * beta)
    ),
    promote=None,
)


def _log_of_sigmoid(xp: Namespace, input: Array) -> Array:
    require_kinds("log_sigmoid_cpu", input, "f")
    return -log1p_of_exp(xp, -input)


logsigmoid = unary(
    "logsigmoid",
    forward=_log_of_sigmoid,
    vjp=lambda xp, g, input: g * xp.sigmoid(-input),
    promote=None,
    node="LogSigmoidBackward0",
    order="rows",
)


def _tanh_of_softplus(xp: Namespace, input: Array) -> Array:
    require_kinds("mish_cpu", input, "f")
    return input * xp.tanh(xp.softplus(input))


def _mish_gradient(xp: Namespace, g: Array, input: Array) -> Array:
    t = xp.tanh(xp.softplus(input))
    return g * (t + input * (1 - t * t) * xp.sigmoid(input))


mish = unary("mish", forward=_tanh_of_softplus, vjp=_mish_gradient, promote=None)


# ---- made of others


@composite
def softsign(input: Array) -> Array:
    """x / (1 + |x|).

    >>> import undertow as ut
    >>> ut.softsign(ut.tensor([1.0, 2.0, 3.0]))
    tensor([0.5000, 0.6667, 0.7500])
    """
    return true_divide(input, abs(input) + 1)


@composite
def tanhshrink(input: Array) -> Array:
    """x - tanh(x).

    >>> import undertow as ut
    >>> ut.tanhshrink(ut.tensor([1.0, 2.0, 3.0]))
    tensor([0.2384, 1.0360, 2.0049])
    """
    return sub(input, tanh(input))
