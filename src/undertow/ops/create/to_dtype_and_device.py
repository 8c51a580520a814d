"""Tensors into other tensors: dtype, device, pinned memory; iteration. Functions that `methods.py` makes methods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertow.backend import Device, cpu, dtypes, namespace_of
from undertow.backend.interface import DType, non_blocking
from undertow.ops.create.convert import convert
from undertow.ops.create.typed_tensors import TensorType
from undertow.ops.views.clone import clone
from undertow.ops.views.splitting import unbind
from undertow.scopes import call_with
from undertow.tensor import Tensor
from undertow.tensor.facts import type_name
from undertow.tensor.memory_formats import as_memory_format, format_of, has_strides_of, preserve_format

if TYPE_CHECKING:
    from undertow.tensor.memory_formats import memory_format


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The tensor with another dtype and/or on another device: itself if nothing changes, else a recorded copy.

    to(dtype), to(device), to(device, dtype), to(other), each with non_blocking=False, copy=False, memory_format=None

    *args, **kwargs  as these four forms say

    >>> import undertow as ut
    >>> x = ut.ones(2)
    >>> x.to(ut.float64).dtype == ut.float64, x.to("cpu") is x
    (True, True)
    """
    if len(args) == 1 and not kwargs:
        first = args[0]
        kind = type(first)
        if kind is dtypes.dtype:
            return convert(self, dtypes.as_dtype(first, "to"), self._xp)
        if kind is str or kind is Device:
            return convert(self, None, namespace_of(first))
        if isinstance(first, Tensor):
            return convert(self, first._array.dtype, first._xp)
    elif not args and kwargs.keys() <= DEVICE_AND_DTYPE:
        return _to_both(self, **kwargs)
    dtype, device, copy, format, goes_on = to_all_arguments(*args, **kwargs)
    xp = self._xp if device is None else namespace_of(device)
    dtype = None if dtype is None else dtypes.as_dtype(dtype, "to")
    result = call_with(non_blocking, True, convert, self, dtype, xp) if goes_on else convert(self, dtype, xp)
    if result is self and copy:
        result = clone(self)
    return in_order(result, format, self)


DEVICE_AND_DTYPE = frozenset({"device", "dtype"})


def _to_both(self: Tensor, device: Any = None, dtype: Any = None) -> Tensor:
    xp = self._xp if device is None else namespace_of(device)
    return convert(self, None if dtype is None else dtypes.as_dtype(dtype, "to"), xp)


def to_arguments(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """dtype, device, copy and memory format from any of the forms of `to`."""
    return to_all_arguments(*args, **kwargs)[:4]


def to_all_arguments(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any, bool]:
    """The same, and non_blocking."""
    first = args[0] if args else kwargs.pop("other", None)
    if isinstance(first, Tensor):
        names = ["other", "non_blocking", "copy"]
    elif args and not _is_device(first):
        names = ["dtype", "non_blocking", "copy"]
    else:
        names = ["device", "dtype", "non_blocking", "copy"]
    given = dict(zip(names, args, strict=False)) | kwargs
    unknown = set(given) - {"other", "device", "dtype", "non_blocking", "copy", "memory_format"}
    flags = [given.get(name, False) for name in ("non_blocking", "copy")]
    if len(args) > len(names) or unknown or not all(isinstance(flag, bool) for flag in flags):
        shown = ", ".join([*(type(a).__name__ for a in args), *(f"{k}={type(v).__name__}" for k, v in kwargs.items())])
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({shown}), but expected one of: (device, dtype), "
            "(dtype), (other), each with non_blocking=, copy=, memory_format="
        )
    if isinstance(first, Tensor):
        given |= {"dtype": first._array.dtype, "device": first._xp.device}
    return given.get("dtype"), given.get("device"), flags[1], given.get("memory_format"), flags[0]


def _is_device(value: Any) -> bool:
    return value is None or isinstance(value, (str, Device))


def in_order(tensor: Tensor, format: memory_format | None, source: Tensor) -> Tensor:
    """The tensor in the memory format asked for.

    Where nothing was converted, all that does not lie with its channels last counts as contiguous, as in PyTorch.
    """
    format = as_memory_format(format)
    if format is preserve_format:
        return tensor
    array = tensor._array
    is_there = format_of(array) is format if tensor is source else has_strides_of(array, format)
    return tensor if is_there else clone(tensor, memory_format=format)


def _caster(name: str, dtype: DType) -> Callable[..., Tensor]:
    """`tensor.float()` and its kin."""

    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        found = convert(self, dtype, self._xp)
        return found if memory_format is None else in_order(found, memory_format, self)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"The tensor as {dtype}: itself if it is that already.\n\nExample: `ut.tensor([0, 2]).{name}()`"
    return cast


CASTS = {
    "bool": dtypes.bool_, "byte": dtypes.uint8, "char": dtypes.int8, "short": dtypes.int16, "int": dtypes.int32,
    "long": dtypes.int64, "half": dtypes.float16, "float": dtypes.float32, "double": dtypes.float64,
    "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}  # fmt: skip


def bfloat16(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor as bfloat16: itself if it is that already.

    >>> import undertow as ut
    >>> ut.ones(1).bfloat16()
    tensor([1.], dtype=undertow.bfloat16)
    """
    return in_order(convert(self, dtypes.bfloat16(), self._xp), memory_format, self)


def chalf(self: Tensor, memory_format: Any = None) -> Tensor:
    """Complex numbers of two halves, which do not exist here: refused, with what to use instead.

    >>> import undertow as ut
    >>> ut.ones(1).cfloat()
    tensor([1.+0.j])
    """
    raise NotImplementedError('"chalf" not implemented: NumPy has no complex numbers of 32 bits. Use x.cfloat().')


_DTYPE_OF_TYPE = {name: dtype for dtype, name in dtypes.TENSOR_TYPE_NAMES.items()}


def _type_(self: Tensor, dtype: DType | None = None, non_blocking: bool = False, **ignored: Any) -> Any:
    """Without argument the legacy type name ('undertow.FloatTensor'); with a dtype or such a name, the cast tensor.

    non_blocking  accepted, without effect
    **ignored     accepted, without effect

    >>> import undertow as ut
    >>> ut.ones(1).type(), ut.ones(1).type(ut.int64)
    ('undertow.FloatTensor', tensor([1]))
    """
    if dtype is None:
        return type_name(self)
    if isinstance(dtype, str):
        dtype = dtype_of_type_name(dtype)
    elif isinstance(dtype, TensorType):
        dtype = dtype.dtype
    elif dtype is Tensor:  # which PyTorch takes for the type of new tensors
        dtype = dtypes.default_dtype()
    return convert(self, dtypes.as_dtype(dtype, "type"), self._xp)


def dtype_of_type_name(name: str) -> DType:
    package, _, last = name.rpartition(".")
    if package in ("undertow", "torch") and last == "BFloat16Tensor":
        return dtypes.bfloat16()
    if package not in ("undertow", "torch") or last not in _DTYPE_OF_TYPE:
        raise ValueError(f"invalid type: '{name}'")
    return _DTYPE_OF_TYPE[last]


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor with the dtype and on the device of another.

    other  the tensor that has the dtype

    >>> import undertow as ut
    >>> ut.ones(1).type_as(ut.tensor([1]))
    tensor([1])
    """
    return convert(self, other._array.dtype, other._xp)


def _cpu_(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor on the CPU: itself if it is there already.

    >>> import undertow as ut
    >>> ut.ones(2).cpu().device
    device(type='cpu')
    """
    return in_order(convert(self, None, cpu), memory_format, self)


def cuda(
    self: Tensor, device: Device | str | int | None = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
    """The tensor on a GPU, if there is one.

    non_blocking  whether the program may go on before the copy is done, between pinned memory and a GPU

    >>> import undertow as ut
    >>> x = ut.ones(2)
    >>> if ut.cuda.is_available():
    ...     x = x.cuda()
    """
    device = "cuda" if device is None else Device("cuda", device) if isinstance(device, int) else device
    return to(self, device, non_blocking=non_blocking, memory_format=memory_format)


def _pages() -> Any:
    namespace_of("cuda")  # RuntimeError with the reason, where there is no GPU
    return import_module("undertow.backend.cuda.pinned")


def pin_memory(self: Tensor, device: Device | str | int | None = None) -> Tensor:
    """The tensor in pinned memory of the host, from which `to("cuda", non_blocking=True)` copies beside the program.

    It needs a GPU, whose driver gives that memory. A tensor that is pinned is returned as it is.

    >>> import undertow as ut
    >>> x = ut.ones(2)
    >>> if ut.cuda.is_available():
    ...     x = x.pin_memory().to("cuda", non_blocking=True)
    """
    if self._xp is not cpu:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    pages = _pages()
    if pages.is_pinned(self._array):
        return self
    copy = clone(self)
    copy._array = pages.pinned(copy._array)  # nobody has seen it yet
    return copy


def is_pinned(self: Tensor, device: Device | str | int | None = None) -> bool:
    """Whether the tensor is in pinned memory of the host.

    >>> import undertow as ut
    >>> ut.ones(1).is_pinned()
    False
    """
    pages = sys.modules.get("undertow.backend.cuda.pinned")  # nothing is, before a GPU was used
    return pages is not None and self._xp is cpu and bool(pages.is_pinned(self._array))


def record_stream(self: Tensor, stream: Any) -> None:
    """Say that a stream works with this tensor, whose memory belongs to another, and is to be left alone until then.

    Without it, memory is handed out again on the stream it was made on as soon as nobody has the tensor any more.

    >>> import undertow as ut
    >>> ut.ones(2, device="sim:0").record_stream(ut.sim.Stream("sim:0"))
    """
    stream.keep(self._array)


def _iterate(self: Tensor) -> Iterator[Tensor]:
    """`iter(tensor)`: over its slices along the first dimension."""
    if self._array.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(unbind(self, 0))


#: attribute -> function; `methods.py` puts them on Tensor
METHODS: dict[str, Callable[..., Any]] = {name: _caster(name, dtype) for name, dtype in CASTS.items()}
METHODS |= {
    "__iter__": _iterate,
    "bfloat16": bfloat16,
    "chalf": chalf,
    "cpu": _cpu_,
    "cuda": cuda,
    "is_pinned": is_pinned,
    "pin_memory": pin_memory,
    "record_stream": record_stream,
    "to": to,
    "type": _type_,
    "type_as": type_as,
}
