"""Weights written as PyTorch writes them, so that torch.load reads them: without PyTorch.

The pickle in such a file is written here instruction by instruction. It names only what builds tensors, so that
`torch.load(..., weights_only=True)`, which is its default, accepts it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from undertow.backend.interface import Array
from undertow.backend.public_dtypes import PREFIX
from undertow.interop.files.archives import writing
from undertow.interop.files.read_torch import STORAGES
from undertow.tensor import LEAF, Tensor

#: names of dtypes -> PyTorch's storage classes
STORAGE_NAMES = {dtype: name for name, dtype in STORAGES.items()}

# the pickle machine's instructions, as protocol 2 has them
PROTOCOL, STOP, NONE, TRUE, FALSE = b"\x80\x02", b".", b"N", b"\x88", b"\x89"
INT32, LONG, FLOAT, TEXT = b"J", b"\x8a", b"G", b"X"
MARK, TUPLE, EMPTY_TUPLE, LIST, APPENDS, DICT, SETITEMS = b"(", b"t", b")", b"]", b"e", b"}", b"u"
GLOBAL, CALL, PERSISTENT = b"c", b"R", b"Q"


def write_torch_file(file: BinaryIO, tree: Any) -> None:
    """Write a tree of dicts, lists, tuples, tensors, numbers, strings, bytes and None to a binary file."""
    writer = _Writer()
    instructions = writer.encoded(tree, "")
    with writing(file) as archive:  # not compressed, as PyTorch wants it
        archive.writestr("archive/data.pkl", PROTOCOL + instructions + STOP)
        archive.writestr("archive/byteorder", "little")
        for key, array in enumerate(writer.arrays):
            archive.writestr(f"archive/data/{key}", little_endian(array).tobytes())
        archive.writestr("archive/version", "3\n")


def little_endian(array: Array) -> Array:
    bits = array.view(np.uint16) if array.dtype.kind == "V" else array
    return bits.astype(bits.dtype.newbyteorder("<"), copy=False)


class NotDataError(TypeError):
    """There is something in the tree that only a pickle of whole objects can hold."""


class _Writer:
    """arrays  the memory of the tensors so far; `keys` finds it by the array that was given"""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.keys: dict[Any, int] = {}

    def encoded(self, obj: Any, name: str) -> bytes:
        """The instructions that build `obj`; `name` says where in the tree it is."""
        if isinstance(obj, np.ndarray | np.generic) and (PREFIX[0] == "torch" or obj.dtype.name not in STORAGE_NAMES):
            # what a program that was written for PyTorch saves as an array is to come back as one
            raise NotDataError(f"an array at {name.lstrip('.') or 'the top'!r} is no tensor")
        if isinstance(obj, np.generic):
            obj = obj.item()
        if isinstance(obj, Tensor | np.ndarray):
            return self.tensor(obj, name)
        if isinstance(obj, dict):
            pairs = [self.encoded(x, f"{name}.{k}") for k, v in obj.items() for x in (self.key(k, name), v)]
            return DICT + MARK + b"".join(pairs) + SETITEMS
        if isinstance(obj, list | tuple):
            items = b"".join([self.encoded(x, f"{name}.{k}") for k, x in enumerate(obj)])
            return LIST + MARK + items + APPENDS if isinstance(obj, list) else MARK + items + TUPLE
        if obj is None or isinstance(obj, bool):
            return NONE if obj is None else TRUE if obj else FALSE
        if isinstance(obj, int | float | str):
            return _plain(obj)
        if isinstance(obj, bytes):
            return _called("_codecs", "encode", [_plain(obj.decode("latin1")), _plain("latin1")])
        if isinstance(obj, complex):
            return _called("__builtin__", "complex", [_plain(obj.real), _plain(obj.imag)])
        raise NotDataError(f"a {type(obj).__name__} at {name.lstrip('.') or 'the top'!r} is more than data")

    def key(self, key: Any, name: str) -> Any:
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise NotDataError(f"a dict at {name.lstrip('.') or 'the top'!r} has the key {key!r}")
        return key

    def tensor(self, obj: Array, name: str) -> bytes:
        tensor: Any = obj
        array = tensor.detach().cpu()._array if isinstance(obj, Tensor) else np.asarray(obj)
        if type(array) is not np.ndarray:
            raise TypeError(f"a sparse tensor at {name.lstrip('.')!r} cannot be saved: call to_dense() first")
        if array.dtype.name not in STORAGE_NAMES:
            raise TypeError(
                f"an array of dtype {array.dtype} at {name.lstrip('.')!r} cannot be saved in PyTorch's format: use a "
                ".npz file"
            )
        arguments = [self.storage(array), _plain(0), _sizes(array.shape), _sizes(_dense_strides(array.shape))]
        requires_grad = TRUE if isinstance(obj, Tensor) and obj._edge is LEAF else FALSE
        no_hooks = _called("collections", "OrderedDict", [])
        return _called("torch._utils", "_rebuild_tensor_v2", [*arguments, requires_grad, no_hooks])

    def storage(self, array: Array) -> bytes:
        """The instructions that refer to the memory, which is stored once for all tensors that are the same array."""
        identity = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype
        if array.size == 0 or identity not in self.keys:
            self.keys[identity] = len(self.arrays)
            self.arrays.append(array)
        key = self.keys[identity]
        parts = ["storage", None, str(key), "cpu", array.size]
        encoded = [_global("torch", STORAGE_NAMES[array.dtype.name]) if p is None else _plain(p) for p in parts]
        return MARK + b"".join(encoded) + TUPLE + PERSISTENT


def _dense_strides(shape: tuple[int, ...]) -> list[int]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return strides[::-1]


def _plain(value: Any) -> bytes:
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return TEXT + struct.pack("<I", len(text)) + text
    if isinstance(value, float):
        return FLOAT + struct.pack(">d", value)
    if -(2**31) <= value < 2**31:
        return INT32 + struct.pack("<i", value)
    data = int(value).to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    if len(data) > 255:
        raise ValueError("an integer of more than 2000 bits cannot be saved in PyTorch's format: use a .npz file")
    return LONG + bytes([len(data)]) + data


def _sizes(numbers: Iterable[int]) -> bytes:
    return MARK + b"".join([_plain(int(n)) for n in numbers]) + TUPLE


def _global(module: str, name: str) -> bytes:
    return GLOBAL + f"{module}\n{name}\n".encode()


def _called(module: str, name: str, arguments: list[bytes]) -> bytes:
    given = MARK + b"".join(arguments) + TUPLE if arguments else EMPTY_TUPLE
    return _global(module, name) + given + CALL
