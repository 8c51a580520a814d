"""DLPack: sharing memory with any library that speaks it; on the CPU through NumPy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import cpu, namespace_of
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
    if self._xp.device.type == "cuda":
        return self._array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
    if stream is not None and stream != -1:
        raise AssertionError("stream should be None on cpu.")
    if self._array.dtype.kind == "V":
        raise BufferError("Can't export bfloat16, which NumPy's DLPack does not know: use tensor.view(undertow.int16)")
    return self._array.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """`__dlpack_device__`: the device's type and number."""
    kind, number = self._array.__dlpack_device__()
    return int(kind), int(number)


GPU = 2  # DLPack's number of the kind of device


class _Capsule:
    """A bare capsule, as older code passes it around, in the form that NumPy asks for: (CPU, 0)."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **ignored: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def is_on_gpu(given: Any) -> bool:
    """Whether the memory of an array of any library, or of a capsule, is a GPU's."""
    if type(given).__name__ == "PyCapsule":
        try:
            extension = import_module("undertow._cuda")
        except ImportError:  # it was not built
            return False
        try:
            return int(extension.capsule_device(given)) == GPU
        except ValueError:  # it was taken: NumPy says so
            return False
    return hasattr(given, "__dlpack_device__") and int(given.__dlpack_device__()[0]) == GPU


def from_gpu(given: Any, device: Device | str | int | None, copy: bool | None) -> Tensor:
    array = import_module("undertow.backend.cuda.exchange").from_dlpack(given)
    found = leaf(array, array.namespace, False)
    if device is not None and namespace_of(device) is not array.namespace:
        if copy is False:
            raise ValueError(f"from_dlpack cannot move memory of {array.namespace.device} to {device} without a copy")
        return found.to(device)
    return found.clone() if copy else found


def from_dlpack(ext_tensor: Any, *, device: Device | str | int | None = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array (or of a DLPack capsule), of the CPU or of a GPU.

    ext_tensor  an object with `__dlpack__`, or a capsule
    copy        True: always; False: never, and an error where it is needed; None: where it is needed

    >>> import numpy as np, undertow as ut
    >>> ut.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if is_on_gpu(ext_tensor):
        return from_gpu(ext_tensor, device, copy)
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
    """A DLPack capsule on the tensor's memory; it can be consumed once.

    >>> import undertow as ut
    >>> ut.from_dlpack(ut.ones(2)), type(ut.to_dlpack(ut.ones(2))).__name__
    (tensor([1., 1.]), 'PyCapsule')
    """
    return dlpack(tensor)


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """`__cuda_array_interface__`: where a tensor on a GPU lies, for libraries that do not speak DLPack."""
    if self._xp.device.type != "cuda":
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()}. If CUDA data is required use "
            "tensor.cuda() to copy tensor to device memory."
        )
    if current_edge(self) is not None:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use "
            "var.detach() to get Variable that doesn't require grad."
        )
    found: dict[str, Any] = self._array.__cuda_array_interface__
    return found


METHODS = {
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__cuda_array_interface__": property(cuda_array_interface),
}
