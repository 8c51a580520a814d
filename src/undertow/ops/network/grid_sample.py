"""Images (and volumes) looked up at the points of a grid: grid_sample, and affine_grid, which makes such grids.

A grid has one point for each place of the output, in coordinates from -1 (one edge) to 1 (the other), x first. Both are
made of recorded operations: a gather for each neighbour of a point, weighted by how near it is. Only images looked up
between their elements, the usual case, are an operation of their own, for which the compiled core has a kernel.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import Joint, composite, primitive
from undertow.ops.declare.recorded_namespace import on_tensors, recorded
from undertow.ops.declare.rules import LOOP
from undertow.ops.index.gather_scatter import gather, scatter_add
from undertow.ops.linalg.matmul import matmul
from undertow.ops.pointwise.rounding import round as rounded
from undertow.ops.pointwise.where_clamp import where
from undertow.ops.reduce.sums_and_products import sum
from undertow.ops.shape.joining import stack
from undertow.ops.views.dimensions import transpose, unsqueeze
from undertow.ops.views.reshape import reshape
from undertow.ops.views.splitting import unbind
from undertow.tensor import Tensor

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


# ---- affine_grid


def places(n: int, align_corners: bool, dtype: DType) -> Array:
    """The coordinates of n places side by side."""
    if n == 1:
        return cpu.zeros(1, dtype)
    found = cpu.linspace(-1, 1, n, dtype=dtype)
    return found if align_corners else found * dtype.type((n - 1) / n)


@composite
def affine_grid(theta: Array, size: Sequence[int], align_corners: bool | None = None) -> Array:
    """The grid that `theta`, an affine map for each example, makes of the places of images of `size` (N, C, H, W).

    align_corners  whether -1 and 1 are the middles of the outermost points, or their outer edges; None: False

    >>> import undertow as ut
    >>> ut.affine_grid(ut.eye(2, 3).unsqueeze(0), (1, 1, 1, 2), align_corners=True)
    tensor([[[[-1.,  0.],
              [ 1.,  0.]]]])
    """
    if align_corners is None:
        _warn_of_default("affine_grid")
    theta = as_operand("affine_grid", "theta", theta)
    dims = len(size) - 2
    if not dtypes.is_floating(theta.dtype):
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if dims not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
            f"{tuple(size)}."
        )
    if theta.ndim != 3 or tuple(theta.shape[-2:]) != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {tuple(size)}. Got "
            f"{tuple(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    points = cpu.ones((*size[2:], dims + 1), theta.dtype)  # the last coordinate first, and a 1 behind the first
    for k, n in enumerate(reversed(size[2:])):
        points[..., k] = places(n, bool(align_corners), theta.dtype).reshape(-1, *(1,) * k)
    base = Tensor(theta._xp.asarray(points.reshape(1, -1, dims + 1)), theta._xp)
    mapped = matmul(base, transpose(theta, 1, 2))
    return reshape(mapped, (size[0], *size[2:], dims))


def _warn_of_default(name: str) -> None:
    warnings.warn(
        f"Default {name} behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if "
        "the old behavior is desired. See the documentation of grid_sample for details.",
        stacklevel=3,
    )


# ---- grid_sample: where a point lies


def _in_pixels(coordinate: Array, n: int, align_corners: bool) -> Array:
    """A coordinate between -1 and 1 in elements of the input."""
    return (coordinate + 1) * ((n - 1) / 2) if align_corners else ((coordinate + 1) * n - 1) / 2


def _clipped(place: Array, n: int) -> Array:
    """Moved to the edge, from nan to the first; there, too, the derivative is 0."""
    return where(place > 0, where(place >= n - 1, float(n - 1), place), 0.0)


def reflected(place: Array, low: float, high: float) -> Array:
    """Folded back at both edges, as often as it takes."""
    span = high - low
    if not span:
        return place * 0
    distance = place - low
    distance = where(distance < 0, -distance, distance)
    xp = distance._xp
    with xp.errstate(all="ignore"):
        turns = xp.floor(distance._array / span)
        whole, even = xp.asarray(turns * span, dtype=distance.dtype), xp.asarray(turns % 2 == 0)
    rest = distance - Tensor(whole, xp)
    return where(Tensor(even, xp), rest + low, high - rest)


def padded(place: Array, n: int, padding_mode: str, align_corners: bool) -> Array:
    if padding_mode == "border":
        return _clipped(place, n)
    if padding_mode == "reflection":
        low, high = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
        return _clipped(reflected(place, low, high), n)
    return place


# ---- looking up


def _positions(xp: Namespace, sizes: Sequence[int], indices: Sequence[Array]) -> tuple[Array, Array]:
    """Whether whole-numbered places (arrays of floats, one for each dimension) are inside, and their numbers."""
    inside = xp.ones(indices[0].shape, bool)
    position = xp.zeros(indices[0].shape, dtypes.int64)
    for index, n in zip(indices, sizes, strict=True):
        here = (index >= 0) & (index <= n - 1)
        inside &= here
        position = position * n + xp.where(here, index, 0).astype(dtypes.int64)
    return inside, position


def _looked_up(flat: Array, sizes: Sequence[int], indices: Sequence[Array]) -> Array:
    """The elements at such places, 0 outside."""
    xp = flat._xp
    inside, position = _positions(xp, sizes, indices)
    shape = (*flat.shape[:2], position.size // position.shape[0])
    wanted = xp.broadcast_to(position.reshape(position.shape[0], 1, -1), shape)
    found = gather(flat, 2, Tensor(xp.ascontiguousarray(wanted), xp))
    found = reshape(found, (*flat.shape[:2], *position.shape[1:]))
    return where(Tensor(inside[:, None], xp), found, 0.0)


def nearest(flat: Array, sizes: Sequence[int], spots: Sequence[Any]) -> Array:
    indices = [rounded(s) for s in spots]
    found = _looked_up(flat, sizes, [i._array for i in indices])
    for index in indices:  # the derivative by the grid is zero, not absent
        is_finite = Tensor(index._xp.isfinite(index._array), index._xp)
        found = found + unsqueeze(where(is_finite, index - index.detach(), 0.0), 1)
    return found


def linear(flat: Array, sizes: Sequence[int], spots: Sequence[Any]) -> Array:
    floors = [cpu.floor(s._array) for s in spots]
    parts = [s - Tensor(s._xp.asarray(f), s._xp) for s, f in zip(spots, floors, strict=True)]
    total: Any = None
    for corner in itertools.product((0, 1), repeat=len(spots)):
        weight: Any = None
        for part, side in zip(parts, corner, strict=True):
            share = part if side else 1 - part
            weight = share if weight is None else weight * share
        found = _looked_up(flat, sizes, [f + side for f, side in zip(floors, corner, strict=True)])
        term = found * unsqueeze(weight, 1)
        total = term if total is None else total + term
    return total


# ---- linear, of images: one operation


def _spots(input: Array, grid: Array, padding_mode: str, align_corners: bool) -> list[Any]:
    """Where the points are, in elements of the input: rows, then columns."""
    sizes = tuple(input.shape[2:])
    spots = [_in_pixels(c, n, align_corners) for c, n in zip(unbind(grid, -1)[::-1], sizes, strict=True)]
    return [padded(s, n, padding_mode, align_corners) for s, n in zip(spots, sizes, strict=True)]


def _flat(input: Array) -> Tensor:
    """The elements of an image in one dimension."""
    return reshape(input, (*input.shape[:2], math.prod(input.shape[2:])))


def _speeds(xp: Namespace, input: Array, grid: Array, padding_mode: str, align_corners: bool) -> list[Array]:
    """How far a spot moves with its coordinate: constant, but for the edges and mirrors it meets."""
    found = []
    for coordinate, n in zip(unbind(grid.detach(), -1)[::-1], input.shape[2:], strict=True):
        low, high = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
        place = _in_pixels(coordinate, n, align_corners)._array
        speed = xp.full_like(place, (n - 1) / 2 if align_corners else n / 2)
        if padding_mode == "reflection":
            turns = xp.floor(xp.abs(place - low) / (high - low)) if high > low else xp.zeros_like(place)
            speed = xp.where((place < low) == (turns % 2 == 0), -speed, speed) if high > low else 0 * speed
            place = padded(Tensor(place, xp), n, padding_mode, align_corners)._array
        if padding_mode != "zeros":
            speed = xp.where((place > 0) & (place < n - 1), speed, 0)
        found.append(Tensor(xp.asarray(speed, dtype=grid.dtype), xp))
    return found


def _slopes(input: Array, grid: Array, padding_mode: str, align_corners: bool) -> list[Any]:
    """The derivatives of what is looked up by the two coordinates of each point, x first."""
    xp, flat, sizes = grid._xp, _flat(input), tuple(input.shape[2:])
    spots = _spots(input, grid, padding_mode, align_corners)
    floors = [cpu.floor(s._array) for s in spots]
    a, b = [unsqueeze(s - Tensor(xp.asarray(f), xp), 1) for s, f in zip(spots, floors, strict=True)]
    corner = lambda i, j: _looked_up(flat, sizes, [floors[0] + i, floors[1] + j])
    x = [[corner(i, j) for j in (0, 1)] for i in (0, 1)]
    by_row = (1 - b) * (x[1][0] - x[0][0]) + b * (x[1][1] - x[0][1])
    by_column = (1 - a) * (x[0][1] - x[0][0]) + a * (x[1][1] - x[1][0])
    rows, columns = [unsqueeze(s, 1) for s in _speeds(xp, input, grid, padding_mode, align_corners)]
    return [by_column * columns, by_row * rows]


def _spread(g: Array, input: Array, grid: Array, padding_mode: str, align_corners: bool) -> Tensor:
    """The adjoint of looking up: every number goes to the elements around its point."""
    xp, sizes = grid._xp, tuple(input.shape[2:])
    spots = _spots(input, grid, padding_mode, align_corners)
    floors = [cpu.floor(s._array) for s in spots]
    parts = [s - Tensor(xp.asarray(f), xp) for s, f in zip(spots, floors, strict=True)]
    total: Any = Tensor(xp.zeros((*input.shape[:2], math.prod(sizes)), input.dtype), xp)
    for i, j in itertools.product((0, 1), repeat=2):
        inside, position = _positions(xp, sizes, [floors[0] + i, floors[1] + j])
        weight = (parts[0] if i else 1 - parts[0]) * (parts[1] if j else 1 - parts[1])
        term = where(Tensor(inside[:, None], xp), g * unsqueeze(weight, 1), 0.0)
        term = reshape(term, (*term.shape[:2], math.prod(term.shape[2:])))
        wanted = xp.broadcast_to(position.reshape(position.shape[0], 1, -1), tuple(term.shape))
        total = scatter_add(total, 2, Tensor(xp.ascontiguousarray(wanted), xp), term)
    return reshape(total, tuple(input.shape))


def _sampled(xp: Namespace, input: Array, grid: Array, padding_mode: str, align_corners: bool) -> Array:
    whole = xp.ascontiguousarray(input), xp.ascontiguousarray(grid)
    found = kernels.grid_sample(xp, *whole, PADDINGS.index(padding_mode), align_corners)
    if found is not None:
        return found
    sizes = tuple(input.shape[2:])
    look_up = lambda image, grid: linear(_flat(image), sizes, _spots(image, grid, padding_mode, align_corners))
    return on_tensors(xp, look_up, input, grid)


def _sampled_gradients(
    xp: Namespace,
    g: Array,
    needs: tuple[bool, bool],
    input: Array,
    grid: Array,
    padding_mode: str,
    align_corners: bool,
) -> Any:
    if xp is not recorded:
        whole = xp.ascontiguousarray(input), xp.ascontiguousarray(grid)
        rest = PADDINGS.index(padding_mode), align_corners, xp.ascontiguousarray(g)
        found = kernels.grid_sample_gradients(xp, *whole, *rest, tuple(map(bool, needs)))
        if found is not None:
            return found
    slow = lambda g, input, grid: _recorded_gradients(g, needs, input, grid, padding_mode, align_corners)
    return on_tensors(xp, slow, g, input, grid)


def _recorded_gradients(
    g: Array, needs: tuple[bool, bool], input: Array, grid: Array, padding_mode: str, align_corners: bool
) -> Any:
    of_grid = None
    if needs[1]:
        slopes = _slopes(input, grid, padding_mode, align_corners)
        of_grid = stack([sum(g * slope, 1) for slope in slopes], -1)
    return (_spread(g, input, grid, padding_mode, align_corners) if needs[0] else None), of_grid


def _moved(xp: Namespace, t: Array, input: Array, grid: Array, padding_mode: str, align_corners: bool) -> Tensor:
    """The tangent of what is looked up when the points move."""

    def move(t: Array, input: Array, grid: Array) -> Any:
        slopes = _slopes(input, grid, padding_mode, align_corners)
        by_x, by_y = [slope * unsqueeze(part, 1) for slope, part in zip(slopes, unbind(t, -1), strict=True)]
        return by_x + by_y

    return on_tensors(xp, move, t, input, grid)


grid_sampler_2d = primitive(
    "_grid_sampler_2d",
    forward=_sampled,
    vjp=Joint(("input", "grid"), _sampled_gradients),
    jvp={
        "input": lambda xp, t, grid, padding_mode, align_corners: xp._grid_sampler_2d(
            t, grid, padding_mode, align_corners
        ),
        "grid": _moved,
    },
    batch=LOOP,
    node="GridSampler2DBackward0",
)


# ---- cubic


def _cubic_weights(t: Array) -> list[Any]:
    """Of the four neighbours of a point that is t behind the second, by Keys's kernel with a = -0.75."""
    a = -0.75
    near = lambda x: ((a + 2) * x - (a + 3)) * x * x + 1
    far = lambda x: ((x - 5) * x + 8) * x * a - 4 * a
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def cubic(flat: Array, sizes: Sequence[int], spots: Sequence[Any], padding_mode: str, align_corners: bool) -> Array:
    floors = [cpu.floor(s._array) for s in spots]
    weights = [_cubic_weights(s - Tensor(s._xp.asarray(f), s._xp)) for s, f in zip(spots, floors, strict=True)]
    total: Any = None
    for i, j in itertools.product(range(4), repeat=2):
        taps = [Tensor(flat._xp.asarray(f + k - 1), flat._xp) for f, k in zip(floors, (i, j), strict=True)]
        taps = [padded(t, n, padding_mode, align_corners) for t, n in zip(taps, sizes, strict=True)]
        found = _looked_up(flat, sizes, [t._array for t in taps])
        term = found * unsqueeze(weights[0][i] * weights[1][j], 1)
        total = term if total is None else total + term
    return total


def check(input: Array, grid: Array, mode: str, padding_mode: str) -> None:
    if mode not in MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in PADDINGS:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    if input.ndim not in (4, 5) or grid.ndim != input.ndim:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != input.ndim - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
            f"{list(input.shape)}"
        )
    if mode == "bicubic" and input.ndim == 5:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


@composite
@example_by_example
@in_float32
def grid_sample(
    input: Array,
    grid: Array,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Array:
    """The input, (N, C, H, W), at the points of a grid, (N, ..., ..., 2); or a volume, at points with three numbers.

    mode           "bilinear", "nearest" or "bicubic"
    padding_mode   what is outside: "zeros", the nearest edge ("border"), or the image mirrored ("reflection")
    align_corners  whether -1 and 1 are the middles of the outermost points, or their outer edges; None: False

    >>> import undertow as ut
    >>> image = ut.arange(4.0).reshape(1, 1, 2, 2)
    >>> ut.grid_sample(image, ut.zeros(1, 1, 1, 2), align_corners=True).item()  # in the middle
    1.5
    """
    if align_corners is None:
        _warn_of_default("grid_sample")
    input, grid = as_operand("grid_sample", "input", input), as_operand("grid_sample", "grid", grid)
    check(input, grid, mode, padding_mode)
    corners = bool(align_corners)
    if mode == "bilinear" and input.ndim == 4 and input.dtype == grid.dtype:
        return grid_sampler_2d(input, grid, padding_mode, corners)
    sizes = tuple(input.shape[2:])
    flat = _flat(input)
    coordinates = unbind(grid, -1)[::-1]
    spots = [_in_pixels(c, n, corners) for c, n in zip(coordinates, sizes, strict=True)]
    if mode == "bicubic":
        return cubic(flat, sizes, spots, padding_mode, corners)
    spots = [padded(s, n, padding_mode, corners) for s, n in zip(spots, sizes, strict=True)]
    return (nearest if mode == "nearest" else linear)(flat, sizes, spots)
