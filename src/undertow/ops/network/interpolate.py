"""Images (and signals, and volumes) in other sizes: interpolate.

Every mode is linear in the input and treats one dimension after the other, so that a matrix for each dimension says
it all: row by row, which elements of the input make an element of the output. The derivative is the transposed matrix.
Where matrices would be large, which are nearly all zeros, the elements are read and added without them; so they are if
some element is infinite or nan, which a zero of the matrix would spread to everything.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import as_operand, require_kinds
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.index.index_arrays import add_rows
from undertow.ops.network.pool import adaptive_avg_pool
from undertow.ops.network.pool_kernels import is_finite
from undertow.ops.network.sliding_windows import Sizes
from undertow.tensor import Tensor

Scales = tuple[float | None, ...]


class Taps(NamedTuple):
    """The elements of the input that make an element of the output: a column for each, of which many may be equal."""

    places: Array
    weights: Array


# ---- which elements make an element of the output


def step(n: int, out: int, align_corners: bool, scale: float | None) -> float:
    """How far apart, in elements of the input, neighbours of the output are."""
    if align_corners:
        return (n - 1) / (out - 1) if out > 1 else 0.0
    return 1 / scale if scale else n / out


def nearest(n: int, out: int, align_corners: bool, scale: float | None, centre: float = 0.0) -> Taps:
    width = cpu.float32(step(n, out, False, scale))  # PyTorch decides ties in single precision
    places = ((cpu.arange(out) + centre).astype(cpu.float32) * width).astype(cpu.int64)
    return Taps(cpu.minimum(places, n - 1)[None], cpu.ones((1, out)))


def nearest_exact(n: int, out: int, align_corners: bool, scale: float | None) -> Taps:
    return nearest(n, out, align_corners, scale, 0.5)


def linear(n: int, out: int, align_corners: bool, scale: float | None) -> Taps:
    width, k = step(n, out, align_corners, scale), cpu.arange(out)
    place = width * k if align_corners else cpu.maximum(width * (k + 0.5) - 0.5, 0.0)
    first = cpu.minimum(place.astype(cpu.int64), n - 1)
    part = cpu.minimum(place - first, 1.0)
    second = first if n == out else cpu.minimum(first + 1, n - 1)  # of the same size, only one element is read
    return Taps(cpu.stack([first, second]), cpu.stack([1 - part, part]))


def cubic(n: int, out: int, align_corners: bool, scale: float | None) -> Taps:
    width, k = step(n, out, align_corners, scale), cpu.arange(out)
    place = width * k if align_corners else width * (k + 0.5) - 0.5
    taps = cpu.floor(place).astype(cpu.int64) + cpu.arange(-1, 3)[:, None]
    return Taps(cpu.clip(taps, 0, n - 1), _cubic_weight(taps - place, -0.75))


def _cubic_weight(distance: Array, a: float) -> Array:
    x = abs(distance)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return cpu.where(x < 1, near, cpu.where(x < 2, far, 0.0))


def _linear_weight(distance: Array) -> Array:
    return cpu.maximum(1 - abs(distance), 0.0)


def smoothed(weight: Callable[[Array], Array], reach: float) -> Callable[..., Taps]:
    """Filters that widen when the image shrinks (antialias)."""

    def taps(n: int, out: int, align_corners: bool, scale: float | None) -> Taps:
        width = step(n, out, align_corners, scale)
        wide = max(width, 1.0)
        centre = width * (cpu.arange(out) + 0.5)
        first = cpu.maximum((centre - reach * wide + 0.5).astype(cpu.int64), 0)
        last = cpu.minimum((centre + reach * wide + 0.5).astype(cpu.int64), n)
        places = first + cpu.arange(int((last - first).max()))[:, None]
        weights = cpu.where(places < last, weight((places - centre + 0.5) / wide), 0.0)
        weights = cpu.where(abs(weights) < 1e-12, 0.0, weights)  # a zero that was missed by rounding
        most = cpu.take_along_axis(places, weights.argmax(axis=0)[None], axis=0)
        return Taps(cpu.where(weights == 0, most, places), weights / weights.sum(axis=0))

    return taps


TAPS: dict[str, Callable[..., Taps]] = {
    "nearest": nearest,
    "nearest_exact": nearest_exact,
    "linear": linear,
    "cubic": cubic,
    "linear_aa": smoothed(_linear_weight, 1.0),
    "cubic_aa": smoothed(lambda x: _cubic_weight(x, -0.5), 2.0),
}
#: of a matrix's two sizes, multiplied, the square root up to which it is quicker than reading elements; as measured
SMALL = {"nearest": 128, "nearest_exact": 128, "linear": 256, "cubic": 512, "linear_aa": 256, "cubic_aa": 512}


# ---- one dimension in another size


@functools.lru_cache(256)
def matrix(kind: str, n: int, out: int, align_corners: bool, scale: float | None) -> Array:
    """From n elements to `out`; not to be written to."""
    found = cpu.zeros((out, n))
    for places, weights in zip(*TAPS[kind](n, out, align_corners, scale), strict=True):
        found[cpu.arange(out), places] += weights
    return found


def _resized(xp: Namespace, x: Array, kind: str, n: int, out: int, *options: Any, turned: bool) -> Array:
    """The last dimension with `out` elements in place of n; `turned`: the gradient of that, from `out` to n."""
    if n * out <= SMALL[kind] ** 2 and x.dtype != dtypes.uint8:
        found = xp.asarray(matrix(kind, n, out, *options).astype(x.dtype))
        result = xp.matmul(x, found if turned else found.T)
        if is_finite(xp, result):
            return result
    taps = TAPS[kind](n, out, *options)
    columns = [(xp.asarray(p), xp.asarray(w.astype(x.dtype))) for p, w in zip(*taps, strict=True)]
    if not turned:
        return functools.reduce(xp.add, [xp.take(x, places, axis=-1) * weights for places, weights in columns])
    rows = xp.moveaxis(x, -1, 0)
    total = xp.zeros((n, *rows.shape[1:]), x.dtype)
    for places, weights in columns:
        add_rows(xp, total, places, rows * weights.reshape(out, *[1] * (x.ndim - 1)))
    return xp.moveaxis(total, 0, -1)


# ---- every element repeated, or neighbours summed up


@functools.lru_cache(256)
def repeats(kind: str, n: int, out: int, scale: float | None) -> int:
    """How often every one of n elements is among `out`; 0 if that differs."""
    places = TAPS[kind](n, out, False, scale).places[0]
    times = out // n if n else 0
    return times if times * n == out and cpu.array_equal(places, cpu.repeat(cpu.arange(n), times)) else 0


def repeated(x: Array, times: Sequence[int]) -> Array:
    """Along the last dimensions, every element so many times."""
    for back, count in enumerate(reversed(times), 1):
        if count > 1:
            axis = x.ndim - back
            out = cpu.empty((*x.shape[: axis + 1], count, *x.shape[axis + 1 :]), x.dtype)
            for copy in cpu.moveaxis(out, axis + 1, 0):
                copy[...] = x
            x = out.reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])
    return x


def summed(x: Array, times: Sequence[int]) -> Array:
    """Along the last dimensions, so many neighbours as one: the gradient of `repeated`."""
    for axis, count in enumerate(times, x.ndim - len(times)):
        if count > 1:
            parts = x.reshape(*x.shape[:axis], -1, count, *x.shape[axis + 1 :])
            x = functools.reduce(cpu.add, cpu.moveaxis(parts, axis + 1, 0))
    return x


def resized(
    xp: Namespace,
    x: Array,
    kind: str,
    sizes: Sizes,
    outputs: Sizes,
    scales: Scales,
    align_corners: bool,
    turned: bool = False,
) -> Array:
    """The last dimensions in other sizes, one after the other."""
    if xp is cpu and kind in ("nearest", "nearest_exact"):
        times = [repeats(kind, n, out, scale) for n, out, scale in zip(sizes, outputs, scales, strict=True)]
        if all(times) and max(times) > 1:
            return (summed if turned else repeated)(x, times)
    for n, out, scale in zip(sizes, outputs, scales, strict=True):
        x = xp.moveaxis(x, x.ndim - len(sizes), -1)  # behind the others, so that all take turns
        x = _resized(xp, x, kind, n, out, align_corners, scale, turned=turned)
    return x


# ---- primitives


def _upsample_gradient(
    xp: Namespace, grad: Array, input_sizes: Sizes, scales: Scales, align_corners: bool, kind: str, name: str
) -> Array:
    outputs = grad.shape[grad.ndim - len(input_sizes) :]
    return resized(xp, grad, kind, input_sizes, outputs, scales, align_corners, turned=True)


upsample_backward = primitive(
    "upsample_backward",
    forward=_upsample_gradient,
    vjp={
        "grad": lambda xp, g, grad_shape, input_sizes, scales, align_corners, name: getattr(xp, name)(
            g, tuple(grad_shape[len(grad_shape) - len(input_sizes) :]), scales, align_corners
        )
    },
    jvp=LINEAR,
    batch=shifted(),
    variants="",
)


def upsampling(kind: str, name: str, node: str) -> Any:
    def forward(xp: Namespace, input: Array, output_size: Sizes, scales: Scales, align_corners: bool = False) -> Any:
        sizes = input.shape[input.ndim - len(output_size) :]
        return resized(xp, input, kind, sizes, output_size, scales, align_corners)

    return primitive(
        name,
        forward=forward,
        vjp={
            "input": lambda xp, g, input_shape, output_size, scales, align_corners: xp.upsample_backward(
                g, tuple(input_shape[len(input_shape) - len(output_size) :]), scales, align_corners, kind, name
            )
        },
        jvp=LINEAR,
        batch=shifted(),
        node=node,
        order="channels",
    )


#: mode, number of dimensions -> (kind of rows, name)
MODES = {
    **{("nearest", n): ("nearest", f"Nearest{n}D") for n in (1, 2, 3)},
    **{("nearest-exact", n): ("nearest_exact", f"NearestExact{n}D") for n in (1, 2, 3)},
    ("linear", 1): ("linear", "Linear1D"),
    ("bilinear", 2): ("linear", "Bilinear2D"),
    ("trilinear", 3): ("linear", "Trilinear3D"),
    ("bicubic", 2): ("cubic", "Bicubic2D"),
    ("bilinear antialias", 2): ("linear_aa", "Bilinear2DAa"),
    ("bicubic antialias", 2): ("cubic_aa", "Bicubic2DAa"),
}
UPSAMPLINGS = {
    key: upsampling(kind, f"_upsample_{name.lower()}", f"Upsample{name}Backward0")
    for key, (kind, name) in MODES.items()
}
INTERPOLATING = ("linear", "bilinear", "bicubic", "trilinear")


# ---- the public function


@composite
def interpolate(
    input: Array,
    size: int | Sequence[int] | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The input (examples, channels, and one to three dimensions) in another size.

    size, scale_factor      the sizes of the output, or how much larger it is: a number, or one for each dimension
    mode                    "nearest", "nearest-exact", "area"; "linear" (1-d), "bilinear", "bicubic" (2-d), "trilinear"
    align_corners           corners are the centres of the outermost elements, instead of their outer edges
    antialias               smooth before shrinking (bilinear, bicubic)
    recompute_scale_factor  compute the factor anew from the sizes, which are whole numbers

    >>> import undertow as ut
    >>> ut.interpolate(ut.tensor([[[0.0, 2.0]]]), size=3, mode="linear", align_corners=True).tolist()
    [[[0.0, 1.0, 2.0]]]
    """
    input = as_operand("interpolate", "input", input)
    dims = input.ndim - 2
    _check_mode(mode, align_corners, antialias)
    outputs, scales = _sizes_and_scales(input, dims, size, scale_factor, recompute_scale_factor)
    if mode == "area" and dims in (1, 2, 3):
        return adaptive_avg_pool(dims, input, outputs)
    key = (f"{mode} antialias" if antialias else mode, dims)
    if key not in UPSAMPLINGS:
        raise NotImplementedError(_wrong_dims(mode, input.ndim))
    if min(outputs) < 1 or min(input.shape[2:]) < 1:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(input.shape[2:])} and output "
            f"{list(outputs)}"
        )
    if input.dtype != dtypes.uint8 or not mode.startswith("nearest"):  # images of bytes can be copied, not averaged
        require_kinds(f"upsample_{mode}", input, "f")
    return UPSAMPLINGS[key](input, outputs, scales, bool(align_corners))


def _check_mode(mode: str, align_corners: bool | None, antialias: bool) -> None:
    if align_corners is not None and mode not in INTERPOLATING:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor")


def _wrong_dims(mode: str, ndim: int) -> str:
    needed = [dims + 2 for name, dims in UPSAMPLINGS if name == mode]
    if mode in INTERPOLATING and ndim in (3, 4, 5):
        return f"Got {ndim}D input, but {mode} mode needs {needed[0]}D input"
    return (
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: nearest | linear | "
        f"bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
    )


def _sizes_and_scales(
    input: Array, dims: int, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[Sizes, Scales]:
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        return tuple([int(n) for n in _for_each(input, dims, size, "output size", "size")]), (None,) * dims
    factors = tuple([float(s) for s in _for_each(input, dims, scale_factor, "scale_factor of shape", "scale_factor")])
    outputs = tuple([math.floor(n * s) for n, s in zip(input.shape[2:], factors, strict=True)])
    return outputs, (None,) * dims if recompute else factors


def _for_each(input: Array, dims: int, given: Any, what: str, name: str) -> tuple[Any, ...]:
    values = tuple(given) if isinstance(given, Iterable) else (given,) * dims
    if len(values) != dims:
        raise ValueError(
            f"Input and {what.split(' of ')[0].replace('output size', 'output')} must have the same number of spatial "
            f"dimensions, but got input with spatial dimensions of {list(input.shape[2:])} and {what} {values}. Please "
            f"provide input tensor in (N, C, d1, d2, ...,dK) format and {name} in (o1, o2, ...,oK) format."
        )
    return values
