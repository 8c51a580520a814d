"""Memory that is shared with other libraries for GPUs, without copies: DLPack, and `__cuda_array_interface__`.

Both say which stream the memory is used on, and whoever takes it waits. A stream's number is the driver's handle, with
1 for its old default stream, which 0 and None stand for, too; -1 asks nobody to wait. Memory that another library has
lent goes back to it when all streams here have done what they were asked for with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device as gpus
from undertow.backend.interface import Array

CUDA = 2  # DLPack's number of the kind of device


def to_dlpack(
    array: Array, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
) -> Any:
    """A capsule on an array's memory, after what it was asked for, from the view of the consumer's stream."""
    if dl_device is not None and tuple(dl_device) != (CUDA, array.namespace.index):
        raise BufferError(f"an array on {array.namespace.device} is not exported to another device: move it first")
    if copy:
        array = array.copy("K")
    if stream != -1:
        let_wait(array, stream)
    return gpus.extension().to_dlpack(array, max_version is not None and max_version[0] >= 1)


def let_wait(array: Array, stream: Any) -> None:
    """Let a stream of another library, by its number, wait for what was asked of the array's."""
    if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int)):
        raise TypeError(f"stream must be an int or None, not {stream!r}")
    extension = array.namespace.here()
    extension.let_wait(stream or 1)


def from_dlpack(given: Any) -> Array:
    """An array on the memory of another library's array of a GPU, or of a capsule."""
    from undertow.backend.cuda import namespace_of_index

    if type(given).__name__ == "PyCapsule":
        return adopted(gpus.extension().from_dlpack(given))
    space = namespace_of_index(int(given.__dlpack_device__()[1]))
    stream = space.current_stream().cuda_stream or None  # an emulated one has no handle
    try:
        capsule = given.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # a library that knows the first version alone
        capsule = given.__dlpack__(stream=stream)
    return adopted(gpus.extension().from_dlpack(capsule))


def adopted(found: tuple[Any, ...]) -> Array:
    from undertow.backend.cuda import learn, namespace_of_index

    pointer, shape, strides, name, index, is_writeable, owner = found
    dtype = dtypes.bfloat16() if name == "bfloat16" else np.dtype(name)
    learn(dtype)
    array = namespace_of_index(index).here().lent(pointer, shape, strides, dtype, owner)
    array.is_writeable = is_writeable
    return array


def from_interface(given: Any) -> Array:
    """An array on the memory that an object's `__cuda_array_interface__` tells of."""
    from undertow.backend.cuda import namespace_of_index

    told = given.__cuda_array_interface__
    dtype, shape = np.dtype(told["typestr"]), tuple(told["shape"])
    pointer, is_read_only = told["data"]
    if told.get("mask") is not None:
        raise ValueError("arrays with a mask cannot be shared: fill it first")
    strides = told.get("strides")
    if strides is None:
        strides = tuple([int(np.prod(shape[k + 1 :], dtype=np.int64)) * dtype.itemsize for k in range(len(shape))])
    space = namespace_of_index(index_of(given))
    extension = space.here()
    stream = told.get("stream")
    if stream is not None:
        extension.wait_for(stream)
    array = extension.lent(pointer or 0, shape, tuple(strides), dtype, given)
    array.is_writeable = not is_read_only
    return array


def index_of(given: Any) -> int:
    """The number of the GPU that an object of another library is on: its `device`, or the current one."""
    where = getattr(given, "device", None)
    found = getattr(where, "index", getattr(where, "id", None))
    return found if isinstance(found, int) else gpus.current()
