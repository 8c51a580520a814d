"""Max pooling over windows that begin at random places, as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.nn.module import Module
from undertow.ops.network.fractional_pool import each, fractional_max_pool

if TYPE_CHECKING:
    from undertow.tensor import Tensor


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

    kernel_size      the size of the window: a number, or one for each dimension
    output_size      sizes of the result
    output_ratio     the size of the result, as parts of that of the input
    return_indices   whether places are returned, too
    _random_samples  (N, C, dimensions), between 0 and 1: where windows begin, in the place of random numbers

    >>> import undertow as ut
    >>> ut.nn.FractionalMaxPool2d(3, output_ratio=0.7)(ut.randn(2, 3, 10, 10)).shape
    undertow.Size([2, 3, 7, 7])
    """

    dims = 2


class FractionalMaxPool3d(FractionalMaxPool):
    """The largest elements of windows in (examples, channels, depth, height, width) that begin at random places.

    kernel_size      the size of the window: a number, or one for each dimension
    output_size      sizes of the result, or
    output_ratio     the size of the result, as parts of that of the input
    return_indices   whether places are returned, too
    _random_samples  (N, C, dimensions), between 0 and 1: where windows begin, in the place of random numbers

    >>> import undertow as ut
    >>> ut.nn.FractionalMaxPool3d(2, output_size=3)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 3, 3, 3])
    """

    dims = 3
