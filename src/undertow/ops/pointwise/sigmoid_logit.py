"""The logistic function and its inverse."""

from __future__ import annotations

import math

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import float_array, require_kinds
from undertow.ops.declare import alias, primitive
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.unary import ZERO_AND_ONE, one_for, unary


@twin
def logistic(xp: Namespace, input: Array) -> Array:
    """1 / (1 + exp(-input)), as it stands unless exp overflows."""
    if hasattr(xp, "logistic") and (input.dtype in (dtypes.float32, dtypes.float64) or dtypes.is_narrow(input.dtype)):
        return xp.logistic(input)  # the compiled core's, or a device's
    if input.dtype.kind != "f" or input.ndim == 0:
        return 1 / (1 + xp.exp(-input)) if input.dtype.kind == "c" else _logistic_of_number(xp, input)
    _, one = ZERO_AND_ONE[input.dtype]
    out = xp.negative(input)
    try:
        with cpu.errstate(over="raise", under="ignore"):
            xp.exp(out, out)
    except FloatingPointError:
        return _logistic_of_small(xp, input)
    xp.add(out, one, out)
    return xp.divide(one, out, out)


def _logistic_of_small(xp: Namespace, input: Array) -> Array:
    """The same as exp(min(input, 0)) / (1 + exp(-|input|)), which cannot overflow, and takes twice as long."""
    zero, one = ZERO_AND_ONE[input.dtype]
    out = xp.abs(input)
    xp.negative(out, out)
    xp.exp(out, out)
    xp.add(out, one, out)
    small = xp.minimum(input, zero)
    xp.exp(small, small)
    return xp.divide(small, out, out)


def _logistic_of_number(xp: Namespace, input: Array) -> Array:
    input = float_array(input)
    return xp.exp(xp.minimum(input, 0)) / (1 + xp.exp(-xp.abs(input)))


sigmoid = unary(
    "sigmoid",
    forward=logistic,
    vjp=lambda xp, g, out: xp.sigmoid_backward(g, out),
    variants="function method in_place in_place_function foreach",
)


@twin
def sigmoid_gradient(xp: Namespace, grad_output: Array, output: Array) -> Array:
    one = one_for(xp, grad_output, output)
    if one is None:
        return grad_output * xp.conj(output * (1 - output))
    slope = xp.subtract(one, output)
    xp.multiply(slope, output, slope)
    return xp.multiply(grad_output, slope, slope)


sigmoid_backward = primitive(
    "sigmoid_backward",
    forward=sigmoid_gradient,
    vjp={
        "grad_output": lambda xp, g, output: xp.sigmoid_backward(g, xp.conj(output)),
        "output": lambda xp, g, grad_output, output: xp.conj(g) * grad_output * (1 - 2 * xp.conj(output)),
    },
    jvp={
        "grad_output": lambda xp, t, output: xp.sigmoid_backward(t, output),
        "output": lambda xp, t, grad_output, output: grad_output * xp.conj((1 - 2 * output) * t),
    },
    batch=ELEMENTWISE,
    variants="",
)


def _log_odds(xp: Namespace, input: Array, eps: float | None = None) -> Array:
    require_kinds("logit", input, "biuf")
    if eps is not None:
        input = xp.minimum(xp.maximum(input, eps), 1 - eps)
    return xp.log(input / (1 - input))


def _logit_rule(xp: Namespace, g: Array, input: Array, eps: float | None) -> Array:
    low, outside = (0, math.nan) if eps is None else (eps, 0)
    inside = xp.logical_and(xp.greater_equal(input, low), xp.less_equal(input, 1 - low))
    return xp.where(inside, g / (input * (1 - input) + 0.0), outside)  # -0.0 is the lower bound, too: + inf there


logit = unary("logit", forward=_log_odds, vjp=_logit_rule, variants="function method in_place in_place_function")

alias("expit", sigmoid)
