"""What may travel between processes, and how: a tree of plain values, and beside it the memory of its tensors.

Written is a pickle in which everything but plain values (numbers, strings, bytes, lists, tuples, sets, dicts) is a call
of a reader that is named in a table here. What is received is read by that table, so no message makes a process run
code: functions and classes are named, and found among what the receiving program has imported itself. Only a program
that asks for it (`allow_pickle`) sends and takes objects of any class.

Tensors are numbered in the tree, and their memory travels beside it as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from undertow.backend import Device, cpu
from undertow.backend.dtypes import as_dtype, bfloat16, public
from undertow.backend.interface import Array
from undertow.ops import sparse_coo_tensor
from undertow.tensor import LEAF, Size, Tensor


class NotPlainError(TypeError):
    """Something was to travel that is neither a plain value nor a tensor, RRef, or function with a name."""


class Written(NamedTuple):
    """A value that is ready to travel: the tree, its tensors, and the memory of those."""

    tree: bytes
    tensors: list[Tensor]
    arrays: list[Array]


#: kind -> its reader, and what the reader is called with
WRITERS: dict[type, Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]] = {}
#: where a reader is defined, and its name -> the reader
READERS: dict[tuple[str, str], Callable[..., Any]] = {}


def reads(reader: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of a module be named in trees; it must not trust what it is called with."""
    READERS[reader.__module__, reader.__qualname__] = reader
    return reader


def travels(kind: type, write: Callable[[Any], tuple[Any, ...]], reader: Callable[..., Any]) -> None:
    """Let objects of this very class travel: `write` gives plain arguments, from which the reader makes one again."""
    reads(reader)
    WRITERS[kind] = lambda value: (reader, write(value))


# ---- functions and classes, by name


def name_of(function: Callable[..., Any]) -> tuple[str, str]:
    """The module and the name by which another process finds a function or class."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module is None or name is None or "<locals>" in name or "<lambda>" in name:
        raise NotPlainError(
            f"{function!r} cannot be named in another process: functions and classes travel by name, so define it at "
            "the top of a module that both programs import"
        )
    for place in [(module, name), *public_names(module, name)]:
        if found_in(*place) == function:
            return place
    raise NotPlainError(f"{function!r} calls itself {module}.{name}, which is something else here")


def public_names(module: str, name: str) -> list[tuple[str, str]]:
    """Where an operation of undertow's may be found: `linalg_norm` is `undertow.linalg.norm`."""
    if not module.startswith("undertow"):
        return []
    family, _, rest = name.partition("_")
    return [("undertow", name), ("undertow", f"Tensor.{name}"), ("undertow", f"{family}.{rest}")]


def found_in(module: str, name: str) -> Any:
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


@reads
def find(module: str, name: str) -> Any:
    """A function or class that this program has imported, or one of undertow's own."""
    if module.startswith("undertow."):
        importlib.import_module(module)
    if module not in sys.modules:
        raise NotPlainError(
            f"{module}.{name} was named by another process, and this one has not imported {module}: import it in both, "
            "before the first call"
        )
    value = found_in(module, name)
    if not callable(value):
        raise NotPlainError(f"{module}.{name} was named by another process, and there is no such function here")
    return value


# ---- tensors


@reads
def tensor(number: int, first: int, requires_grad: bool, facts: list[Any], shape: Any) -> Any:
    """Stands in a tree for TreeReader.read_tensor, which has the memory."""
    raise NotImplementedError("a tensor is read with the memory that came beside the tree")


class Tree(pickle.Pickler):
    """Writes a tree, and gathers its tensors."""

    def __init__(self, file: Any, allow_pickle: bool) -> None:
        super().__init__(file, 5)
        self.allow_pickle = allow_pickle
        self.tensors: list[Tensor] = []
        self.arrays: list[Array] = []

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, Tensor):
            return self.written_tensor(value)
        if kind in WRITERS:
            return WRITERS[kind](value)
        if callable(value):
            if READERS.get((getattr(value, "__module__", ""), getattr(value, "__qualname__", ""))) is value:
                return NotImplemented
            if not self.allow_pickle:
                return find, name_of(value)
            with contextlib.suppress(NotPlainError):
                return find, name_of(value)
        if self.allow_pickle:
            return NotImplemented
        raise NotPlainError(
            f"a {kind.__module__}.{kind.__qualname__} cannot travel to another process: plain values (numbers, "
            "strings, bytes, lists, tuples, sets, dicts), tensors, RRefs and functions can. Send what it is made of, "
            "or pass allow_pickle=True in the options of init_rpc, in a program that trusts all its processes."
        )

    def written_tensor(self, value: Tensor) -> Any:
        number, first = len(self.tensors), len(self.arrays)
        self.tensors.append(value)
        if value._xp is not cpu:
            raise NotPlainError(f"a tensor on {value.device} cannot travel: move it to the CPU first")
        parts = [value._array]
        sparse_shape = None
        if value.is_sparse:
            whole = value.detach().coalesce()
            parts, sparse_shape = [whole.indices()._array, whole.values()._array], tuple(whole.shape)
        self.arrays += [cpu.ascontiguousarray(part).reshape(part.shape) for part in parts]
        facts = [(part.dtype.name, part.shape) for part in parts]
        return tensor, (number, first, value.requires_grad, facts, sparse_shape)


def named_dtype(name: str) -> Any:
    return bfloat16() if name == "bfloat16" else as_dtype(name)


def written(value: Any, allow_pickle: bool = False) -> Written:
    """A value as it travels."""
    file = io.BytesIO()
    tree = Tree(file, allow_pickle)
    tree.dump(value)
    return Written(file.getvalue(), tree.tensors, tree.arrays)


class TreeReader(pickle.Unpickler):
    """Reads a tree with the readers of the table and nothing else, unless the program takes pickles."""

    def __init__(self, raw: bytes, arrays: Sequence[Any], allow_pickle: bool) -> None:
        super().__init__(io.BytesIO(raw))
        self.arrays, self.allow_pickle = arrays, allow_pickle
        self.tensors: dict[int, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        reader = READERS.get((module, name))
        if reader is not None:
            return self.read_tensor if reader is tensor else reader
        if self.allow_pickle:
            return super().find_class(module, name)
        raise NotPlainError(f"a message names {module}.{name}, and this program takes no pickled objects")

    def read_tensor(self, number: int, first: int, requires_grad: bool, facts: list[Any], shape: Any) -> Tensor:
        parts = [Tensor(self.array(first + k, *fact), cpu) for k, fact in enumerate(facts)]
        found = parts[0] if shape is None else sparse_coo_tensor(*parts, shape)._coalesced_(True)
        if requires_grad:
            found._edge = LEAF
        self.tensors[number] = found
        return found

    def array(self, place: int, dtype: str, shape: tuple[int, ...]) -> Array:
        return cpu.frombuffer(self.arrays[place], dtype=named_dtype(dtype)).reshape(shape)


def read(raw: bytes, arrays: Sequence[Any], allow_pickle: bool = False) -> tuple[Any, list[Tensor]]:
    """The value, and its tensors in the order in which they were written."""
    reader = TreeReader(raw, arrays, allow_pickle)
    value = reader.load()
    return value, [reader.tensors[k] for k in sorted(reader.tensors)]


@reads
def size(numbers: tuple[int, ...]) -> Size:
    return Size(numbers)


@reads
def device(name: str) -> Device:
    return Device(name)


@reads
def dtype(name: str) -> Any:
    return public(named_dtype(name))


travels(Size, lambda value: (tuple(value),), size)
travels(Device, lambda value: (str(value),), device)
travels(type(dtype("float32")), lambda value: (str(value).rpartition(".")[2],), dtype)
travels(complex, lambda value: (value.real, value.imag), complex)
travels(range, lambda value: (value.start, value.stop, value.step), range)
travels(OrderedDict, lambda value: (list(value.items()),), OrderedDict)
travels(slice, lambda value: (value.start, value.stop, value.step), slice)
