"""Elements moved between channels and places: pixel_shuffle, pixel_unshuffle, channel_shuffle."""

from __future__ import annotations

from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.views.clone import clone
from undertow.ops.views.dimensions import permute
from undertow.ops.views.reshape import reshape
from undertow.tensor import Tensor


def _check_image(name: str, input: Array, factor: int, argument: str) -> Array:
    input = as_operand(name, "input", input)
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {argument}, but got {factor}")
    return input


def _rearranged(input: Array, inner: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """The last three dimensions, seen as `inner`, in another order, and joined to `shape`."""
    lead = tuple(input.shape[:-3])
    whole = reshape(input, (*lead, *inner))
    turned = permute(whole, (*range(len(lead)), *[len(lead) + k for k in order]))
    moving = [k for k in order if inner[k] != 1]
    return _joined(turned, (*lead, *shape), moving == sorted(moving))


def _joined(turned: Tensor, shape: tuple[int, ...], in_order: bool) -> Tensor:
    """The elements in a new shape, and in memory of their own also if they are in order as they lie."""
    return clone(reshape(turned, shape)) if in_order else reshape(turned, shape)


@composite(order="channels")
def pixel_shuffle(input: Array, upscale_factor: int) -> Tensor:
    """Every r * r channels become one, r times as high and as wide.

    upscale_factor  r; input (..., C * r * r, H, W), result (..., C, H * r, W * r)

    >>> import undertow as ut
    >>> ut.pixel_shuffle(ut.arange(4.0).reshape(4, 1, 1), 2).tolist()
    [[[0.0, 1.0], [2.0, 3.0]]]
    """
    input, r = _check_image("pixel_shuffle", input, upscale_factor, "upscale_factor"), upscale_factor
    channels, height, width = input.shape[-3:]
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    few = channels // (r * r)
    return _rearranged(input, (few, r, r, height, width), (0, 3, 1, 4, 2), (few, height * r, width * r))


@composite(order="channels")
def pixel_unshuffle(input: Array, downscale_factor: int) -> Tensor:
    """The inverse of pixel_shuffle: every square of r * r places becomes as many channels.

    downscale_factor  r; input (..., C, H * r, W * r), result (..., C * r * r, H, W)

    >>> import undertow as ut
    >>> ut.pixel_unshuffle(ut.ones(1, 1, 4, 4), 2).shape
    undertow.Size([1, 4, 2, 2])
    """
    input, r = _check_image("pixel_unshuffle", input, downscale_factor, "downscale_factor"), downscale_factor
    channels, height, width = input.shape[-3:]
    for name, dim, n in (("height", -2, height), ("width", -1, width)):
        if n % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({dim})={n} is not "
                f"divisible by {r}"
            )
    h, w = height // r, width // r
    return _rearranged(input, (channels, h, r, w, r), (0, 2, 4, 1, 3), (channels * r * r, h, w))


@composite(order="channels")
def channel_shuffle(input: Array, groups: int) -> Tensor:
    """The channels, in `groups` groups, dealt out in turn: first all firsts, then all seconds, ...

    >>> import undertow as ut
    >>> ut.channel_shuffle(ut.arange(4.0).reshape(1, 4, 1), 2).flatten()
    tensor([0., 2., 1., 3.])
    """
    input = as_operand("channel_shuffle", "input", input)
    if input.ndim < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    examples, channels, *rest = input.shape
    if groups <= 0 or channels % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
        )
    split = reshape(input, (examples, groups, channels // groups, *rest))
    turned = permute(split, (0, 2, 1, *range(3, 3 + len(rest))))
    return _joined(turned, tuple(input.shape), groups in (1, channels))
