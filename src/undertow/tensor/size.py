"""Size: the shape of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend.public_dtypes import PREFIX
from undertow.compiled import core

if core is None or TYPE_CHECKING:

    class Sizes(tuple[int, ...]):
        """A tuple whose slices are of its class. Its twin: csrc/call/attributes.c."""

        def __getitem__(self, index: Any) -> Any:
            item = tuple.__getitem__(self, index)
            return type(self)(item) if isinstance(index, slice) else item

else:
    Sizes = core.Sizes


class Size(Sizes):
    """A shape: a tuple that prints as PyTorch's does and knows how many elements it holds.

    sizes  an iterable of integers

    >>> import undertow as ut
    >>> ut.zeros(2, 3).shape.numel()
    6
    """

    def __new__(cls, sizes: Any = ()) -> Size:
        sizes = tuple(sizes)
        for n in sizes:
            if not hasattr(n, "__index__"):
                raise TypeError(f"Size() takes an iterable of 'int' (item is '{type(n).__name__}')")
        return super().__new__(cls, sizes)

    def numel(self) -> int:
        n = 1
        for size in self:
            n *= size
        return n

    def __repr__(self) -> str:
        return f"{PREFIX[0]}.Size({list(self)})"

    def __add__(self, other: Any) -> Size:
        if hasattr(other, "__array_interface__"):
            return NotImplemented  # an array of NumPy adds itself to every size
        if not isinstance(other, tuple):
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to {PREFIX[0]}.Size")
        return Size(tuple.__add__(self, other))

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)
