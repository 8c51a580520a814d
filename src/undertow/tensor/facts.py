"""What a tensor says of itself: sizes, strides and memory, kinds of dtype and device.

Plain functions with the tensor first; `methods.py` makes them methods.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array
from undertow.backend.memory_order import shown_strides
from undertow.backend.public_dtypes import PREFIX
from undertow.compiled import twin
from undertow.tensor.memory import Storage, byte_offset, memory_of
from undertow.tensor.memory_formats import contiguous_format, is_laid_out, memory_format
from undertow.tensor.size import Size
from undertow.tensor.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device

# ---- as a container


def length(self: Tensor) -> int:
    """`len(tensor)`: the size of the first dimension."""
    if self._array.ndim == 0:
        raise TypeError("len() of a 0-d tensor")
    return int(self._array.shape[0])


def contains(self: Tensor, element: Any) -> bool:
    """`element in tensor`: whether any element (after broadcasting) is equal to it."""
    if not isinstance(element, (Tensor, bool, int, float, complex, self._xp.generic)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self._array == (element._array if isinstance(element, Tensor) else element)).any())


# ---- shape and memory


def pick(values: tuple[int, ...], dim: Any) -> int:
    """The entry for a dimension that may be negative."""
    try:
        dim = operator.index(dim)
    except TypeError:
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}") from None
    ndim = len(values)
    if not ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    return int(values[dim])


def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or its entry for one dimension.

    >>> import undertow as ut
    >>> ut.ones(2, 3).size()
    undertow.Size([2, 3])
    """
    shape = self._array.shape
    return tuple.__new__(Size, shape) if dim is None else pick(shape, dim)


@twin
def stride(self: Tensor, dim: int | None = None) -> Any:
    """How many elements to move in memory for one step along each dimension, or along one.

    >>> import undertow as ut
    >>> ut.ones(2, 3).stride()
    (3, 1)
    """
    strides = element_strides(self._array)
    return strides if dim is None else pick(strides, dim)


def element_strides(array: Array) -> tuple[int, ...]:
    """The strides in elements."""
    return tuple([stride // array.itemsize for stride in shown_strides(array)])


@twin
def storage_offset(self: Tensor) -> int:
    """How many elements the first one lies behind the start of the memory that the tensor shows a part of.

    >>> import undertow as ut
    >>> ut.arange(4)[2:].storage_offset()
    2
    """
    return byte_offset(self._xp, self._array) // int(self._array.itemsize)


def storage(self: Tensor) -> Storage:
    """The memory that the tensor lies in, in elements of its dtype.

    >>> import undertow as ut
    >>> len(ut.ones(3).storage())
    3
    """
    return Storage(self._xp, memory_of(self._xp, self._array))


def untyped_storage(self: Tensor) -> Storage:
    """The memory that the tensor lies in, in bytes.

    >>> import undertow as ut
    >>> x = ut.zeros(2, 3)
    >>> x[1].untyped_storage().data_ptr() == x.data_ptr()
    True
    """
    return storage(self).untyped()


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both tensors show the same memory in the same way.

    tensor  the other one

    >>> import undertow as ut
    >>> x = ut.ones(2)
    >>> x.is_set_to(x.detach())
    True
    """
    mine, other = self._array, tensor._array
    same = mine.shape == other.shape and mine.strides == other.strides and mine.dtype == other.dtype
    return bool(same and mine.size and mine.ctypes.data == other.ctypes.data)


@twin
def data_ptr(self: Tensor) -> int:
    """The address of the first element; 0 for a tensor without elements, or without memory (on the meta device).

    >>> import undertow as ut
    >>> x = ut.ones(2)
    >>> x.data_ptr() == x.view(2, 1).data_ptr()
    True
    """
    return int(self._array.ctypes.data) if self._array.size and self._xp.device.type != "meta" else 0


@twin
def is_contiguous(self: Tensor, memory_format: memory_format = contiguous_format) -> bool:
    """Whether the elements lie in memory without gaps, in the order of the dimensions (or of the format).

    >>> import undertow as ut
    >>> ut.ones(2, 3).T.is_contiguous()
    False
    """
    return is_laid_out(self._array, memory_format)


@twin
def dim(self: Tensor) -> int:
    """The number of dimensions.

    >>> import undertow as ut
    >>> ut.ones(2, 3).dim()
    2
    """
    return int(self._array.ndim)


@twin
def numel(self: Tensor) -> int:
    """The number of elements.

    >>> import undertow as ut
    >>> ut.numel(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    4
    """
    return int(self._array.size)


@twin
def element_size(self: Tensor) -> int:
    """The number of bytes of one element.

    >>> import undertow as ut
    >>> ut.ones(1).element_size()
    4
    """
    return int(self._array.itemsize)


def nbytes(self: Tensor) -> int:
    """The number of bytes of all elements."""
    return int(self._array.nbytes)


def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether both tensors have the same shape.

    other  the tensor to compare with

    >>> import undertow as ut
    >>> ut.is_same_size(ut.ones(2), ut.zeros(2))
    True
    """
    return bool(self._array.shape == other._array.shape)


# ---- kinds


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a real floating-point one.

    >>> import undertow as ut
    >>> ut.is_floating_point(ut.ones(1))
    True
    """
    return dtypes.is_floating(input._array.dtype)


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex.

    >>> import undertow as ut
    >>> ut.is_complex(ut.tensor([1j]))
    True
    """
    return bool(input._array.dtype.kind == "c")


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers.

    >>> import undertow as ut
    >>> ut.is_signed(ut.ones(1))
    True
    """
    return input._array.dtype.kind in "ifcV"


def is_tensor(obj: object) -> bool:
    """Whether `obj` is an undertow Tensor.

    >>> import undertow as ut
    >>> ut.is_tensor(ut.ones(1))
    True
    """
    return isinstance(obj, Tensor)


def type_name(self: Tensor) -> str:
    """The legacy name of the tensor's type: 'undertow.FloatTensor'."""
    return f"{PREFIX[0]}." + dtypes.TENSOR_TYPE_NAMES[self._array.dtype]


def get_device(self: Tensor) -> int:
    """The number of the device; -1 on the CPU.

    >>> import undertow as ut
    >>> ut.get_device(ut.ones(1))
    -1
    """
    index = self._xp.device.index
    return -1 if self._xp.device.type == "cpu" or index is None else int(index)


def is_distributed(self: Tensor) -> bool:
    """False: a tensor is in one process.

    >>> import undertow as ut
    >>> ut.ones(2).is_distributed()
    False
    """
    return False


def is_pinned(self: Tensor, device: Device | str | int | None = None) -> bool:
    """False: no GPU copies from this memory."""
    return False


# ---- to methods


def is_on(kind: str) -> property:
    """`is_cpu`, `is_cuda`: whether the tensor's device is of this kind."""
    return property(lambda self: self.device.type == kind, doc=f"Whether the tensor is on a device of kind {kind!r}.")


#: kinds of tensors that there are none of here
NEVER = property(lambda self: False, doc="False: undertow has no tensors of this kind.")

#: attribute -> function or property; `methods.py` puts them on Tensor
METHODS: dict[str, Any] = {
    "__contains__": contains,
    "__hash__": object.__hash__,  # by identity, because `==` compares elements
    "__len__": length,
    "data_ptr": data_ptr,
    "dim": dim,
    "element_size": element_size,
    "get_device": get_device,
    "is_complex": is_complex,
    "is_contiguous": is_contiguous,
    "is_cpu": is_on("cpu"),
    "is_cuda": is_on("cuda"),
    "is_distributed": is_distributed,
    "is_floating_point": is_floating_point,
    "is_ipu": NEVER,
    "is_maia": NEVER,
    "is_meta": is_on("meta"),
    "is_mkldnn": NEVER,
    "is_mps": NEVER,
    "is_mtia": NEVER,
    "is_nested": NEVER,
    "is_pinned": is_pinned,
    "is_quantized": NEVER,
    "is_same_size": is_same_size,
    "is_set_to": is_set_to,
    "is_signed": is_signed,
    "is_vulkan": NEVER,
    "is_xla": NEVER,
    "is_xpu": NEVER,
    "itemsize": property(element_size),
    "name": property(lambda self: None, doc="None, as of PyTorch's tensors."),
    "nbytes": property(nbytes),
    "ndimension": dim,
    "nelement": numel,
    "numel": numel,
    "size": size,
    "storage": storage,
    "storage_offset": storage_offset,
    "stride": stride,
    "untyped_storage": untyped_storage,
}
