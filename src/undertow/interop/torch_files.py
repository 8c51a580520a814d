"""Weights in files that PyTorch wrote, read without PyTorch and without running what they say.

Such a file is a zip archive of a pickle and one raw block of bytes for each storage. Pickle can name any function to be
called; here it finds only the few that build tensors and dicts, written anew below, and everything else is refused.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from undertow.backend import cpu
from undertow.tensor import Tensor

#: the names of PyTorch's storage classes -> dtypes
STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128", "ComplexFloatStorage": "complex64",
}  # fmt: skip


class FileFormatError(ValueError):
    """A file that is damaged, is not what its name says, or holds more than data."""


def load_torch_file(path: str | os.PathLike[str] | BinaryIO) -> Any:
    """The object in the file: a tree of dicts, lists and tensors."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        pickles = [n for n in names if n.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise FileFormatError(f"{str(path)!r} is not a file that torch.save wrote: it has no data.pkl")
        root = pickles[0].removesuffix("data.pkl")
        if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
            raise FileFormatError(f"{str(path)!r} was written on a big-endian machine, which is not supported")
        with archive.open(pickles[0]) as file:
            return _Weights(file, archive, root).load()


class _Weights(pickle.Unpickler):
    """Finds nothing but what weights are made of."""

    def __init__(self, file: Any, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(file, encoding="utf-8")
        self.archive, self.root = archive, root
        self.storages: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return _StorageType(STORAGES[name])
        found = ALLOWED.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, and only weights (tensors, parameters, dicts, lists and numbers) are "
                "loaded. Save the state_dict() rather than the model."
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        kind, storage_type, key, _location, count = pid
        if kind != "storage" or not isinstance(storage_type, _StorageType):
            raise pickle.UnpicklingError(f"it refers to something that is no storage of known dtype: {pid!r}")
        if key not in self.storages:
            data = self.archive.read(f"{self.root}data/{key}")
            array = np.frombuffer(data, storage_type.dtype)
            if array.size < count:
                raise pickle.UnpicklingError(f"the storage {key} has {array.size} elements and not {count}")
            self.storages[key] = array
        return self.storages[key]


class _StorageType:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


def _rebuild_tensor(storage: Any, offset: int, size: Any, stride: Any, requires_grad: bool = False, *rest: Any) -> Any:
    if not isinstance(storage, np.ndarray) or offset < 0 or min([*size, *stride], default=0) < 0:
        raise pickle.UnpicklingError("a tensor has an impossible shape")
    last = offset + sum([(n - 1) * s for n, s in zip(size, stride, strict=True)])
    if 0 not in size and last >= storage.size:
        raise pickle.UnpicklingError("a tensor reaches beyond its storage")
    if 0 in size:
        return Tensor(np.empty(tuple(size), storage.dtype), cpu)
    strides = tuple([s * storage.itemsize for s in stride])
    array = np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), strides).copy(order="K")
    tensor: Any = Tensor(array, cpu)
    return tensor.requires_grad_() if requires_grad is True else tensor


def _rebuild_parameter(data: Any, requires_grad: bool, hooks: Any) -> Any:
    if type(data) is not Tensor:
        raise pickle.UnpicklingError("a parameter is made of something that is no tensor")
    tensor: Any = data
    return tensor.requires_grad_() if requires_grad is True else tensor


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch", "Size"): tuple,
}
