"""Kernels for long contiguous rows on the CPU: a block of rows at a time, so that its temporaries stay in the cache.

Sums along rows are products with a vector of ones, which BLAS computes in a third of the time that a reduction takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType, Namespace

if TYPE_CHECKING:
    from undertow.ops.arguments.dims import Dims

#: arrays of fewer elements are not worth a loop
FEW = 8192
#: bytes of a block
BLOCK = 1024 * 1024

#: elements that NumPy may gather before it calls a loop
BUFFER = 512

#: a sum of exponentials above this one is that of large numbers, whose logarithm has fewer digits than differences need
LARGE = 1e13
#: a sum of exponentials below this one has lost digits, as all its terms are tiny
TINY = 1e-9


def has_long_rows(xp: Namespace, x: Array) -> bool:
    """Whether the kernels here serve for x, along its last dimension."""
    return xp is cpu and x.size > FEW and x.dtype in (dtypes.float32, dtypes.float64) and x.flags.c_contiguous


def is_last(dim: Dims, ndim: int) -> bool:
    return bool(dim == -1 or dim == ndim - 1)


def _as_rows(x: Array, width: int) -> Array:
    """Contiguous memory, seen as a matrix."""
    return cpu.ascontiguousarray(x).reshape(-1, width)


def new_like(x: Array) -> tuple[Any, Any]:
    """A new array like x, and its rows. Not their reshaped view is returned: what owns no memory would be copied."""
    out = cpu.empty(x.shape, x.dtype)
    return out, out.reshape(-1, x.shape[-1])


def blocks(x: Array) -> Iterator[slice]:
    """Slices of the rows of a matrix that are about a BLOCK each."""
    step = max(1, BLOCK // (x.shape[1] * x.itemsize))
    for start in range(0, len(x), step):
        yield slice(start, min(start + step, len(x)))


@functools.lru_cache(64)
def ones(n: int, dtype: DType) -> Array:
    return cpu.ones(n, dtype)


def row_kernel(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Run `kernel` with small buffers: by default NumPy copies a broadcast column into one, for several rows at once.

    That takes as long as the operation itself. The end of `errstate` restores the size, too.
    """

    @functools.wraps(kernel)
    def run(*args: Any) -> Any:
        with cpu.errstate(over="ignore"):
            cpu.setbufsize(BUFFER)
            return kernel(*args)

    return run


# ---- softmax


def exponentials(x: Array, out: Array) -> tuple[Any, Any]:
    """exp(x - shift) into `out`, and its sums along rows; shift is None where nothing had to be subtracted."""
    cpu.exp(x, out=out)
    sums = out.dot(ones(x.shape[1], x.dtype))
    if sums.max() <= LARGE and sums.min() >= TINY:
        return sums, None
    shift = cpu.maximum.reduce(x, 1, None, None, True)
    cpu.subtract(x, shift, out=out)
    cpu.exp(out, out=out)
    return out.dot(ones(x.shape[1], x.dtype)), shift


@row_kernel
def softmax(input: Array) -> Array:
    x = _as_rows(input, input.shape[-1])
    out, all_rows = new_like(input)
    for rows in blocks(x):
        part = all_rows[rows]
        sums, _ = exponentials(x[rows], part)
        cpu.divide(part, sums[:, None], out=part)
    return out


@row_kernel
def softmax_gradient(grad_output: Array, output: Array) -> Array:
    g, y = (_as_rows(t, output.shape[-1]) for t in (grad_output, output))
    out, all_rows = new_like(output)
    for rows in blocks(y):
        part = all_rows[rows]
        cpu.subtract(g[rows], cpu.vecdot(g[rows], y[rows])[:, None], out=part)
        cpu.multiply(part, y[rows], out=part)
    return out


@row_kernel
def log_softmax(input: Array) -> Array:
    x = _as_rows(input, input.shape[-1])
    out, all_rows = new_like(input)
    for rows in blocks(x):
        part = all_rows[rows]
        sums, shift = exponentials(x[rows], part)
        if shift is None:
            cpu.subtract(x[rows], cpu.log(sums)[:, None], out=part)
        else:  # one after the other: their sum would lose digits of the logarithm
            cpu.subtract(x[rows], shift, out=part)
            part -= cpu.log(sums)[:, None]
    return out


@row_kernel
def log_softmax_gradient(grad_output: Array, output: Array) -> Array:
    g, y = (_as_rows(t, output.shape[-1]) for t in (grad_output, output))
    out, all_rows = new_like(output)
    for rows in blocks(y):
        part = all_rows[rows]
        cpu.exp(y[rows], out=part)
        part *= g[rows].dot(ones(y.shape[1], y.dtype))[:, None]
        cpu.subtract(g[rows], part, out=part)
    return out


@row_kernel
def cross_entropies(input: Array, own: Any) -> Array:
    """log(sum(exp(row))) - own for each row, without an array of the exponentials; `own` is an element of the row."""
    out = cpu.empty(len(input), input.dtype)
    scratch = None
    for rows in blocks(input):
        scratch = cpu.empty_like(input[rows]) if scratch is None else scratch
        sums, shift = exponentials(input[rows], scratch[: len(input[rows])])
        below = own[rows] if shift is None else own[rows] - shift[:, 0]
        cpu.subtract(cpu.log(sums), below, out=out[rows])
    return out


@row_kernel
def scaled_softmax(input: Array, factors: Any) -> Array:
    """The softmax of each row, times a factor of its own."""
    out = cpu.empty(input.shape, input.dtype)
    for rows in blocks(input):
        sums, _ = exponentials(input[rows], out[rows])
        out[rows] *= (factors[rows] / sums)[:, None]
    return out


# ---- layer norm


@row_kernel
def layer_norm(input: Array, width: int, weight: Array, bias: Array, eps: float) -> tuple[Any, Any, Any]:
    """The normalised rows, their means, and one over their standard deviations."""
    x = _as_rows(input, width)
    out, mean, rstd = cpu.empty(input.shape, x.dtype), cpu.empty(len(x), x.dtype), cpu.empty(len(x), x.dtype)
    all_rows = out.reshape(x.shape)
    for rows in blocks(x):
        part = all_rows[rows]
        cpu.divide(x[rows].dot(ones(width, x.dtype)), width, out=mean[rows])
        cpu.subtract(x[rows], mean[rows, None], out=part)
        cpu.divide(1, cpu.sqrt(cpu.vecdot(part, part) / width + x.dtype.type(eps)), out=rstd[rows])
        part *= rstd[rows, None]
        if weight is not None:
            part *= weight.reshape(-1)
        if bias is not None:
            part += bias.reshape(-1)
    return out, mean, rstd


@row_kernel
def layer_norm_gradient(
    grad_output: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array,
    width: int,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """The gradients of input, weight and bias, as far as they are needed."""
    g, x = _as_rows(grad_output, width), _as_rows(input, width)
    out = cpu.empty(input.shape, x.dtype) if needs[0] else None
    of_weight, of_bias = (cpu.zeros(width, x.dtype) if wanted else None for wanted in needs[1:])
    slope = mean * rstd
    scratch = None
    for rows in blocks(x):
        scratch = cpu.empty_like(x[rows]) if scratch is None else scratch
        space = scratch[: len(x[rows])]
        cpu.multiply(g[rows], x[rows], out=space)
        if of_weight is not None:
            of_weight += rstd[rows].dot(space) - slope[rows].dot(g[rows])
        if of_bias is not None:
            of_bias += ones(len(space), x.dtype).dot(g[rows])
        if out is not None:
            input_gradient(g[rows], x[rows], mean[rows], rstd[rows], weight, space, out.reshape(x.shape)[rows])
    return out, of_weight, of_bias


def input_gradient(g: Array, x: Array, mean: Array, rstd: Array, weight: Array, scratch: Any, out: Array) -> None:
    """rstd * (g * weight - its mean - the part of it along the normalised row), into `out`; scratch holds g * x."""
    width = x.shape[1]
    each = ones(width, x.dtype) if weight is None else weight.reshape(-1)
    total, along = g.dot(each), scratch.dot(each)
    cpu.multiply(g, rstd[:, None], out=out)
    if weight is not None:
        out *= each
    slope = (total * mean - along) * rstd * rstd * rstd / width
    cpu.multiply(x, slope[:, None], out=scratch)
    out += scratch
    out -= (slope * mean + total * rstd / width)[:, None]
