"""Making tensors, from data and from nothing. In the likeness of others: like.py; sequences of numbers: ranges.py.

All of them take `dtype` (a dtype, a NumPy scalar type, or Python's bool, int, float, complex), `device` and
`requires_grad`; `pin_memory` and `layout` are accepted as PyTorch accepts them, for the only values that exist here.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, namespace_of
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.large_arrays import fill
from undertow.modes import current
from undertow.ops.arguments import nested_data as foreign
from undertow.ops.arguments.sizes import as_int
from undertow.ops.create.convert import convert
from undertow.ops.declare import composite
from undertow.ops.views.clone import clone
from undertow.tensor import LEAF, Size, Tensor, current_edge, share_memory
from undertow.tensor.memory_formats import as_memory_format, in_format, preserve_format
from undertow.tensor.torch_function import DisableTorchFunction

if TYPE_CHECKING:
    from undertow.backend.interface import Device

# ---- arguments


def leaf(array: Array, xp: Namespace, requires_grad: bool) -> Tensor:
    """A new tensor without history."""
    if requires_grad and not dtypes.is_differentiable(array.dtype):
        raise RuntimeError(
            "Only Tensors of floating point and complex dtype can require gradients. "
            f"This one would be {array.dtype}: pass a floating-point dtype, or leave requires_grad out."
        )
    if xp is not cpu and type(array) is cpu.ndarray:
        array = xp.asarray(array)
    tensor = Tensor(array, xp, LEAF if requires_grad else None)
    tensor._extra = current().extra
    return tensor


def float_dtype(dtype: DType | None, function: str) -> DType:
    """The dtype asked for, or the default float."""
    return dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype, function)


def as_shape(function: str, shape: Sequence[int], size: int | Sequence[int] | None = None) -> tuple[int, ...]:
    """Sizes given one by one, as one sequence, or as `size=`."""
    if size is not None:
        shape = size if isinstance(size, (tuple, list)) else (size,)
    elif not shape:
        raise TypeError(f'{function}() missing 1 required positional arguments: "size"')
    elif len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = shape[0]
    for n in shape:
        if type(n) is not int or n < 0:
            return check_shape(function, shape)
    return tuple(shape)


def check_shape(function: str, shape: Sequence[int]) -> tuple[int, ...]:
    sizes = []
    for position, n in enumerate(shape, 1):
        if (isinstance(n, bool) and position == 1) or not hasattr(n, "__index__"):
            raise TypeError(
                f"{function}(): argument 'size' must be tuple of ints, not {type(n).__name__} at position {position}"
            )
        sizes.append(operator.index(n))
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"{function}: Dimension size must be non-negative, got {sizes}")
    return tuple(sizes)


def sequence_shape(function: str, size: int | Sequence[int]) -> tuple[int, ...]:
    """A `size` that must be a sequence."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"{function}(): argument 'size' must be tuple of ints, not {type(size).__name__}")
    return as_shape(function, (), size)


def as_number(function: str, name: str, value: Any) -> Any:
    """A Python number from a number, a NumPy scalar, or a 0-d tensor that no gradient is asked of."""
    if isinstance(value, cpu.generic) and dtypes.is_storable(value.dtype):
        return value.item()
    if isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, Tensor) and value._array.ndim == 0 and current_edge(value) is None:
        return value._array.item()
    cure = " (a 0-d tensor must not require grad: detach() it)" if isinstance(value, Tensor) else ""
    raise TypeError(f"{function}(): argument '{name}' must be Number, not {type(value).__name__}{cure}")


def fit(number: Any, dtype: DType) -> Any:
    """The number, if the dtype can hold it; floats lose their fraction in an integer dtype."""
    if isinstance(number, complex) and dtype.kind not in "cb":
        if number.imag:
            raise RuntimeError(f"value cannot be converted to type {dtype} without overflow: {number} is complex")
        number = number.real
    if dtype.kind not in "iu" or (type(number) is int and 0 <= number < 128):
        return number
    if not math.isfinite(number):
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow: {number}")
    return foreign.build_integers(int(number), dtype, {float})[()]


# ---- from data


@composite
def tensor(
    data: Any,
    *,
    dtype: DType = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with a copy of the data: numbers, nested sequences, arrays, or another tensor.

    Python floats take the default dtype, integers int64; arrays and NumPy numbers keep their dtype.

    >>> import undertow as ut
    >>> ut.tensor([[1.0, 2.0], [3.0, 4.0]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype, "tensor")
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than undertow.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
    return new_from(data, dtype, device, requires_grad)


def new_from(data: Any, dtype: DType | None, device: Device | None, requires_grad: bool) -> Tensor:
    if isinstance(data, Tensor):
        xp = data._xp if device is None else namespace_of(device)
        array = data._array if xp is data._xp else xp.take_over(data._array)
        return leaf(xp.array(array, dtype=dtype), xp, requires_grad)
    if hasattr(data, "__cuda_array_interface__"):
        return new_from(on_its_gpu(data), dtype, device, requires_grad)
    xp = namespace_of(device)
    array = foreign.read(data, dtype)
    return leaf(array if xp is cpu else xp.asarray(array), xp, requires_grad)


@composite
def as_tensor(data: Any, dtype: DType = None, device: Any = None) -> Tensor:
    """The data as a tensor, sharing its memory where that is possible; a tensor keeps its history.

    >>> import undertow as ut
    >>> t = ut.tensor([1, 2])
    >>> ut.as_tensor(t) is t
    True
    """
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype, "as_tensor")
    if isinstance(data, Tensor):
        return convert(data, dtype, data._xp if device is None else namespace_of(device))
    if hasattr(data, "__cuda_array_interface__"):
        shared = on_its_gpu(data)
        return convert(shared, dtype, shared._xp if device is None else namespace_of(device))
    xp = namespace_of(device)
    if xp is cpu and isinstance(data, cpu.ndarray):
        array = foreign.adopt(data)
        return share(array if dtype is None else cpu.astype(array, dtype, copy=False))
    return new_from(data, dtype, device, False)


def on_its_gpu(data: Any) -> Tensor:
    """A tensor on memory of a GPU that another library has."""
    array = import_module("undertow.backend.cuda.exchange").from_interface(data)
    return leaf(array, array.namespace, False)


def share(array: Array) -> Tensor:
    """A tensor on the array's own memory; a read-only array stays read-only."""
    if not array.flags.writeable:
        warnings.warn(
            "The given NumPy array is not writable, and undertow keeps it so: writing to the tensor will fail. You "
            "may want to copy the array to protect its data or make it writable before converting it to a tensor.",
            UserWarning,
            stacklevel=3,
        )
    return leaf(array, cpu, False)


@composite
def from_numpy(ndarray: Any) -> Tensor:
    """A tensor that shares the memory of a NumPy array.

    ndarray  the array; it must be writable if the tensor is to be changed

    >>> import numpy as np, undertow as ut
    >>> a = np.zeros(2)
    >>> t = ut.from_numpy(a)
    >>> a[0] = 7
    >>> t
    tensor([7., 0.], dtype=undertow.float64)
    """
    if not isinstance(ndarray, cpu.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return share(foreign.adopt(ndarray))


@composite
def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """The object as a tensor. copy: True always, None if needed, False never (ValueError if it would be needed).

    requires_grad None keeps what a tensor has, False detaches it.

    obj  a tensor, an array, a buffer, a number, or nested lists of numbers

    >>> import undertow as ut
    >>> ut.asarray([1.0, 2.0])
    tensor([1., 2.])
    """
    wanted = None if dtype is None else dtypes.as_dtype(dtype, "asarray")
    if copy is False:
        _check_alias(obj, wanted)
    if isinstance(obj, Tensor):
        return _asarray_of_tensor(obj, wanted, device, bool(copy), requires_grad)
    result = new_from(obj, wanted, device, False) if copy else as_tensor(obj, wanted, device)
    return leaf(result._array, result._xp, bool(requires_grad))


def _check_alias(obj: Any, dtype: DType | None) -> None:
    """Raise unless a tensor of that dtype can share the object's memory."""
    if not isinstance(obj, (Tensor, cpu.ndarray)):
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    if dtype is not None and dtype != obj.dtype:
        raise ValueError(f"can't alias tensor with dtype '{obj.dtype}' into dtype '{dtype}'.")


def _asarray_of_tensor(
    obj: Tensor, dtype: DType, device: Device | str | int | None, copy: bool, requires_grad: bool | None
) -> Tensor:
    result = as_tensor(obj, dtype, device)
    if copy and result is obj:
        result = clone(obj)
    if requires_grad is None or requires_grad == (current_edge(result) is not None):
        return result
    alias = leaf(result._array, result._xp, requires_grad)
    share_memory(result, alias)
    return alias


@composite
def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-d tensor on the memory of a buffer (bytearray, memoryview, array.array, ...).

    count   how many elements; -1: all that are there
    offset  at which byte the first begins

    >>> import undertow as ut
    >>> ut.frombuffer(bytearray(8), dtype=ut.int32)
    tensor([0, 0], dtype=undertow.int32)
    """
    array = cpu.frombuffer(buffer, dtype=dtypes.as_dtype(dtype, "frombuffer"), count=count, offset=offset)
    shared = share(array)
    return leaf(shared._array, cpu, True) if requires_grad else shared


@composite
def scalar_tensor(
    s: Any,
    *,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    **ignored: Any,
) -> Tensor:
    """A 0-d tensor of a number, in the default float dtype unless another is given.

    s          the number
    **ignored  what PyTorch's takes besides (`layout`, `pin_memory`), without effect

    >>> import undertow as ut
    >>> ut.scalar_tensor(2.0)
    tensor(2.)
    """
    return full((), s, dtype=float_dtype(dtype, "scalar_tensor"), device=device, requires_grad=requires_grad)


# ---- from nothing


@composite(out=True)
def empty(
    *shape: Any,
    size: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor whose memory is not initialised.

    *shape  the sizes, one by one or as one list
    size    the same by name

    >>> import undertow as ut
    >>> ut.empty(2, 3).shape
    undertow.Size([2, 3])
    """
    xp, sizes = namespace_of(device), as_shape("empty", shape, size)
    if memory_format is None:
        return leaf(xp.empty(sizes, float_dtype(dtype, "empty")), xp, requires_grad)
    if memory_format is preserve_format:
        raise RuntimeError("empty(): there is nothing whose order memory_format=preserve_format could keep")
    memory = xp.empty(math.prod(sizes), float_dtype(dtype, "empty"))
    return leaf(in_format(memory, sizes, as_memory_format(memory_format)), xp, requires_grad)


@composite(out=True)
def zeros(
    *shape: Any,
    size: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of zeros.

    *shape  the sizes, one by one or as one list
    size    the same by name

    >>> import undertow as ut
    >>> ut.zeros(2, 3).shape, ut.zeros((2, 3)).shape
    (undertow.Size([2, 3]), undertow.Size([2, 3]))
    """
    xp = namespace_of(device)
    return leaf(xp.zeros(as_shape("zeros", shape, size), float_dtype(dtype, "zeros")), xp, requires_grad)


@composite(out=True)
def ones(
    *shape: Any,
    size: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of ones.

    *shape  the sizes, one by one or as one list
    size    the same by name

    >>> import undertow as ut
    >>> ut.ones(2)
    tensor([1., 1.])
    """
    xp = namespace_of(device)
    return leaf(xp.ones(as_shape("ones", shape, size), float_dtype(dtype, "ones")), xp, requires_grad)


@composite(out=True)
def full(
    size: int | Sequence[int],
    fill_value: Any,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of one number; the dtype follows from the number unless it is given.

    size  the shape, a list of sizes

    >>> import undertow as ut
    >>> ut.full((2,), 3)
    tensor([3, 3])
    """
    xp = namespace_of(device)
    number = as_number("full", "fill_value", fill_value)
    if dtype is None:
        dtype = foreign.dtype_of_number(number)
    dtype = dtypes.as_dtype(dtype, "full")
    array = xp.empty(sequence_shape("full", size), dtype)
    fill(array, fit(number, dtype))
    return leaf(array, xp, requires_grad)


@composite
def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor whose memory is not initialised, with these strides (in elements).

    size, stride  one number for each dimension

    >>> import undertow as ut
    >>> ut.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    xp = namespace_of(device)
    dtype = float_dtype(dtype, "empty_strided")
    shape, strides = sequence_shape("empty_strided", size), tuple([operator.index(s) for s in stride])
    if len(shape) != len(strides):
        raise RuntimeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(strides)})"
        )
    if any(s < 0 for s in strides):
        raise RuntimeError(f"Storage size calculation overflowed: strides must not be negative, got {strides}")
    needed = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    in_bytes = [s * dtype.itemsize for s in strides]
    return leaf(xp.lib.stride_tricks.as_strided(xp.empty(needed, dtype), shape, in_bytes), xp, requires_grad)


@composite(out=True)
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The identity matrix, n by n or n by m.

    >>> import undertow as ut
    >>> ut.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    xp = namespace_of(device)
    rows, columns = [None if k is None else as_int("eye", name, k) for name, k in (("n", n), ("m", m))]
    for name, k in (("n", rows), ("m", columns)):
        if k is not None and k < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {k}")
    return leaf(xp.eye(rows, columns, dtype=float_dtype(dtype, "eye")), xp, requires_grad)


# ---- the constructor


def from_sizes_or_data(*arguments: Any) -> Tensor:
    """What `Tensor(...)` makes of its arguments, as PyTorch's does: sizes, or data in the default dtype."""
    given = [a for a in arguments if a is not None]
    sizes = given[0] if len(given) == 1 and isinstance(given[0], Size) else given
    if all([type(n) is int for n in sizes]):
        made = empty(*sizes) if sizes else empty(0)
    elif len(given) > 1:
        raise TypeError(
            f"Tensor() received an invalid combination of arguments, {', '.join(type(a).__name__ for a in given)}: it "
            "takes sizes, or data. Use undertow.tensor(data, dtype=..., requires_grad=...)."
        )
    elif isinstance(given[0], Tensor):
        with DisableTorchFunction():  # classes are not asked about it: objects may be half made
            made = given[0].view_as(given[0])
    elif isinstance(given[0], float | complex | bool):
        raise TypeError(f"Tensor(): data must be a sequence (got {type(given[0]).__name__}). Use undertow.tensor.")
    else:
        made = tensor(given[0], dtype=dtypes.default_dtype())
    return made
