"""Pooling: the largest element, or the mean, of windows over the last dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.declare import primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import expanded
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.network.sliding_windows import Sizes, offsets, shifted_slices

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

# ---- sizes


def _pooled_size(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= n + padding:
        return count - 1  # a last window must start inside
    return count


@functools.lru_cache(256)
def pooled_sizes(sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool) -> Sizes:
    return tuple(
        [_pooled_size(*numbers, ceil_mode) for numbers in zip(sizes, kernel, stride, padding, dilation, strict=True)]
    )


def lowest(xp: Namespace, dtype: DType) -> float:
    return -math.inf if dtype.kind == "f" else xp.iinfo(dtype).min


def _enclosed(
    xp: Namespace, x: Array, kernel: Sizes, counts: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, value: Any
) -> Array:
    """The array with what windows reach beyond it, before and behind."""
    lead, sizes = x.ndim - len(kernel), x.shape[x.ndim - len(kernel) :]
    reach = [
        max((c - 1) * s + d * (k - 1) + 1, n + p)
        for n, k, c, s, p, d in zip(sizes, kernel, counts, stride, padding, dilation, strict=True)
    ]
    if tuple(reach) == tuple(sizes):
        return x
    out = xp.full((*x.shape[:lead], *reach), value, x.dtype)
    out[(..., *[slice(p, p + n) for n, p in zip(sizes, padding, strict=True)])] = x
    return out


# ---- the largest


def places(xp: Namespace, sizes: Sizes, counts: Sizes, starts: list[Any]) -> Array:
    """The flat position of the element that lies at `starts` (an array for each dimension) of every window."""
    total = 0
    for k, (n, start) in enumerate(zip(sizes, starts, strict=True)):
        total = total * n + start.reshape(-1, *[1] * (len(sizes) - 1 - k))
    return xp.broadcast_to(total, counts)


def largest(
    xp: Namespace, input: Array, kernel_size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[Array, ...]:
    """The first largest element of every window, and its flat position; a later nan counts as larger."""
    dims = len(kernel_size)
    sizes = input.shape[input.ndim - dims :]
    counts = pooled_sizes(sizes, kernel_size, stride, padding, dilation, ceil_mode)
    found = kernels.max_pool(xp, xp.ascontiguousarray(input), kernel_size, stride, padding, dilation, counts)
    if found is not None:
        return found
    x = _enclosed(xp, input, kernel_size, counts, stride, padding, dilation, lowest(xp, input.dtype))
    values = xp.full((*input.shape[: input.ndim - dims], *counts), lowest(xp, input.dtype), input.dtype)
    chosen = xp.full(values.shape, -1, dtypes.int16 if math.prod(kernel_size) < 2**15 else dtypes.int64)
    for number, offset in enumerate(offsets(kernel_size)):
        candidate = x[shifted_slices(offset, counts, stride, dilation)]
        better = candidate > values
        if input.dtype.kind == "f":
            better |= candidate != candidate
        xp.copyto(chosen, number, where=better)
        xp.maximum(values, candidate, out=values)
    return values, _flat_places(xp, chosen, sizes, counts, kernel_size, stride, padding, dilation)


def _flat_places(
    xp: Namespace,
    chosen: Array,
    sizes: Sizes,
    counts: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
) -> Array:
    """The flat positions of the elements with these numbers (-1: the first inside) in their windows."""
    first = [xp.arange(c) * s - p for c, s, p in zip(counts, stride, padding, strict=True)]
    steps = [math.prod(sizes[k + 1 :]) * d for k, d in enumerate(dilation)]
    distances = [sum([o * step for o, step in zip(offset, steps, strict=True)]) for offset in offsets(kernel)]
    found = xp.asarray(distances)[chosen] + places(xp, sizes, counts, first)
    if (chosen < 0).any():
        inside = [xp.where(f < 0, f % d, f) for f, d in zip(first, dilation, strict=True)]
        found = xp.where(chosen < 0, places(xp, sizes, counts, inside), found)
    return found


def _adaptive_bounds(n: int, count: int) -> list[tuple[int, int]]:
    """Where the windows begin and end when `count` of them, as equal as possible, cover n elements."""
    return [(k * n // count, -((k + 1) * n // -count)) for k in range(count)]


def adaptive_largest(xp: Namespace, input: Array, output_size: Sizes) -> tuple[Array, ...]:
    found = kernels.adaptive_max_pool(xp, xp.ascontiguousarray(input), output_size)
    return _adaptive_largest_by_cells(xp, input, output_size) if found is None else found


def _adaptive_largest_by_cells(xp: Namespace, input: Array, output_size: Sizes) -> tuple[Array, ...]:
    dims = len(output_size)
    sizes, lead = input.shape[input.ndim - dims :], input.shape[: input.ndim - dims]
    values = xp.empty((*lead, *output_size), input.dtype)
    indices = xp.empty((*lead, *output_size), dtypes.int64)
    bounds = [_adaptive_bounds(n, count) for n, count in zip(sizes, output_size, strict=True)]
    for cell in offsets(output_size) if values.size else ():
        spans = [bounds[k][place] for k, place in enumerate(cell)]
        window = input[(..., *[slice(*span) for span in spans])].reshape(*lead, -1)
        choice = _last_nan_or_largest(xp, window)
        values[(..., *cell)] = xp.take_along_axis(window, choice[..., None], axis=-1)[..., 0]
        inner = xp.unravel_index(choice, [end - start for start, end in spans])
        shifted_places = [i + start for i, (start, _) in zip(inner, spans, strict=True)]
        indices[(..., *cell)] = xp.ravel_multi_index(shifted_places, sizes)
    return values, indices


def _last_nan_or_largest(xp: Namespace, window: Array) -> Array:
    choice = xp.argmax(window, axis=-1)
    missing = window != window
    if not missing.any():
        return choice
    last = window.shape[-1] - 1 - xp.argmax(missing[..., ::-1], axis=-1)
    return xp.where(missing.any(axis=-1), last, choice)


def put_back(xp: Namespace, grad: Array, indices: Array, input_sizes: Sizes) -> Array:
    """The values added to zeros of `input_sizes`, at their flat positions."""
    found = kernels.max_pool_gradient(xp, xp.ascontiguousarray(grad), xp.ascontiguousarray(indices), input_sizes)
    if found is not None:
        return found
    dims = len(input_sizes)
    lead, count = grad.shape[: grad.ndim - dims], math.prod(input_sizes)
    rows = math.prod(lead)
    out = xp.zeros(rows * count, grad.dtype)
    starts = xp.arange(rows).reshape(*lead, *[1] * dims) * count
    xp.add.at(out, (indices + starts).reshape(-1), grad.reshape(-1))
    return out.reshape(*lead, *input_sizes)


def picked(xp: Namespace, x: Array, indices: Array, dims: int) -> Array:
    """The elements of x at flat positions in its last dimensions."""
    lead = tuple(x.shape[: x.ndim - dims])
    rows = xp.reshape(x, (*lead, math.prod(x.shape[x.ndim - dims :])))
    chosen = xp.reshape(indices, (*lead, math.prod(indices.shape[indices.ndim - dims :])))
    return xp.reshape(xp.take_along_axis(rows, chosen, axis=-1), tuple(indices.shape))


def _batch_both(op: Callable[..., Any], args: Any, in_dims: InDims) -> tuple[Any, int]:
    """The batch in front of both tensors."""
    size = next(a.shape[d] for a, d in zip(args, in_dims, strict=True) if d is not None)
    return op(*[expanded(a, d, size) for a, d in zip(args[:2], in_dims[:2], strict=True)], *args[2:]), 0


max_pool_backward = primitive(
    "max_pool_backward",
    forward=put_back,
    vjp={"grad": lambda xp, g, indices, input_sizes: picked(xp, g, indices, len(input_sizes)), "indices": None},
    jvp=LINEAR,
    batch=_batch_both,
    variants="",
)


def _chosen_gradient(dims: int) -> Any:
    return lambda xp, g, input_shape, indices: xp.max_pool_backward(
        g, indices, tuple(input_shape[len(input_shape) - dims :])
    )


def _largest_gradient(dims: int) -> Any:
    """The same; the windows are named for those who look at the node."""
    gradient = _chosen_gradient(dims)
    return lambda xp, g, input_shape, indices, kernel_size, stride, padding, dilation, ceil_mode: gradient(
        xp, g, input_shape, indices
    )


def in_float32(dims: int) -> str | None:
    """What autocast does with pooling: as PyTorch, it widens volumes and leaves images alone."""
    return "float32" if dims == 3 else None


def _pooling_by_choice(name: str, forward: Callable[..., Any], rule: Callable[..., Any], dims: int, node: str) -> Any:
    """A primitive that returns chosen elements of the input, and their positions."""
    return primitive(
        name,
        forward=forward,
        vjp={"input": rule},
        jvp={"input": lambda xp, t, indices: picked(xp, t, indices, dims)},
        batch=shifted(),
        outputs=("values", "indices"),
        nondifferentiable=("indices",),
        node=node,
        autocast=in_float32(dims),
        order="channels" if dims == 2 else "rows" if name.startswith("_adaptive") else "volumes",
    )


MAX_POOLS = {
    n: _pooling_by_choice(f"_max_pool{n}d", largest, _largest_gradient(n), n, f"MaxPool{n}DWithIndicesBackward0")
    for n in (2, 3)
}
ADAPTIVE_MAX_POOLS = {
    n: _pooling_by_choice(
        f"_adaptive_max_pool{n}d", adaptive_largest, _chosen_gradient(n), n, f"AdaptiveMaxPool{n}DBackward0"
    )
    for n in (2, 3)
}

# ---- the mean


def divisors(
    xp: Namespace,
    sizes: Sizes,
    counts: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    include: bool,
    override: int | None,
) -> Any:
    """What the sum of each window is divided by."""
    if override is not None:
        return float(override)
    total = xp.ones(())
    for n, c, k, s, p in zip(sizes, counts, kernel, stride, padding, strict=True):
        start = xp.arange(c) * s - p
        end = xp.minimum(start + k, n + p)
        length = end - start if include else xp.minimum(end, n) - xp.maximum(start, 0)
        total = total[..., None] * length
    return total


def mean_of_windows(
    xp: Namespace,
    input: Array,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    dims = len(kernel_size)
    sizes, ones = input.shape[input.ndim - dims :], (1,) * dims
    counts = pooled_sizes(sizes, kernel_size, stride, padding, ones, ceil_mode)
    found = kernels.avg_pool(
        xp, xp.ascontiguousarray(input), counts, kernel_size, stride, padding, bool(count_include_pad),
        divisor_override or 0,
    )  # fmt: skip
    if found is not None:
        return found
    x = _enclosed(xp, input, kernel_size, counts, stride, padding, ones, 0)
    total = xp.zeros((*input.shape[: input.ndim - dims], *counts), input.dtype)
    for offset in offsets(kernel_size):
        total += x[shifted_slices(offset, counts, stride, ones)]
    by = divisors(xp, sizes, counts, kernel_size, stride, padding, count_include_pad, divisor_override)
    return (total / by).astype(input.dtype)


def spread_means(
    xp: Namespace,
    grad: Array,
    input_sizes: Sizes,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The transpose of `mean_of_windows`."""
    found = kernels.avg_pool_gradient(
        xp, xp.ascontiguousarray(grad), input_sizes, kernel_size, stride, padding, bool(count_include_pad),
        divisor_override or 0,
    )  # fmt: skip
    if found is not None:
        return found
    dims = len(kernel_size)
    counts, ones = grad.shape[grad.ndim - dims :], (1,) * dims
    by = divisors(xp, input_sizes, counts, kernel_size, stride, padding, count_include_pad, divisor_override)
    part = (grad / by).astype(grad.dtype)
    numbers = zip(input_sizes, kernel_size, counts, stride, padding, strict=True)
    reach = [max((c - 1) * s + k, n + p) for n, k, c, s, p in numbers]
    out = xp.zeros((*grad.shape[: grad.ndim - dims], *reach), grad.dtype)
    for offset in offsets(kernel_size):
        out[shifted_slices(offset, counts, stride, ones)] += part
    return out[(..., *[slice(p, p + n) for n, p in zip(input_sizes, padding, strict=True)])]


avg_pool_backward = primitive(
    "avg_pool_backward",
    forward=spread_means,
    vjp={
        "grad": lambda xp, g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: (
            xp._avg_pool2d(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        )
    },
    jvp=LINEAR,
    batch=shifted(),
    variants="",
)


def avg_pool_gradient(
    xp: Namespace,
    g: Array,
    input_shape: Any,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Array:
    sizes = tuple(input_shape[len(input_shape) - len(kernel_size) :])
    return xp.avg_pool_backward(g, sizes, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


AVG_POOLS = {
    n: primitive(
        f"_avg_pool{n}d",
        forward=mean_of_windows,
        vjp={"input": avg_pool_gradient},
        jvp=LINEAR,
        batch=shifted(),
        node=f"AvgPool{n}DBackward0",
        autocast=in_float32(n),
        order="channels" if n == 2 else "rows",
    )
    for n in (2, 3)
}


def is_finite(xp: Namespace, result: Array) -> bool:
    """Whether a product with a matrix of weights is right as it is: zeros of the matrix spread nan and infinity."""
    return bool(xp.all(xp.isfinite(result)))


#: how many elements a matrix of `_averaging` may have; beyond that, windows are added up one by one
SMALL = 1 << 14


@functools.lru_cache(256)
def _averaging(count: int, n: int) -> Array:
    """The matrix that maps n elements to the means of `count` windows; not to be written to."""
    found = cpu.zeros((count, n))
    for row, (start, end) in zip(found, _adaptive_bounds(n, count), strict=True):
        row[start:end] = 1 / (end - start)
    return found


def _edges(n: int, count: int) -> tuple[Array, Array]:
    """What `_adaptive_bounds` says, as arrays."""
    windows = cpu.arange(count)
    return windows * n // count, -((windows + 1) * n // -count)


def _window_sums(xp: Namespace, x: Array, count: int) -> Array:
    """The sums of `count` windows, as equal as possible, that cover the last dimension."""
    starts, ends = _edges(x.shape[-1], count)
    x = xp.concatenate([x, xp.zeros((*x.shape[:-1], 1), x.dtype)], axis=-1)  # what is after the end of the last window
    return xp.add.reduceat(x, cpu.stack([starts, ends], axis=1).reshape(-1), axis=-1)[..., ::2]


def _window_means(xp: Namespace, x: Array, count: int, n: int, turned: bool) -> Array:
    """The last dimension, of n elements, as the means of `count` windows; `turned`: the gradient of that, from `count`.

    The element j is in the windows from j * count // n on, up to and without ceil((j + 1) * count / n): those are
    bounds as the windows themselves have them, so that the gradient is a sum of windows, too.
    """
    if count * n <= SMALL:
        matrix = xp.asarray(_averaging(count, n).astype(x.dtype))
        result = xp.matmul(x, matrix if turned else matrix.T)
        if is_finite(xp, result):
            return result
    starts, ends = _edges(n, count)
    lengths = xp.asarray((ends - starts).astype(x.dtype))
    return _window_sums(xp, x / lengths, n) if turned else _window_sums(xp, x, count) / lengths


def _along_all(xp: Namespace, x: Array, counts: Sizes, sizes: Sizes, turned: bool) -> Array:
    for count, n in zip(counts, sizes, strict=True):  # the first goes behind the others, so that all take turns
        x = _window_means(xp, xp.moveaxis(x, x.ndim - len(counts), -1), count, n, turned)
    return x


def _adaptive_mean(xp: Namespace, input: Array, output_size: Sizes) -> Array:
    sizes = input.shape[input.ndim - len(output_size) :]
    return _along_all(xp, input, output_size, sizes, turned=False)


def _spread_adaptive_means(xp: Namespace, grad: Array, input_sizes: Sizes) -> Array:
    counts = grad.shape[grad.ndim - len(input_sizes) :]
    return _along_all(xp, grad, counts, input_sizes, turned=True)


adaptive_avg_pool_backward = primitive(
    "adaptive_avg_pool_backward",
    forward=_spread_adaptive_means,
    vjp={
        "grad": lambda xp, g, grad_shape, input_sizes: xp._adaptive_avg_pool2d(
            g, tuple(grad_shape[len(grad_shape) - len(input_sizes) :])
        )
    },
    jvp=LINEAR,
    batch=shifted(),
    variants="",
)

ADAPTIVE_AVG_POOLS = {
    n: primitive(
        f"_adaptive_avg_pool{n}d",
        forward=_adaptive_mean,
        vjp={
            "input": lambda xp, g, input_shape, output_size: xp.adaptive_avg_pool_backward(
                g, tuple(input_shape[len(input_shape) - len(output_size) :])
            )
        },
        jvp=LINEAR,
        batch=shifted(),
        node=f"AdaptiveAvgPool{n}DBackward0",
        autocast=in_float32(n),
        order="channels" if n == 2 else "rows",
    )
    for n in (2, 3)
}
