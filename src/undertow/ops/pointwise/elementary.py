"""Functions of one number, applied to every element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.compiled import twin
from undertow.ops.arguments.operands import float_array, require_kinds
from undertow.ops.declare import adapter, alias, primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR

LN2 = math.log(2)
LN10 = math.log(10)

#: as arrays, because a ufunc takes 300 ns to turn a Python number into one
ZERO_AND_ONE = {d: (cpu.zeros((), d), cpu.ones((), d)) for d in (dtypes.float16, dtypes.float32, dtypes.float64)}


def one_for(xp: Any, grad_output: Any, output: Any) -> Any:
    """The number 1 in the dtype of these arrays, if they are real and alike, so that one temporary serves both."""
    dtype = output.dtype
    if xp is not cpu or dtype is not grad_output.dtype or output.shape != grad_output.shape or not output.ndim:
        return None
    return ZERO_AND_ONE.get(dtype, (None, None))[1]


def unary(name: str, forward: Callable[..., Any], vjp: Callable[..., Any], **options: Any) -> Any:
    """Declare a function of one number; integers become floats unless `promote` says otherwise."""
    declared = {"jvp": ELEMENTWISE, "batch": ELEMENTWISE, "promote": "float", **options}
    return primitive(name, forward, {"input": vjp}, **declared)


# ---- powers, exponentials, logarithms

sqrt = unary(
    "sqrt",
    forward=lambda xp, input: xp.sqrt(input),
    vjp=lambda xp, g, out: g / (xp.conj(out) * 2),
    variants="function method in_place in_place_function foreach",
)

rsqrt = unary(
    "rsqrt",
    forward=lambda xp, input: 1 / xp.sqrt(input),
    vjp=lambda xp, g, out: g * xp.conj(out * out * out) * -0.5,
    variants="function method in_place in_place_function foreach",
)

# NumPy's; PyTorch has none
cbrt = unary(
    "cbrt",
    forward=lambda xp, input: xp.cbrt(input),
    vjp=lambda xp, g, out: g / (out * out * 3),
    variants="",
)

# np.reciprocal of integers divides integers
reciprocal = unary(
    "reciprocal",
    forward=lambda xp, input: xp.divide(1, input),
    vjp=lambda xp, g, out: -g * xp.conj(out * out),
    variants="function method in_place in_place_function foreach",
)

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

# ---- trigonometric functions

sin = unary(
    "sin",
    forward=lambda xp, input: xp.sin(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.cos(input)),
    variants="function method in_place in_place_function foreach",
)

cos = unary(
    "cos",
    forward=lambda xp, input: xp.cos(input),
    vjp=lambda xp, g, input: -g * xp.conj(xp.sin(input)),
    variants="function method in_place in_place_function foreach",
)

tan = unary(
    "tan",
    forward=lambda xp, input: xp.tan(input),
    vjp=lambda xp, g, out: g * xp.conj(out * out + 1),
    variants="function method in_place in_place_function foreach",
)

asin = unary(
    "asin",
    forward=lambda xp, input: xp.arcsin(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.rsqrt(1 - input * input)),
    variants="function method in_place in_place_function foreach",
)

acos = unary(
    "acos",
    forward=lambda xp, input: xp.arccos(input),
    vjp=lambda xp, g, input: -g * xp.conj(xp.rsqrt(1 - input * input)),
    variants="function method in_place in_place_function foreach",
)

atan = unary(
    "atan",
    forward=lambda xp, input: xp.arctan(input),
    vjp=lambda xp, g, input: g / xp.conj(input * input + 1),
    variants="function method in_place in_place_function foreach",
)

sinh = unary(
    "sinh",
    forward=lambda xp, input: xp.sinh(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.cosh(input)),
    variants="function method in_place in_place_function foreach",
)

cosh = unary(
    "cosh",
    forward=lambda xp, input: xp.cosh(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.sinh(input)),
    variants="function method in_place in_place_function foreach",
)

tanh = unary(
    "tanh",
    forward=lambda xp, input: xp.tanh(input),
    vjp=lambda xp, g, out: xp.tanh_backward(g, out),
    variants="function method in_place in_place_function foreach",
)


def tanh_gradient(xp: Any, grad_output: Any, output: Any) -> Any:
    one = one_for(xp, grad_output, output)
    if one is None:
        return grad_output * xp.conj(1 - output * output)
    slope = output * output
    xp.subtract(one, slope, slope)
    return xp.multiply(grad_output, slope, slope)


tanh_backward = primitive(
    "tanh_backward",
    forward=tanh_gradient,
    vjp={
        "grad_output": lambda xp, g, output: xp.tanh_backward(g, xp.conj(output)),
        "output": lambda xp, g, grad_output, output: xp.conj(g) * grad_output * xp.conj(output) * -2,
    },
    jvp={
        "grad_output": lambda xp, t, output: xp.tanh_backward(t, output),
        "output": lambda xp, t, grad_output, output: grad_output * xp.conj(output * t) * -2,
    },
    batch=ELEMENTWISE,
    variants="",
)

asinh = unary(
    "asinh",
    forward=lambda xp, input: xp.arcsinh(input),
    vjp=lambda xp, g, input: g * xp.conj(xp.rsqrt(input * input + 1)),
    variants="function method in_place in_place_function",
)


def acosh_rule(xp: Any, g: Any, input: Any) -> Any:
    # over the complex numbers the root of the product is not always the product of the roots
    if input.dtype.kind == "c":
        return g * xp.conj(xp.rsqrt(input + 1) * xp.rsqrt(input - 1))
    return g * xp.rsqrt(input * input - 1)


acosh = unary(
    "acosh",
    forward=lambda xp, input: xp.arccosh(input),
    vjp=acosh_rule,
    variants="function method in_place in_place_function",
)

atanh = unary(
    "atanh",
    forward=lambda xp, input: xp.arctanh(input),
    vjp=lambda xp, g, input: g / xp.conj(1 - input * input),
    variants="function method in_place in_place_function",
)


def sinc_rule(xp: Any, g: Any, input: Any) -> Any:
    angle = input * math.pi
    slope = (angle * xp.cos(angle) - xp.sin(angle)) / (input * angle)
    return xp.where(xp.equal(input * angle, 0), 0, g * xp.conj(slope))


sinc = unary(
    "sinc",
    forward=lambda xp, input: xp.sinc(input),
    vjp=sinc_rule,
    variants="function method in_place in_place_function",
)

deg2rad = unary(
    "deg2rad",
    forward=lambda xp, input: xp.deg2rad(input),
    vjp=lambda xp, g: g * (math.pi / 180),
    jvp=LINEAR,
    node="Deg2RadBackward0",
    variants="function method in_place in_place_function",
)

rad2deg = unary(
    "rad2deg",
    forward=lambda xp, input: xp.rad2deg(input),
    vjp=lambda xp, g: g * (180 / math.pi),
    jvp=LINEAR,
    node="Rad2DegBackward0",
    variants="function method in_place in_place_function",
)

# ---- sigmoid


@twin
def logistic(xp: Any, input: Any) -> Any:
    """1 / (1 + exp(-input)), as it stands unless exp overflows."""
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


def _logistic_of_small(xp: Any, input: Any) -> Any:
    """The same as exp(min(input, 0)) / (1 + exp(-|input|)), which cannot overflow, and takes twice as long."""
    zero, one = ZERO_AND_ONE[input.dtype]
    out = xp.abs(input)
    xp.negative(out, out)
    xp.exp(out, out)
    xp.add(out, one, out)
    small = xp.minimum(input, zero)
    xp.exp(small, small)
    return xp.divide(small, out, out)


def _logistic_of_number(xp: Any, input: Any) -> Any:
    input = float_array(input)
    return xp.exp(xp.minimum(input, 0)) / (1 + xp.exp(-xp.abs(input)))


sigmoid = unary(
    "sigmoid",
    forward=logistic,
    vjp=lambda xp, g, out: xp.sigmoid_backward(g, out),
    variants="function method in_place in_place_function foreach",
)


@twin
def sigmoid_gradient(xp: Any, grad_output: Any, output: Any) -> Any:
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


def log_odds(xp: Any, input: Any, eps: float | None = None) -> Any:
    require_kinds("logit", input, "biuf")
    if eps is not None:
        input = xp.minimum(xp.maximum(input, eps), 1 - eps)
    return xp.log(input / (1 - input))


def logit_rule(xp: Any, g: Any, input: Any, eps: float | None) -> Any:
    low, outside = (0, math.nan) if eps is None else (eps, 0)
    inside = xp.logical_and(xp.greater_equal(input, low), xp.less_equal(input, 1 - low))
    return xp.where(inside, g / (input * (1 - input)), outside)


logit = unary("logit", forward=log_odds, vjp=logit_rule, variants="function method in_place in_place_function")

# ---- size and sign


def sgn_rule(xp: Any, g: Any, input: Any, out: Any) -> Any:
    """The derivative of z / |z|: what of `g` is at right angles to z, over |z|."""
    if input.dtype.kind != "c":
        return xp.zeros_like(g)
    size = xp.abs(input)
    return xp.where(xp.equal(size, 0), 0, (g - out * out * xp.conj(g)) / (size * 2))


def direction(xp: Any, input: Any) -> Any:
    return input.copy() if input.dtype.kind == "b" else xp.sign(input)


def sign_of_real(xp: Any, input: Any) -> Any:
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
    "sgn", forward=direction, vjp=sgn_rule, jvp={"input": sgn_rule}, promote=None, variants="function method in_place"
)

# ---- rounding: constant between its jumps


def no_slope(xp: Any, g: Any) -> Any:
    return xp.zeros_like(g)


sign = unary(
    "sign",
    forward=sign_of_real,
    vjp=no_slope,
    promote=None,
    variants="function method in_place foreach",
    piecewise_constant=True,
)
floor = unary(
    "floor",
    forward=lambda xp, input: xp.floor(input),
    vjp=no_slope,
    promote=None,
    variants="function method in_place in_place_function foreach",
    piecewise_constant=True,
)
ceil = unary(
    "ceil",
    forward=lambda xp, input: xp.ceil(input),
    vjp=no_slope,
    promote=None,
    variants="function method in_place in_place_function foreach",
    piecewise_constant=True,
)
trunc = unary(
    "trunc",
    forward=lambda xp, input: xp.trunc(input),
    vjp=no_slope,
    promote=None,
    variants="function method in_place in_place_function foreach",
    piecewise_constant=True,
)


def rounded(xp: Any, input: Any, *, decimals: int = 0) -> Any:
    require_kinds("round", input, "biuf")
    return xp.round(input, decimals)


round = unary(
    "round",
    forward=rounded,
    vjp=no_slope,
    promote=None,
    variants="function method in_place in_place_function foreach",
    piecewise_constant=True,
)

frac = unary(
    "frac",
    forward=lambda xp, input: input - xp.trunc(input),
    vjp=lambda xp, g: g,
    promote=None,
    variants="function method in_place in_place_function foreach",
)


def finite_part(xp: Any, g: Any, input: Any) -> Any:
    """`g` where the input is finite; real and imaginary parts each for themselves."""
    if input.dtype.kind != "c":
        return xp.where(xp.isfinite(input), g, 0)
    return finite_part(xp, xp.real(g), xp.real(input)) + 1j * finite_part(xp, xp.imag(g), xp.imag(input))


def made_finite(
    xp: Any, input: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    nan = 0.0 if nan is None else nan
    if input.dtype.kind != "V":
        return xp.nan_to_num(input, nan=nan, posinf=posinf, neginf=neginf)
    limits = xp.finfo(input.dtype)  # NumPy does not know those of bfloat16
    ends = float(limits.max) if posinf is None else posinf, float(limits.min) if neginf is None else neginf
    return made_finite(xp, input.astype(dtypes.float32), nan, *ends).astype(input.dtype)


nan_to_num = unary(
    "nan_to_num",
    forward=made_finite,
    vjp=finite_part,
    promote=None,
    bfloat16="as_is",
    variants="function method in_place in_place_function",
)

# ---- other names

alias("absolute", abs, variants="function method in_place")
alias("arcsin", asin, variants="function method in_place in_place_function")
alias("arccos", acos, variants="function method in_place in_place_function")
alias("arctan", atan, variants="function method in_place in_place_function")
alias("arcsinh", asinh, variants="function method in_place in_place_function")
alias("arccosh", acosh, variants="function method in_place in_place_function")
alias("arctanh", atanh, variants="function method in_place in_place_function")
alias("fix", trunc, variants="function method in_place in_place_function")
alias("expit", sigmoid)

adapter("degrees")(rad2deg)
adapter("radians")(deg2rad)
adapter("rint")(round)
