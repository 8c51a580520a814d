"""Copies in place of views: `view_copy`, `select_copy`, ... give what that view shows, in memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import REGISTRY, composite
from undertow.ops.views.as_strided import as_strided
from undertow.ops.views.clone import clone
from undertow.ops.views.reshape import reshape
from undertow.tensor.memory_formats import contiguous_format

#: the views of which there are copies, and arguments for an example
VIEWS = {
    "alias": "ut.arange(3)", "as_strided": "ut.arange(4), (2, 2), (1, 1)", "detach": "ut.arange(3)",
    "expand": "ut.arange(2), (2, 2)", "narrow": "ut.arange(4), 0, 1, 2", "permute": "ut.ones(2, 3), (1, 0)",
    "select": "ut.eye(2), 0, 1", "slice": "ut.arange(5), 0, 1, 4, 2", "split": "ut.arange(3), 2",
    "split_with_sizes": "ut.arange(3), (1, 2)", "squeeze": "ut.ones(1, 2)", "t": "ut.ones(2, 3)",
    "transpose": "ut.ones(2, 3), 0, 1", "unbind": "ut.eye(2)", "unfold": "ut.arange(4), 0, 2, 1",
    "unsqueeze": "ut.arange(2), 0", "view": "ut.arange(4), (2, 2)", "view_as_complex": "ut.ones(2, 2)",
    "view_as_real": "ut.tensor([1 + 2j])",
}  # fmt: skip


@composite(variants="function in_place_function")
def detach(input: Array) -> Array:
    """The same numbers, without a history; `Tensor.detach` as a function.

    >>> import undertow as ut
    >>> ut.detach(ut.ones(2, requires_grad=True))
    tensor([1., 1.])
    """
    tensor: Any = as_operand("detach", "input", input)
    return tensor.detach()


def _copying(name: str) -> Any:
    # no view of another shape may exist; a copy always does
    view = reshape if name == "view" else REGISTRY[name].function

    def function(input: Array, *args: Any, **kwargs: Any) -> Any:
        found = view(as_operand(function.__name__, "input", input), *args, **kwargs)
        if isinstance(found, tuple | list):
            return tuple([clone(part, memory_format=contiguous_format) for part in found])
        return clone(found, memory_format=contiguous_format)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = (
        f"What `{name}` shows, as a copy.\n\n*args, **kwargs  the other arguments of `{name}`\n\n"
        f"Example: `ut.{name}_copy({VIEWS[name]})`"
    )
    return composite(function, variants="function method" if name == "narrow" else "function", out=True)


for _name in VIEWS:
    globals()[f"{_name}_copy"] = _copying(_name)


def _copy_with_gaps(input: Array) -> Array:
    """A copy of the input that lies in its memory as the input does in its own, if no elements share memory there."""
    if hasattr(input._array, "first"):  # under vmap, where examples may lie among each other
        return clone(input)
    reach = 1 + sum([(n - 1) * step for n, step in zip(input.shape, input.stride(), strict=True)])
    offset, count = input.storage_offset(), input.numel()
    if reach < count or not count or (reach == count and not offset):
        return clone(input)
    memory = clone(as_strided(input.detach(), (offset + reach,), (1,), 0))
    copied = as_strided(memory, tuple(input.shape), input.stride(), offset)
    return copied.copy_(input)


@composite(variants="function method")
def as_strided_scatter(
    input: Array, src: Array, size: int | Sequence[int], stride: int | Sequence[int], storage_offset: int | None = None
) -> Array:
    """A copy of the input, in which `src` is written to what `as_strided` would show of it.

    size, stride, storage_offset  the part, as `as_strided` takes them; `src` has the shape `size`

    >>> import undertow as ut
    >>> ut.as_strided_scatter(ut.zeros(2, 2), ut.ones(2), (2,), (3,))
    tensor([[1., 0.],
            [0., 1.]])
    """
    input = as_operand("as_strided_scatter", "input", input)
    src = as_operand("as_strided_scatter", "src", src)
    out = _copy_with_gaps(input)
    part = as_strided(out, size, stride, storage_offset)
    if tuple(part.shape) != tuple(src.shape):
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(part.shape)}"
        )
    part.copy_(src)
    return out
