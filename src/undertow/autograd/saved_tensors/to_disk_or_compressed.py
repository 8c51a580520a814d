"""Ready-made hooks for saved tensors: keep them in files, or compressed; a few lines each over saved_tensors_hooks."""

from __future__ import annotations

import contextlib
import os
import weakref
import zlib
from typing import Any

from undertow.autograd.saved_tensors import saved_tensors_hooks
from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType
from undertow.tensor import Tensor


def lives_anyway(tensor: Tensor) -> bool:
    """Whether the memory is that of a leaf, a parameter for instance: packing it would free nothing."""
    owner = tensor if tensor._base is None else tensor._base
    return bool(owner.is_leaf and owner.requires_grad)


class Packed:
    """What takes a tensor's place in the graph. `nbytes` is the memory it takes, for saved_tensors_report."""

    nbytes = 0
    source: weakref.ref[Any]
    version: int

    def restore(self) -> Any:
        raise NotImplementedError("a packed tensor says how it is restored")


class packing_hooks(saved_tensors_hooks):
    """Hooks that keep what `pack_tensor` makes of a tensor: a Packed, or None to leave the tensor as it is.

    A tensor that several nodes save (the output of one, the input of the next) is packed once.
    """

    def __init__(self) -> None:
        self.packed: weakref.WeakValueDictionary[int, Packed] = weakref.WeakValueDictionary()
        super().__init__(self.pack, self.unpack)

    def pack_tensor(self, tensor: Any) -> Packed | None:
        raise NotImplementedError("packing hooks say how they pack")

    def pack(self, tensor: Tensor) -> Any:
        array = tensor._array
        found = self.packed.get(id(array))
        if found is not None and found.source() is array and found.version == tensor._version:
            return found
        made = None if lives_anyway(tensor) else self.pack_tensor(tensor)
        if made is None:
            return tensor.detach()
        made.source, made.version = weakref.ref(array), tensor._version
        self.packed[id(array)] = made
        return made

    def unpack(self, packed: Any) -> Tensor:
        return packed if isinstance(packed, Tensor) else packed.restore()


# ---- files


class SavedFile(Packed):
    """A .npy file that holds one tensor, and is deleted with this object (at the latest when Python exits)."""

    def __init__(self, tensor: Tensor, directory: str | os.PathLike[str] | None) -> None:
        import tempfile  # here, because it loads compression and much else

        # mkstemp makes names that no other thread or process has
        handle, self.path = tempfile.mkstemp(prefix="undertow-", suffix=".npy", dir=directory)
        weakref.finalize(self, _remove, self.path, os.getpid())
        with os.fdopen(handle, "wb") as file:
            cpu.save(file, tensor.cpu()._array, allow_pickle=False)
        self.device = tensor.device

    def restore(self) -> Tensor:
        return Tensor(cpu.load(self.path, allow_pickle=False), cpu).to(self.device)


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked process must leave the files of its parent alone
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


class save_on_disk(packing_hooks):
    """Keep saved tensors of at least `min_bytes` in files, which are deleted when the graph dies.

    Leaves (parameters), which live anyway, are not written.

    directory  where the files go; None: the system's directory for temporary files

    >>> import undertow as ut
    >>> x = ut.ones(500_000, requires_grad=True)
    >>> with ut.autograd.graph.save_on_disk():
    ...     y = x.exp()
    >>> ut.autograd.graph.saved_tensors_report(y).total_bytes
    0
    >>> y.sum().backward()
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, min_bytes: int = 1 << 20) -> None:
        if directory is not None and not os.path.isdir(directory):
            raise NotADirectoryError(f"save_on_disk: {os.fspath(directory)!r} is not a directory; make it first")
        self.directory, self.min_bytes = directory, min_bytes
        super().__init__()

    def pack_tensor(self, tensor: Tensor) -> Packed | None:
        return None if tensor.nbytes < self.min_bytes else SavedFile(tensor, self.directory)


# ---- compression


class Zipped(Packed):
    """The elements of a tensor as zlib-compressed bytes."""

    def __init__(self, tensor: Tensor) -> None:
        array = tensor.cpu()._array
        self.shape, self.dtype, self.device = array.shape, array.dtype, tensor.device
        self.data = zlib.compress(array.tobytes(), level=1)
        self.nbytes = len(self.data)

    def restore(self) -> Tensor:
        elements = cpu.frombuffer(bytearray(zlib.decompress(self.data)), self.dtype)
        return Tensor(elements.reshape(self.shape), cpu).to(self.device)


class Narrowed(Packed):
    """The elements of a tensor in a smaller dtype."""

    def __init__(self, array: Array, tensor: Tensor) -> None:
        self.array, self.dtype, self.xp = array, tensor.dtype, tensor._xp
        self.nbytes = int(array.nbytes)

    def restore(self) -> Tensor:
        return Tensor(self.array.astype(self.dtype), self.xp)


def narrowed(tensor: Tensor, dtype: DType) -> Narrowed | None:
    """The tensor in `dtype`, or None if that is not smaller, or if a value would become infinite or zero in it."""
    array, xp = tensor._array, tensor._xp
    if not dtypes.is_floating(array.dtype) or array.dtype.itemsize <= dtype.itemsize:
        return None
    with cpu.errstate(over="ignore", under="ignore"):
        small = array.astype(dtype)
    spoilt = (xp.isinf(small) != xp.isinf(array)) | ((small == 0) != (array == 0))
    return None if spoilt.any() else Narrowed(small, tensor)


class compress_saved(packing_hooks):
    """Keep saved tensors of at least `min_bytes` compressed; leaves (parameters), which live anyway, as they are.

    dtype  a floating-point dtype: real floating tensors of a larger one are kept in it, rounded (a tensor with a value
           that it cannot hold, because it would become infinite or zero, is kept as it is);
           or "zlib": the bytes are compressed without loss, which helps where values repeat (masks, relu)

    >>> import undertow as ut
    >>> x = ut.ones(1000, requires_grad=True)
    >>> with ut.autograd.graph.compress_saved(ut.float16):
    ...     y = x.exp()
    >>> ut.autograd.graph.saved_tensors_report(y).total_bytes
    2000
    """

    def __init__(self, dtype: DType = dtypes.float16, min_bytes: int = 0) -> None:
        self.zipped = isinstance(dtype, str) and dtype == "zlib"
        if not self.zipped and not dtypes.is_floating(dtypes.numpy_dtype(dtype)):
            raise TypeError(f'compress_saved: expected a floating-point dtype or "zlib", got {dtype!r}')
        self.dtype = None if self.zipped else dtypes.numpy_dtype(dtype)
        self.min_bytes = min_bytes
        super().__init__()

    def pack_tensor(self, tensor: Tensor) -> Packed | None:
        if tensor.nbytes < self.min_bytes:
            return None
        return Zipped(tensor) if self.zipped else narrowed(tensor, self.dtype)
