"""Weights in files that PyTorch wrote, read without PyTorch and without running what they say.

Such a file is a zip archive of a pickle and one raw block of bytes for each storage (those of PyTorch before 1.6 have
the same one after the other, see read_old_torch.py). Pickle can name any function to be
called; here it finds only the few that build tensors and dicts, written anew below, and everything else is refused.

A storage is read once, as long as the pickle says, and tensors are views of it, as they were when they were saved: so
tensors take no more memory than the file is long, whatever their shapes and strides. What else a pickle may have
copied (a list of the letters of a text, over and over) is counted, and refused when it is out of all proportion.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO, ClassVar

import numpy as np

from undertow.backend import Device, cpu, dtypes
from undertow.backend.interface import DType
from undertow.errors import FileFormatError
from undertow.interop.files.archives import length, opened
from undertow.ops.sparse.coo import sparse_coo_tensor
from undertow.tensor import Tensor

#: the names of PyTorch's storage classes -> dtypes
STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128", "ComplexFloatStorage": "complex64", "BFloat16Storage": "bfloat16",
}  # fmt: skip

#: the number, pickled, that files of PyTorch before 1.6 begin with
OLD_MAGIC = 0x1950A86A20F9469CFC6C
OLD_STARTS = tuple([pickle.dumps(OLD_MAGIC, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)])

#: what is copied while a pickle is read may be as much as this, or so many times the length of the file
ALWAYS_ALLOWED, TIMES_ALLOWED = 1 << 26, 16


def load_torch_file(path: str | os.PathLike[str] | BinaryIO, reader: Any = None) -> Any:
    """The object in the file: a tree of dicts, lists and tensors, or what else a `reader` of all objects finds."""
    with opened(path, compressed=False) as archive:
        names = archive.namelist()
        pickles = [n for n in names if n.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise FileFormatError(f"{str(path)!r} is not a file that torch.save wrote: it has no data.pkl")
        root = pickles[0].removesuffix("data.pkl")
        if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
            raise FileFormatError(f"{str(path)!r} was written on a big-endian machine, which is not supported")
        with archive.open(pickles[0]) as file:
            weights = (reader or WeightsReader)(file, PartsOfArchive(archive, root).storage)
            if reader is None:
                weights.allowed = allowed_for(length(path))
            return weights.load()


def allowed_for(size: int) -> int:
    """How much may be copied of a file of so many bytes."""
    return max(ALWAYS_ALLOWED, TIMES_ALLOWED * size)


def starts_as_before(path: str | os.PathLike[str] | BinaryIO) -> bool:
    """Whether a file is of the kinds that PyTorch wrote before its archives: pickles in a row, or a tar file."""
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            return starts_as_before(file)
    place = path.tell()
    start = path.read(512)
    path.seek(place)
    return start.startswith(OLD_STARTS) or is_tar(start)


def is_tar(start: bytes) -> bool:
    return start[257:262] == b"ustar"


class PartsOfArchive:
    """The storages in an archive: a part for each."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        self.archive, self.root = archive, root

    def storage(self, key: str, dtype: DType, count: int) -> Any:
        """The first `count` elements: nothing refers to more."""
        part = self.archive.getinfo(f"{self.root}data/{key}")
        if not 0 <= count <= part.file_size // dtype.itemsize:
            there = part.file_size // dtype.itemsize
            raise pickle.UnpicklingError(f"the storage {key} has {there} elements and not {count}")
        memory = np.empty(count, dtype)
        with self.archive.open(part) as file:
            data = file.read(memory.nbytes)
        memory.view(np.uint8)[:] = np.frombuffer(data, np.uint8)
        return memory


# Python's own, not C's: there, what an instruction does cannot be changed
class WeightsReader(pickle._Unpickler):
    """Finds nothing but what weights are made of."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def load_build(self) -> None:
        """Attributes are set of OrderedDicts (a state_dict has `_metadata`): of others they would change our code."""
        stack: list[Any] = vars(self)["stack"]
        state, target = stack.pop(), stack[-1]
        if type(target) is not OrderedDict or not isinstance(state, dict) or set(state) - {"_metadata"}:
            raise pickle.UnpicklingError(f"it changes attributes of a {type(target).__name__}")
        vars(target).update(state)

    dispatch[pickle.BUILD[0]] = load_build

    def load_reduce(self) -> None:
        """A call. What it may copy of its arguments is counted."""
        stack: list[Any] = vars(self)["stack"]
        function, arguments = stack[-2:]
        self.count_bytes(_copied_bytes(arguments))
        stack[-2:] = [function(*arguments)]

    def load_refused(self) -> None:
        raise pickle.UnpicklingError("it has an instruction that torch.save does not write")

    dispatch[pickle.REDUCE[0]] = load_reduce
    # the others that call something, and one that takes memory before it looks whether there is as much to read
    _refused = pickle.NEWOBJ + pickle.NEWOBJ_EX + pickle.OBJ + pickle.INST + pickle.BYTEARRAY8
    dispatch.update(dict.fromkeys(_refused, load_refused))

    #: how many bytes may still be copied
    allowed = ALWAYS_ALLOWED

    def __init__(self, file: Any, storage: Callable[[str, DType, int], Any]) -> None:
        super().__init__(file, encoding="utf-8")
        self.storage = storage
        self.storages: dict[str, Any] = {}

    def count_bytes(self, number: int) -> None:
        self.allowed -= number
        if self.allowed < 0:
            raise pickle.UnpicklingError("it would take far more memory than the file has bytes")

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return _StorageType(STORAGES[name])
        if (module, name) == ("torch", "bfloat16"):
            return dtypes.bfloat16()
        found = ALLOWED.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, and only weights (tensors, parameters, dicts, lists and numbers) are "
                "loaded. Save the state_dict() rather than the model; or, if you trust whoever wrote the file, load it "
                "with weights_only=False, which runs what it says"
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        kind, storage_type, key, _location, count, *view = pid
        if kind != "storage" or not isinstance(storage_type, _StorageType):
            raise pickle.UnpicklingError(f"it refers to something that is no storage of known dtype: {pid!r}")
        if key not in self.storages:
            self.storages[key] = self.storage(key, dtype_called(storage_type.dtype), count)
        if view and view[0] is not None:  # a part of it, in files of old
            _, offset, size = view[0]
            return self.storages[key][offset : offset + size]
        return self.storages[key]


def _copied_bytes(arguments: Any) -> int:
    """How much memory a function may take that is called with these."""
    copied = sum([16 * len(a) for a in arguments if isinstance(a, str | bytes | list | tuple | dict | set)])
    if any(isinstance(a, dict) and a for a in arguments):  # a tensor that is to be conjugated
        copied += sum([a.nbytes for a in arguments if isinstance(a, np.ndarray)])
    return copied


def dtype_called(name: str) -> Any:
    return dtypes.bfloat16() if name == "bfloat16" else np.dtype(name)


class _StorageType:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


def _rebuild_tensor(
    storage: Any,
    offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Any:
    """As PyTorch writes a tensor; its values may be meant to be conjugated, or negated."""
    for fact, function in (("conj", np.conj), ("neg", np.negative)):
        if (metadata or {}).get(fact) and isinstance(storage, np.ndarray):
            storage = np.asarray(function(storage))
    tensor: Any = Tensor(_strided(storage, offset, size, stride), cpu)
    return tensor.requires_grad_() if requires_grad is True else tensor


def _rebuild_typed_tensor(
    storage: Any,
    offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    hooks: Any,
    dtype: DType,
    metadata: Any = None,
) -> Any:
    """For dtypes that have no storage class: the storage is bytes."""
    if not isinstance(storage, np.ndarray) or not isinstance(dtype, np.dtype) or storage.size % dtype.itemsize:
        raise pickle.UnpicklingError("a tensor has an impossible dtype")
    return _rebuild_tensor(storage.view(dtype), offset, size, stride, requires_grad, hooks, metadata)


def _strided(storage: Any, offset: int, size: Any, stride: Any) -> Any:
    if not isinstance(storage, np.ndarray) or offset < 0 or min([*size, *stride], default=0) < 0:
        raise pickle.UnpicklingError("a tensor has an impossible shape")
    last = offset + sum([(n - 1) * s for n, s in zip(size, stride, strict=True)])
    if 0 not in size and last >= storage.size:
        raise pickle.UnpicklingError("a tensor reaches beyond its storage")
    if 0 in size:
        return np.empty(tuple(size), storage.dtype)
    strides = tuple([s * storage.itemsize for s in stride])
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), strides)


def _rebuild_parameter(data: Any, requires_grad: bool, hooks: Any) -> Any:
    if type(data) is not Tensor:
        raise pickle.UnpicklingError("a parameter is made of something that is no tensor")
    tensor: Any = data
    return tensor.requires_grad_() if requires_grad is True else tensor


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    indices, values, size, is_coalesced = data
    if layout != "torch.sparse_coo":
        raise pickle.UnpicklingError(f"it has a tensor of the layout {layout}, and only sparse_coo is known")
    return sparse_coo_tensor(indices, values, tuple(size), is_coalesced=is_coalesced)


def _encode(text: str, encoding: str) -> bytes:
    """Bytes, as pickles of protocol 2 have them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it has bytes in the encoding {encoding}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _default_dict(factory: Any = None) -> dict[Any, Any]:
    return {}


ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("collections", "defaultdict"): _default_dict,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,  # how b"" is written
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_typed_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_sparse_tensor"): _rebuild_sparse_tensor,
    ("torch.serialization", "_get_layout"): str,
    ("torch.storage", "UntypedStorage"): _StorageType("uint8"),
    ("torch", "Size"): tuple,
    ("torch", "device"): Device,
    **{
        ("torch", name): np.dtype(name)
        for name in (*STORAGES.values(), "uint16", "uint32", "uint64")
        if name != "bfloat16"
    },
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (complex, set, list, dict)},
}
