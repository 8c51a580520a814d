"""Operands that lie in the memory an operation is going to write to.

What such an operation would read depends on the order in which it writes: in `x.div_(x[0])` the first element is one
after the first step. Whether that can be seen is a question of chance, so it is refused, by PyTorch's rules: they look
at the stretches of memory that tensors without gaps fill, and let pass what has gaps.
"""

from __future__ import annotations

from typing import Any

from undertow.tensor import Tensor
from undertow.tensor.memory import overlap


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors among the arguments of a call, also those in lists."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, tuple | list) else []


def are_arrays(a: Tensor, b: Tensor) -> bool:
    """Whether both are dense arrays of one device."""
    return a._xp is b._xp and isinstance(a._array, a._xp.ndarray) and isinstance(b._array, b._xp.ndarray)


def refuse_overlap(target: Tensor, operands: Any, refused: str | None, name: str) -> None:
    """Raise if an operand (they may be nested) shares memory with what is written to.

    refused  what of it: "part", "any", or None for nothing; see `Op.overlap`
    """
    if refused is None:
        return
    for operand in tensors_in(operands):
        found = overlap(target._xp, target._array, operand._array) if are_arrays(target, operand) else "none"
        if found == "part" or (found == "whole" and refused == "any"):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                f"memory location: {name} would read what it has written. Please clone() the tensor before performing "
                "the operation."
            )
