"""Max pooling to any size: windows of one size that begin at random places, as evenly spread as they can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.modes import no_grad
from undertow.nn.module import Module

if TYPE_CHECKING:
    from undertow.tensor import Tensor


def each(value: Any, dims: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * dims


def starts(samples: Tensor, size: int, count: int, kernel: int) -> Tensor:
    """Where `count` windows begin along a dimension, for every channel of every example; `samples` decides."""
    last = ops.full((*samples.shape, 1), size - kernel, device=samples.device)
    if count == 1:
        return last
    step = (size - kernel) / (count - 1)
    begin = ops.unsqueeze(samples, -1)
    places = ops.floor((ops.arange(count - 1, device=samples.device) + begin) * step) - ops.floor(begin * step)
    return ops.cat([places.long(), last], -1)


def window_places(samples: Tensor, sizes: Sequence[int], counts: Sequence[int], kernel: Sequence[int]) -> Tensor:
    """The places of the elements of all windows in the flat input: (examples, channels, windows, elements)."""
    dims = len(sizes)
    flat: Any = 0
    for d in range(dims):
        # PyTorch's first number is for the last of two dimensions, and for the first of three
        sample = samples[..., 1 - d if dims == 2 else d]
        begin = starts(sample, sizes[d], counts[d], kernel[d])
        inside = ops.unsqueeze(begin, -1) + ops.arange(kernel[d], device=samples.device)
        shape = [1] * (2 * dims)
        shape[d], shape[dims + d] = counts[d], kernel[d]
        flat = flat * sizes[d] + ops.reshape(inside, (*samples.shape[:2], *shape))
    return ops.reshape(flat, (*samples.shape[:2], math.prod(counts), math.prod(kernel)))


def fractional_max_pool(
    dims: int,
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: Any,
    output_ratio: Any,
    samples: Tensor | None,
) -> tuple[Any, Any]:
    """The largest element of every window, and its place in the flat input."""
    name = f"fractional_max_pool{dims}d"
    if input.dim() not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got: {input.shape}")
    sizes, kernel = tuple(input.shape[-dims:]), each(kernel_size, dims)
    counts = output_sizes(name, sizes, output_size, output_ratio)
    for size, count, k in zip(sizes, counts, kernel, strict=True):
        if count + k - 1 > size:
            raise RuntimeError(
                f"{name}(): pool size {k} too large relative to an input of size {size}: {count} windows"
            )
    batch = input if input.dim() == dims + 2 else ops.unsqueeze(input, 0)
    with no_grad():
        if samples is None:
            samples = ops.rand(*batch.shape[:2], dims, dtype=batch.dtype, device=batch.device)
        places = window_places(samples[: batch.shape[0]], sizes, counts, kernel)
    values = ops.gather(ops.flatten(batch, 2), 2, ops.flatten(places, 2))
    largest, which = ops.max(ops.reshape(values, places.shape), -1)
    indices = ops.squeeze(ops.gather(places, 3, ops.unsqueeze(which, 3)), 3)
    shape = (*input.shape[:-dims], *counts)
    return ops.reshape(largest, shape), ops.reshape(indices, shape)


def output_sizes(name: str, sizes: tuple[int, ...], output_size: Any, output_ratio: Any) -> tuple[int, ...]:
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_size is not None:
        return each(output_size, len(sizes))
    return tuple([int(n * ratio) for n, ratio in zip(sizes, each(output_ratio, len(sizes)), strict=True)])


def pooling(dims: int, always_indices: bool) -> Callable[..., Any]:
    def pool(
        input: Tensor,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int | None] | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        found = fractional_max_pool(dims, input, kernel_size, output_size, output_ratio, _random_samples)
        return found if return_indices or always_indices else found[0]

    pool.__name__ = pool.__qualname__ = f"fractional_max_pool{dims}d" + ("_with_indices" if always_indices else "")
    pool.__doc__ = (
        "The largest elements of windows of kernel_size, as many as output_size (or output_ratio times the input's "
        "sizes) says; where they begin is random.\n\n"
        f"Example: `ut.nn.functional.{pool.__name__}(ut.ones(1, 1{', 4' * dims}), 2, 2)"
        + ("[1].shape`" if always_indices else ".shape`")
    )
    return pool


fractional_max_pool2d, fractional_max_pool2d_with_indices = pooling(2, False), pooling(2, True)
fractional_max_pool3d, fractional_max_pool3d_with_indices = pooling(3, False), pooling(3, True)


class FractionalMaxPool(Module):
    """What FractionalMaxPool2d and FractionalMaxPool3d have in common."""

    dims: int

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int | None] | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size, self.return_indices = each(kernel_size, self.dims), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else each(output_size, self.dims)
        self.output_ratio = None if output_ratio is None else each(output_ratio, self.dims)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        found = fractional_max_pool(
            self.dims, input, self.kernel_size, self.output_size, self.output_ratio, self._random_samples
        )
        return found if self.return_indices else found[0]


class FractionalMaxPool2d(FractionalMaxPool):
    """The largest elements of windows in (examples, channels, height, width) that begin at random places.

    kernel_size     the size of the window: a number, or one for each dimension
    output_size     sizes of the result
    output_ratio    the size of the result, as parts of that of the input
    return_indices  whether places are returned, too

    >>> import undertow as ut
    >>> ut.nn.FractionalMaxPool2d(3, output_ratio=0.7)(ut.randn(2, 3, 10, 10)).shape
    undertow.Size([2, 3, 7, 7])
    """

    dims = 2


class FractionalMaxPool3d(FractionalMaxPool):
    """The largest elements of windows in (examples, channels, depth, height, width) that begin at random places.

    kernel_size     the size of the window: a number, or one for each dimension
    output_size     sizes of the result, or
    output_ratio    the size of the result, as parts of that of the input
    return_indices  whether places are returned, too

    >>> import undertow as ut
    >>> ut.nn.FractionalMaxPool3d(2, output_size=3)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 3, 3, 3])
    """

    dims = 3
