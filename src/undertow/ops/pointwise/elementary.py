"""Functions of one number, applied to every element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.errors import NotDifferentiableError
from undertow.ops.arguments.operands import float_array, require_kinds
from undertow.ops.declare import alias, primitive
from undertow.ops.declare.rules import ELEMENTWISE

LN2 = math.log(2)
LN10 = math.log(10)

#: as arrays, because a ufunc takes 300 ns to turn a Python number into one
ZERO_AND_ONE = {d: (cpu.zeros((), d), cpu.ones((), d)) for d in (dtypes.float16, dtypes.float32, dtypes.float64)}


def one_for(xp: Namespace, grad_output: Array, output: Array) -> Array | None:
    """The number 1 in the dtype of these arrays, if they are real and alike, so that one temporary serves both."""
    dtype = output.dtype
    if xp is not cpu or dtype is not grad_output.dtype or output.shape != grad_output.shape or not output.ndim:
        return None
    return ZERO_AND_ONE.get(dtype, (None, None))[1]


def unary(name: str, forward: Callable[..., Any], vjp: Callable[..., Any], **options: Any) -> Any:
    """Declare a function of one number; integers become floats unless `promote` says otherwise."""
    declared = {"jvp": ELEMENTWISE, "batch": ELEMENTWISE, "promote": "float", **options}
    return primitive(name, forward, {"input": vjp}, **declared)


# ---- exponentials, logarithms

exp = unary(
    "exp",
    forward=lambda xp, input: xp.exp(input),
    vjp=lambda xp, g, out: g * xp.conj(out),
    variants="function method in_place in_place_function foreach",
)

exp2 = unary(
    "exp2",
    forward=lambda xp, input: xp.exp(input * LN2) if input.dtype.kind == "c" else xp.exp2(input),
    vjp=lambda xp, g, out: g * xp.conj(out) * LN2,
    variants="function method in_place in_place_function",
)

expm1 = unary(
    "expm1",
    forward=lambda xp, input: xp.expm1(input),
    vjp=lambda xp, g, out: g * xp.conj(out + 1),
    variants="function method in_place in_place_function foreach",
)

log = unary(
    "log",
    forward=lambda xp, input: xp.log(input),
    vjp=lambda xp, g, input: g / xp.conj(input),
    variants="function method in_place in_place_function foreach",
)

log2 = unary(
    "log2",
    forward=lambda xp, input: xp.log2(input),
    vjp=lambda xp, g, input: g / (xp.conj(input) * LN2),
    variants="function method in_place in_place_function foreach",
)

log10 = unary(
    "log10",
    forward=lambda xp, input: xp.log10(input),
    vjp=lambda xp, g, input: g / (xp.conj(input) * LN10),
    variants="function method in_place in_place_function foreach",
)

log1p = unary(
    "log1p",
    forward=lambda xp, input: xp.log1p(input),
    vjp=lambda xp, g, input: g / xp.conj(input + 1),
    node="Log1PBackward0",
    variants="function method in_place in_place_function foreach",
)


# ---- sigmoid


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
    return xp.where(inside, g / (input * (1 - input)), outside)


logit = unary("logit", forward=_log_odds, vjp=_logit_rule, variants="function method in_place in_place_function")

# ---- size and sign


def _sgn_rule(xp: Namespace, g: Array, input: Array, out: Array) -> Array:
    """The derivative of z / |z|: what of `g` is at right angles to z, over |z|."""
    if input.dtype.kind != "c":
        return xp.zeros_like(g)
    size = xp.abs(input)
    return xp.where(xp.equal(size, 0), 0, (g - out * out * xp.conj(g)) / (size * 2))


def direction(xp: Namespace, input: Array) -> Array:
    """NumPy's sign, but 0 for nan."""
    if hasattr(xp, "direction") and input.dtype in (dtypes.float32, dtypes.float64):
        return xp.direction(input)  # the compiled core's
    if input.dtype.kind == "f":
        return (xp.greater(input, 0).view(dtypes.int8) - xp.less(input, 0).view(dtypes.int8)).astype(input.dtype)
    return input.copy() if input.dtype.kind == "b" else xp.sign(input)


def _sign_of_real(xp: Namespace, input: Array) -> Array:
    if input.dtype.kind == "c":
        raise NotImplementedError(
            "Unlike NumPy, sign is not intended to support complex numbers, whose sign could mean several "
            "things. Please use sgn instead."
        )
    return direction(xp, input)


abs = unary(
    "abs",
    forward=lambda xp, input: xp.abs(input),
    vjp=lambda xp, g, input: g * xp.sgn(input),
    promote=None,
    variants="function method in_place in_place_function foreach",
)

# the Jacobian is symmetric, not Hermitian, so that the jvp is the vjp itself
sgn = unary(
    "sgn", forward=direction, vjp=_sgn_rule, jvp={"input": _sgn_rule}, promote=None, variants="function method in_place"
)


def not_implemented(name: str, fact: str = "It is zero wherever it exists") -> Any:
    """The rule of an operation that PyTorch records but does not differentiate."""

    def rule(xp: Namespace, g: Array) -> Any:
        raise NotDifferentiableError(name, f"{fact}: detach() the inputs if no gradient is to flow to them.")

    return rule


def no_slope(xp: Namespace, g: Array) -> Array:
    return xp.zeros_like(g)


sign = unary(
    "sign",
    forward=_sign_of_real,
    vjp=no_slope,
    promote=None,
    variants="function method in_place foreach",
    piecewise_constant=True,
)


# ---- other names

alias("absolute", abs, variants="function method in_place")
alias("expit", sigmoid)
