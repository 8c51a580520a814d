"""GELU: every element times the probability that a normal variable is less.

The compiled core has kernels for it (csrc/kernels/gelu_silu.c); what follows is for arrays and places without them.

In single precision that probability is 0.5 + 0.5 * tanh(x * p(x * x)) with a polynomial p, within 1e-7: tanh is the
fastest curve of its kind in NumPy. It is computed a block at a time, so that the temporaries stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from undertow.backend import cpu, dtypes, kernels, special
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.pointwise.unary import unary

SQRT_HALF = math.sqrt(0.5)
SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)
DENSITY_AT_ZERO = 1 / math.sqrt(2 * math.pi)

#: p, the highest power first; fitted for x * x up to REACH, where tanh has become 1
CURVE = (1.7562663561369829e-09, -1.3226644654853732e-07, 3.964779435437308e-06, -5.5306363278643186e-05,
         -3.2594621721483154e-05, 0.036333084296822714, 0.7978849415138205)  # fmt: skip
REACH = 31.36

#: arrays of fewer elements are not worth a loop over blocks of so many
FEW, BLOCK = 4096, 32768


def _is_fast(xp: Namespace, x: Array) -> bool:
    return xp is cpu and x.dtype == dtypes.float32 and x.size > FEW and x.flags.c_contiguous


def blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, BLOCK):
        yield slice(start, min(start + BLOCK, count))


def _signed_probability(x: Array, squares: Any, out: Array) -> None:
    """2 P - 1 into `out`, where P is the probability of less than x; `squares` is overwritten."""
    cpu.minimum(squares, REACH, out=squares)
    cpu.multiply(squares, CURVE[0], out=out)
    for c in CURVE[1:-1]:
        out += c
        out *= squares
    out += CURVE[-1]
    out *= x
    cpu.tanh(out, out=out)


def fast_gelu(input: Array) -> Array:
    x = input.reshape(-1)
    out, scratch = cpu.empty(input.shape, x.dtype), cpu.empty(min(BLOCK, x.size), x.dtype)
    flat = out.reshape(-1)
    for place in blocks(x.size):
        part, squares = flat[place], scratch[: len(x[place])]
        cpu.multiply(x[place], x[place], out=squares)
        _signed_probability(x[place], squares, part)
        part += 1
        part *= x[place]
        part *= 0.5
    return out


def _fast_gradient(grad_output: Array, input: Array) -> Array:
    x, g = input.reshape(-1), cpu.ascontiguousarray(grad_output).reshape(-1)
    out = cpu.empty(input.shape, x.dtype)
    flat = out.reshape(-1)
    density, scratch = (cpu.empty(min(BLOCK, x.size), x.dtype) for _ in range(2))
    for place in blocks(x.size):
        part = flat[place]
        squares, slope = scratch[: len(part)], density[: len(part)]
        cpu.multiply(x[place], x[place], out=squares)
        cpu.multiply(squares, -0.5, out=slope)
        cpu.exp(slope, out=slope)
        slope *= x[place]
        slope *= 2 * DENSITY_AT_ZERO
        _signed_probability(x[place], squares, part)
        part += 1
        part += slope
        part *= g[place]
        part *= 0.5
    return out


@twin
def gaussian_linear(xp: Namespace, input: Array, approximate: str) -> Array:
    require_kinds("GeluKernelImpl", input, "f")
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh. (got {approximate!r})")
    found = kernels.gelu(xp, input, approximate == "tanh")
    if found is not None:
        return found
    if approximate == "none":
        if _is_fast(xp, input):
            return fast_gelu(input)
        return input * 0.5 * (1 + special.erf(input * SQRT_HALF))
    return input * 0.5 * (1 + xp.tanh(inner(input)))


def inner(x: Array) -> Array:
    return (x + x * x * x * 0.044715) * SQRT_TWO_OVER_PI


def gelu_gradient(xp: Namespace, g: Array, input: Array, approximate: str) -> Array:
    found = kernels.gelu_gradient(xp, g, input, approximate == "tanh")
    if found is not None:
        return found
    if approximate == "none":
        if xp is cpu and _is_fast(xp, input) and g.shape == input.shape:
            return _fast_gradient(g, input)
        density = xp.exp(input * input * -0.5) * DENSITY_AT_ZERO
        return g * ((xp.erf(input * SQRT_HALF) + 1) * 0.5 + input * density)
    t = xp.tanh(inner(input))
    slope = (1 + input * input * (3 * 0.044715)) * SQRT_TWO_OVER_PI
    return g * ((t + 1) * 0.5 + input * (1 - t * t) * slope * 0.5)


gelu = unary(
    "gelu",
    forward=lambda xp, input, *, approximate="none": gaussian_linear(xp, input, approximate),
    vjp=gelu_gradient,
    promote=None,
)
