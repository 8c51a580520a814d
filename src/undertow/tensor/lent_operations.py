"""The operations that tensors and graphs need themselves.

They are declared three layers above, in ops, which lends them here, once, when it has been imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class LentOperations(NamedTuple):
    """What ops lends.

    from_sizes_or_data  the tensor that `Tensor(2, 3)`, `Tensor([1.0, 2.0])` and `Tensor(x)` ask for
    by_memory           the Replay of a view that finds its elements by their places in memory
    clone, add          a recorded copy of a gradient, and a recorded sum of two
    layout_for          how a base lies in memory if a replay depends on that (as_strided does), else None
    lay_out             a copy of an array that lies in memory as such a layout says
    clone_as            the same of a tensor, recorded
    copy_in_place       `tensor.copy_(source)`, recorded
    zero_in_place       `tensor.zero_()`, recorded
    """

    from_sizes_or_data: Callable[..., Any]
    by_memory: Callable[[Any], Any]
    clone: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]
    layout_for: Callable[[Any, Any], Any]
    lay_out: Callable[[Any, Any, Any], Any]
    clone_as: Callable[[Any, Any], Any]
    copy_in_place: Callable[[Any, Any], Any]
    zero_in_place: Callable[[Any], Any]


_lent: list[LentOperations] = []


def lend(operations: LentOperations) -> None:
    _lent[:] = [operations]


def lent() -> LentOperations:
    try:
        return _lent[0]
    except IndexError:
        raise NotImplementedError("the operations are not loaded") from None
