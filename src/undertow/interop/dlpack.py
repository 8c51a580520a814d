"""DLPack: sharing memory with any library that speaks it, through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.ops.arguments.nested_data import adopt
from undertow.ops.create.creation import leaf
from undertow.tensor import Tensor, current_edge

if TYPE_CHECKING:
    from undertow.backend.interface import Device


def dlpack(
    self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """`__dlpack__`: a capsule on the tensor's memory."""
    if current_edge(self) is not None:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if any(stride < 0 for stride in self._array.strides):
        raise BufferError("Can't export tensors with negative strides: many consumers misread them. Use tensor.clone()")
    if stream is not None and stream != -1:
        raise AssertionError("stream should be None on cpu.")
    if self._array.dtype.kind == "V":
        raise BufferError("Can't export bfloat16, which NumPy's DLPack does not know: use tensor.view(undertow.int16)")
    return self._array.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """`__dlpack_device__`: the device's type and number."""
    kind, number = self._array.__dlpack_device__()
    return int(kind), int(number)


class _Capsule:
    """A bare capsule, as older code passes it around, in the form that NumPy asks for: (CPU, 0)."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **ignored: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def from_dlpack(ext_tensor: Any, *, device: Device | str | int | None = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array (or of a DLPack capsule).

    >>> import numpy as np, undertow as ut
    >>> ut.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if type(ext_tensor).__name__ == "PyCapsule":
        ext_tensor = _Capsule(ext_tensor)
    if not hasattr(ext_tensor, "__dlpack__"):
        raise RuntimeError(
            f"from_dlpack received an invalid capsule: {type(ext_tensor).__name__} has no __dlpack__ method"
        )
    where: Any = None if device is None else str(device)
    array = np.from_dlpack(ext_tensor, device=where, copy=copy)
    return leaf(adopt(array), cpu, False)


def to_dlpack(tensor: Tensor) -> Array:
    """A DLPack capsule on the tensor's memory; it can be consumed once."""
    return dlpack(tensor)


METHODS = {"__dlpack__": dlpack, "__dlpack_device__": dlpack_device}
