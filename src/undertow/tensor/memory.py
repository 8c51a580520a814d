"""The memory that arrays lie in: whose it is, where an array begins, and how to write where NumPy would not."""

from __future__ import annotations

import os
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType, Namespace


def owner(xp: Namespace, array: Array) -> Array:
    """The array whose memory it is."""
    while array.base is not None:
        base = array.base
        if not isinstance(base, xp.ndarray):
            base = getattr(base, "base", None)  # NumPy's as_strided puts a holder in between
        if not isinstance(base, xp.ndarray):
            break
        array = base
    return array


def memory_of(xp: Namespace, array: Array) -> Array:
    """The whole stretch of memory the array lies in, as a 1-d array of its dtype."""
    root = owner(xp, array)
    if root.flags.c_contiguous and root.dtype == array.dtype:
        return root.reshape(-1)
    root = root[(*[slice(None, None, -1 if s < 0 else 1) for s in root.strides], Ellipsis)]
    span = sum([(n - 1) * s for n, s in zip(root.shape, root.strides, strict=True)]) // root.itemsize + 1
    flat = xp.lib.stride_tricks.as_strided(root, (span if root.size else 0,), (root.itemsize,)).view("uint8")
    return flat[: flat.size - flat.size % array.itemsize].view(array.dtype)


def address(array: Array) -> int:
    return int(array.ctypes.data)


def byte_offset(xp: Namespace, array: Array) -> int:
    """How many bytes the array begins behind the start of the memory that it lies in."""
    return address(array) - address(memory_of(xp, array)) if array.size else 0


def fills_one_stretch(array: Array) -> bool:
    """Whether the elements lie next to each other in memory, in whatever order, and each in a place of its own."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return True
    reach = array.itemsize
    for stride, n in sorted([(s, n) for s, n in zip(array.strides, array.shape, strict=True) if n != 1]):
        if stride != reach:
            return False
        reach *= n
    return True


def overlap(xp: Namespace, a: Array, b: Array) -> str:
    """How two arrays share memory: "none", "part", or "whole", if they are element for element the same.

    It is "none", too, where one of them has gaps, or elements that share a place: that would take long to find out.
    """
    if a is b:
        return "whole" if a.size else "none"
    if not (xp.may_share_memory(a, b) and fills_one_stretch(a) and fills_one_stretch(b)):
        return "none"
    return "whole" if (address(a), a.nbytes, _steps(a)) == (address(b), b.nbytes, _steps(b)) else "part"


def _steps(array: Array) -> list[int]:
    """The strides that mean something: those of dimensions with several elements."""
    return [stride for stride, n in zip(array.strides, array.shape, strict=True) if n > 1]


def bytes_into_base(tensor: Array) -> int:
    """How many bytes a view begins behind its base; 0 for a tensor that is none."""
    view = None if tensor._extra is None else tensor._extra.view
    return 0 if view is None or not tensor._array.size else address(tensor._array) - address(view.base._array)


class Storage:
    """The memory that a tensor lies in: `tensor.untyped_storage()` in bytes, `tensor.storage()` in elements.

    Tensors that share memory have storages with the same `data_ptr()`.

    xp        the namespace of the array library that holds the memory
    elements  a one-dimensional array on it

    >>> import undertow as ut
    >>> storage = ut.arange(3).storage()
    >>> len(storage), storage[2]
    (3, 2)
    """

    __slots__ = ("elements", "xp")

    def __init__(self, xp: Namespace, elements: Array) -> None:
        self.xp = xp
        self.elements = elements  # all of them, as a 1-d array

    @property
    def dtype(self) -> Any:
        return dtypes.public(self.elements.dtype)

    @property
    def device(self) -> Any:
        return self.xp.device

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> Storage:
        """The bytes of a file, which are read when they are used.

        Changes are written back if `shared`, which also makes the file and makes it longer, as far as `nbytes` says.

        filename  its path
        """
        if shared:
            with open(filename, "ab") as file:
                if file.tell() < nbytes:
                    file.truncate(nbytes)
        elif os.path.getsize(filename) < nbytes:
            raise RuntimeError(
                f"file <{filename}> size <{os.path.getsize(filename)}> is smaller than the required mapping size "
                f"<{nbytes}>"
            )
        return cls(cpu, cpu.memmap(filename, "uint8", "r+" if shared else "c", shape=nbytes or None).view(cpu.ndarray))

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return address(self.elements) if self.elements.size else 0

    _cdata = property(data_ptr)

    def nbytes(self) -> int:
        return int(self.elements.nbytes)

    def element_size(self) -> int:
        return int(self.elements.itemsize)

    def untyped(self) -> Storage:
        return Storage(self.xp, self.elements.view("uint8"))

    def resize_(self, size: int) -> Storage:
        """Say how many elements are needed. The memory stays as it is, as tensors lie in it; more cannot be had.

        size  how many elements
        """
        if size > len(self):
            raise RuntimeError(
                f"a storage of {len(self)} elements cannot be given {size}: make a larger tensor, or use its resize_()"
            )
        return self

    def tolist(self) -> list[Any]:
        return list(self.elements.tolist())

    def __len__(self) -> int:
        return int(self.elements.size)

    size = __len__

    def __getitem__(self, index: Array) -> Any:
        found = self.elements[index]
        return Storage(self.xp, found) if isinstance(index, slice) else found.tolist()

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> Any:
        return self.elements

    def __repr__(self) -> str:
        return f"Storage of {len(self)} elements of {self.dtype} on {self.device}"


def unlocked(xp: Namespace, part: Array, whole: Array) -> Array:
    """A read-only part of an array that can be written to, itself writable.

    NumPy hands expanded arrays out read-only, and every part of them; so does as_strided here, where windows overlap.
    That no two elements of this part share memory is known.
    """
    try:
        part.flags.writeable = True
    except ValueError:  # NumPy cannot follow memory that as_strided has cut
        memory = memory_of(xp, whole).view("uint8")
        behind = memory[address(part) - address(memory) :]
        behind = behind[: behind.size - behind.size % part.itemsize].view(part.dtype)
        return xp.lib.stride_tricks.as_strided(behind, part.shape, part.strides)
    return part
