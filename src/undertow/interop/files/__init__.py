"""Files: `save` and `load` for trees of tensors, without running anything that a file says.

Three formats, by the name's ending: `.safetensors` (with the package of that name: undertow[files]), `.npz` (NumPy's
own, nothing needed), and PyTorch's (all other names, and open files; see read_torch.py, write_torch.py). The first two
hold named arrays; what a tree has beyond them (nesting, numbers, strings) is a JSON text beside them.

A file is written under another name first and then renamed: whatever happens, the old file or the new one is there
(see replaced.py).
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from undertow.backend import cpu, dtypes
from undertow.backend.dtypes import SCALAR_NAMES
from undertow.backend.interface import Array, DType
from undertow.errors import FileFormatError
from undertow.interop.files.archives import damaged, opened, writing
from undertow.interop.files.read_torch import load_torch_file, starts_as_before
from undertow.interop.files.replaced import write_replacement
from undertow.interop.files.whole_objects import ObjectsReader, write_objects
from undertow.interop.files.write_torch import NotDataError, write_torch_file
from undertow.tensor import LEAF, Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.graph.node import Node

#: the name of the JSON text among the arrays
STRUCTURE = "undertow.structure"
#: how deep a tree may nest: a file that says more is not one of ours
MAX_DEPTH = 100

PathLike = str | os.PathLike[str]


def save(
    obj: Any,
    f: PathLike | BinaryIO,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write a tree of dicts, lists, tuples, tensors, numbers, strings and None, such as a state dict.

    In PyTorch's format, what is more than data (a whole model) is pickled, and `load` reads it with weights_only=False.

    f    a name: one that ends in .npz or .safetensors chooses that format, all others (.pt, .pth, .ckpt, ...)
         PyTorch's; or a file opened for writing bytes, which is written in PyTorch's format
    pickle_module, pickle_protocol  how whole objects are pickled
    _use_new_zipfile_serialization  accepted: PyTorch before 1.6 had another format, which is read here, not written
    obj  the tree

    >>> import os, tempfile
    >>> import undertow as ut
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> ut.save({"weight": ut.ones(2), "epoch": 3}, path)
    >>> ut.load(path)
    {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    if not isinstance(f, str | os.PathLike):
        _write_data_or_objects(f, obj, pickle_module, pickle_protocol)
        return
    path = Path(f)
    if path.suffix in WRITERS:
        write_replacement(path, lambda name: WRITERS[path.suffix](name, obj))
    else:
        write_replacement(path, lambda name: _write_torch(name, obj, pickle_module, pickle_protocol))


def load(
    f: PathLike | BinaryIO,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    device: Device | str | int | None = None,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save` wrote, or a file of named arrays or PyTorch weights, as a tree of tensors.

    Nothing in the file is executed, unless weights_only is False; one that is damaged or says impossible things raises
    FileFormatError. Tensors come to `map_location` (or `device`, which is the same), and require grad only if they did.

    f                    a name: one that ends in .npz or .safetensors is read as such a file, all others as PyTorch's;
                         or a file opened for reading bytes, which is read as PyTorch's
    map_location         a device; or, as PyTorch takes them, a function or a dict of devices, which find everything on
                         the CPU already
    weights_only         False also loads whole objects from PyTorch's files, which runs whatever the file says: only
                         for files of people you trust
    pickle_module, mmap  accepted for PyTorch's sake
    **pickle_load_args   accepted, without effect

    >>> import undertow as ut
    >>> import io
    >>> file = io.BytesIO()  # or a path
    >>> ut.save({"x": ut.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> ut.load(file)
    {'x': tensor([1., 1.])}
    """
    reader: Callable[..., Any] = _read_torch if weights_only is not False else _read_objects
    if isinstance(f, str | os.PathLike):
        reader = READERS.get(Path(f).suffix, reader)
        with open(f, "rb"):  # an absent file is no damaged one
            pass
    try:
        arrays, structure = reader(f)
        tree = _plain(arrays, f) if structure is None else _decode(_parsed(structure, f), arrays, f, 0)
    except (FileFormatError, ImportError):
        raise
    except Exception as error:  # what zipfile, pickle, NumPy and safetensors raise for a garbled file is endless
        raise damaged(f, f"{type(error).__name__}: {error}") from error
    device = map_location if device is None else device
    return tree if device is None or callable(device) or isinstance(device, dict) else _moved(tree, device, {})


# ---- trees


def _encode(obj: Any, arrays: dict[str, Any], name: str, depth: int) -> Any:
    """The tree as JSON values; tensors go to `arrays`, under the path that leads to them."""
    if depth > MAX_DEPTH:
        raise ValueError(f"the tree nests deeper than {MAX_DEPTH} levels at {name[:80]!r}")
    if isinstance(obj, np.generic):
        obj = obj.item()
    if isinstance(obj, Tensor | np.ndarray):
        array, name = _array_of(obj, name), _unused(name, arrays)
        arrays[name], facts = _storable(array)
        return {"array": name, "requires_grad": isinstance(obj, Tensor) and obj._edge is LEAF, **facts}
    if isinstance(obj, dict):
        pairs = [[_key(k, name), _encode(v, arrays, _joined(name, k), depth + 1)] for k, v in obj.items()]
        return {"dict": pairs}
    if isinstance(obj, list | tuple):
        items = [_encode(v, arrays, _joined(name, k), depth + 1) for k, v in enumerate(obj)]
        return {"tuple" if isinstance(obj, tuple) else "list": items}
    if obj is None or isinstance(obj, bool | int | str):
        return {"value": obj}
    if isinstance(obj, float | complex):
        return {"complex": [obj.real.hex(), obj.imag.hex()]} if isinstance(obj, complex) else {"float": obj.hex()}
    raise TypeError(
        f"a {type(obj).__name__} at {name or 'the top'!r} cannot be saved: only dicts, lists, tuples, tensors, "
        "numbers, strings and None can, so that loading never runs code. Of a model or an optimizer, save its "
        "state_dict()."
    )


def _unused(name: str, arrays: dict[str, Any]) -> str:
    """The name, or a longer one: {"a.b": x} and {"a": {"b": y}} lead to the same."""
    while name in arrays or name == STRUCTURE:
        name += "~"
    return name


def _storable(array: Array) -> tuple[Any, dict[str, str]]:
    """The array as formats have it that know neither bfloat16 nor complex128, and what it was."""
    if array.dtype.kind == "V":
        return array, {"dtype": "bfloat16"}
    if array.dtype == np.complex128:
        return np.ascontiguousarray(array).reshape((*array.shape, 1)).view(np.float64), {"dtype": "complex128"}
    return array, {}


def _key(key: Any, name: str) -> Any:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise TypeError(f"a dict at {name or 'the top'!r} has the key {key!r}: keys are to be strings or integers")
    return key


def _joined(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def _array_of(obj: Array, name: str) -> Array:
    array = obj._array if isinstance(obj, Tensor) else np.asarray(obj)
    if type(array) is not np.ndarray:
        array = obj.detach().cpu()._array
    if type(array) is not np.ndarray:
        raise TypeError(f"a sparse tensor at {name!r} cannot be saved: call to_dense() first")
    if array.dtype.hasobject or not (array.dtype in SCALAR_NAMES or dtypes.is_bfloat16(array.dtype)):
        raise TypeError(f"an array of dtype {array.dtype} at {name!r} cannot be saved")
    return array


def _decode(node: Node, arrays: dict[str, Any], path: Any, depth: int) -> Any:
    if depth > MAX_DEPTH or not isinstance(node, dict):
        raise damaged(path, "its structure is not one that save() writes")
    match node:
        case {"array": str(name)}:
            if name not in arrays:
                raise damaged(path, f"the array {name!r} is missing")
            tensor = _tensor(_in_dtype(arrays[name], node.get("dtype")), path)
            return tensor.requires_grad_() if node.get("requires_grad") is True else tensor
        case {"dict": list(pairs)} if all(isinstance(p, list) and len(p) == 2 for p in pairs):
            return {_loaded_key(k, path): _decode(v, arrays, path, depth + 1) for k, v in pairs}
        case {"list": list(items)}:
            return [_decode(v, arrays, path, depth + 1) for v in items]
        case {"tuple": list(items)}:
            return tuple([_decode(v, arrays, path, depth + 1) for v in items])
        case {"value": None | bool() | int() | str() as value}:
            return value
        case {"float": str(text)}:
            return float.fromhex(text)
        case {"complex": [str(real), str(imag)]}:
            return complex(float.fromhex(real), float.fromhex(imag))
    raise damaged(path, "its structure is not one that save() writes")


def _in_dtype(array: Array, dtype: DType) -> Array:
    """bfloat16, which .npz files do not know, is stored as its bits; complex128 as pairs of numbers."""
    if dtype == "complex128" and array.dtype == np.float64 and array.shape[-1:] == (2,):
        return np.ascontiguousarray(array).view(np.complex128).reshape(array.shape[:-1])
    return array.view(dtypes.bfloat16()) if dtype == "bfloat16" and array.dtype == np.uint16 else array


def _loaded_key(key: Any, path: Any) -> Any:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise damaged(path, "a key is neither a string nor an integer")
    return key


def _plain(arrays: Any, path: Any) -> Any:
    """A file of arrays that somebody else wrote: a flat dict. What the PyTorch reader gives is a tree already."""
    return {name: _tensor(array, path) for name, array in arrays.items()} if isinstance(arrays, dict) else arrays[0]


def _tensor(array: Array, path: Any) -> Tensor:
    if not (array.dtype in SCALAR_NAMES or dtypes.is_bfloat16(array.dtype)):
        raise damaged(path, f"it has an array of dtype {array.dtype}, which no tensor can have")
    return Tensor(array, cpu)


def _moved(tree: Any, device: Device | str | int | None, done: dict[int, Any]) -> Any:
    """The tree on another device; what is in it several times is moved once."""
    if id(tree) not in done:
        done[id(tree)] = tree  # a file of PyTorch's may have a list that holds itself; it is left as it is
        done[id(tree)] = _copied_to(tree, device, done)
    return done[id(tree)]


def _copied_to(tree: Any, device: Device | str | int | None, done: dict[int, Any]) -> Any:
    if isinstance(tree, Tensor):
        leaf: Any = tree
        moved = leaf.detach().to(device)
        return moved.requires_grad_() if leaf.requires_grad else moved
    if isinstance(tree, dict):
        return {k: _moved(v, device, done) for k, v in tree.items()}
    return type(tree)([_moved(v, device, done) for v in tree]) if isinstance(tree, list | tuple) else tree


def _parsed(structure: str, path: Any) -> Any:
    try:
        return json.loads(structure)
    except (ValueError, RecursionError) as error:
        raise damaged(path, "its structure is no JSON text") from error


# ---- npz


def _encoded(obj: Any) -> tuple[dict[str, Any], str]:
    """The arrays of a tree, and the JSON text that says where they belong."""
    arrays: dict[str, Any] = {}
    structure = json.dumps(_encode(obj, arrays, "", 0))
    return arrays, structure


def _write_npz(path: str, obj: Any) -> None:
    arrays, structure = _encoded(obj)
    with _written(path) as file:
        text = np.frombuffer(structure.encode(), np.uint8)
        bits = {name: a.view(np.uint16) if a.dtype.kind == "V" else a for name, a in arrays.items()}
        _write_arrays(file, {STRUCTURE: text, **bits})


def _write_arrays(file: BinaryIO, arrays: dict[str, Any]) -> None:
    """As numpy.savez does, which has arguments of its own, so that not every name is possible."""
    with writing(file) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _read_npz(path: PathLike) -> tuple[dict[str, Any], str | None]:
    arrays = dict(_npz_members(path))
    text = arrays.pop(STRUCTURE, None)
    return arrays, None if text is None else text.tobytes().decode("utf-8", "replace")


def _npz_members(path: PathLike) -> Iterator[tuple[str, Any]]:
    with opened(path, compressed=True) as archive:
        for info in [found for found in archive.infolist() if found.filename.endswith(".npy")]:
            yield info.filename.removesuffix(".npy"), _read_npy(archive, info, path)


def _read_npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: PathLike) -> Array:
    """One array, after its header was found to announce no more than there is."""
    with archive.open(info) as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except Exception as error:
            raise damaged(path, f"{info.filename!r} has no valid header") from error
        if dtype.hasobject:
            raise damaged(path, f"{info.filename!r} holds Python objects, which are never loaded")
        expected = dtype.itemsize * int(np.prod(shape, dtype=object))
        data = file.read(expected + 1) if expected <= info.file_size else b""
        if len(data) != expected or min(shape, default=0) < 0:
            raise damaged(path, f"{info.filename!r} is not as long as its header says")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C").copy(order="K")


# ---- safetensors


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "reading and writing .safetensors files needs the package safetensors: install undertow[files], or use a "
            ".npz file"
        ) from None
    return safetensors


def _write_safetensors(path: str, obj: Any) -> None:
    arrays, structure = _encoded(obj)
    contiguous = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    package = _safetensors()
    try:
        package.numpy.save_file(contiguous, path, metadata={STRUCTURE: structure})
    except package.SafetensorError as error:  # how it says that a disk is full
        raise OSError(f"could not write {path}: {error}") from error


def _read_safetensors(path: PathLike) -> tuple[dict[str, Any], str | None]:
    with _safetensors().safe_open(path, "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it has no iterator)
        return arrays, (file.metadata() or {}).get(STRUCTURE)


@contextmanager
def _written(path: str) -> Iterator[BinaryIO]:
    """A file to write to. It is opened into an object that is held already: so no interrupt can drop it while open."""
    raw, file = FileIO.__new__(FileIO), BufferedWriter.__new__(BufferedWriter)
    try:
        raw.__init__(path, "wb")  # type: ignore[misc]
        file.__init__(raw)  # type: ignore[misc]
        yield file
        file.close()  # a full disk is noticed here
    finally:
        raw.close()


# ---- PyTorch


def _write_torch(path: str, obj: Any, pickle_module: Any = None, protocol: int = 2) -> None:
    with _written(path) as file:
        _write_data_or_objects(file, obj, pickle_module, protocol)


def _write_data_or_objects(file: BinaryIO, obj: Any, pickle_module: Any, protocol: int) -> None:
    try:
        write_torch_file(file, obj)
    except NotDataError:  # nothing has been written yet
        write_objects(file, obj, pickle_module, protocol)


def _read_torch(path: PathLike | BinaryIO) -> tuple[Any, None]:
    return [_load_torch(path)], None


def _read_objects(path: PathLike | BinaryIO) -> tuple[Any, None]:
    return [_load_torch(path, ObjectsReader)], None


def _load_torch(path: PathLike | BinaryIO, reader: Any = None) -> Any:
    if starts_as_before(path):
        from undertow.interop.files.read_old_torch import load_old_file

        return load_old_file(path, reader)
    return load_torch_file(path, reader)


#: by the ending of a name; all other files are PyTorch's
WRITERS: dict[str, Callable[..., Any]] = {".npz": _write_npz, ".safetensors": _write_safetensors}
READERS: dict[str, Callable[..., Any]] = {".npz": _read_npz, ".safetensors": _read_safetensors}
