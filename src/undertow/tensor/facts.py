"""From tensors to Python and NumPy values, and what a tensor says about its memory.

Plain functions with the tensor first; `methods.py` makes them methods. Conversions that give another tensor, and so
have a derivative, are operations: see ops/create/to_dtype_and_device.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes
from undertow.backend.copies import copied
from undertow.backend.interface import Array
from undertow.backend.memory_order import inverse, is_channels_last, nesting, shown_strides
from undertow.backend.public_dtypes import PREFIX
from undertow.compiled import twin
from undertow.errors import warn_once
from undertow.modes import current
from undertow.tensor.memory import Storage, byte_offset, memory_of
from undertow.tensor.size import Size
from undertow.tensor.tensor import Tensor, current_edge

if TYPE_CHECKING:
    from undertow.backend.interface import Device


class memory_format:
    """The order in which a tensor's elements lie in memory: an argument of `clone`, `contiguous`, `empty_like`, ...

    >>> import undertow as ut
    >>> ut.channels_last
    undertow.channels_last
    """

    __slots__ = ("dims", "name", "order")

    def __init__(self, name: str, order: str, dims: tuple[int, ...] | None = None) -> None:
        self.name = name
        self.order = order  # NumPy's letter for it
        self.dims = dims  # the dimensions from the outermost to the innermost, where that is not their own order

    def __repr__(self) -> str:
        return f"{PREFIX[0]}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format", "C")
preserve_format = memory_format("preserve_format", "K")
channels_last = memory_format("channels_last", "C", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", "C", (0, 2, 3, 4, 1))


def as_memory_format(format: memory_format | None) -> memory_format:
    """The format; None keeps the order there is."""
    if format is None:
        return preserve_format
    if not isinstance(format, memory_format):
        raise TypeError(
            "memory_format must be one of undertow.contiguous_format, preserve_format, channels_last and "
            f"channels_last_3d, got {format!r}"
        )
    return format


def is_laid_out(array: Array, format: memory_format | None) -> bool:
    """Whether the array's elements lie in the order of the format, without gaps."""
    format = as_memory_format(format)
    if format.dims is None:
        return bool(array.flags.c_contiguous)
    return array.ndim == len(format.dims) and lies_in(array, format.dims)


def lies_in(array: Array, dims: Sequence[int]) -> bool:
    """Whether the elements lie without gaps, the dimensions nested from the outermost to the innermost."""
    span = array.itemsize
    for dim in reversed(dims):
        if array.shape[dim] != 1 and array.strides[dim] != span:
            return not array.size
        span *= array.shape[dim]
    return True


def format_of(array: Array) -> memory_format:
    """The format that the array's strides are taken for. Where two would do, it is rows; gaps do not matter."""
    if not is_channels_last(array):
        return contiguous_format
    return channels_last if array.ndim == 4 else channels_last_3d


def has_strides_of(array: Array, format: memory_format) -> bool:
    """Whether the strides are those of new memory of this format, also along dimensions of size 1."""
    span, strides = array.itemsize, [0] * array.ndim
    for dim in reversed(dims_of(format, array.ndim)):
        strides[dim], span = span, span * max(array.shape[dim], 1)
    return shown_strides(array) == tuple(strides)


def dims_of(format: memory_format, ndim: int) -> tuple[int, ...]:
    """The dimensions of a tensor of this format, from the outermost to the innermost."""
    if format.dims is None:
        return tuple(range(ndim))
    if ndim != len(format.dims):
        raise RuntimeError(
            f"required rank {len(format.dims)} tensor to use {format.name} format; this one has {ndim} dimensions"
        )
    return format.dims


def in_format(memory: Array, shape: Sequence[int], format: memory_format) -> Array:
    """Consecutive elements under a shape, the dimensions nested as the format has them."""
    dims = dims_of(format, len(shape))
    return memory.reshape([shape[dim] for dim in dims]).transpose(inverse(dims))


def copy_laid_out(array: Array, format: memory_format | None) -> Array:
    """A copy of the array whose elements lie in the order of the format."""
    format = as_memory_format(format)
    if format.dims is None:
        return made_in_order(array, format.order, copied)
    dims = dims_of(format, array.ndim)
    return copied(array.transpose(dims), "C").transpose(inverse(dims))


def made_in_order(array: Array, order: str, make: Callable[[Any, str], Any]) -> Array:
    """`make(array, order)`, but for order "K" (as it is) an expanded dimension is nested where it stands.

    NumPy nests dimensions of stride 0 innermost; then a copy of an expanded tensor is contiguous in none of its views.
    """
    if order != "K" or 0 not in array.strides:
        return make(array, order)
    dims = nesting(array.shape, [array.strides])
    return make(array.transpose(dims), "C").transpose(inverse(dims))


# ---- to Python numbers


def item(self: Tensor) -> Any:
    """The single element as a Python number; no gradient flows through it.

    >>> import undertow as ut
    >>> ut.tensor([2.5]).item()
    2.5
    """
    if self._array.size != 1:
        raise RuntimeError(f"a Tensor with {self._array.size} elements cannot be converted to Scalar")
    return self._array.item()


def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers (a number for a 0-d tensor).

    >>> import undertow as ut
    >>> ut.tensor([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return self._array.tolist()


def python_number(self: Tensor, complex_: bool = False) -> Any:
    """The single element, for `float(t)` and its kin: a real number unless `complex_`."""
    if self._array.size != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    if current_edge(self) is not None:
        warn_once(
            "scalar-of-tensor-that-requires-grad",
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
            "Consider using tensor.detach() first.",
        )
    number = self._array.item()
    if not complex_ and isinstance(number, complex):
        if number.imag:
            raise RuntimeError(
                f"value cannot be converted to type double without overflow: {number} has an imaginary part. "
                "Use complex(tensor), or tensor.real."
            )
        return number.real
    return number


def to_bool(self: Tensor) -> bool:
    """`bool(tensor)`, of a single element.

    >>> import undertow as ut
    >>> ut.is_nonzero(ut.tensor([1.0]))
    True
    """
    size = self._array.size
    if size != 1:
        what = "no values" if size == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
    return bool(self._array.item())


def to_int(self: Tensor) -> int:
    """`int(tensor)`; ValueError for NaN, OverflowError for infinity."""
    return int(python_number(self))


def to_float(self: Tensor) -> float:
    """`float(tensor)`."""
    return float(python_number(self))


def to_complex(self: Tensor) -> complex:
    """`complex(tensor)`."""
    return complex(python_number(self, complex_=True))


def to_index(self: Tensor) -> int:
    """What makes `values[tensor]` and `range(tensor)` work: an integer of a single element."""
    if self._array.size != 1 or self._array.dtype.kind not in "iub":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(self._array.item())


# ---- to arrays


def numpy(self: Tensor, *, force: bool = False) -> Array:
    """The tensor as a NumPy array that shares its memory.

    force  allow tensors that require grad: their history is left behind

    >>> import undertow as ut
    >>> ut.ones(2).numpy()
    array([1., 1.], dtype=float32)
    """
    if not force and current().grad_enabled and current_edge(self) is not None:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if self._xp.device.type != "cpu":
        if force:
            return cpu.take_over(self._array)
        raise TypeError(
            f"can't convert {self._xp.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )
    return self._array.view()  # a view, so that setting its shape cannot change the tensor's


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
    "__bool__": to_bool,
    "__complex__": to_complex,
    "__contains__": contains,
    "__float__": to_float,
    "__hash__": object.__hash__,  # by identity, because `==` compares elements
    "__index__": to_index,
    "__int__": to_int,
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
    "is_nonzero": to_bool,
    "is_pinned": is_pinned,
    "is_quantized": NEVER,
    "is_same_size": is_same_size,
    "is_set_to": is_set_to,
    "is_signed": is_signed,
    "is_vulkan": NEVER,
    "is_xla": NEVER,
    "is_xpu": NEVER,
    "item": item,
    "itemsize": property(element_size),
    "name": property(lambda self: None, doc="None, as of PyTorch's tensors."),
    "nbytes": property(nbytes),
    "ndimension": dim,
    "nelement": numel,
    "numel": numel,
    "numpy": numpy,
    "size": size,
    "storage": storage,
    "storage_offset": storage_offset,
    "stride": stride,
    "tolist": tolist,
    "untyped_storage": untyped_storage,
}
