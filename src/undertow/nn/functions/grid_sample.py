"""Reading images at places between their elements: spatial transformers.

Places run from -1 to 1 along each dimension, and come with the last dimension first: (x, y) or (x, y, z).
align_corners says what the ends mean: the centres of the outermost elements (True) or their outer edges (False).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.graph.user_lines import warn_user
from undertow.modes import no_grad

if TYPE_CHECKING:
    from undertow.tensor import Tensor

#: the coefficient of the cubic kernel
CUBIC = -0.75


def chosen_corners(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warn_user(
            f"Default {name} and grid_sample behavior has changed to align_corners=False since 1.3.0. Please specify "
            "align_corners=True if the old behavior is desired."
        )
    return bool(align_corners)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The places that an affine map sends a regular grid to, for grid_sample.

    theta  (examples, 2, 3) for images, (examples, 3, 4) for volumes
    size   of the output: (examples, channels, height, width) or with depth
    """
    dims = len(size) - 2
    if theta.dim() != 3 or dims not in (2, 3) or tuple(theta.shape[1:]) != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {list(size)}. Got "
            f"{list(theta.shape)}."
        )
    corners = chosen_corners("affine_grid", align_corners)
    with no_grad():
        lines = [regular(n, corners, theta) for n in size[2:]]
        places = ops.meshgrid(*lines, indexing="ij")[::-1]
        base = ops.stack([*places, ops.ones_like(places[0])], -1)
    out = ops.matmul(ops.reshape(base, (1, -1, dims + 1)), ops.transpose(theta, 1, 2))
    return ops.reshape(out, (theta.shape[0], *size[2:], dims))


def regular(count: int, corners: bool, like: Tensor) -> Tensor:
    """The places of `count` elements."""
    if count <= 1:
        return ops.new_zeros(like, (count,))
    line = ops.linspace(-1, 1, count, dtype=like.dtype, device=like.device)
    return line if corners else line * ((count - 1) / count)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The values of images (or volumes) at the places in `grid`, (examples, height, width, 2).

    mode          'bilinear', 'nearest' or (images only) 'bicubic'
    padding_mode  what lies outside: 'zeros', 'border' (the nearest element) or 'reflection'
    """
    dims = input.dim() - 2
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    if dims not in (2, 3) or grid.dim() != dims + 2 or grid.shape[-1] != dims or grid.shape[0] != input.shape[0]:
        raise RuntimeError(
            f"grid_sample(): expected grid to have size {dims} in last dimension and the batch of the input, but got "
            f"input of sizes {list(input.shape)} and grid of sizes {list(grid.shape)}"
        )
    if mode == "bicubic" and dims != 2:
        raise RuntimeError("grid_sample(): bicubic interpolation only supports 4D input")
    corners = chosen_corners("grid_sample", align_corners)
    sizes = tuple(input.shape[2:])
    parts = [ops.reshape(part, (grid.shape[0], -1)) for part in reversed(ops.unbind(grid, -1))]
    places = [to_elements(part, n, corners) for part, n in zip(parts, sizes, strict=True)]
    image = Image(input, sizes, padding_mode, corners)
    out = {"bilinear": linear, "nearest": nearest, "bicubic": cubic}[mode](image, places)
    return ops.reshape(out, (*input.shape[:2], *grid.shape[1:-1]))


def to_elements(place: Tensor, count: int, corners: bool) -> Tensor:
    """From [-1, 1] to the numbers of elements."""
    return (place + 1) * ((count - 1) / 2) if corners else ((place + 1) * count - 1) / 2


class Image:
    """An image, and what lies outside of it."""

    def __init__(self, input: Tensor, sizes: tuple[int, ...], padding: str, corners: bool) -> None:
        self.values = ops.reshape(input, (*input.shape[:2], -1))
        self.sizes, self.padding, self.corners = sizes, padding, corners

    def inside(self, place: Tensor, dim: int) -> Tensor:
        """A place brought into the image, if the padding says so."""
        size = self.sizes[dim]
        if self.padding == "zeros":
            return place
        if self.padding == "reflection":
            low, high = (0.0, size - 1.0) if self.corners else (-0.5, size - 0.5)
            place = reflected(place, low, high) if high > low else place * 0
        return ops.clamp(ops.where(ops.isnan(place), 0, place), 0, size - 1)

    def at(self, indices: list[Any]) -> Tensor:
        """The elements with these numbers (tensors without history), 0 for those that do not exist."""
        flat: Any = 0
        exists: Any = True
        for index, size in zip(indices, self.sizes, strict=True):
            exists = ops.logical_and(ops.logical_and(index >= 0, index <= size - 1), exists)
            flat = flat * size + ops.clamp(index, 0, size - 1)
        flat = ops.unsqueeze(ops.where(exists, flat, 0).long(), 1)  # nan is the number of no element
        flat = flat.expand(*self.values.shape[:2], flat.shape[-1])
        return ops.gather(self.values, 2, flat) * ops.unsqueeze(exists, 1).to(self.values.dtype)


def reflected(place: Tensor, low: float, high: float) -> Tensor:
    """A place thrown back at both ends until it lies between them."""
    span = high - low
    distance = ops.abs(place - low)
    rest = ops.fmod(distance, span)
    with no_grad():
        is_even = ops.eq(ops.remainder(ops.floor(distance / span), 2), 0)
    return ops.where(is_even, rest, span - rest) + low


def linear(image: Image, places: list[Any]) -> Tensor:
    """The mean of the neighbours, by their nearness."""
    places = [image.inside(place, dim) for dim, place in enumerate(places)]
    lows = [ops.floor(place).detach() for place in places]
    total: Any = 0
    for sides in itertools.product((0, 1), repeat=len(places)):
        nearness: Any = 1
        for place, low, side in zip(places, lows, sides, strict=True):
            nearness = nearness * ((place - low) if side else (low + 1 - place))
        found = image.at([low + side for low, side in zip(lows, sides, strict=True)])
        total = total + found * ops.unsqueeze(nearness, 1)
    return total


def nearest(image: Image, places: list[Any]) -> Tensor:
    places = [image.inside(place, dim) for dim, place in enumerate(places)]
    return image.at([ops.round(place).detach() for place in places])


def cubic_weights(t: Tensor) -> list[Any]:
    """What four neighbours count for a place that lies t behind the second."""
    outer = lambda x: ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC
    inner = lambda x: ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1
    return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]


def cubic(image: Image, places: list[Any]) -> Tensor:
    lows = [ops.floor(place).detach() for place in places]
    weights = [cubic_weights(place - low) for place, low in zip(places, lows, strict=True)]
    total: Any = 0
    for offsets in itertools.product(range(4), repeat=len(places)):
        taps = [image.inside(low + (k - 1), dim) for dim, (low, k) in enumerate(zip(lows, offsets, strict=True))]
        factor = math.prod([w[k] for w, k in zip(weights, offsets, strict=True)], start=1)
        total = total + image.at([tap.detach() for tap in taps]) * ops.unsqueeze(factor, 1)
    return total
