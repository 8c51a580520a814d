"""Moving tensors to shared memory, with all others that show the same memory."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from sys import getrefcount

import numpy as np

from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.compiled import watch_nodes
from undertow.interop.shared_memory.blocks import new_segment, segment_of
from undertow.refcounts import IN_ATTRIBUTE_OF_ARGUMENT
from undertow.tensor import Tensor
from undertow.tensor.memory import address, memory_of


def share(tensors: Iterable[Tensor]) -> None:
    """Move the memory of tensors to where other processes see it, once each; on a GPU it stays where it is.

    Views, detached tensors and whatever else shows that memory move along. NumPy's arrays do not, as in PyTorch: they
    keep the memory that they have.
    """
    all_tensors: list[Tensor] | None = None
    for tensor in [tensor for tensor in tensors if needs_move(tensor)]:
        if segment_of(tensor._array) is not None:
            continue  # it has moved along with another
        if is_alone(tensor._array, 0):
            move([tensor], memory_of(cpu, tensor._array))
            continue
        if all_tensors is None:
            all_tensors = tensors_of_program()
        memory = memory_of(cpu, tensor._array)
        move([other for other in all_tensors if np.may_share_memory(other._array, memory)] or [tensor], memory)


def needs_move(tensor: Tensor) -> bool:
    if type(tensor._array) is not np.ndarray:
        if tensor._xp.device.type == "cuda":
            return False
        raise NotImplementedError(
            f"share_memory_(): a {str(tensor.layout).rpartition('.')[2]} tensor on {tensor._xp.device} has no memory "
            "that processes could share. Share dense tensors on the CPU: for a sparse one, its indices and values."
        )
    return segment_of(tensor._array) is None


def is_alone(array: Array, _: int) -> bool:
    """Whether an array, given as the attribute of a tensor, is all that shows its memory."""
    return array.base is None and getrefcount(array) <= IN_ATTRIBUTE_OF_ARGUMENT


def tensors_of_program() -> list[Tensor]:
    """Every tensor in plain memory of the CPU."""
    watch_nodes()  # what nodes save is then among the objects that the collector knows
    # by type(), because objects of other libraries may compute when they are asked for their __class__
    found = [value for value in gc.get_objects() if issubclass(type(value), Tensor) and hasattr(value, "_array")]
    return [tensor for tensor in found if type(tensor._array) is np.ndarray]


def move(tensors: list[Tensor], memory: Array) -> None:
    """Let tensors on a stretch of memory show a shared copy of it instead."""
    segment = new_segment(memory.nbytes).bytes()
    segment[:] = memory.view(np.uint8)
    for tensor in tensors:
        tensor._array = moved(tensor._array, address(memory), segment)


def moved(array: Array, start: int, segment: Array) -> Array:
    """The part of a segment that an array was of the memory that began at `start`."""
    offset = address(array) - start if array.size else 0
    made = np.ndarray(array.shape, array.dtype, segment, offset, array.strides)
    made.flags.writeable = array.flags.writeable
    return made
