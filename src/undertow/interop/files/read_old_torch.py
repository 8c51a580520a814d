"""Files that PyTorch wrote before 1.6, or writes with `_use_new_zipfile_serialization=False`: pickles in a row (a magic
number, a version, facts of the machine, the object, the keys of its storages), and behind them the raw storages.

What the object is made of comes behind it, and how long a storage's elements are is said in the object alone. So the
object is gone through twice: `Scanner` finds its end and its storages and makes nothing, and only then it is read, by
the same readers as those of newer files.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from typing import Any, BinaryIO, ClassVar

import numpy as np

from undertow.backend.interface import Array, DType
from undertow.errors import FileFormatError
from undertow.interop.files.read_torch import (
    OLD_MAGIC,
    STORAGES,
    WeightsReader,
    _StorageType,
    allowed_for,
    dtype_called,
    is_tar,
)

#: the one version that there was
VERSION = 1001


def load_old_file(path: str | os.PathLike[str] | BinaryIO, reader: Any = None) -> Any:
    """The object in the file, found by a `reader` as in `load_torch_file`. An open file is read to its end, no further:
    there may be another one behind."""
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            return load_old_file(file, reader)
    place = path.tell()
    data = path.read()
    if is_tar(data):
        raise FileFormatError(
            f"{str(path)!r} is a tar file, as PyTorch wrote them before 0.2: load it with PyTorch, and save it anew"
        )
    behind = io.BytesIO(data)
    storages, start = _storages(behind, str(path))
    path.seek(place + behind.tell())
    behind.seek(start)
    weights = (reader or WeightsReader)(behind, storages.storage)
    if reader is None:
        weights.allowed = allowed_for(len(data))
    return weights.load()


def _storages(file: io.BytesIO, path: str) -> tuple[BlocksInARow, int]:
    """The storages, and where the object begins; the file is left behind them."""
    magic, version, machine = [WeightsReader(file, _no_storage).load() for _ in range(3)]
    if magic != OLD_MAGIC or version != VERSION or not isinstance(machine, dict):
        raise FileFormatError(
            f"{path!r} is of the version {version} of PyTorch's old format, and only {VERSION} is known"
        )
    if not machine.get("little_endian"):
        raise FileFormatError(f"{path!r} was written on a big-endian machine, which is not supported")
    start = file.tell()
    scanner = Scanner(file)
    scanner.load()
    keys = WeightsReader(file, _no_storage).load()
    return BlocksInARow(file, keys, scanner.dtypes), start


def _no_storage(key: str, dtype: DType, count: int) -> Array:
    raise pickle.UnpicklingError("there is a storage where there can be none")


class BlocksInARow:
    """The storages behind the pickles: for each a count of elements, and the elements."""

    def __init__(self, file: io.BytesIO, keys: list[str], dtypes: dict[str, DType]) -> None:
        self.blocks: dict[str, Array] = {}
        for key in keys:
            (count,) = struct.unpack("<q", file.read(8))
            expected = count * dtypes[key].itemsize
            data = file.read(expected) if count >= 0 else b""
            if len(data) != expected:
                raise pickle.UnpicklingError(f"the storage {key} is to have {count} elements, and the file ends before")
            block = np.empty(count, dtypes[key])
            block.view(np.uint8)[:] = np.frombuffer(data, np.uint8)
            self.blocks[key] = block

    def storage(self, key: str, dtype: DType, count: int) -> Array:
        block = self.blocks[key]
        if count > block.size:
            raise pickle.UnpicklingError(f"the storage {key} has {block.size} elements and not {count}")
        return block


class _Anything:
    """What stands for an object that is not made: it can be called, filled and asked for anything, and does nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> _Anything:
        return self

    append = extend = add = __setitem__ = __call__


class Scanner(pickle._Unpickler):
    """Goes through a pickle without making what it says.

    dtypes  the dtypes of the storages that it refers to, by their keys
    """

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="utf-8")
        self.dtypes: dict[str, DType] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module == "torch" and name in STORAGES) or (module, name) == ("torch.storage", "UntypedStorage"):
            return _StorageType(STORAGES.get(name, "uint8"))
        return _Anything()

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "storage" and isinstance(pid[1], _StorageType):
            self.dtypes.setdefault(pid[2], dtype_called(pid[1].dtype))
        return _Anything()

    def _replace(self, count: int) -> None:
        """Put something in the place of the topmost `count`."""
        stack: list[Any] = vars(self)["stack"]
        stack[-count:] = [_Anything()]

    def load_call(self) -> None:
        self._replace(2)

    def load_call_with_names(self) -> None:
        self._replace(3)

    def load_refused(self) -> None:
        raise pickle.UnpicklingError("it has an instruction that torch.save does not write")

    # a function or class and its arguments; an object and its attributes
    dispatch.update(dict.fromkeys(pickle.REDUCE + pickle.NEWOBJ + pickle.BUILD, load_call))
    dispatch[pickle.NEWOBJ_EX[0]] = load_call_with_names
    dispatch.update(dict.fromkeys(pickle.OBJ + pickle.INST + pickle.BYTEARRAY8, load_refused))
