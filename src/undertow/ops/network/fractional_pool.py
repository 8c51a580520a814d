"""Max pooling to any size: windows of one size that begin at random places, as evenly spread as they can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.modes import no_grad
from undertow.ops.create.creation import full
from undertow.ops.create.ranges import arange
from undertow.ops.index.gather_scatter import gather
from undertow.ops.pointwise.rounding import floor
from undertow.ops.random.tensors import rand
from undertow.ops.reduce.extrema import max
from undertow.ops.shape.joining import cat
from undertow.ops.views.dimensions import squeeze, unsqueeze
from undertow.ops.views.reshape import flatten, reshape

if TYPE_CHECKING:
    from undertow.tensor import Tensor


def each(value: Any, dims: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * dims


def starts(samples: Tensor, size: int, count: int, kernel: int) -> Tensor:
    """Where `count` windows begin along a dimension, for every channel of every example; `samples` decides."""
    last = full((*samples.shape, 1), size - kernel, device=samples.device)
    if count == 1:
        return last
    step = (size - kernel) / (count - 1)
    begin = unsqueeze(samples, -1)
    places = floor((arange(count - 1, device=samples.device) + begin) * step) - floor(begin * step)
    return cat([places.long(), last], -1)


def window_places(samples: Tensor, sizes: Sequence[int], counts: Sequence[int], kernel: Sequence[int]) -> Tensor:
    """The places of the elements of all windows in the flat input: (examples, channels, windows, elements)."""
    dims = len(sizes)
    flat: Any = 0
    for d in range(dims):
        # PyTorch's first number is for the last of two dimensions, and for the first of three
        sample = samples[..., 1 - d if dims == 2 else d]
        begin = starts(sample, sizes[d], counts[d], kernel[d])
        inside = unsqueeze(begin, -1) + arange(kernel[d], device=samples.device)
        shape = [1] * (2 * dims)
        shape[d], shape[dims + d] = counts[d], kernel[d]
        flat = flat * sizes[d] + reshape(inside, (*samples.shape[:2], *shape))
    return reshape(flat, (*samples.shape[:2], math.prod(counts), math.prod(kernel)))


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
    batch = input if input.dim() == dims + 2 else unsqueeze(input, 0)
    with no_grad():
        if samples is None:
            samples = rand(*batch.shape[:2], dims, dtype=batch.dtype, device=batch.device)
        places = window_places(samples[: batch.shape[0]], sizes, counts, kernel)
    values = gather(flatten(batch, 2), 2, flatten(places, 2))
    largest, which = max(reshape(values, places.shape), -1)
    indices = squeeze(gather(places, 3, unsqueeze(which, 3)), 3)
    shape = (*input.shape[:-dims], *counts)
    return reshape(largest, shape), reshape(indices, shape)


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
        "output_ratio     the sizes of the result, as parts of those of the input\n"
        "_random_samples  (N, C, dimensions), between 0 and 1: where windows begin, in the place of random numbers\n\n"
        f"Example: `ut.nn.functional.{pool.__name__}(ut.ones(1, 1{', 4' * dims}), 2, 2)"
        + ("[1].shape`" if always_indices else ".shape`")
    )
    return pool


fractional_max_pool2d, fractional_max_pool2d_with_indices = pooling(2, False), pooling(2, True)
fractional_max_pool3d, fractional_max_pool3d_with_indices = pooling(3, False), pooling(3, True)
